"""Tell matched calls of two recorded runs that stand for something else, from calls that are wrong.

On one side a block holds the norm in front of it, the activation behind it, or the residual connection around it; a
router gives scores here and probabilities there. Nothing can be run again, so the recorded values decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from padiff.alignment import BY_PLACE, Pair
from padiff.judging._activations import named_function
from padiff.judging._recorded._leaps import Leaps
from padiff.judging._sizes import Size, held, norm_of, size_of
from padiff.judging._suspicion import Suspicion
from padiff.kinds import FUSED
from padiff.numerics import FLOORS, NEGLIGIBLE, SAME, VANISHES, epsilon_of
from padiff.report import Verdict
from padiff.trace import Call, Key, Leaf, Trace, settings_of

_NEAR = 3
"""Calls behind one that may take or give what the other side's gives: a block may hold an activation, a norm."""


def misplaced(leaps: Leaps, told: Sequence[Suspicion]) -> list[Pair]:
    """Return the pairs that differ and stand for something else.

    What is matched by its place alone, or is of another kind, may be another call, and a block begin or end elsewhere:
    then what it gives agrees, or what the code around it gives, or what stands behind it does. A layer inside of such a
    block, right by itself, is given something else by the block's own code.
    """
    differing: dict[tuple[int, int], Suspicion] = {}
    for one in told:
        if one.spot is not None and one.verdict is Verdict.DIFFERS:
            differing[one.spot.reference.token, one.spot.candidate.token] = one
    found: dict[Key, Pair] = {}
    wrong = []
    for pair in leaps.alignment.pairs:
        around = leaps.alignment.around(pair)
        values = ((ours.token, theirs.token) for ours, theirs in (*pair.taken, *pair.made))
        seen = [differing[one] for one in dict.fromkeys(values) if one in differing]
        if not seen or around is None:
            continue
        wrong.append(pair)
        composite = not (pair.reference.leaf or pair.candidate.leaf)
        other = pair.why == BY_PLACE or pair.reference.module.kind != pair.candidate.module.kind
        right = composite and _agrees(leaps, pair, seen)
        right |= (composite or other) and _agrees(leaps, around, seen)
        right |= other and any(_is_used_on_one_side(leaps, one) for one in seen)
        inside = around.key in found and all(_follows(one, pair) for one in seen)
        if right or inside or _ends_elsewhere(leaps, pair) or _applies_what_is_behind(leaps, pair):
            found[pair.key] = pair
    places = {_place(pair) for pair in found.values()}
    return [pair for pair in wrong if _place(pair) in places]


def _place(pair: Pair) -> tuple[str, ...]:
    """Return what the calls of repeated blocks have in common: what one proves goes for all, a faulty one too."""
    calls = pair.reference, pair.candidate
    return tuple(word for call in calls for word in (re.sub(r"\d+", "*", call.path), call.module.class_name))


def _follows(one: Suspicion, pair: Pair) -> bool:
    """Return whether a value differs because of what a call was given: by the code around, or by a call in front."""
    return one.spot is not None and (one.spot.owner is not pair or not one.arises)


def _is_used_on_one_side(leaps: Leaps, one: Suspicion) -> bool:
    """Return whether a gradient comes to what one of two calls gives alone: a last state is none of a step."""
    if one.spot is None or one.spot.what != "output":
        return False
    ours, theirs = leaps.reference.gradient(one.spot.reference), leaps.candidate.gradient(one.spot.candidate)
    return ours is not None and theirs is not None and bool(ours.any()) != bool(theirs.any())


def _ends_elsewhere(leaps: Leaps, pair: Pair) -> bool:
    """Return whether what one of two calls gives is not what the other gives, and is what stands behind that."""
    ends, others = [*_behind(pair.reference)], [*_behind(pair.candidate)]
    apart = [(ours, theirs) for ours, theirs in pair.made if not leaps.same(ours, theirs)]
    return bool(apart) and all(
        any(leaps.same(one, theirs) for one in ends) or any(leaps.same(ours, one) for one in others)
        for ours, theirs in apart
    )


