"""What a side is asked and what it answers, as plain data: a worker process can serve it over a pipe.

A request holds pairs of calls. Whoever sends it to another process names a pair by its index in the request, a call by
its path and ordinal in the side's own last record, and a tensor of the reference by its token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from padiff.alignment import Pair
from padiff.forcing._checks import Check, Observed, Values
from padiff.numerics import Array
from padiff.recording import Task
from padiff.trace import Call, Key, Leaf

Slotted = tuple[Key, str, int]
"""What names a tensor of a call: the call, ``input`` or ``output``, and its index."""


@attrs.frozen
class Given:
    """What became of the loss and the optimizer that a user gave, named or as functions."""

    loss: bool = False
    loss_location: str | None = None
    """``file:line`` where the loss is defined."""
    optimizer: Mapping[str, Any] = attrs.field(factory=dict)
    """The optimizer's hyper-parameters, as `Adapter.optimizer_settings` names them."""
    stepped: Mapping[str, Mapping[str, Any]] | None = None
    """Path of a parameter that the optimizer steps -> its own hyper-parameters there; None where that is not known."""
    fits: bool = True
    """Whether the optimizer is one of this framework's, or a function that steps."""


@attrs.frozen(eq=False)
class ForceRequest:
    """A run of the whole candidate in which each matched call is fed from the reference."""

    task: Task
    pairs: Sequence[Pair]
    """The matched calls; the candidate's are those of the side's last record. Of the reference's calls what is read
    is the leaves of inputs and outputs, the module, and whether other modules are called inside."""
    values: Values
    """The reference's values and gradients of those leaves."""
    loose: Collection[int] = ()
    """Tokens of the reference whose gradients are neither compared nor put in."""


@attrs.frozen(eq=False)
class Shown:
    """What a run of the candidate showed that was fed, as data."""

    checks: Sequence[Check]
    consumers: Mapping[int, list[Pair]] = attrs.field(factory=dict)
    """Token of the candidate -> the calls that took the tensor."""
    own: Mapping[tuple[Key, int], Array] = attrs.field(factory=dict)
    """The candidate's own values of inputs that have no counterpart, or were kept: by call, and index."""
    unreached: frozenset[Key] = frozenset()
    """Keys of the pairs whose outputs got no gradient, though the reference's did."""
    starved: frozenset[Key] = frozenset()
    """Keys of the pairs whose own code made a tensor that got no gradient, though the reference's did."""
    samples: Mapping[Slotted, Array] = attrs.field(factory=dict)
    """By call, ``input`` or ``output``, and index: elements of what operations without counterpart took or gave."""
    loss: float | None = None
    numbers: Mapping[str, Array] = attrs.field(factory=dict)
    """Path -> the number, or the array of numbers, that the model returned there and that is no tensor."""
    reached: frozenset[str] = frozenset()
    """Paths of the candidate's parameters that got a gradient."""


@attrs.frozen(eq=False, kw_only=True)
class Fed(Shown):
    """What a forced run showed; what it left at parameters and buffers is read while the run is open.

    Every field is data but for the last two, which ask the side: ``gradient(path)`` and ``buffer(path)`` return a
    parameter's gradient (None where it got none) and a buffer's value after the run, in native layout.
    """

    input_gradients: Mapping[int, Array]
    """Index of an input of the root -> the gradient that reached it, behind every hook of the model."""
    input_tokens: Sequence[int]
    """The tokens of the root's inputs in this run: keys of ``consumers``."""
    rewritten: frozenset[str]
    """Paths of the weights that the model's own forward changed."""
    gradient: Callable[[str], Array | None]
    buffer: Callable[[str], Array | None]


@attrs.frozen(eq=False)
class ReplayRequest:
    """One call of a side, run by itself: the inputs it gets, and what the calls below it are fed."""

    call: Call
    """One of the side's last record: the side still has its module and the arguments that are not plain."""
    inputs: Sequence[Array | None]
    """By index of its input leaves; None where nothing is known."""
    outputs: Mapping[int, Leaf]
    """Index of an output -> the reference's leaf whose gradient the backward pass starts from."""
    pairs: Sequence[Pair]
    """The matched calls below it, this side's call as the candidate of each."""
    values: Values
    """What the calls below are fed with; and the gradients that start the backward pass."""
    truth: Values | None
    """What is compared with; without it nothing is."""
    dtype: str | None
    """What to hold the module in; None for its own."""
    seed: int
    backward: bool
    """Whether to run backward."""
    differentiable: Collection[int]
    """Which inputs can carry gradients, by index, as they do in one of the whole models, with or without a backward
    pass."""
    evaluating: bool
    """Whether to run in evaluation mode."""
    idle: Collection[Key]
    """Keys of calls, below this one, that only pass on their first input."""
    loose: Collection[int]
    settings: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """Path of a module below the call's own, which is empty -> hyper-parameters to set for the run, in the catalogue's
    convention."""
    watching: bool = False
    """Whether to note in which types the call's own code computes, as far as its functions are intercepted."""
    rounding: float = 0.0
    """By how many machine epsilons of its own type to disturb each floating value that a function gives in it."""
    kernels: int = 0
    """Number of the draw that disturbs what kernels give in it that compute in float32, in a wider type; 0 for none."""
    uncast: float = 0.0
    """Casts to floating types of a machine epsilon up to this are left out of its own code: of 1 those to all."""
    narrowing: bool = False
    """Whether functions without a kernel for the wider type compute in float32."""
    shown: Collection[Key] = ()
    """Keys of calls without counterpart, below this one, of which what they take and give is asked for."""
    put: Mapping[Slotted, Array] = attrs.field(factory=dict)
    """What such calls are given, or give, instead of their own values."""
    thawed: bool = False
    """Whether frozen parameters get gradients, too."""
    swapping: bool = False
    """Whether nothing is written over: another tensor takes the place of one that is wrong, where it is taken alone."""


@attrs.define(eq=False)
class Replayed:
    """What one call did by itself."""

    observed: Observed
    checks: list[Check]
    gradients: dict[str, Array]
    """Parameter path in the whole model -> gradient, native layout."""
    buffers: dict[str, Array]
    types: dict[str, list[str]] = attrs.field(factory=dict)
    """Floating type -> the functions that its own code computes in it; asked for."""
    shown: dict[Slotted, Array] = attrs.field(factory=dict)
    """What calls without counterpart took and gave, before anything was put in its place; asked for."""
    recorded: bool = False
    """Whether this is what a run recorded: of gradients that several calls may have sent it knows nothing then."""

    @property
    def tables(self) -> tuple[Mapping[Any, Array], ...]:
        """Return all that holds arrays."""
        seen = self.observed
        return seen.values, seen.spots, seen.gradients, self.gradients, self.buffers

    @property
    def size(self) -> int:
        """Return how many bytes its arrays take."""
        return sum(array.nbytes for table in self.tables for array in table.values())
