"""Hold what one run did as plain data: modules, parameters, and the tree of calls with their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.errors import InputError
from padiff.grouping import grouped
from padiff.trace._flow import Flow
from padiff.trace._passes import Passes
from padiff.trace._summary import Summary
from padiff.trace._values import ValueStore

Key = tuple[str, int]
"""What names a call in every run of a model: the path of its module, and which execution of that path it is."""


@attrs.frozen
class Slot:
    """The place of a tensor in a call's recorded arguments: its ``index``-th input leaf."""

    index: int


@attrs.frozen
class Text:
    """The place, in recorded arguments, of an object that is not plain data: how it reads."""

    text: str

    def __repr__(self) -> str:
        """Return how the object reads."""
        return self.text


@attrs.frozen
class SettingRecord:
    """A hyper-parameter as it was at a call."""

    value: Any
    """In the catalogue's convention."""
    spelled: str
    """The value, followed by the framework's own spelling where that reads differently."""


@attrs.frozen
class SteppedRecord:
    """What an optimizer steps some parameters with."""

    settings: dict[str, Any]
    """Hyper-parameters under the names that all frameworks share: see `Adapter.optimizer_settings`; and under ``steps``
    how many times it stepped within a recorded step, where that is more than once."""
    parameters: list[str] | None = None
    """Their paths; None for all of which nobody says."""


@attrs.frozen
class ModuleRecord:
    """A module of a model, or a function that a module's own code calls."""

    path: str
    class_name: str
    kind: str | None = None
    classes: tuple[str, ...] = ()
    """Qualified names of its class and of those that this one inherits from."""
    definition: tuple[str, int] | None = None
    """File and line of its forward."""
    operation: bool = False
    memory: str = "own"
    """Where what it gives lies: see `padiff.adapter.Module.memory`."""


@attrs.frozen
class ParameterRecord:
    """A parameter or buffer of a model: where it hangs and what it is like; its values stay at its side."""

    path: str
    paths: tuple[str, ...]
    """Every path under which the same parameter hangs: more than one where weights are tied."""
    dtype: str
    shape: tuple[int, ...]
    """In the framework's own layout."""
    buffer: bool = False
    trainable: bool = True


@attrs.define(eq=False)
class Leaf:
    """A tensor that a call took or gave.

    ``token`` names the tensor within its run: the same object, unchanged in place, has the same token everywhere.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    token: int
    differentiable: bool = False


@attrs.frozen
class Frame:
    """A calling frame; ``library`` is true for the framework's own files."""

    file: str
    line: int
    function: str
    start: int
    """First line of the function."""
    library: bool

    def __str__(self) -> str:
        """Return it as ``file:line in function``."""
        return f"{self.file}:{self.line} in {self.function}"


