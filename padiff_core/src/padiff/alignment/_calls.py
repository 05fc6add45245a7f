"""Match the calls of two runs: which call of the candidate does what a call of the reference does.

1. What the user maps, or a special transfer matches, is fixed, and nothing inside of it is matched. What a mapping file
   names is fixed too, and what is inside of it is matched.
2. Calls of modules whose parameters were matched anchor each other, in execution order.
3. A composite matches the composite that covers the same anchors; wrappers that cover nothing new fold away. Of what
   scripts call themselves that matches which covers most of the same: one may call a layer that the other's model does.
4. Between anchors, calls without parameters are matched by a longest common subsequence over kind, shapes and name.
5. What is left is unmatched, and harmless where the enclosing call agrees.

Operations are matched afterwards: see `with_operations`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence

from padiff.alignment._anchors import Anchors, shapes
from padiff.alignment._pairs import BY_PLACE, MAPPED, NAMED, NAMED_LOOSELY, Alignment, ModulePair, Pair
from padiff.alignment._resolved import Resolved
from padiff.alignment._sequences import align_sequences, forward_run, gaps
from padiff.kinds import CATALOGUE
from padiff.paths import is_at, last
from padiff.trace import Call, Trace


def align(
    reference: Trace,
    candidate: Trace,
    modules: Sequence[ModulePair],
    fixed: Resolved | None = None,
    *,
    by_order: bool = False,
) -> Alignment:
    """Match the calls of two traces; ``fixed`` is what the user maps. ``by_order``: see `Anchors`."""
    fixed = fixed or Resolved()
    mapped = {**_special_pairs(modules, fixed.pairs), **fixed.pairs}
    inside = {*_below(reference, mapped.keys()), *_below(candidate, mapped.values())}
    anchors = Anchors(reference, candidate, modules, inside, by_order=by_order)
    pairs: dict[Call, Pair] = {}
    taken: set[Call] = set()

    def match(ours: Call, theirs: Call, why: str) -> None:
        if ours not in pairs and theirs not in taken:
            pairs[ours] = Pair(ours, theirs, why, anchors.same)
            taken.add(theirs)

    for ours, theirs in anchors.roots:
        match(ours, theirs, "the root")
    for ours, theirs in _mapped(anchors, reference, candidate, mapped):
        match(ours, theirs, MAPPED)
    for ours, theirs in _mapped(anchors, reference, candidate, fixed.named):
        if ours not in inside and theirs not in inside:
            match(ours, theirs, NAMED if anchors.agree(ours, theirs) else NAMED_LOOSELY)
    for ours, theirs in anchors.covering(pairs, taken):
        match(ours, theirs, "holds the same parameters")
    left = [one for one in reference.tops if one not in pairs], [one for one in candidate.tops if one not in taken]
    for ours, theirs in itertools.product(*left):
        if not anchors.apart(ours, theirs) and not anchors.agree(ours, theirs) and _may_match(ours, theirs, alone=True):
            match(ours, theirs, BY_PLACE)
    _match_between(pairs, anchors, inside)
    matched = {pair.candidate for pair in pairs.values()}
    return Alignment(
        sorted(pairs.values(), key=lambda pair: pair.candidate.index),
        [call for call in reference.calls if call not in pairs],
        [call for call in candidate.calls if call not in matched],
    )


def _special_pairs(modules: Sequence[ModulePair], fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the modules that a special transfer matches: what is inside of them has no counterparts of its own."""
    found = {}
    for pair in modules:
        ours, theirs = pair.reference, pair.candidate
        sides = ((ours, fixed.keys()), (theirs, fixed.values()))
        if pair.whole and not any(is_at(path, top) for path, tops in sides for top in tops):
            found[ours] = theirs
    return found


def _mapped(
    anchors: Anchors, reference: Trace, candidate: Trace, fixed: Mapping[str, str]
) -> Iterator[tuple[Call, Call]]:
    sides = (reference.by_module(), candidate.by_module()) if fixed else ({}, {})
    for ours, theirs in fixed.items():
        yield from anchors.of_mapped(sides[0].get(ours, ()), sides[1].get(theirs, ()))


def _below(trace: Trace, paths: Collection[str]) -> Iterator[Call]:
    """Yield the calls below the calls of some modules."""
    for call in trace.calls:
        if any(above.path in paths for above in call.ancestors()):
            yield call


