"""Define what an adapter implements, and what adapters are built from: the one door for their authors.

The core speaks to a framework through `Adapter`, `Model`, `Module`, `Parameter` and `Tensor` alone. Values cross as
numpy arrays in the framework's own precision (bfloat16 and fp8 as ``ml_dtypes``); positions are dotted module paths,
``""`` for the root. Nothing else of padiff needs to be imported by an adapter or its plugin.
"""

from padiff.adapter import dtypes, optimizers
from padiff.adapter._adapter import Adapter, AnyStepListener, StepListener, host_random_state
from padiff.adapter._contributions import Contribution, Metric, Reader, Renderer, SpecialTransfer
from padiff.adapter._info import API_VERSION, CAPABILITIES, AdapterInfo, hookimpl
from padiff.adapter._listening import Hear, Hook, Intercept, Listener, handed_on
from padiff.adapter._memory import Extent, array_at, extent_of, fitted, shares_elements
from padiff.adapter._model import Model, Tape
from padiff.adapter._module import Module, Parameter, class_names, qualified_name
from padiff.adapter._reduction import Reducer, Reduction
from padiff.adapter._tensor import Tensor
from padiff.adapter.delegating import DelegatingAdapter, DelegatingModel
from padiff.adapter.dtypes import Dtypes
from padiff.adapter.frameworks import CallsFunction, FrameworkAdapter, NativeTensor
from padiff.adapter.hooked import HookedModel, HookedModule
from padiff.adapter.interception import Detour
from padiff.adapter.recomputation import Recomputation, as_it_is, at_once, given_to, recomputed
from padiff.adapter.restoring import Attributes, machinery_of, replaced, switched
from padiff.adapter.trees import TensorParameter, TreeModel, walk
from padiff.adapter.versions import Offer, Offers
from padiff.errors import AdapterError, InputError, LiftError, NotOffered, UnwatchableModel
from padiff.kinds import (
    CATALOGUE,
    Habit,
    Part,
    Placement,
    Ranks,
    Rule,
    Setting,
    Spread,
    Unit,
    classes,
    conversions,
    spelling,
)
from padiff.numerics import Array, sketching
from padiff.pytree import leaves, map_leaves

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "CATALOGUE",
    "Adapter",
    "AdapterError",
    "AdapterInfo",
    "AnyStepListener",
    "Array",
    "Attributes",
    "CallsFunction",
    "Contribution",
    "DelegatingAdapter",
    "DelegatingModel",
    "Detour",
    "Dtypes",
    "Extent",
    "FrameworkAdapter",
    "Habit",
    "Hear",
    "Hook",
    "HookedModel",
    "HookedModule",
    "InputError",
    "Intercept",
    "LiftError",
    "Listener",
    "Metric",
    "Model",
    "Module",
    "NativeTensor",
    "NotOffered",
    "Offer",
    "Offers",
    "Parameter",
    "Part",
    "Placement",
    "Ranks",
    "Reader",
    "Recomputation",
    "Reducer",
    "Reduction",
    "Renderer",
    "Rule",
    "Setting",
    "SpecialTransfer",
    "Spread",
    "StepListener",
    "Tape",
    "Tensor",
    "TensorParameter",
    "TreeModel",
    "Unit",
    "UnwatchableModel",
    "array_at",
    "as_it_is",
    "at_once",
    "class_names",
    "classes",
    "conversions",
    "dtypes",
    "extent_of",
    "fitted",
    "given_to",
    "handed_on",
    "hookimpl",
    "host_random_state",
    "leaves",
    "machinery_of",
    "map_leaves",
    "optimizers",
    "qualified_name",
    "recomputed",
    "replaced",
    "shares_elements",
    "sketching",
    "spelling",
    "switched",
    "walk",
]
