"""Tell weights that one side merged from weights that are wrong: what calls hold together may have no equal each.

So a norm is folded into the layer beside it, a low-rank update or a second layer multiplied into one, a scale taken
into a projection. Calls that hold such weights are fed only where they are given, or give, what the reference's do:
what lies between two such places is one region, and is judged by what comes out of it. Its weights count as merged
where the region is right on other inputs too, and these show each element of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from padiff.alignment import MAPPED, Alignment, Pair
from padiff.forcing import Bench, Spot, holding
from padiff.grouping import grouped
from padiff.judging import AGREEING, Ignored, Judge, is_close, is_ignored, moved_by_merging, unproven_by_gradients
from padiff.numerics import FLOORS, SHOWN, TOGETHER, Array, difference, root_mean_square
from padiff.parameters import Correspondence, held_of
from padiff.paths import parent
from padiff.refinement._evidence import Evidence
from padiff.trace import Call, Key

_SCALES = (1.0, 4.0, 16.0, 64.0)
"""Sizes of the noise with which a region is tried, until all of its parameters count: small biases show beside little
noise, what a relu hides where much of it is."""
_BOTH = ("input", "output")
Loose = tuple[frozenset[str], frozenset[str]]
"""Parameters of the reference, and of the candidate, that have no equal by themselves."""
_NONE: Loose = (frozenset(), frozenset())
Seen = tuple[dict[str, Array], dict[str, Array]]
"""Parameter of the reference, and of the candidate -> which of its elements count."""
SpotKey = tuple[int, str, int, str]


def with_merged(correspondence: Correspondence, evidence: Evidence, ignored: Ignored) -> Correspondence:
    """Return the correspondence with the parameters that are merged, and the calls between which they are."""
    loose = _without_equal(correspondence, evidence, ignored)
    if not any(loose):
        return correspondence
    best = _Try.of(correspondence, evidence, loose, _BOTH)
    if best.merged != loose:
        # Behind what is wrong no value is the reference's, unless what layers of both sides are given is fed.
        other = _Try.of(correspondence, evidence, loose, _BOTH[1:])
        best = max(best, other, key=_Try.told)
    astray, hidden = best.astray(evidence)
    if best.merged == _NONE and not (astray or hidden):
        return correspondence
    found = attrs.evolve(correspondence, merged=best.merged, astray=astray, hidden=hidden, unshown=best.unshown)
    return attrs.evolve(found, calls=attrs.evolve(best.without(found.together), merged=best.merged[1]))


def _without_equal(correspondence: Correspondence, evidence: Evidence, ignored: Ignored) -> Loose:
    """Return the parameters without counterpart, and those that hold something else than theirs.

    None where the candidate seems to hold nothing of the reference's: weights that were never loaded are not merged.
    """
    ours, theirs = correspondence.left
    loaded = False
    for match, link in correspondence.links:
        if not (link.buffer or is_ignored(match, link, ignored) or match.candidate.special):
            mine, yours = held_of(link, evidence.reference, evidence.candidate)
            if mine is not None and is_close(mine, yours, evidence.rule):
                loaded = loaded or bool(np.ptp(mine))
            elif mine is not None:
                ours |= {held.parameter.path for held in link.references}
                theirs.add(link.candidate.parameter.path)
    if not (ours or theirs) or not (loaded or evidence.gives_alike()):
        return _NONE
    return _of_layers(ours, evidence.reference, ignored[0]), _of_layers(theirs, evidence.candidate, ignored[1])


def _of_layers(paths: Set[str], side: Any, ignored: Set[str]) -> frozenset[str]:
    about = side.about.parameters
    return frozenset(path for path in paths if not about[path].buffer and parent(path) not in ignored)


def _joined(paths: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*paths)


@attrs.frozen(eq=False)
class _Try:
    """The calls that hold loose parameters, fed where they are given, or give, the reference's values."""

    correspondence: Correspondence
    loose: Loose
    calls: Alignment
    judge: Judge
    _reach: dict[Any, Mapping[str, Set[Any] | None]] = attrs.field(init=False, factory=dict)

    @classmethod
    def of(cls, correspondence: Correspondence, evidence: Evidence, loose: Loose, maybe: tuple[str, ...]) -> _Try:
        """Run the candidate for it twice, forced; ``maybe`` is what of layers of both sides need not be fed."""
        # Statistics have no equal either, and no gradient that would show so.
        held = [
            {parent(path) for path in (*paths, *left)} for paths, left in zip(loose, correspondence.left, strict=True)
        ]

        def opened(pair: Pair) -> Pair:
            ours, theirs = pair.reference.path in held[0], pair.candidate.path in held[1]
            top = pair.reference.parent is None or pair.candidate.parent is None
            if top or pair.why == MAPPED or not (ours or theirs):
                return pair
            return attrs.evolve(pair, apart=True, maybe=maybe if ours and theirs else _BOTH)

        before = correspondence.alignment
        pairs = {pair: opened(pair) for pair in before.pairs}
        calls = attrs.evolve(before, pairs=list(pairs.values()))
        checks = evidence.judged(attrs.evolve(correspondence, calls=calls)).forced.checks
        other = {(one.spot.pair.key, one.spot.what, one.spot.candidate.path) for one in checks if one.kept}
        closed = [_closed(pair, one, other) for pair, one in pairs.items()]
        calls = attrs.evolve(before, pairs=closed)
        calls = calls.without([pair for pair in closed if pair.apart and not (pair.inputs or pair.outputs)])
        calls = attrs.evolve(calls, merged=loose[1])
        return cls(correspondence, loose, calls, evidence.judged(attrs.evolve(correspondence, calls=calls)))

    @cached_property
    def differing(self) -> dict[SpotKey, tuple[Pair, Spot]]:
        """Return the values that differ, each with the pair whose code makes it."""
        found = self.judge.forward(rough=True)
        return {x.spot.key: (x.pair, x.spot) for x in found if x.verdict not in AGREEING and x.spot is not None}

    def told(self) -> tuple[int, ...]:
        """Return what tells more: much that is merged, little that nothing merged explains, and where."""
        groups = self.groups.values()
        return sum(map(len, self.merged)), -sum(not all(group) for group in groups), len(groups)

    @cached_property
    def groups(self) -> dict[SpotKey, Loose]:
        """Return for each value that differs the loose parameters that it depends on."""
        spots = [spot for _, spot in self.differing.values()]
        bench = self.judge.settler.bench
        return {key: self._behind(pair, spot, bench, spots) for key, (pair, spot) in self.differing.items()}

    def astray(self, evidence: Evidence) -> tuple[dict[SpotKey, Loose], tuple[Loose, ...]]:
        """Return what was to make the same together, and does not: by a value that differs, or on other inputs alone.

        Weights that differ where the code is the same are others, and were merged with nothing.
        """
        alone = self.correspondence.left
        ahead = evidence.judged(self.correspondence).forward(rough=True) if self.groups else []
        wrong = (one for one in ahead if one.verdict not in AGREEING)
        apart = [one.spot for one in wrong if one.spot is not None and one.pair is not one.spot.pair]
        fed = {pair.candidate.path for pair in self.correspondence.alignment.pairs if pair.outputs}

        def is_joint(key: SpotKey | None, group: Loose) -> bool:
            layers = [{parent(path) for path in paths} for paths in group]
            other = (
                (spot.key == key and layers[1] <= fed)
                or (spot.pair.reference.path in layers[0] and spot.pair.candidate.path in layers[1])
                for spot in apart
            )
            lacking = (not paths.isdisjoint(one) for paths, one in zip(group, alone, strict=True))
            return all(group) and (any(lacking) or any(other))

        found = {key: group for key, group in self.groups.items() if is_joint(key, group)}
        ours, theirs = (_joined(some) for some in zip(_NONE, *found.values(), strict=True))
        rest = dict.fromkeys(group for group in self._tried[1] if not (group[0] & ours or group[1] & theirs))
        return found, tuple(group for group in rest if is_joint(None, group))

    def _behind(self, pair: Pair, spot: Spot, bench: Bench, differing: Iterable[Spot]) -> Loose:
        """Return the loose parameters that a value depends on, as a call's code makes it of what it is fed.

        Those by which another value moves that is right are none of them, if there are others.
        """
        apart = list(differing)
        wrong: tuple[set[Any], ...] = {one.reference.token for one in apart}, {one.key for one in apart}
        found = []
        for side, one in enumerate((spot.reference.token, spot.key)):
            # Which those are the values that were recorded tell, but where they hide it.
            for noise in dict.fromkeys((0.0, bench.noise)):
                moved = self._moved(pair, side, attrs.evolve(bench, noise=noise))
                behind = {path for path, values in moved.items() if values is None or one in values}
                if behind:
                    break
            only = {path for path in behind if (moved[path] or set()) <= wrong[side]}
            found.append(frozenset(only or behind))
        return found[0], found[1]

    def _moved(self, pair: Pair, side: int, bench: Bench) -> Mapping[str, Set[Any] | None]:
        """Return for each loose parameter of a call's code the values that move with it: tokens, or spots.

        None where the call does not run by itself.
        """
        key = pair.key, side, bench.noise
        if key not in self._reach:
            found: dict[str, set[Any] | None] = {}
            still = _seen(bench, pair, side)
            layers = grouped(sorted(self._own(pair)[side]), parent)
            for paths in layers.values():
                holder = (bench.reference, bench.candidate)[side]
                with holding(holder, {path: holder.value(path) * 1.5 + 0.1 for path in paths}):
                    other = _seen(bench, pair, side)
                moved = {one for one in still if one in other and not difference(still[one], other[one]).equal}
                found |= dict.fromkeys(paths, moved if still and other else None)
            self._reach[key] = found
        return self._reach[key]

    def _own(self, pair: Pair) -> list[set[str]]:
        """Return the loose parameters of both sides that a pair's code uses."""
        return [{path for path, pairs in used.items() if pair.key in pairs} for used in self._owners]

    @cached_property
    def _owners(self) -> list[dict[str, dict[Key, Pair]]]:
        """Return for the loose parameters of both sides the pairs whose code uses them."""
        return [
            {path: {pair.key: pair for _, pair in self._uses(path, side)} for path in self.loose[side]}
            for side in (0, 1)
        ]

    def _uses(self, path: str, side: int) -> Iterator[tuple[Call, Pair]]:
        """Yield the calls whose own code uses a parameter, each with the pair by which that is judged."""
        of = (self.calls.of_reference, self.calls.of_candidate)[side]
        called = self._called[side]
        while path and path not in called:
            path = parent(path)
        for call in called.get(path, ()):
            pairs = filter(None, map(of, (call, *call.ancestors())))
            yield from ((call, pair) for pair in [next((one for one in pairs if not one.apart), None)] if pair)

    @cached_property
    def _called(self) -> tuple[dict[str, list[Call]], dict[str, list[Call]]]:
        found: tuple[dict[str, list[Call]], dict[str, list[Call]]] = ({}, {})
        left = self.calls.left_reference, self.calls.left_candidate
        for side, name in enumerate(("reference", "candidate")):
            for call in (*(getattr(pair, name) for pair in self.calls.pairs), *left[side]):
                if not call.module.operation:
                    found[side].setdefault(call.path, []).append(call)
        return found

    @property
    def merged(self) -> Loose:
        """Return the parameters that are right together on other inputs too, which show each element of them."""
        return self._tried[0]

    @property
    def unshown(self) -> dict[str, tuple[int, int]]:
        """Return the candidate's parameters that nothing shows to be wrong, and of which some elements count."""
        return self._tried[2]

    @cached_property
    def _tried(self) -> tuple[Loose, list[Loose], dict[str, tuple[int, int]]]:
        """Return what is merged, and what is not, on other inputs; and how much of what else may be merged counts."""
        seen: Seen = ({}, {})
        wrong: list[Loose] = []
        flat: tuple[set[str], set[str]] = set(), set()
        known = [_joined(some) for some in zip(_NONE, *self.groups.values(), strict=True)]
        left = [self._owners[side][path] for side in (0, 1) for path in sorted(self.loose[side] - known[side])]
        owners = {key: pair for pairs in left for key, pair in pairs.items()}
        for pair in owners.values():
            own = self._own(pair)
            for scale in _SCALES:
                bench = attrs.evolve(self.judge.settler.bench, noise=scale, backward=True)
                found = self._differing(pair, bench, own, seen)
                between = [self._behind(pair, spot, bench, found or ()) for spot in found or ()]
                wrong += [(frozenset(own[0]), frozenset(own[1]))] if found is None else between
                if all(paths <= _shown(known) for known, paths in zip(seen, own, strict=True)):
                    break
            for side, paths in enumerate(own):
                flat[side].update(unproven_by_gradients(bench, pair, paths & _shown(seen[side]), ours=not side))
        gone = [_joined(some) for some in zip(_NONE, *wrong, *self.groups.values(), strict=True)]
        ours, theirs = ((self.loose[side] - gone[side] - flat[side]) & _shown(seen[side]) for side in (0, 1))
        rest = (self.loose[1] - gone[1] - flat[1] - theirs) & seen[1].keys()
        return (ours, theirs), wrong, {path: (int(seen[1][path].sum()), seen[1][path].size) for path in sorted(rest)}

    def _differing(self, pair: Pair, bench: Bench, own: Sequence[Set[str]], seen: Seen) -> list[Spot] | None:
        """Return what a call's code makes otherwise of other inputs; None where it does not run so.

        Of its own parameters it is noted which elements count there: of those of calls inside these judge.
        """
        ours = bench.tried(pair, True, dtype="float64", thawed=True)
        theirs = ours and bench.tried(pair, False, ours.observed, dtype="float64", thawed=True)
        if ours is None or theirs is None:
            return None
        sides = bench.reference, bench.candidate
        for known, run, side, paths in zip(seen, (ours, theirs), sides, own, strict=True):
            for path in paths & run.gradients.keys():
                size = np.abs(run.gradients[path])
                counts = float(np.linalg.norm(size)) * (root_mean_square(side.value(path)) or 1.0) > SHOWN
                known[path] = known.get(path, False) | (counts & (size > SHOWN * size.max(initial=0.0)))
        moved = moved_by_merging(bench, pair)

        def noise(spot: Spot) -> float:
            still, other = (None, None) if moved is None else (one.observed.spots.get(spot.key) for one in moved)
            return 0.0 if still is None or other is None else difference(still, other).rel_l2

        ahead = (one for one in theirs.checks if not one.backward)
        made = [one for one in ahead if one.spot.owner and one.spot.owner.key == pair.key]
        return [one.spot for one in made if not one.difference.rel_l2 <= max(TOGETHER(0.0), FLOORS * noise(one.spot))]

    def without(self, together: Loose) -> Alignment:
        """Return the calls, those as they were that use none of some parameters."""
        loose = self.loose[0] - together[0], self.loose[1] - together[1]
        back = {call.key for path in loose[1] for call, _ in self._uses(path, 1)}
        ours = {call.key for path in loose[0] for call, _ in self._uses(path, 0)}
        before = self.correspondence.alignment.pairs
        now = {pair.key: pair for pair in self.calls.pairs}
        kept = [pair if pair.key in back or pair.reference.key in ours else now.get(pair.key) for pair in before]
        gone = [pair for pair, one in zip(before, kept, strict=True) if one is None]
        pairs = [one or pair for pair, one in zip(before, kept, strict=True)]
        return attrs.evolve(self.correspondence.alignment, pairs=pairs).without(gone)


def _closed(pair: Pair, opened: Pair, other: Set[object]) -> Pair:
    """Return a pair with those of its tensors that are fed: as it was, where all of them are."""
    if not opened.apart:
        return pair
    ends = {what: [*getattr(pair, f"{what}s")] for what in _BOTH}
    fed = {
        what: tuple((i, j) for i, j in ends[what] if (pair.key, what, pair.candidate.leaves(what)[j].path) not in other)
        for what in _BOTH
    }
    if all(len(fed[what]) == len(ends[what]) for what in _BOTH) and not (pair.misfed or pair.misfits):
        return pair
    found = attrs.evolve(opened, maybe=())
    found.inputs, found.outputs = fed["input"], fed["output"]
    return found


def _shown(seen: Mapping[str, Array]) -> frozenset[str]:
    """Return the parameters of which all elements count."""
    return frozenset(path for path, elements in seen.items() if elements.all())


def _seen(bench: Bench, pair: Pair, side: int) -> Mapping[Any, Array]:
    """Return what a call of one side makes by itself: by tokens of the reference, of the candidate by spots."""
    alone = bench.tried(pair, side == 0, backward=False)
    return {} if alone is None else (alone.observed.values, alone.observed.spots)[side]
