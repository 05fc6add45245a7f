"""Find where values come to have other shapes than in the reference: what is wrong behind follows from that."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Check, Reader, Replayed, Spot
from padiff.judging._ends import reshaped_outputs
from padiff.judging._forced._replays import Replays
from padiff.judging._shapes import other_shape, sides_described
from padiff.judging._suspicion import Ruling, Suspicion, value_at
from padiff.numerics import Array, difference, has_rows, is_suspect, numpy_dtype
from padiff.report import Evidence, Figures, Verdict


class Openings:
    """Know the calls that are given, or give, values of another shape: what is wrong behind is moved there."""

    def __init__(self, bench: Bench, checks: Iterable[Check]) -> None:
        self._bench = bench
        self._wrong = {
            one.spot.reference.token
            for one in checks
            if not one.backward and is_suspect(one.difference, numpy_dtype(one.spot.reference.dtype))
        }
        """The tensors of the reference that the candidate's are not, where these are first taken or given."""
        self._fed: Replays[Replayed | None] = Replays.beside(bench.trace.store)
        """A call, and an opening inside of it -> what the call does where that is the reference's value."""
        self._whys: list[tuple[Pair, Pair]] = []
        """Calls that are right where another one inside is given, or gives, the reference's value."""

    @cached_property
    def _pairs(self) -> list[Pair]:
        """Return the calls that are given another size, or give another shape of right ones; but for the model's."""
        return [one for one in self._bench.alignment.pairs[1:] if one.unfit("inputs") or _reshaped(one) is not None]

    def moved(self, suspicion: Suspicion, read: Reader, truth: Array) -> Suspicion:
        """Return the suspicion of a call inside instead, which is given, or gives, a value of another shape.

        What has another shape was not put in before: which of both is wrong, that value or the code behind, shows when
        it is. A value of another size that follows from nothing else before it is at the first place that has another.
        What a call makes right of the reference's value does not arise there.
        """
        if suspicion.spot is None or not self._pairs:
            return suspicion
        if self._is_right(self._with_all_inputs(suspicion.pair), read, truth):
            return attrs.evolve(suspicion, arises=False)
        alignment = self._bench.alignment
        openings = sorted(_openings(suspicion.pair, suspicion.spot.pair, self._pairs, alignment), key=_place)
        taken = [one for one in openings if one[1] == "inputs"]  # of further ones the first may be why
        for opening in (one for one in openings if one not in taken[1:]):
            run = self._fed.get(
                (suspicion.pair.key, opening[0].key, opening[1]),
                partial(self._given, suspicion.pair, opening),
                lambda run: 0 if run is None else run.size,
            )
            if self._is_right(run, read, truth):
                self._whys.append((suspicion.pair, opening[0]))
                call = repr(suspicion.pair.candidate.path) if suspicion.pair.candidate.path else "the model"
                name = f"{opening[1].removesuffix('s')} of {opening[0].reference.path}"
                return _at(suspicion, opening, alignment, Evidence.of("right_when_given", call=call, name=name))
        # A call whose other shape the code behind makes the right one of was meant to give it.
        left = openings[:1] if suspicion.spot.reference.shape != suspicion.spot.candidate.shape else taken[:1]
        first = next((one for one in left if self._persists(one, suspicion.pair)), None)
        return suspicion if first is None else _at(suspicion, first, alignment)

    @cached_property
    def reshapes(self) -> bool:
        """Return whether the model gives something in another shape: that is told where it is made."""
        return bool(reshaped_outputs(self._bench.alignment.pairs[0]))

    def explained(self, found: Sequence[Suspicion]) -> list[Suspicion]:
        """Return suspicions without those that follow from what is moved.

        What follows from what its call is given arises where that comes to have another shape, if nothing else tells of
        it, or there all the same.
        """
        left = [one for one in found if not self._is_explained(one)]
        arising = [one for one in left if one.arises and one.verdict is Verdict.DIFFERS]
        told = self.reshapes or any(one.ruling.rests_on("other_input", "other_output") for one in arising)
        return left if told else [self._in_front(one) for one in left]

    def _in_front(self, suspicion: Suspicion) -> Suspicion:
        """Return the suspicion of what first has another shape in front of a call that is right but for that."""
        alignment, root = self._bench.alignment, self._bench.alignment.pairs[0]
        openings = [] if suspicion.arises else _openings(root, suspicion.pair, self._pairs, alignment)
        first = min(openings, key=_place, default=None)
        return attrs.evolve(suspicion, arises=True) if first is None else _at(suspicion, first, alignment)

    def _is_explained(self, suspicion: Suspicion) -> bool:
        """Return whether a suspicion is of code that is given another size, and follows from what is moved.

        That is of a call that stands behind, in one that is right where the value in front is put in.
        """
        around = self._bench.alignment.around
        inside = [suspicion.pair]
        while (outer := around(inside[-1])) is not None:
            inside.append(outer)
        return any(
            owner in inside
            and opening.candidate.index <= suspicion.pair.candidate.index
            and any(one.unfit("inputs") for one in inside[: inside.index(owner)])
            for owner, opening in self._whys
        )

    @staticmethod
    def _is_right(run: Replayed | None, read: Reader, truth: Array) -> bool:
        found = None if run is None else read(run, False)
        return found is not None and not is_suspect(difference(truth, found), truth.dtype)

    def _with_all_inputs(self, pair: Pair) -> Replayed | None:
        """Return what a call that is given another size does by itself with the reference's value instead."""
        fed = copy.copy(pair)
        fed.inputs, fed.outputs = (*pair.inputs, *pair.unfit("inputs")), (*pair.outputs, *pair.misfits)
        if len(fed.inputs) == len(pair.inputs):
            return None
        bench = attrs.evolve(self._bench, alignment=self._bench.alignment.with_pair(fed))
        return self._fed.get(
            (pair.key, pair.key, "inputs"),
            lambda: bench.tried(fed, False, own=False, backward=False),
            lambda run: 0 if run is None else run.size,
        )

    def _given(self, owner: Pair, opening: _Opening) -> Replayed | None:
        """Return what a call does by itself where an opening inside of it is the reference's value."""
        (pair, what, tied), judged = opening, copy.copy(owner)
        judged.outputs = tuple({*owner.outputs, *owner.misfits})
        fed = copy.copy(pair)
        setattr(fed, what, (*getattr(pair, what), tied))
        bench = attrs.evolve(self._bench, alignment=self._bench.alignment.with_pair(judged).with_pair(fed))
        return bench.tried(judged, False, own=False, backward=False)  # not of code that was written for its own shape

    def _persists(self, opening: _Opening, owner: Pair) -> bool:
        """Return whether all calls from an opening outwards give values of another size, too.

        Where one side calls a module further times, the other may call it once on all that: then another size was
        meant. So it was where the next call takes what the reference's takes, of what is made there, or is given just
        that and fits: the code in between, of a batch that one side packs, makes the same of both.
        """
        pair: Pair | None = opening[0]
        alignment, given = self._bench.alignment, opening[0].candidate
        last, gives = max(call.index for call in given.subtree()), {leaf.token for leaf in given.outputs}
        met = [one.candidate for one in alignment.pairs if one.candidate.index <= last]
        known = {leaf.token for call in met for leaf in (*call.inputs, *call.outputs)} - gives
        behind = [one for one in alignment.pairs if one.candidate.index > last]
        takes = ([a.token for a, b in one.taken if b.token not in known] for one in sorted(behind, key=_index))
        made = {leaf.token for leaf in opening[0].reference.outputs}
        if (self._wrong - made).isdisjoint(next(filter(None, takes), self._wrong)) or self._holds_all(opening, owner):
            return False
        paths = {call.path for call in (*alignment.left_reference, *alignment.left_candidate)}
        if {opening[0].reference.path, opening[0].candidate.path} & paths:
            return False
        while pair is not None and pair is not owner:
            if not pair.unfit("outputs"):
                return False
            pair = alignment.around(pair)
        return True

    def _holds_all(self, opening: _Opening, owner: Pair) -> bool:
        """Return whether a call is given all that the reference's is, row by row, and more, by more axes or fewer.

        What one side holds for each edge of a graph is held for each pair there, and most of these are left out later.
        """
        pair, what, (a, b) = opening
        truth = self._bench.trace.value(getattr(pair.reference, what)[a])
        run = self._bench.tried(owner, False, own=False, backward=False, shown={pair.key})
        given = None if run is None else run.shown.get((pair.key, what.removesuffix("s"), b))
        return truth is not None and given is not None and truth.ndim != given.ndim and has_rows(given, truth)


