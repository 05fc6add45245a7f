"""Propose values to put in the candidate's code, with which its result is right if one thing is wrong there."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from padiff.forcing import Slotted
from padiff.judging._forced._both_codes import MOST, BothCodes, Slip, State, is_told
from padiff.judging._forced._code import Value, given_to
from padiff.numerics import Array
from padiff.trace import Call, called_alike

_NUMBERS = 4
"""Numbers of a tensor that are shown."""
_NEAR = 64
"""Calls next to what both sides know, of those that are not alike."""


@attrs.frozen(eq=False)
class Try:
    """A value to put in, and what was wrong if that mends the result."""

    slip: Slip
    at: Slotted
    value: Value
    token: int | None = None
    """The reference's tensor that holds the value, if one does."""
    sure: bool = True
    """Whether that it mends the result shows something: the result itself does so anywhere."""
    alike: bool = False
    """Whether both sides' calls take the same."""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Return what sorts tries: those whose calls take the same, two calls first, then what says the least."""
        sizes = len(self.slip.reference), len(self.slip.candidate)
        return not self.sure, not self.alike, 0.5 if sizes == (1, 1) else sum(sizes)

    @property
    def line(self) -> object:
        """Return what it has in common with those in other calls of its code."""
        calls = (*self.slip.reference, None, *self.slip.candidate)
        return self.at[1:], tuple(call and (call.module.class_name, call.frames[:1]) for call in calls)


def tries(both: BothCodes, state: State) -> Iterator[Try]:
    """Yield what may be wrong in the calls that make the result of what both sides know."""
    ours, theirs = (calls[:_NEAR] for calls in both.unlike(state))
    made = [leaf.token for call in ours for leaf in (*call.inputs, *call.outputs)]
    made += [leaf.token for call in both.ours.calls for leaf in call.inputs if leaf.token not in both.ours.makers]
    regions = {
        token: both.ours.region(token, state.met, MOST)
        for token in dict.fromkeys(made)
        if token in both.reference and token not in state.there
    }
    made_there = {token: region for token, region in regions.items() if region is not None}
    lacking = {token: region for token, region in made_there.items() if token not in state.led}
    taken: dict[int, tuple[Call, ...]] = {
        leaf.token: () for call in ours for leaf in call.inputs if leaf.token in state.led
    }
    for call in theirs:
        wrong = False
        for index, leaf in enumerate(call.outputs):
            at, value = (call.key, "output", index), state.values.get(leaf.token)
            if value is None or at in state.put:
                continue
            if leaf.token in state.right and leaf.token != both.theirs.target:
                yield from _turned(both, state, call, at, state.right[leaf.token])
                continue
            wrong = True
            region = both.theirs.region(leaf.token, state.right, MOST)
            yield from _left_out(both, state, region or (call,), at, value)
            yield from _made_otherwise(both, state, region, at, value, made_there) if region else ()
        others = [leaf for leaf in call.inputs if leaf.token not in state.right]
        for index, leaf in enumerate(call.inputs if wrong else ()):
            at = (call.key, "input", index)
            if leaf.token in state.values and at not in state.put and not (others and others != [leaf]):
                beside = _taken_beside(state, ours, call, index)
                yield from _taken_otherwise(both, state, call, at, leaf.token, {**taken, **lacking}, beside)


def _turned(both: BothCodes, state: State, call: Call, at: Slotted, same: Sequence[int]) -> Iterator[Try]:
    """Yield what the reference has in the shape that a call gives, where this has its axes in another order."""
    value = state.values[call.outputs[at[2]].token]
    for token in same if both.is_turned(value, same) else ():
        other, maker = both.reference[token], both.ours.makers.get(token)
        if other.array.shape == value.array.shape:
            slip = both.slip(state, () if maker is None else (maker,), (call,), call)
            yield Try(slip, at, other, token, alike=True)


def _left_out(both: BothCodes, state: State, region: tuple[Call, ...], at: Slotted, value: Value) -> Iterator[Try]:
    """Yield what some calls are given, instead of what they make; and the last of them."""
    given = given_to(region)
    for token in (*sorted(given), *sorted(given_to(region[-1:]) - given)):
        one, calls = state.values.get(token), region if token in given else region[-1:]
        if one is not None and one.array.shape == value.array.shape:
            yield Try(both.slip(state, (), calls, calls[-1]), at, one, alike=True)


def _made_otherwise(
    both: BothCodes,
    state: State,
    region: tuple[Call, ...],
    at: Slotted,
    value: Value,
    lacking: Mapping[int, tuple[Call, ...]],
) -> Iterator[Try]:
    """Yield what calls of the reference make, instead of what some of the candidate's do."""
    given = [state.values[token] for token in given_to(region) if token in state.values]
    for token, calls in lacking.items():
        other, alike = both.reference[token], both.are_alike(given, both.taken(calls), all_of=True)
        handed_on = any(one.is_same(other, both.bound) for one in given)
        laid_so = other.array.shape == value.array.shape and not any(
            one.is_same_there(other, both.bound) for one in given
        )
        if handed_on and not laid_so:
            continue  # what is given, as it is: that is left out
        if calls and is_told(calls, region) and (other.array.size == value.array.size or alike):
            if other.array.size != value.array.size:
                ties = ((one, same) for one in both.taken(calls) for same in given if same.is_same(one, both.bound))
                for one, same in itertools.islice(ties, 1):
                    other = other.turned_as(one, same, both.bound)
            sure = alike or not other.is_same(both.result, both.bound)
            yield Try(both.slip(state, calls, region, region[-1]), at, other, token, sure, alike)