def _match_between(pairs: dict[Call, Pair], anchors: Anchors, inside: Collection[Call]) -> None:
    """Match calls without parameters, region by region, between the calls that are matched already."""
    matched = {pair.candidate for pair in pairs.values()}
    regions = [(pair.reference, pair.candidate) for pair in pairs.values()]
    while regions:
        top, other = regions.pop()
        ours = [call for call in _region(top, pairs) if call not in inside]
        theirs = [call for call in _region(other, matched) if call not in inside]
        places = {call: j for j, call in enumerate(theirs)}
        known = [(i, places.get(pairs[call].candidate)) for i, call in enumerate(ours) if call in pairs]
        run = forward_run([(i, j) for i, j in known if j is not None])
        for a, b in gaps(run, len(ours), len(theirs)):
            left = [ours[i] for i in a if ours[i] not in pairs and ours[i].outputs]
            free = [theirs[j] for j in b if theirs[j] not in matched and theirs[j].outputs]
            for mine, yours in _match_gap(left, free, anchors) if left and free else ():
                pairs[mine] = Pair(mine, yours, BY_PLACE, anchors.same)
                matched.add(yours)
                if mine.children and yours.children:
                    regions.append((mine, yours))


def _region(top: Call, matched: Container[Call]) -> Iterator[Call]:
    """Yield the calls below ``top``, not descending into matched ones: their inside is a region of its own."""
    for child in top.children:
        if not child.module.operation:
            yield child
            if child not in matched:
                yield from _region(child, matched)


def _match_gap(a: Sequence[Call], b: Sequence[Call], anchors: Anchors) -> Iterator[tuple[Call, Call]]:
    scores = anchors.likeness(a, b)
    only = [{kind for kind, n in Counter(call.module.kind for call in calls).items() if n == 1} for calls in (a, b)]
    for i, mine in enumerate(a):
        for j, yours in enumerate(b):
            elsewhere = _elsewhere(mine, yours, alone=mine.module.kind in only[0] & only[1])
            may = _may_match(mine, yours, alone=len(a) == len(b) == 1) and not elsewhere
            if not may or anchors.apart(mine, yours):
                scores[i, j] = 0
    matched = align_sequences(scores)
    for left, free in gaps(matched, len(a), len(b)):
        yield from _only_ones([a[i] for i in left], [b[j] for j in free], anchors)
    for i, j in matched:
        yield a[i], b[j]


def _only_ones(ours: Sequence[Call], theirs: Sequence[Call], anchors: Anchors) -> Iterator[tuple[Call, Call]]:
    """Yield the calls that alone on either side give tensors of their shape: a wrong activation, a wrong pooling.

    Beside these, what bears one name and is given the same shapes: what it gives may be of another shape by a fault.
    """
    left = [*ours], [*theirs]
    for call in ours:
        alike = [other for other in theirs if shapes(other.outputs) == shapes(call.outputs)]
        rivals = [other for other in ours if shapes(other.outputs) == shapes(call.outputs)]
        if (
            len(alike) == len(rivals) == 1
            and _may_match(call, alike[0], alone=True)
            and not anchors.apart(call, alike[0])
        ):
            yield call, alike[0]
            left[0].remove(call)
            left[1].remove(alike[0])
    for call in left[0]:
        alike = [other for other in left[1] if _is_namesake(call, other)]
        rivals = [other for other in left[0] if last(other.path) == last(call.path)]
        if len(alike) == len(rivals) == 1 and not anchors.apart(call, alike[0]):
            yield call, alike[0]


def _is_namesake(a: Call, b: Call) -> bool:
    """Return whether two calls without calls inside bear one name, and are given the same shapes."""
    named = last(a.path) == last(b.path) and (not last(a.path).isdigit() or a.path == b.path)
    return named and not a.children and not b.children and shapes(a.inputs) == shapes(b.inputs)


def _may_match(a: Call, b: Call, *, alone: bool) -> bool:
    if not {leaf.shape for leaf in a.outputs} & {leaf.shape for leaf in b.outputs}:
        return a.module.kind is not None and a.module.kind == b.module.kind
    if a.module.kind == b.module.kind:
        return a.module.kind is not None or last(a.path) == last(b.path) or alone
    same_place = last(a.path) == last(b.path) and not last(a.path).isdigit()
    return same_place or (alone and not a.children and not b.children)


def _elsewhere(a: Call, b: Call, *, alone: bool) -> bool:
    """Return whether two calls of one kind that keep shapes, and have none in common, stand at other places.

    What is alone of its kind is matched all the same, for a fault may lie before it. Else an activation tells by its
    size. A dropout may be one of many, and its values say nothing: it has to be alone, with as many axes.
    """
    ours, theirs = ({leaf.shape for leaf in (*call.inputs[:1], *call.outputs)} for call in (a, b))
    if a.module.kind is None or a.module.kind != b.module.kind or ours & theirs or len(ours) > 1 or len(theirs) > 1:
        return False
    (mine,), (yours,) = ours, theirs
    if CATALOGUE[a.module.kind].stochastic:
        return not alone or len(mine) != len(yours)
    return not alone and math.prod(mine) != math.prod(yours)