def of_another_shape(spot: Spot, *more: Evidence) -> Ruling:
    """Return the ruling on a value that has another shape than in the reference: no replay makes that a rounding."""
    shapes = sides_described(spot.reference, spot.candidate)
    return Ruling(Verdict.DIFFERS, Figures(math.inf, math.inf), (Evidence(f"other_{spot.what}", shapes), *more))


_Opening = tuple[Pair, str, tuple[int, int]]
"""A call; ``inputs`` or ``outputs``; the indices of the tensors that belong together, and have other shapes."""


def _at(suspicion: Suspicion, opening: _Opening, alignment: Alignment, *more: Evidence) -> Suspicion:
    pair, what, (a, b) = opening
    ours, theirs = getattr(pair.reference, what)[a], getattr(pair.candidate, what)[b]
    if what == "outputs":
        spot = Spot("output", pair, pair, ("start", "end"), ours, theirs)
        return Suspicion(pair, suspicion.phase, value_at(spot), of_another_shape(spot, *more))
    owner = alignment.around(pair)
    assert owner is not None
    calls = [one.candidate for one in alignment.pairs if alignment.around(one) is owner]
    last = max((one for one in calls if one.index < pair.candidate.index), key=lambda call: call.end, default=None)
    between = ("start" if last is None else owner.name_of(last), owner.name_of(pair.candidate))
    shared = set() if last is None else set(last.ancestors())
    inside = itertools.takewhile(lambda call: call is not owner.candidate, pair.candidate.ancestors())
    maker = next((call for call in inside if call in shared and call.module.kind is None), None)
    spot = Spot("input", pair, owner, between, ours, theirs, maker)
    return Suspicion(owner, suspicion.phase, value_at(spot), of_another_shape(spot, *more), between, spot)


def _place(opening: _Opening) -> tuple[int, float]:
    """Return what sorts openings in the order in which values are taken and given."""
    pair, what, _ = opening
    return (pair.candidate.index, -math.inf) if what == "inputs" else pair.candidate.end


def _index(pair: Pair) -> int:
    return pair.candidate.index


def _reshaped(pair: Pair) -> int | None:
    index = other_shape(pair, "outputs") if other_shape(pair, "inputs") is None else None
    return None if index is None or any(index in matched for matched in pair.outputs) else index


def _openings(owner: Pair, last: Pair, pairs: Iterable[Pair], alignment: Alignment) -> Iterator[_Opening]:
    """Yield what calls of some code up to one are given in another size, or give in another shape, given right ones."""
    for pair in pairs:
        before = last is owner or pair.candidate.index < last.candidate.index
        around = alignment.around(pair)
        if not before or around is None or owner.candidate not in pair.candidate.ancestors():
            continue
        if (taken := pair.unfit("inputs")) and not around.unfit("inputs"):
            yield pair, "inputs", taken[0]
        if (index := _reshaped(pair)) is not None:
            yield pair, "outputs", (index, index)
