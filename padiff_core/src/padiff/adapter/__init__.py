"""Define what an adapter implements, and what adapters are built from: the one door for their authors.

The core speaks to a framework through these classes alone. Values cross as numpy arrays in the framework's
own precision (bfloat16 and fp8 as ``ml_dtypes``); positions are dotted module paths, ``""`` for the root.
"""

from padiff.adapter._adapter import Adapter
from padiff.adapter._info import API_VERSION, CAPABILITIES, AdapterInfo
from padiff.adapter._listening import Hear, Hook, Listener
from padiff.adapter._memory import Extent, extent_of, shares_elements
from padiff.adapter._model import Model, Tape
from padiff.adapter._module import Module, Parameter
from padiff.adapter._tensor import Tensor

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "Adapter",
    "AdapterInfo",
    "Extent",
    "Hear",
    "Hook",
    "Listener",
    "Model",
    "Module",
    "Parameter",
    "Tape",
    "Tensor",
    "extent_of",
    "shares_elements",
]
