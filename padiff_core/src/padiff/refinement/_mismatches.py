"""Doubt matches that forcing does not bear out: a call that ends elsewhere than its match, or is another.

A wrapper may hold the activation on one side and not on the other, a layer may have it fused. Fed from the wrong point,
such a call looks wrong and so does what follows. Taken apart, the code around it is judged instead; if that is right,
the match was wrong, and if the difference only shows up later, it was the call's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from padiff.alignment import BY_PLACE, GUESSED, Pair
from padiff.forcing import Spot
from padiff.grouping import grouped
from padiff.judging import Judge, Suspicion
from padiff.kinds import CATALOGUE, FUSED
from padiff.numerics import ROUNDING, difference, epsilon_of
from padiff.parameters import Correspondence
from padiff.refinement._behind import first_taken, is_to_blame, tokens
from padiff.refinement._carried import classes_of, spot_key, without_carried, without_made_inside
from padiff.refinement._cut_behind import is_cut_behind, made_behind
from padiff.refinement._evidence import Evidence
from padiff.refinement._loops import first_of_loops
from padiff.refinement._loose_gradients import with_loose_gradients
from padiff.report import Verdict
from padiff.trace import Call, Key, Trace, contrasts

_CLEARLY = 0.1
"""So much nearer is another value than the match's, where a call ends elsewhere and a setting differs as well."""


