"""Hold what the codes of both sides show that make one value: which of their tensors are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from padiff.forcing import Slotted
from padiff.judging._forced._code import Code, Known, Value, given_to
from padiff.numerics import Array
from padiff.trace import Call

CALLS = 6
"""Operations, on either side, that are told as one difference."""
MOST = 12
"""The same of one side where the other has one: a fused operation."""


@attrs.frozen
class Slip:
    """Operations of both sides that make another value of the same: of one side there may be none."""

    reference: tuple[Call, ...]
    candidate: tuple[Call, ...]
    taker: Call | None = None
    """The candidate's call where it shows."""
    named: Mapping[str, Sequence[Sequence[str]]] = attrs.field(factory=dict)
    """By side, of each call: what its inputs are called, by the value that they hold."""
    taken: tuple[str, str] | None = None
    """Where neither side has one: what the taker is given on either side."""
    constant: bool = False
    """Whether that is made of no input."""
    round: tuple[int, int] = (0, 1)
    """Which call of this operation by this line it is on the candidate's side, and of how many."""


@attrs.frozen(eq=False)
class State:
    """What the candidate's code shows with some values put in."""

    put: Mapping[Slotted, Array]
    shown: Mapping[Slotted, Array]
    values: Mapping[int, Value]
    right: Mapping[int, Sequence[int]]
    """The candidate's tensors that the reference's code knows, or is given, with what hold the same there."""
    met: set[int]
    """The reference's that the candidate's code knows."""
    led: set[int]
    """Those of them that hold what the candidate's result is made of."""
    there: set[int]
    """Those that it has in their shape, element by element."""
    error: float
    result: Value | None


@attrs.frozen(eq=False)
class BothCodes:
    """The codes of both sides that make one value, and what the reference's tensors hold."""

    ours: Code
    theirs: Code
    reference: Mapping[int, Value]
    result: Value
    bound: float
    """Up to what relative L2 two values count as one."""
    known: Known = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Sort the reference's values."""
        object.__setattr__(self, "known", Known(self.reference, self.bound))

    def seen(
        self,
        put: Mapping[Slotted, Array],
        shown: Mapping[Slotted, Array],
        before: Mapping[int, Value],
        error: float,
        result: Value | None,
    ) -> State:
        """Return what a run of the candidate showed; what tensors hold as ``before`` is not measured again."""
        values = self.theirs.values(shown, put, before)
        right: dict[int, list[int]] = {}
        met: set[int] = set()
        led: set[int] = set()
        there: set[int] = set()
        for token, value in values.items():
            same = self.known.same(value)
            met |= {*same}
            if token in self.theirs.leading:
                led |= {*same}
                there |= {one for one in same if value.is_same_there(self.reference[one], self.bound)}
            if same or token in self.theirs.fed:
                right[token] = same
        return State(put, shown, values, right, met, led, there, error, result)

    def unlike(self, state: State) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
        """Return the calls on both sides that make the result of what both sides know, as it lies there."""
        firm = {token for token, same in state.right.items() if not self.is_turned(state.values[token], same)}
        ours = self.ours.region(self.ours.target, state.there | self.ours.fed, len(self.ours.calls))
        return ours or (), self.theirs.region(self.theirs.target, firm, len(self.theirs.calls)) or ()

    def is_turned(self, value: Value, same: Sequence[int]) -> bool:
        """Return whether the reference has a value in one shape with it, and only with its axes in another order.

        Axes of one are none: a mask for each head may have one for the batch, too.
        """
        alike = [one for token in same if _long(one := self.reference[token]) == _long(value)]
        return bool(alike) and not any(value.is_same_there(one, self.bound, ones=False) for one in alike)

    def are_alike(self, some: Sequence[Value], others: Sequence[Value], *, all_of: bool = False) -> bool:
        """Return whether each of some values is among others; with ``all_of`` each of these among the first, too."""

        def held(some: Sequence[Value], others: Sequence[Value]) -> bool:
            return all(any(one.is_same(other, self.bound) for other in others) for one in some)

        return held(some, others) and (not all_of or held(others, some))

    def taken(self, region: Sequence[Call]) -> list[Value]:
        """Return what some of the reference's calls take from elsewhere."""
        return [self.reference[token] for token in given_to(region) if token in self.reference]

    def names_of(self, ours: int, theirs: int) -> tuple[str, str]:
        """Return what two tensors are in words, of which the candidate takes the second where the first is right."""
        names = self.ours.name_of(ours), self.theirs.name_of(theirs)
        alike = names[0] == names[1]
        return (self.ours.name_of(ours, full=True), self.theirs.name_of(theirs, full=True)) if alike else names

    def slip(self, state: State, ours: tuple[Call, ...], theirs: tuple[Call, ...], taker: Call | None = None) -> Slip:
        """Return a slip in which what both sides' calls are given has one name: its shape, too, where that differs."""
        outside = given_to(ours), given_to(theirs)
        shapes = {leaf.token: leaf.shape for call in ours for leaf in call.inputs if leaf.token in outside[0]}
        letters = {token: chr(ord("a") + number % 26) for number, token in enumerate(shapes)}
        told: dict[int, str] = dict.fromkeys(outside[1], "other")
        turned: set[int] = set()
        for leaf in (leaf for call in theirs for leaf in call.inputs if leaf.token in outside[1]):
            same = next((token for token in state.right.get(leaf.token, ()) if token in letters), None)
            if same is not None and not self.is_turned(state.values[leaf.token], [same]):
                other = shapes[same] != leaf.shape
                turned |= {same} if other else set()
                told[leaf.token] = f"{letters[same]}{list(leaf.shape) if other else ''}"
        named = {token: f"{one}{list(shapes[token]) if token in turned else ''}" for token, one in letters.items()}
        sides = ("reference", ours, named), ("candidate", theirs, told)
        both = {
            side: [[names.get(leaf.token, "_") for leaf in call.inputs] for call in calls]
            for side, calls, names in sides
        }
        return Slip(ours, theirs, taker, both)


def _long(value: Value) -> tuple[int, ...]:
    """Return a value's extents, but for axes of one."""
    return tuple(extent for extent in value.array.shape if extent != 1)


def is_told(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Return whether calls of both sides are few enough to be told as one difference."""
    few, many = sorted((len(ours), len(theirs)))
    return many <= (MOST if few <= 1 else CALLS)