def _applies_what_is_behind(leaps: Leaps, pair: Pair) -> bool:
    """Return whether one of two calls applies a function itself (fused) that the other side's code applies behind it.

    That shows on one side by itself, whatever both are given.
    """
    calls = pair.reference, pair.candidate
    fused = [settings_of(call).get(FUSED) for call in calls]
    if fused.count(None) != 1 or not all(call.outputs for call in calls):
        return False
    bare = fused.index(None)
    trace, made = (leaps.reference, leaps.candidate)[bare], calls[bare].outputs[0]
    given, bound = trace.value(made), SAME(epsilon_of(made.dtype))
    behind = {one.token: one for one in _behind(calls[bare]) if one.shape == made.shape and one.token != made.token}
    known = (trace.value(one) for one in behind.values() if given is not None)
    named = (named_function(value, given, bound) for value in known if value is not None and given is not None)
    return any(name is not None and name.partition(" ")[0] == fused[1 - bare] for name in named)


def _behind(call: Call) -> Iterator[Leaf]:
    """Yield what the next few calls that stand beside a call, or behind the block that it ends, take and give."""
    left = _NEAR
    while call.parent is not None and left:
        beside = call.parent.children
        index = next((i for i, one in enumerate(beside) if one is call), len(beside))
        for other in beside[index + 1 : index + 1 + left]:
            left -= 1
            yield from (*other.inputs, *other.outputs)
        call = call.parent


def _agrees(leaps: Leaps, pair: Pair, differing: Sequence[Suspicion]) -> bool:
    """Return whether what the code around gives is one value, and nearer than it were if it hung on what differs.

    That figures agree which depend on no order of the elements does not say so, nor that whole numbers do. What adds
    little to a value changes it little, however wrong: a branch behind a scale of 1e-6, an expert of one token.
    """
    sizes = [leaps.size(*leaves) for leaves in pair.made]
    known = [one for one in sizes if one is not None and not one.least]
    if not 0 < len(known) == len(sizes) or any(one.error > SAME(one.eps) for one in known):
        return False
    floats = [(ours, one) for (ours, _), one in zip(pair.made, known, strict=True) if one.eps]
    return any(all(_vanishes(leaps.reference, pair, one, made) for one in differing) for made in floats)


def _vanishes(trace: Trace, pair: Pair, one: Suspicion, made: tuple[Leaf, Size]) -> bool:
    """Return whether a difference inside is gone in what a call gives: that differs by rounding, or by far less."""
    out, size = made
    awaited = one.ruling.figures.rel_l2 * _share(trace, pair, out, one)
    rounding = VANISHES * NEGLIGIBLE(size.eps)
    shows = FLOORS * max(size.error, size.eps) <= awaited  # what is less than an epsilon shows nowhere
    return shows and size.error <= max(awaited / VANISHES, rounding)


def _share(trace: Trace, pair: Pair, out: Leaf, one: Suspicion) -> float:
    """Return what part of a value a recorded value in front of it may make at most: 0 where nobody knows.

    None where its gradient vanishes, and what else is recorded leaves of it.
    """
    whole, spot = held(trace, trace.values.get(out.token)), one.spot
    part = None if spot is None else held(trace, trace.values.get(spot.reference.token))
    size = norm_of(whole)
    if spot is None or part is None or not size:
        return 0.0
    gradient = held(trace, trace.gradients.get(spot.reference.token))
    if gradient is not None and not norm_of(gradient):
        return 0.0
    shares = [1.0, norm_of(part) / size]
    for leaf in _made_without(pair.reference, spot.pair.reference):
        if leaf.shape == out.shape and leaf.token not in (out.token, spot.reference.token):
            rest = size_of(whole, held(trace, trace.values.get(leaf.token)))
            shares += [] if rest is None or rest.least else [rest.difference.rel_l2]
    return float(min(shares))


def _made_without(around: Call, inner: Call) -> Iterator[Leaf]:
    """Yield what a call takes, and what calls inside of it made without one of them, as far as tensors show."""
    yield from around.inputs
    if inner is around:
        return
    above = [inner, *inner.ancestors()]
    known = {leaf.token for leaf in around.inputs}
    for call in around.subtree():
        before = call.index < inner.index
        free = before or (bool(call.inputs) and known.issuperset(leaf.token for leaf in call.inputs))
        if call not in above and inner not in call.ancestors() and free:
            known.update(leaf.token for leaf in call.outputs)
            yield from call.outputs
