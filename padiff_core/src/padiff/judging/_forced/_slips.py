"""Search one call's own code for the operations that make a value wrong: with the reference's value there it is right.

Operations are known by the values that they take and give, whatever they are called and in whatever order their axes
lie. What the reference's code knows is right. Of the rest, what the reference makes of the same is put in the place of
what an operation gives, or takes: where that mends what follows, the difference arises there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Replayed, Slotted, Spot
from padiff.judging._forced._both_codes import MOST, BothCodes, Slip, State, is_told
from padiff.judging._forced._code import CELLS, Code, Value
from padiff.judging._forced._tries import Try, tries
from padiff.numerics import CONSTANT, UNSETTLED, Array, epsilon_of
from padiff.trace import Call, Key

RUNS = 32
"""Replays of one call."""
_READINGS = 4
"""Orders of axes in which a value is put in."""
_SHARE = 1 / 16
"""Share of a value's error up to which two values within its code are one."""


class Search:
    """Look for what is wrong in the code that makes one value of a call, that of an ``index`` in the candidate's.

    ``plain`` holds the calls of the candidate's run, in which each tensor has one token, however it is read. Lines that
    were found elsewhere are ``hints``, which are tried first; the code is replayed ``most`` times at the most.
    """

    def __init__(
        self,
        bench: Bench,
        pair: Pair,
        spot: Spot,
        index: int,
        plain: Mapping[Key, Call],
        hints: set[object],
        most: int = RUNS,
    ) -> None:
        self._bench, self._pair, self._spot, self._hints, self._most = bench, pair, spot, hints, most
        calls, target = bench.alignment, plain[spot.pair.candidate.key].leaves(spot.what)[index]
        self._codes = (
            Code.of(pair.reference, fed(calls.of_reference), spot.reference),
            Code.of(plain[pair.candidate.key], fed(calls.of_candidate), target),
        )
        self.runs = 0
        self.in_vain = False
        """Whether nothing that was put in told an operation that differs."""
        self._dtype: str | None = None
        self._begin: State | None = self._begun()

    @cached_property
    def slips(self) -> tuple[list[Slip], bool]:
        """Return the operations that differ, and whether they are all; nothing where none shows it."""
        state, found = self._begin, list[Try]()
        self._end: State | None = None
        while state is not None and state.error > self._both.bound:
            if self._is_handed_on(state) and (rest := [*self._rest(state)]):
                return [*map(self._numbered, found), *rest], True
            step = self._next(state)
            if step is None:
                told = [self._numbered(one) for one in found if one.alike and one.slip.reference and one.slip.candidate]
                rest = [*self._rest(state)]
                self.in_vain = not told
                return [*told, *rest], bool(rest)
            more, state = step
            found += more
        if state is not None:
            self._end = state
            found = self._needed(found, state)
            self._hints.update(one.line for one in found)
        return [*map(self._numbered, found)], True

    def _is_handed_on(self, state: State) -> bool:
        """Return whether the candidate's result is what it was given, or what the reference goes on from."""
        return self._codes[1].target in self._codes[1].fed or self._codes[1].target in state.right

    @cached_property
    def mended(self) -> set[object]:
        """Return what names the values, of whatever code inside, that are right with what was put in, and were not."""
        if not self.slips[1] or self._end is None:
            return set()
        done, bound = self._replayed(self._end.put), self._both.bound
        before, after = ({} if one is None else _errors(one) for one in (self._replayed({}), done))
        return {key for key, error in before.items() if error > bound >= after.get(key, 0.0)} if done else set()

    def lines(self) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
        """Return the calls on both sides that make the value of what both sides know."""
        return ((), ()) if self._begin is None else self._both.unlike(self._begin)

    def _begun(self) -> State | None:
        """Run both sides as they are; return what the candidate shows, if the value is wrong then."""
        ours, theirs = self._codes
        if sum(math.prod(leaf.shape) for code in self._codes for leaf in code.leaves()) > CELLS:
            return None
        for self._dtype in ("float64", None):
            alone = self._bench.tried(self._pair, True, dtype=self._dtype, backward=False, shown=ours.keys)
            self._truth = None if alone is None else alone.observed
            done = None if alone is None else self._replayed({})
            if alone is None or done is None:  # a kernel without float64
                continue
            bound = (CONSTANT if self._dtype else UNSETTLED)(epsilon_of(self._spot.reference.dtype))
            error, made = self._error(done), alone.observed.values.get(self._spot.reference.token)
            bound = min(bound, error * _SHARE)
            if made is None or error <= bound:
                return None
            self._both = BothCodes(ours, theirs, ours.values(alone.shown), Value.of(made), bound)
            return self._seen(done, {}, {})
        return None

    def _replayed(self, put: Mapping[Slotted, Array]) -> Replayed | None:
        """Run the candidate's code with some values put in; None where what follows does not take them."""
        self.runs += 1
        how = {"dtype": self._dtype, "backward": False, "shown": self._codes[1].keys, "put": put}
        return self._bench.tried(self._pair, False, self._truth, **how)

    def _error(self, done: Replayed) -> float:
        checks = (one for one in done.checks if one.spot.key == self._spot.key and not one.backward)
        return max((one.difference.rel_l2 for one in checks), default=0.0)

    def _seen(self, done: Replayed, put: Mapping[Slotted, Array], before: Mapping[int, Value]) -> State:
        made = done.observed.spots.get(self._spot.key)
        return self._both.seen(put, done.shown, before, self._error(done), None if made is None else Value.of(made))

    def _with(self, put: Mapping[Slotted, Array], state: State) -> State | None:
        """Return what the candidate shows with more put in; None where it does not run so."""
        if self.runs >= self._most:
            return None
        put = {**state.put, **put}
        done = self._replayed(put)
        return None if done is None else self._seen(done, put, state.values)

    def _next(self, state: State) -> tuple[list[Try], State] | None:
        """Return what mends the result, or something on the way to it, and what shows then; the fewest calls first."""
        bound, met = self._both.bound, dict[Slotted, list[Array]]()
        for one in self._in_order([*tries(self._both, state)], state):
            after = None
            for array in self._readings(one, state, met.setdefault(one.at, [])):
                tried = self._with({one.at: array}, state)
                if tried is not None and tried.error <= bound:
                    after = tried
                    break
                if tried is not None and after is None and self._mends(tried, state, one):
                    after = tried
            everywhere = self._everywhere(one, state) if after is not None or one.alike else None
            if everywhere is not None:
                return everywhere
            if after is not None and after.error > bound:
                after = self._wherever_taken(one, state, after) or after
            if after is not None:
                return [one], after
        return None

    def _wherever_taken(self, one: Try, state: State, alone: State) -> State | None:
        """Return what shows with a value put in all calls that take another one, if that mends more than ``alone``."""
        if one.at[1] != "input" or one.at not in state.shown:
            return None
        calls = self._codes[1].calls
        token = next(call for call in calls if call.key == one.at[0]).inputs[one.at[2]].token
        taken = ((call, index) for call in calls for index, leaf in enumerate(call.inputs) if leaf.token == token)
        slots: list[Slotted] = [(call.key, "input", index) for call, index in taken]
        places = [at for at in slots if at != one.at]
        array = next(self._readings(one, state, []), None)
        if array is None or not places or not state.put.keys().isdisjoint(places):
            return None
        after = self._with(dict.fromkeys(places, array), alone)
        if after is None or (after.error > self._both.bound and not self._mends(after, alone, one)):
            return None
        return after

    def _in_order(self, every: list[Try], state: State) -> list[Try]:
        """Return what is tried, in order: of what the reference makes of the same, first what is as large as a value.

        A part of that is no more than a step on the way to it, and the code behind does not run with most of these.
        """
        first: dict[object, float] = {}
        fits = {id(one) for one in every if one.at in state.shown and one.value.array.size == state.shown[one.at].size}
        for one in every:
            if id(one) in fits and one.slip.reference:
                place = one.at, one.rank[:2]
                first[place] = min(first.get(place, math.inf), one.rank[2])

        def rank(one: Try) -> tuple[object, ...]:
            *kind, size = one.rank
            most = size if id(one) in fits else max(size, first.get((one.at, tuple(kind)), size))
            return one.line not in self._hints, *kind, most, id(one) not in fits

        return sorted(every, key=rank)

    def _readings(self, one: Try, state: State, met: list[Array]) -> Iterator[Array]:
        """Yield the value as it may be put in, but for what was ``met`` there; what an operation is given, as it is."""
        most = 1 if one.token is None else _READINGS
        for array in one.value.in_place_of(Value.of(state.shown[one.at])) if one.at in state.shown else ():
            if most and not any(np.array_equal(array, other) for other in met):
                most -= 1
                met.append(array)
                yield array

    def _mends(self, after: State, before: State, one: Try) -> bool:
        """Return whether the candidate's code knows something more of the reference's then: not what was put in."""
        if before.right.keys() - after.right.keys():
            return False  # what was made in another way is not wrong
        fresh = (self._both.reference[token] for token in (after.led - before.led) & self._codes[0].leading)
        return any(value.tells and not value.is_same(one.value, self._both.bound) for value in fresh)

    def _everywhere(self, one: Try, state: State) -> tuple[list[Try], State] | None:
        """Return what is wrong, and put right, in all rounds of a loop, or calls of a function, in one of which is."""
        ours, theirs = self._codes
        maker = ours.makers.get(one.token or 0)
        call = next(call for call in theirs.calls if call.key == one.at[0])
        rounds = ([], []) if maker is None else (ours.in_rounds(maker), theirs.in_rounds(call))
        if maker is None or len(rounds[0]) != len(rounds[1]) or len(rounds[0]) < 2:
            return None
        if rounds[0].index(maker) != rounds[1].index(call):
            return None  # in one round there, in another one here
        out = next(index for index, leaf in enumerate(maker.outputs) if leaf.token == one.token)
        found, put = [], {}
        for mine, yours in zip(*rounds, strict=True):
            token, at = mine.outputs[out].token, (yours.key, *one.at[1:])
            value = self._both.reference.get(token)
            if value is None or at in state.put:
                continue
            found.append(attrs.evolve(one, slip=self._again(one, out, mine, yours), at=at, value=value, token=token))
            put[at] = next(self._readings(found[-1], state, []), value.array)
        after = self._with(put, state)
        if after is None:
            return None
        bound = self._both.bound
        wrong = [each for each in found if not Value.of(after.shown[each.at]).is_same(each.value, bound)]
        mended = after.error <= bound or len(after.met) > len(state.met) + len(wrong)
        return (wrong, after) if mended and len(wrong) > 1 else None

    def _again(self, one: Try, out: int, ours: Call, theirs: Call) -> Slip:
        """Return what is wrong in another round, in which these calls are the last on either side."""
        calls = [
            some and (*some[:-1], last) for some, last in ((one.slip.reference, ours), (one.slip.candidate, theirs))
        ]
        slip = attrs.evolve(one.slip, reference=calls[0], candidate=calls[1], taker=one.slip.taker and theirs)
        if slip.taken is None or slip.constant:
            return slip
        names = self._both.names_of(ours.outputs[out].token, theirs.inputs[one.at[2]].token)
        return attrs.evolve(slip, taken=names)

    def _needed(self, found: list[Try], state: State) -> list[Try]:
        """Return those of what was put in without which the result is wrong, or what comes to others of them."""
        put = dict(state.put)
        for one in found[:-1] if len(found) <= _READINGS else ():
            fewer = {at: array for at, array in put.items() if at != one.at}
            done = self._replayed(fewer)
            if done is None:
                continue
            kept = all(np.array_equal(done.shown[at], state.shown[at], equal_nan=True) for at in fewer)
            if kept and self._error(done) <= self._both.bound:
                found, put = [other for other in found if other is not one], fewer
        return found

    def _rest(self, state: State) -> Iterator[Slip]:
        """Yield what is left, from the last values that both sides know to the result, where it is little."""
        both, (ours, theirs) = self._both, self._codes
        token, target = ours.target, theirs.target
        if any(code.target not in code.makers and code.target not in code.fed for code in self._codes):
            return  # a framework's own code makes it, or that of a call that is looked into by itself
        mine, yours = ours.region(token, state.met, MOST), theirs.region(target, state.right, MOST)
        if token in state.right.get(target, ()):
            makers = self._turning(state, ours.makers.get(token), theirs.makers.get(target))
            mine, yours = (() if call is None else (call,) for call in makers)
        elif self._spot.what == "input" and self._has_both(state):
            taken = both.names_of(token, target)
            yield attrs.evolve(both.slip(state, (), (), self._spot.pair.candidate), taken=taken)
            return
        elif target in state.right or target not in theirs.makers:
            yours = ()
            if state.result is None or not both.are_alike([state.result], both.taken(mine or ())):
                return
        if mine is not None and yours is not None and (mine or yours) and is_told(mine, yours):
            # Where the candidate has nothing of it, what it hands on instead tells the line.
            yield both.slip(state, mine, yours, None if yours else theirs.giver)

    def _has_both(self, state: State) -> bool:
        """Return whether the candidate hands on a value that is right elsewhere, and makes the right one, too.

        Not where one line makes them in two of its rounds: what it says in each is wrong.
        """
        (ours, theirs), made = self._codes, self._codes[1].makers
        maker = made.get(theirs.target)
        rounds = [] if maker is None else [one for one in theirs.again(maker) if one is not maker]
        right = [token for token, same in state.right.items() if ours.target in same]
        known = theirs.target in state.right and self._both.result.tells
        return known and any(made.get(token) not in rounds for token in right)

    def _turning(self, state: State, ours: Call | None, theirs: Call | None) -> tuple[Call | None, Call | None]:
        """Return the calls that put the axes of what two calls give in other orders: each may hand on what it takes."""
        while ours is not None and theirs is not None and len(ours.inputs) == len(theirs.inputs) == 1:
            token, given = ours.inputs[0].token, theirs.inputs[0].token
            same = token in state.right.get(given, ()) and self._both.is_turned(state.values[given], [token])
            makers = self._codes[0].makers.get(token), self._codes[1].makers.get(given)
            if not same or None in makers:
                break
            ours, theirs = makers
        return ours, theirs

    def _numbered(self, one: Try) -> Slip:
        if not one.slip.candidate:
            return one.slip
        again = self._codes[1].again(one.slip.candidate[-1])
        number = next(place for place, call in enumerate(again) if call is one.slip.candidate[-1])
        rounds = self._codes[1].rounds(one.slip.candidate[-1])
        return attrs.evolve(one.slip, round=(number * rounds // len(again), rounds))


def _errors(done: Replayed) -> dict[object, float]:
    """Return how far off the values are that a run's code made, by what names them."""
    return {one.spot.key: one.difference.rel_l2 for one in done.checks if not one.backward}


def fed(matched: Callable[[Call], Pair | None]) -> Callable[[Call], Pair | None]:
    """Return what knows the pair of a call that is fed: what gives nothing in its shape is part of the code around."""

    def known(call: Call) -> Pair | None:
        pair = matched(call)
        return None if pair is None or pair.misfits or not pair.outputs else pair

    return known
