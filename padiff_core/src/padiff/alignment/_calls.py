"""Match the calls of two runs: which call of the candidate does what a call of the reference does.

1. What the user maps, or a special transfer ties, is fixed, and nothing inside of it is matched.
2. Calls of modules whose parameters were matched anchor each other, in execution order.
3. A composite matches the composite that covers the same anchors; wrappers that cover nothing new fold away.
4. Between anchors, calls without parameters are matched by a longest common subsequence over kind, shapes and name.
5. What is left is unmatched, and harmless where the enclosing call agrees.

Operations are matched afterwards: see `padiff.dataflow`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Module
from padiff.alignment._names import similarity
from padiff.alignment._sequences import align_sequences, forward_run
from padiff.kinds import CATALOGUE
from padiff.numerics import SAME, epsilon_of
from padiff.trace import Call, Leaf, Trace

__all__ = ["BY_PLACE", "GUESSED", "MAPPED", "Alignment", "ModulePair", "Pair", "align", "pair_leaves"]

BY_PLACE = "same kind, shapes and place"
GUESSED = (BY_PLACE, "holds the same parameters", "holds mostly the same parameters")
"""Why two calls were tied, where that is a guess that forcing may refute."""

MAPPED = "mapped by the user, or tied by a special transfer"
_MOSTLY = 0.5
_INNERMOST = 3.0


@attrs.frozen(eq=False)
class ModulePair:
    """Two modules whose parameters were matched."""

    reference: Module
    candidate: Module
    whole: bool = False
    """Whether a special transfer takes all that is below them as one: nothing inside has a counterpart."""


@attrs.define(eq=False)
class Pair:
    """Tie a call of the reference to one of the candidate; leaves are tied by their indices."""

    reference: Call
    candidate: Call
    why: str
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        """Tie the leaves."""
        self.inputs = pair_leaves(self.reference.inputs, self.candidate.inputs)
        self.outputs = pair_leaves(self.reference.outputs, self.candidate.outputs)

    @property
    def memory(self) -> set[str]:
        """Return where what it gives lies, on both sides: see `Module.memory`."""
        return {self.reference.module.memory, self.candidate.module.memory}

    @property
    def misfed(self) -> bool:
        """Return whether an input cannot be fed: the two sides give it other shapes."""
        if not (self.reference.leaf and self.candidate.leaf):
            return False
        return next(_misfits(self.reference.inputs, self.candidate.inputs, self.inputs), None) is not None

    @property
    def misfits(self) -> tuple[tuple[int, int], ...]:
        """Return the outputs, tied in order, whose shapes differ; for calls of one kind only."""
        if self.reference.module.kind is None or self.reference.module.kind != self.candidate.module.kind:
            return ()
        return tuple(_misfits(self.reference.outputs, self.candidate.outputs, self.outputs))


@attrs.define(eq=False)
class Alignment:
    """Hold the matched calls, in the candidate's execution order, and what is left over on either side."""

    pairs: list[Pair]
    left_reference: list[Call]
    left_candidate: list[Call]
    loose: frozenset[int] = frozenset()
    """Tokens of the reference whose gradients are no measure: one side's own code uses the tensor elsewhere as well."""
    _of_candidate: dict[int, Pair] = attrs.field(init=False)
    _of_reference: dict[int, Pair] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Index the pairs."""
        self._of_candidate = {id(pair.candidate): pair for pair in self.pairs}
        self._of_reference = {id(pair.reference): pair for pair in self.pairs}

    def of_candidate(self, call: Call | None) -> Pair | None:
        """Return the pair of a candidate's call."""
        return self._of_candidate.get(id(call))

    def of_reference(self, call: Call | None) -> Pair | None:
        """Return the pair of a reference's call."""
        return self._of_reference.get(id(call))

    def using(self, module: Module) -> list[Pair]:
        """Return the matched calls whose own code uses a candidate module's parameters: its own calls, or where it
        is never called itself, those of the nearest module around it."""
        own = [pair for pair in self.pairs if pair.candidate.module.native is module.native]
        if own:
            return own
        above = [p for p in self.pairs if not p.candidate.path or module.path.startswith(f"{p.candidate.path}.")]
        deepest = max((len(pair.candidate.path) for pair in above), default=0)
        return [pair for pair in above if len(pair.candidate.path) == deepest]

    def is_inside(self, call: Call) -> bool:
        """Return whether a call lies inside of one that the user mapped, which is compared as a whole."""
        around = ((self.of_reference(above), self.of_candidate(above)) for above in call.ancestors())
        return any(pair is not None and pair.why == MAPPED for pairs in around for pair in pairs)

    def is_whole(self, pair: Pair) -> bool:
        """Return whether a pair is compared as a whole: the user mapped it, or it lies inside of such a one."""
        return pair.why == MAPPED or self.is_inside(pair.candidate)

    def without(self, dropped: Sequence[Pair]) -> Alignment:
        """Return the alignment with some pairs taken apart."""
        gone = {id(pair) for pair in dropped}
        return Alignment(
            [pair for pair in self.pairs if id(pair) not in gone],
            sorted(self.left_reference + [p.reference for p in dropped], key=lambda c: c.index),
            sorted(self.left_candidate + [p.candidate for p in dropped], key=lambda c: c.index),
            self.loose,
        )

    def loosened(self, tokens: Iterable[int]) -> Alignment:
        """Return the alignment under which the gradients of some of the reference's tensors are no measure."""
        return Alignment(self.pairs, self.left_reference, self.left_candidate, self.loose.union(tokens))