@attrs.define(eq=False)
class Call:
    """One execution of a module."""

    index: int
    module: ModuleRecord
    ordinal: int
    """Which execution of this path within the run, from 0."""
    parent: Call | None
    training: bool
    frames: tuple[Frame, ...] = ()
    """The calling frames, innermost first, without those that only pass a call on."""
    inputs: list[Leaf] = attrs.field(factory=list)
    outputs: list[Leaf] = attrs.field(factory=list)
    children: list[Call] = attrs.field(factory=list)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = attrs.field(factory=dict)
    """The arguments, each tensor replaced by a `Slot`, each object that is not plain data by a `Text`."""
    settings: Mapping[str, SettingRecord] = attrs.field(factory=dict)
    """The hyper-parameters as they were at this call."""
    sampled: bool | None = None
    """Whether its own code took random numbers, not that of a call inside; None where that is not seen."""
    casting: str | None = None
    """The type to which automatic casts turned what products took, where its outputs may not show it."""
    key: Key = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Name the call."""
        self.key = (self.module.path, self.ordinal)

    @property
    def path(self) -> str:
        """Return the module's path."""
        return self.module.path

    @property
    def leaf(self) -> bool:
        """Return whether no other module is called inside; operations may be."""
        return all(child.module.operation for child in self.children)

    @property
    def end(self) -> tuple[int, int]:
        """Return what sorts calls in the order in which they end: what is inside before what holds it."""
        return max(call.index for call in self.subtree()), -self.index

    def leaves(self, side: str) -> list[Leaf]:
        """Return the tensors that it takes (``input``) or gives (``output``)."""
        return self.inputs if side == "input" else self.outputs

    def subtree(self) -> Iterator[Call]:
        """Yield this call and all below it, in execution order."""
        yield self
        for child in self.children:
            yield from child.subtree()

    @property
    def top(self) -> Call:
        """Return the outermost call that it lies in, or itself."""
        *_, top = (self, *self.ancestors())
        return top

    def ancestors(self) -> Iterator[Call]:
        """Yield the enclosing calls, innermost first."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent


OF_PARAMETERS = ("weights", "updated", "buffers", "parameter_gradients")
"""What a `Trace` holds by the paths of parameters."""


@attrs.define(eq=False)
class Trace:
    """One run: its calls in execution order (the first is the root's) and what was recorded of its tensors."""

    store: ValueStore
    calls: list[Call] = attrs.field(factory=list)
    values: dict[int, int] = attrs.field(factory=dict)
    """Token -> key of the tensor's value."""
    gradients: dict[int, int] = attrs.field(factory=dict)
    """Token -> key of the tensor's complete gradient, over all consumers."""
    samples: dict[int, NDArray[np.float64]] = attrs.field(factory=dict)
    """Token -> a few of the tensor's elements, at positions that depend on its size alone."""
    outputs: list[NDArray[Any]] = attrs.field(factory=list)
    """The root's outputs, as its caller got them."""
    numbers: dict[str, NDArray[Any]] = attrs.field(factory=dict)
    """Path -> the number, or the array of numbers, that the root returned there and that is no tensor."""
    returned: str = ""
    """What the root returned, in words, where it holds no tensor."""
    loss: float | None = None
    start_seed: int | None = None
    """The seed of the random gradients that the backward pass started from; None where it started from others."""
    by_value: bool = False
    """Whether the gradients that the backward pass started from follow from the values of the outputs."""
    input_gradients: dict[int, NDArray[Any]] = attrs.field(factory=dict)
    """Index of an input of the root -> the gradient that reached it, behind every hook of the model."""
    parameter_gradients: dict[str, int] = attrs.field(factory=dict)
    """Parameter path -> key of its gradient, native layout."""
    buffers: dict[str, int] = attrs.field(factory=dict)
    """Path of a buffer, or of a weight that the forward changed -> key of its value after the run, native layout."""
    rewritten: list[str] = attrs.field(factory=list)
    """Paths of the weights that the model's own forward changed."""
    state: list[str] = attrs.field(factory=list)
    """The plain attributes of modules that held something else after the run."""
    rebuilt: list[str] = attrs.field(factory=list)
    """What modules keep of their weights in evaluation mode, and made anew when they were given others."""
    parameters: dict[str, ParameterRecord] = attrs.field(factory=dict)
    """Path -> what hangs there."""
    sampled: bool | None = None
    """Whether the run took random numbers; None where that is not seen."""
    recomputes: bool = False
    """Whether something in it is computed again in the backward pass."""
    flow: Flow | None = None
    """Which parameters' values reach which, where that was asked for and could be followed."""
    weights: dict[str, int] = attrs.field(factory=dict)
    """Path of a parameter or buffer -> key of its value before the run, native layout; of a recorded run alone."""
    updated: dict[str, int] = attrs.field(factory=dict)
    """The same after the step, behind the optimizer: what is known of it, of a recorded run alone."""
    stepped: list[SteppedRecord] = attrs.field(factory=list)
    """What the optimizer stepped parameters with; of a recorded run alone, and where it was given."""
    stepped_at: int | None = None
    """How many calls had begun when an optimizer first stepped; None where nobody says, or none did."""
    handed: dict[str, int] = attrs.field(factory=dict)
    """Path of a parameter -> key of what is known of the gradient that the optimizer stepped with, behind what a script
    did to it (clipping); of a recorded run alone, and where the optimizer was given."""
    arrived: dict[str, int] = attrs.field(factory=dict)
    """Path of a parameter -> key of the gradient that had arrived when the optimizer first stepped it, where more came
    behind that step; of a recorded run alone, and where the optimizer was given."""
    used: dict[str, int] = attrs.field(factory=dict)
    """The same of when it stepped it for the last time."""
    latest: dict[str, int] = attrs.field(factory=dict)
    """Path of a parameter -> key of the gradient that had arrived last when the optimizer first stepped it, where
    several had; of a recorded run alone, and where the optimizer was given."""
    passes: Passes | None = None
    """What each of several backward passes sent; of a recorded run alone."""
    added: dict[int, int] = attrs.field(factory=dict)
    """Token -> key of what the code around is still to add, and what the value holds; of a recorded run alone."""
    summaries: dict[int, Summary] = attrs.field(factory=dict)
    """Key, below 0, -> what is known of a value that was not kept itself."""

    @property
    def root(self) -> Call:
        """Return the call of the model itself."""
        return self.calls[0]

    @property
    def tops(self) -> list[Call]:
        """Return the calls that lie in no other one: those that a script makes itself."""
        return [call for call in self.calls if call.parent is None]

    @property
    def models(self) -> list[Call]:
        """Return the calls of the model by a script: of the module that it calls first."""
        return [call for call in self.tops if call.path == self.root.path]

    @property
    def trained(self) -> list[Call]:
        """Return those of `models` to whose outputs a gradient comes; all where none does."""
        calls = self.models
        return [call for call in calls if any(leaf.token in self.gradients for leaf in call.outputs)] or calls

    def add(self, call: Call) -> Call:
        """Add a call behind all others, and to what its parent called; return it."""
        self.calls.append(call)
        if call.parent is not None:
            call.parent.children.append(call)
        return call

    def value(self, leaf: Leaf) -> NDArray[Any] | None:
        """Return a leaf's recorded value, or None; never write to it."""
        return self._kept(self.values.get(leaf.token))

    def gradient(self, leaf: Leaf) -> NDArray[Any] | None:
        """Return a leaf's recorded gradient, or None where none reached it; never write to it."""
        return self._kept(self.gradients.get(leaf.token))

    def settings_by_path(self) -> dict[str | None, dict[str, Any]]:
        """Return what an optimizer stepped parameters with, by their paths; under None what it stepped others with."""
        found: dict[str | None, dict[str, Any]] = {}
        for one in self.stepped:
            for path in [None] if one.parameters is None else one.parameters:
                found.setdefault(path, one.settings)
        return found

    def _kept(self, key: int | None) -> NDArray[Any] | None:
        return None if key is None or key < 0 else self.store.get(key)

    def summarized(self, summary: Summary) -> int:
        """Keep what is known of a value in place of the value; return its key."""
        key = -1 - len(self.summaries)
        self.summaries[key] = summary
        return key

    def by_module(self) -> dict[str, list[Call]]:
        """Return the calls of each module, by its path, in execution order; those of operations are left out."""
        return grouped((call for call in self.calls if not call.module.operation), lambda call: call.path)

    def array(self, key: int) -> NDArray[Any]:
        """Return what the store keeps under a key; never write to it.

        Raises `InputError` for a value of which only a `Summary` was kept.
        """
        if key < 0:
            known = self.summaries.get(key)
            what = f"a value of {known.dtype}{list(known.shape)}" if known is not None else "a value"
            msg = f"{what} was not kept itself, but only a summary of it.\nHint: record with values='tensors'."
            raise InputError(msg)
        return self.store.get(key)


TRACE_RECORDS = (
    Call,
    Flow,
    Frame,
    Leaf,
    ModuleRecord,
    ParameterRecord,
    Passes,
    SettingRecord,
    Slot,
    SteppedRecord,
    Summary,
    Text,
    Trace,
)
"""The types of records that a trace is made of."""