def _taken_beside(state: State, ours: Sequence[Call], call: Call, index: int) -> set[int]:
    """Return what calls of the reference take beside the same as one of the candidate takes beside an input.

    Beside nothing, what the one that is called alike takes.
    """
    others = [leaf.token for place, leaf in enumerate(call.inputs) if place != index]
    found: set[int] = set()
    for one in ours if others else ():
        given = [leaf.token for leaf in one.inputs]
        for place, token in enumerate(given) if len(given) == len(others) + 1 else ():
            rest = zip((*given[:place], *given[place + 1 :]), others, strict=True)
            if all(mine in state.right.get(yours, ()) for mine, yours in rest):
                found.add(token)
    alone = {one.inputs[0].token for one in ours if not others and called_alike(one, call)}
    return found | (alone if len(alone) == 1 else set())


def _taken_otherwise(
    both: BothCodes,
    state: State,
    call: Call,
    at: Slotted,
    token: int,
    lacking: Mapping[int, tuple[Call, ...]],
    beside: Collection[int],
) -> Iterator[Try]:
    """Yield what a call may have to take instead of a value: what is made of it, another one, another constant."""
    value, maker = state.values[token], both.theirs.makers.get(token)
    constant = token not in state.right
    for one, region in lacking.items() if maker is None or not constant else ():
        other, same = both.reference[one], one in state.right.get(token, ())
        unfit = both.ours.is_constant(one) is not constant and not region
        if other.array.size != value.array.size or same or unfit or (constant and region):
            continue
        region = () if one in beside and one in state.met else region  # both sides have it
        alike = constant or one in beside or both.are_alike([value], both.taken(region))
        own = () if alike or maker is None or not region else (maker,)
        slip = both.slip(state, region, own, call)
        if not region or own:
            names = both.names_of(one, token)
            numbers = _few(other.array), _few(value.array)
            slip = attrs.evolve(slip, taken=numbers if constant else names, constant=constant)
        yield Try(slip, at, other, one, alike=alike)


def _few(array: Array) -> str:
    numbers = [f"{one:.6g}" for one in array.reshape(-1)[:_NUMBERS].tolist()]
    return f"[{', '.join(numbers)}{', ...' if array.size > _NUMBERS else ''}]"