def pair_leaves(reference: Sequence[Leaf], candidate: Sequence[Leaf]) -> tuple[tuple[int, int], ...]:
    """Tie the tensors of two calls: by path where it fits, then in order; sort of dtype and shape must agree."""
    free = list(range(len(candidate)))
    found: list[tuple[int, int]] = []
    rest: list[int] = []
    for i, leaf in enumerate(reference):
        same = next((j for j in free if candidate[j].path == leaf.path and _alike(leaf, candidate[j])), None)
        if same is None:
            rest.append(i)
        else:
            found.append((i, same))
            free.remove(same)
    for i in rest:
        # A tensor that is given twice (a cell's output and its first state) is tied to one tensor alone.
        tied = {(reference[a].token, candidate[b].token) for a, b in found}
        fit = next(
            (j for j in free if _alike(reference[i], candidate[j]) and _agrees(tied, reference[i], candidate[j])), None
        )
        if fit is not None:
            found.append((i, fit))
            free.remove(fit)
    return tuple(sorted(found))


def _misfits(
    reference: Sequence[Leaf], candidate: Sequence[Leaf], tied: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield what is left on both sides in order, of one sort of dtype, as pairs that would belong together."""
    ours = [i for i in range(len(reference)) if i not in {a for a, _ in tied}]
    theirs = [j for j in range(len(candidate)) if j not in {b for _, b in tied}]
    for i, j in zip(ours, theirs, strict=False):
        if _sort_of(reference[i].dtype) == _sort_of(candidate[j].dtype) and reference[i].shape != candidate[j].shape:
            yield i, j


def _agrees(tied: set[tuple[int, int]], a: Leaf, b: Leaf) -> bool:
    known = {pair for pair in tied if pair[0] == a.token or pair[1] == b.token}
    return known <= {(a.token, b.token)}


def _alike(a: Leaf, b: Leaf) -> bool:
    return a.shape == b.shape and _sort_of(a.dtype) == _sort_of(b.dtype)


def _sort_of(dtype: str) -> str:
    for sort in ("bool", "uint", "int", "complex"):
        if dtype.startswith(sort):
            return "int" if sort == "uint" else sort
    return "float"


def align(
    reference: Trace, candidate: Trace, modules: Sequence[ModulePair], fixed: Mapping[str, str] | None = None
) -> Alignment:
    """Match the calls of two traces. ``fixed`` maps reference module paths to candidate module paths."""
    mapped = {**_special_pairs(modules, fixed or {}), **(fixed or {})}
    inside = {*_below(reference, mapped.keys()), *_below(candidate, mapped.values())}
    anchors = _Anchors(reference, candidate, modules, inside)
    pairs: dict[int, Pair] = {}
    taken: set[int] = set()

    def tie(ours: Call, theirs: Call, why: str) -> None:
        if id(ours) not in pairs and id(theirs) not in taken:
            pairs[id(ours)] = Pair(ours, theirs, why)
            taken.add(id(theirs))

    tie(reference.root, candidate.root, "the root")
    for ours, theirs in _mapped(reference, candidate, mapped):
        tie(ours, theirs, MAPPED)
    for ours, theirs in anchors.covering():
        tie(ours, theirs, "holds the same parameters")
    for ours, theirs in anchors.overlapping(pairs, taken):
        tie(ours, theirs, "holds mostly the same parameters")
    _tie_between(pairs, anchors, inside)
    return Alignment(
        sorted(pairs.values(), key=lambda pair: pair.candidate.index),
        [call for call in reference.calls if id(call) not in pairs],
        _not_in(candidate.calls, pairs),
    )


def _special_pairs(modules: Sequence[ModulePair], fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the modules that a special transfer ties: what is inside of them has no counterparts of its own."""
    found = {}
    for pair in modules:
        ours, theirs = pair.reference.path, pair.candidate.path
        if pair.whole and not (_is_at(ours, fixed.keys()) or _is_at(theirs, fixed.values())):
            found[ours] = theirs
    return found


def _is_at(path: str, tops: Collection[str]) -> bool:
    """Return whether a path is one of some modules', or below."""
    return any(not top or path == top or path.startswith(f"{top}.") for top in tops)


def _not_in(calls: Sequence[Call], pairs: Mapping[int, Pair]) -> list[Call]:
    matched = {id(pair.candidate) for pair in pairs.values()}
    return [call for call in calls if id(call) not in matched]


def _mapped(reference: Trace, candidate: Trace, fixed: Mapping[str, str]) -> Iterator[tuple[Call, Call]]:
    for ours_path, theirs_path in fixed.items():
        ours = [call for call in reference.calls if call.path == ours_path]
        theirs = [call for call in candidate.calls if call.path == theirs_path]
        yield from zip(ours, theirs, strict=False)


def _below(trace: Trace, paths: Collection[str]) -> Iterator[int]:
    """Yield the ids of the calls below the calls of some modules."""
    for call in trace.calls:
        if any(above.path in paths for above in call.ancestors()):
            yield id(call)


class _Anchors:
    """Number the executions of matched units, and know which calls cover which."""

    def __init__(
        self, reference: Trace, candidate: Trace, modules: Sequence[ModulePair], inside: Collection[int]
    ) -> None:
        ours, theirs = reference.by_module(), candidate.by_module()
        self._reference: dict[int, set[int]] = {}
        self._candidate: dict[int, set[int]] = {}
        number = 0
        for pair in modules:
            a = ours.get(id(pair.reference.native), [])
            b = theirs.get(id(pair.candidate.native), [])
            for mine, yours in zip(a, b, strict=False):
                _cover(mine, number, self._reference)
                _cover(yours, number, self._candidate)
                number += 1
        for key in inside:
            # What is inside of a mapped pair anchors the pair, and is no anchor of its own.
            self._reference.pop(key, None)
            self._candidate.pop(key, None)
        self._samples = reference.samples, candidate.samples
        self._calls = {id(call): call for trace in (reference, candidate) for call in trace.calls}

    def covering(self) -> Iterator[tuple[Call, Call]]:
        """Yield calls of both sides that cover exactly the same executions."""
        chains = _chains(self._reference), _chains(self._candidate)
        for cover, ours in chains[0].items():
            theirs = chains[1].get(cover)
            if theirs:
                a = sorted((self._calls[key] for key in ours), key=lambda call: call.index)
                b = sorted((self._calls[key] for key in theirs), key=lambda call: call.index)
                yield from self._tie_chain(a, b)

    def overlapping(self, pairs: Mapping[int, Pair], taken: set[int]) -> Iterator[tuple[Call, Call]]:
        """Yield composites that cover mostly the same (one holds a layer more), largest first."""
        free = {key: cover for key, cover in self._candidate.items() if key not in taken}
        for key, cover in sorted(self._reference.items(), key=lambda item: -len(item[1])):
            ours = self._calls[key]
            if key in pairs or ours.leaf:
                continue
            overlap = {k: len(cover & other) / len(cover | other) for k, other in free.items() if k not in taken}
            best = max(overlap, key=lambda k: overlap[k], default=None)
            if best is not None and overlap[best] > _MOSTLY:
                theirs = self._calls[best]
                if not theirs.leaf and _borders(ours) == _borders(theirs):
                    yield ours, theirs

    def _tie_chain(self, ours: list[Call], theirs: list[Call]) -> Iterator[tuple[Call, Call]]:
        """Tie two nests of calls that cover the same, outermost first: what is like, and where one is alone, that."""
        if len(ours) == len(theirs) == 1:
            yield ours[0], theirs[0]
            return
        scores = self.likeness(ours, theirs) + 0.1
        # The innermost calls hold the parameters themselves; they belong together whatever their names.
        if ours[-1].leaf and theirs[-1].leaf:
            scores[_innermost(ours, theirs)] += _INNERMOST
        for i, j in align_sequences(scores.astype(np.float32)):
            yield ours[i], theirs[j]

    def apart(self, ours: Call, theirs: Call) -> bool:
        """Return whether two calls hold parameters of which only some belong together: a packed layer, one of it."""
        a, b = self._reference.get(id(ours), set()), self._candidate.get(id(theirs), set())
        return ours.leaf and theirs.leaf and a != b and not a.isdisjoint(b)

    def likeness(self, ours: Sequence[Call], theirs: Sequence[Call]) -> NDArray[np.float32]:
        """Return how alike calls are: values of outputs 4, kind 2, shapes of outputs 2, of inputs 1, names up to 1."""
        scores = similarity([_name(call) for call in ours], [_name(call) for call in theirs])
        for i, a in enumerate(ours):
            for j, b in enumerate(theirs):
                if a.module.kind == b.module.kind and a.module.kind is not None:
                    scores[i, j] += 2
                if _shapes(a.outputs) == _shapes(b.outputs):
                    scores[i, j] += 2
                    if self._same_values(a, b):
                        scores[i, j] += 4
                if _shapes(a.inputs) == _shapes(b.inputs):
                    scores[i, j] += 1
        return scores

    def _same_values(self, a: Call, b: Call) -> bool:
        """Return whether two calls gave the same in the free runs, as far as samples show."""
        for mine, yours in zip(a.outputs, b.outputs, strict=True):
            x, y = self._samples[0].get(mine.token), self._samples[1].get(yours.token)
            if x is None or y is None or x.shape != y.shape:
                return False
            if not float(np.linalg.norm(x - y)) <= SAME(epsilon_of(mine.dtype, yours.dtype)) * float(np.linalg.norm(x)):
                return False
        return bool(a.outputs)


def _innermost(ours: Sequence[Call], theirs: Sequence[Call]) -> tuple[int, int]:
    """Return which calls of two nests do the same: the innermost, or one and what pads the other's input around it."""
    a, b = _borders(ours[-1]), _borders(theirs[-1])
    if a != b:
        around = [(len(ours) - 1, j) for j, call in enumerate(theirs) if _borders(call) == a]
        around += [(i, len(theirs) - 1) for i, call in enumerate(ours) if _borders(call) == b]
        if around:
            return around[-1]
    return len(ours) - 1, len(theirs) - 1


def _cover(call: Call, number: int, covers: dict[int, set[int]]) -> None:
    covers.setdefault(id(call), set()).add(number)
    for above in call.ancestors():
        covers.setdefault(id(above), set()).add(number)


def _chains(covers: Mapping[int, set[int]]) -> dict[frozenset[int], list[int]]:
    chains: dict[frozenset[int], list[int]] = {}
    for call, cover in covers.items():
        chains.setdefault(frozenset(cover), []).append(call)
    return chains


def _name(call: Call) -> str:
    return f"{call.path}.{call.module.class_name.rpartition('.')[2]}"


def _shapes(leaves: Sequence[Leaf]) -> tuple[tuple[int, ...], ...]:
    return tuple(leaf.shape for leaf in leaves)


def _borders(call: Call) -> tuple[object, ...]:
    """Return the shapes of a call's first input and of its outputs."""
    return (_shapes(call.inputs[:1]), _shapes(call.outputs))


def _tie_between(pairs: dict[int, Pair], anchors_of: _Anchors, inside: Collection[int]) -> None:
    """Match calls without parameters, region by region, between the calls that are matched already."""
    matched_candidates = {id(pair.candidate): pair for pair in pairs.values()}
    regions: list[tuple[Call, Call]] = [(pair.reference, pair.candidate) for pair in pairs.values()]
    while regions:
        ours_top, theirs_top = regions.pop()
        ours = [call for call in _region(ours_top, lambda c: id(c) in pairs) if id(call) not in inside]
        theirs = [c for c in _region(theirs_top, lambda c: id(c) in matched_candidates) if id(c) not in inside]
        anchors = forward_run(
            [
                (i, theirs.index(pairs[id(call)].candidate))
                for i, call in enumerate(ours)
                if _inside(call, pairs, theirs)
            ]
        )
        start_a = start_b = 0
        for a, b in [*anchors, (len(ours), len(theirs))]:
            for mine, yours in _tie_gap(ours[start_a:a], theirs[start_b:b], pairs, matched_candidates, anchors_of):
                pair = Pair(mine, yours, BY_PLACE)
                pairs[id(mine)] = pair
                matched_candidates[id(yours)] = pair
                if mine.children and yours.children:
                    regions.append((mine, yours))
            start_a, start_b = a + 1, b + 1


def _inside(call: Call, pairs: Mapping[int, Pair], theirs: Sequence[Call]) -> bool:
    pair = pairs.get(id(call))
    return pair is not None and any(pair.candidate is other for other in theirs)


def _region(top: Call, matched: object) -> Iterator[Call]:
    """Yield the calls below ``top``, not descending into matched ones: their inside is a region of its own."""
    assert callable(matched)
    for child in top.children:
        if child.module.operation:
            continue
        yield child
        if not matched(child):
            yield from _region(child, matched)


def _tie_gap(
    ours: Sequence[Call],
    theirs: Sequence[Call],
    pairs: Mapping[int, Pair],
    matched_candidates: Mapping[int, Pair],
    anchors: _Anchors,
) -> Iterator[tuple[Call, Call]]:
    a = [call for call in ours if id(call) not in pairs and call.outputs]
    b = [call for call in theirs if id(call) not in matched_candidates and call.outputs]
    if not a or not b:
        return
    scores = anchors.likeness(a, b)
    only = [{kind for kind, n in Counter(call.module.kind for call in calls).items() if n == 1} for calls in (a, b)]
    for i, mine in enumerate(a):
        for j, yours in enumerate(b):
            elsewhere = _elsewhere(mine, yours, alone=mine.module.kind in only[0] & only[1])
            may = _may_tie(mine, yours, alone=len(a) == len(b) == 1) and not elsewhere
            if not may or anchors.apart(mine, yours):
                scores[i, j] = 0
    tied = align_sequences(scores)
    start = (0, 0)
    for i, j in [*tied, (len(a), len(b))]:
        yield from _only_ones(a[start[0] : i], b[start[1] : j])
        start = (i + 1, j + 1)
    for i, j in tied:
        yield a[i], b[j]


def _only_ones(ours: Sequence[Call], theirs: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
    """Yield the calls that alone on either side give tensors of their shape: a wrong activation, a wrong pooling."""
    for call in ours:
        alike = [other for other in theirs if _shapes(other.outputs) == _shapes(call.outputs)]
        rivals = [other for other in ours if _shapes(other.outputs) == _shapes(call.outputs)]
        if len(alike) == len(rivals) == 1 and _may_tie(call, alike[0], alone=True):
            yield call, alike[0]


def _may_tie(a: Call, b: Call, *, alone: bool) -> bool:
    if not {leaf.shape for leaf in a.outputs} & {leaf.shape for leaf in b.outputs}:
        return a.module.kind is not None and a.module.kind == b.module.kind
    if a.module.kind == b.module.kind:
        return a.module.kind is not None or _last(a) == _last(b) or alone
    same_place = _last(a) == _last(b) and not _last(a).isdigit()
    return same_place or (alone and not a.children and not b.children)


def _elsewhere(a: Call, b: Call, *, alone: bool) -> bool:
    """Return whether two calls of one kind that keep shapes, and have none in common, stand at other places.

    What is alone of its kind is tied all the same, for a fault may lie before it. Else an activation tells by its size.
    A dropout may be one of many, and its values say nothing: it has to be alone, with as many axes.
    """
    ours, theirs = ({leaf.shape for leaf in (*call.inputs[:1], *call.outputs)} for call in (a, b))
    if a.module.kind is None or a.module.kind != b.module.kind or ours & theirs or len(ours) > 1 or len(theirs) > 1:
        return False
    (mine,), (yours,) = ours, theirs
    if CATALOGUE[a.module.kind].stochastic:
        return not alone or len(mine) != len(yours)
    return not alone and math.prod(mine) != math.prod(yours)


def _last(call: Call) -> str:
    return call.path.rpartition(".")[2]