def without_mismatches(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Drop matches that a forced run does not bear out, and gradients that are no measure.

    The candidate runs forced once where nothing is in doubt, and a few times more where something is.
    """
    return evidence.keep(with_loose_gradients(_without_wrong_matches(correspondence, evidence), evidence))


def _without_wrong_matches(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence without the calls' matches that forcing does not bear out."""
    trace = evidence.trace

    def without(pairs: Sequence[Pair]) -> Correspondence:
        # What is given the right value by a wrong match is not, once that is taken apart.
        return _without_unlike(_apart(correspondence, pairs), evidence)

    # A module that applies an activation as well ends where another module, or a function, ends on the other side.
    fused = [pair for pair in correspondence.alignment.pairs if _is_fused(pair)]
    taken = _apart(correspondence, fused)
    correspondence = taken if fused else evidence.replaced(correspondence, taken)
    correspondence = without_carried(_without_unlike(correspondence, evidence), evidence)
    correspondence = without_made_inside(correspondence, evidence)
    judge = evidence.judged(correspondence)
    known = correspondence.astray  # why these differ is known
    rough = [one for one in judge.forward(rough=True) if one.spot is None or one.spot.key not in known]
    found = (_may_be_mismatched(s, rough, judge) for s in rough)
    doubtful = list({pair.key: pair for pair in found if pair is not None}.values())
    seen = {spot_key(s): s for s in rough if s.verdict is Verdict.DIFFERS}
    ended = {s.pair.key for s in seen.values() if s.spot is not None and s.spot.pair is s.pair}
    begun = {s.spot.pair.key for s in seen.values() if _is_handed_on(s) and s.spot is not None}
    cut_elsewhere = [pair for pair in doubtful if pair.key in ended & begun and _takes_more(pair)]
    cut_elsewhere += [s.pair for s in seen.values() if _is_handed_through(s)]
    if cut_elsewhere:  # whatever else is wrong around them
        return _without_wrong_matches(without(cut_elsewhere), evidence)
    if not doubtful:
        return correspondence

    def spoils(pair: Pair, found: Sequence[Suspicion], judge: Judge) -> bool:
        # With a pair taken apart that looked wrong where it ends, a value that was wrong may be taken by another call.
        # What it gives itself is no such value: the call around may hand that on.
        values = {key[:2] for key in seen if (key[0], key[-1]) != ("output", pair.key)} if pair.key in ended else set()
        # Nor is what comes to the calls inside of one that looked right where it begins.
        inside = {call.key for call in pair.candidate.subtree()} if pair.key in ended - begun else set()
        behind = [s for s in found if s.spot is None or s.spot.what == "output" or s.spot.pair.key not in inside]
        unlike = [s for s in behind if spot_key(s)[:2] not in values]
        return is_to_blame(pair, unlike, judge, ended=pair.key in ended)

    def spoiling(pairs: Sequence[Pair], found: Sequence[Suspicion], judge: Judge) -> set[Key]:
        loops = first_of_loops(pairs)
        spoilt = (calls for first, calls in loops if all(spoils(pair, found, judge) for pair in first))
        return {pair.key for calls in spoilt for pair in calls}

    def fresh(judge: Judge) -> list[Suspicion]:
        found = judge.forward(rough=True)
        return [s for s in found if s.verdict is Verdict.DIFFERS and spot_key(s) not in seen]

    second = without(doubtful)
    second_judge = evidence.judged(second)
    again = [s for s in second_judge.forward(rough=True) if s.verdict is Verdict.DIFFERS]
    later = [s for s in again if spot_key(s) not in seen]
    # What a pair's own code hands to a call inside is wrong whichever way: so is that code, and no match of it.
    own = {first.pair.key for s in again if (first := seen.get(spot_key(s))) and _is_handed_on(first)}
    proven = {s.pair.key for s in rough if _is_fused_by_one(s, judge, trace)}
    proven |= {pair.key for pair in doubtful if is_cut_behind(pair, judge, trace)}
    sure = {pair.key for pair in doubtful if pair.key in own} | spoiling(doubtful, later, second_judge)
    sure -= proven
    wrong = [pair for pair in doubtful if pair.key not in sure]
    # Taken apart with others, a match is spoiled by their faults too.
    later_ends = [s.pair for s in rough if s.pair.key in sure and _ends_later(s, judge, trace)]
    handed = tokens(s for s in seen.values() if _is_handed_on(s))
    behind = {pair.key: first_taken(pair, judge) & handed for pair in doubtful if pair.key in sure}
    put_in = [pair for pair in doubtful if behind.get(pair.key) and pair not in later_ends]
    if (later_ends or put_in) and len(doubtful) > 1:
        fewer = evidence.judged(without([*wrong, *later_ends, *put_in]))
        unheard, left = fresh(fewer), tokens(s for s in fewer.forward(rough=True) if s.verdict is Verdict.DIFFERS)
        spoilt = spoiling([*later_ends, *put_in], unheard, fewer)
        unspoilt = [pair for pair in (*later_ends, *put_in) if pair.key not in spoilt]
        # What follows was wrong too, though it was fed: now it is right, or wrong by itself.
        wrong += [pair for pair in unspoilt if pair in later_ends or not behind[pair.key] & left]
    if 0 < len(wrong) < len(doubtful):
        # Of faults one behind the other the last hides the others, where all of them are taken apart.
        fewer = evidence.judged(without(wrong))
        spoilt = spoiling([pair for pair in wrong if pair.key not in proven], fresh(fewer), fewer)
        wrong = [pair for pair in wrong if pair.key not in spoilt]
    if not wrong:
        return correspondence
    more = _as_most([pair for pair in doubtful if pair.key in ended - own], wrong)
    if more:
        judges = (evidence.judged(without(pairs)).forward(rough=True) for pairs in (wrong, [*wrong, *more]))
        before, after = ({spot_key(s)[:2] for s in some if s.verdict is Verdict.DIFFERS} for some in judges)
        wrong += more if after < before else []
    return second if len(wrong) == len(doubtful) else without(wrong)


def _as_most(ended: Sequence[Pair], wrong: Sequence[Pair]) -> list[Pair]:
    """Return the matches that end wrong, seem right, and are not, as most of the same two classes are not.

    Where a block ends is for its class to say. Behind one of them another fault may lie.
    """
    groups = grouped(ended, classes_of).values()
    left = [([pair for pair in some if pair not in wrong], len(some)) for some in groups]
    return [pair for some, count in left if 2 * len(some) < count for pair in some]


def _apart(correspondence: Correspondence, pairs: Sequence[Pair]) -> Correspondence:
    return attrs.evolve(correspondence, calls=correspondence.alignment.without(pairs))


def _without_unlike(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence without matches of calls that have nothing in common, and are given something else."""
    rough = evidence.judged(correspondence).forward(rough=True)
    unlike = [s.spot.pair for s in rough if s.spot is not None and _is_unlike(s.spot)]
    return _apart(correspondence, unlike) if unlike else correspondence


def _is_fused(pair: Pair) -> bool:
    return any(contrast.setting == FUSED for contrast in contrasts(pair.reference, pair.candidate))


def _is_unlike(spot: Spot) -> bool:
    """Return whether two calls have nothing in common: other kinds, tied by place alone, and given something else."""
    pair = spot.pair
    kinds = pair.reference.module.kind, pair.candidate.module.kind
    return spot.what == "input" and pair.why == BY_PLACE and not pair.candidate.children and kinds[0] != kinds[1]


def _may_be_mismatched(suspicion: Suspicion, all_of_them: Sequence[Suspicion], judge: Judge) -> Pair | None:
    """Return the pair whose match is in doubt: at its exit it may end elsewhere, at its entry be another call."""
    spot = suspicion.spot
    if spot is None or suspicion.verdict is not Verdict.DIFFERS:
        return None
    pair = spot.pair
    if pair.why not in GUESSED or pair.candidate.parent is None or pair.reference.parent is None:
        return None
    same_kind = pair.reference.module.kind == pair.candidate.module.kind is not None
    if spot.what == "input":
        # A composite may begin earlier than the one that holds the same parameters: with an activation, say.
        composite = bool(pair.reference.children and pair.candidate.children)
        return pair if composite or (pair.why == BY_PLACE and not pair.candidate.children) else None
    stochastic = same_kind and CATALOGUE[pair.candidate.module.kind or ""].stochastic
    if stochastic or judge.settler.randomness.takes_numbers(pair):
        return None  # chance alone makes its output look wrong
    if pair.reference.children or pair.candidate.children or not same_kind:
        return pair
    if spot.reference.shape != spot.candidate.shape:
        # Nothing could be put in, so that what follows does not tell.
        return pair if pair.misfits and _is_cropped(pair, judge) and not _is_handed_over(pair, judge) else None
    around = judge.alignment.around(pair)
    if any(other.pair is around and other.order > suspicion.order for other in all_of_them):
        # What follows is wrong too, though it was fed: the reference's value was put in at another point.
        return pair
    return None


def _takes_more(pair: Pair) -> bool:
    """Return whether one side's call is given a value that the other's is not: its caller may have used that before."""
    counts = (sum(bool(epsilon_of(leaf.dtype)) for leaf in call.inputs) for call in (pair.reference, pair.candidate))
    return len(set(counts)) > 1


def _is_handed_on(suspicion: Suspicion) -> bool:
    """Return whether it is seen where a call's own code hands a value to a call inside of it."""
    spot = suspicion.spot
    return spot is not None and spot.what == "input" and spot.pair is not suspicion.pair


def _is_handed_through(suspicion: Suspicion) -> bool:
    """Return whether a call inside takes what one side's call is given, and the other's is not: it begins earlier.

    What makes that lies in the code around on one side, and is to be judged with it.
    """
    pair, spot = suspicion.pair, suspicion.spot
    if spot is None or not _is_handed_on(suspicion) or pair.why not in GUESSED or pair.candidate.parent is None:
        return False
    taken = [both for both in spot.pair.taken if both[0].token == spot.reference.token]
    tied = [{both[side].token for both in pair.taken} for side in (0, 1)]
    given = [{leaf.token for leaf in call.inputs} for call in (pair.reference, pair.candidate)]
    through = [any(both[side].token in given[side] - tied[side] for both in taken) for side in (0, 1)]
    return through[0] is not through[1]


def _is_handed_over(pair: Pair, judge: Judge) -> bool:
    """Return whether others take what two calls give in other shapes, or give it as it is, on both sides."""
    ours, theirs = zip(*pair.misfits, strict=True)

    def handed(call: Call, outputs: Sequence[int], others: Sequence[Call]) -> bool:
        tokens = {call.outputs[i].token for i in outputs}
        return any(leaf.token in tokens for other in others for leaf in (*other.inputs, *other.outputs))

    others = [other for other in judge.alignment.pairs if other is not pair]
    return handed(pair.reference, ours, [other.reference for other in others]) and handed(
        pair.candidate, theirs, [other.candidate for other in others]
    )


def _is_cropped(pair: Pair, judge: Judge) -> bool:
    """Return whether what follows two calls that give other shapes has one shape again: the code around cuts it."""
    inside = {*pair.candidate.subtree(), *pair.candidate.ancestors()}
    behind = (other for other in judge.alignment.pairs if other.candidate.index > pair.candidate.index)
    following = next((other for other in behind if other.candidate not in inside), None)
    return (
        not judge.alignment.pairs[0].misfits
        if following is None
        else not (following.misfed or following.unfit("inputs"))
    )


def _is_fused_by_one(suspicion: Suspicion, judge: Judge, trace: Trace) -> bool:
    """Return whether what the candidate's call gives is clearly nearer to what is made inside of its match, or behind.

    A norm that has its activation fused holds the activation as a module of its own. A composite on both sides that
    ends like something inside of it lacks what comes last: that is a fault of its own code.
    """
    pair, spot = suspicion.pair, suspicion.spot
    ours, theirs = bool(pair.reference.children), bool(pair.candidate.children)
    alone = pair.candidate if ours else pair.reference
    if spot is None or spot.what != "output" or spot.pair is not pair or ours is theirs or alone.module.kind is None:
        return False
    local, truth = judge.settler.made_alone(pair, spot), trace.value(spot.reference)
    if local is None or truth is None:
        return False
    if ours:
        known = {leaf.token for leaf in pair.reference.inputs}
        inside = (leaf for call in list(pair.reference.subtree())[1:] for leaf in call.inputs)
        leaves = [leaf for leaf in inside if leaf.token not in known]
    else:
        leaves = [*made_behind(pair.reference, local.shape, trace)]
    apart = [difference(value, local).rel_l2 for value in map(trace.value, leaves) if value is not None]
    return min(apart, default=np.inf) < _CLEARLY * difference(truth, local).rel_l2


def _ends_later(suspicion: Suspicion, judge: Judge, trace: Trace) -> bool:
    """Return whether what the candidate's call gives is what the reference makes right behind its match."""
    pair, spot = suspicion.pair, suspicion.spot
    if spot is None or spot.what != "output" or spot.pair is not pair:
        return False
    local = judge.settler.made_alone(pair, spot)
    if local is None:
        return False
    values = (trace.value(leaf) for leaf in made_behind(pair.reference, local.shape, trace))
    bound = ROUNDING(epsilon_of(spot.reference.dtype))
    return any(value is not None and difference(value, local).rel_l2 <= bound for value in values)
