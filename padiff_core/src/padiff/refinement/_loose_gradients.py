"""Leave gradients uncompared that are no measure: those of tensors that one side uses elsewhere as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set

import attrs

from padiff.forcing import Check, Spot, StateCheck
from padiff.judging import Judge, Suspicion, of_gradients
from padiff.kinds import CATALOGUE
from padiff.numerics import ACCUMULATED, epsilon, epsilon_of, relative
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence
from padiff.report import Verdict


def with_loose_gradients(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Leave gradients uncompared that are other ones, of tensors that one side may use elsewhere as well.

    Two tensors may hold the same and be handed to the same call while the code around, on one side, goes on with its
    own (concatenates it further, where the other side keeps a list): its gradient is then another sum. So is that of
    what a model returns and goes on with (the last state of a recurrence), where the other one returns a part of it.
    Left out of the comparison, what follows in the backward pass is right all the same; behind a fault it is not. Where
    nothing would be left that differs, whole models have to give the same gradients, too.
    """
    found = _with_other_gradients_loose(correspondence, evidence)
    if found is correspondence or evidence.rule is not None:
        return found
    judge = evidence.judged(found)
    passes = not (_differs(judge.forward()) or backward_faults(judge))
    return correspondence if passes and not evidence.gives_gradients(found) else found


def _with_other_gradients_loose(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence under which gradients that seem to be other ones are no measure."""
    correspondence = _without_shares(correspondence, evidence)
    judge = evidence.judged(correspondence)
    spots = [check.spot for check in _large_gradients(judge)]
    inner = {spot.reference.token for spot in spots if spot.what == "input"}
    ends = {spot.reference.token for spot in spots if spot.pair in correspondence.alignment.pairs[:1]}
    everywhere = {spot.reference.token for spot in spots}
    forward = judge.forward() if everywhere else []
    # A fault that is seen forward explains what is seen backward: nearly always, and without another run.
    if not everywhere or (_differs(forward) and not backward_faults(judge)):
        return correspondence
    if _differs(forward):
        correspondence = _without_used_outputs(correspondence, evidence, spots)
    choices = [inner | ends, inner] if evidence.loss and ends - inner else [inner | ends]
    best = next(filter(None, (_loosened(correspondence, evidence, tokens, ends) for tokens in choices if tokens)), None)
    # What one call gives here, and takes all of the gradient of, several may give there, each with its part; or it uses
    # what it gives, and there a view of that.
    if everywhere > inner | ends and not _differs(forward):
        if best is not None and not backward_faults(evidence.judged(best)):
            return best
        loosened = attrs.evolve(correspondence, calls=correspondence.alignment.loosened(everywhere))
        again = evidence.judged(loosened)
        if not (backward_faults(again) or _wrong_parameters(again)):
            return loosened
        left = best or correspondence
        return _without_used_outputs(left, evidence, [one.spot for one in _large_gradients(evidence.judged(left))])
    return best or correspondence


def _without_shares(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Leave out gradients of what the reference makes once and the candidate several times, where others come right.

    Queries and keys may be one tensor, or the same sum made twice, and each gets its share.
    """
    pairs = (both for pair in correspondence.alignment.pairs for both in pair.taken)
    taken = {(a.token, b.token) for a, b in pairs if a.differentiable and b.differentiable}
    times = Counter(ours for ours, _ in taken)
    wrong = {check.spot.reference.token for check in _large_gradients(evidence.judged(correspondence))}
    shared = {token for token in wrong if times[token] > 1}
    if not shared:
        return correspondence
    tried = attrs.evolve(correspondence, calls=correspondence.alignment.loosened(shared))
    left = {check.spot.reference.token for check in _large_gradients(evidence.judged(tried))}
    return tried if left - shared < wrong - shared else correspondence


def _without_used_outputs(correspondence: Correspondence, evidence: Evidence, spots: Sequence[Spot]) -> Correspondence:
    """Leave out gradients of what a call gives and may use itself, where others come right then, beside a fault.

    So are those of a call that stands for several of the other side, each of which takes its part.
    """
    wrong = {spot.reference.token for spot in spots}
    calls = correspondence.alignment
    ours, theirs = ({call.path for call in left} for left in (calls.left_reference, calls.left_candidate))
    for spot in spots:
        token, pair = spot.reference.token, spot.pair
        stands = pair.reference.path in ours or pair.candidate.path in theirs
        if spot.what == "input" or not (stands or len(pair.reference.outputs) > 1) or token not in wrong:
            continue
        tried = attrs.evolve(correspondence, calls=correspondence.alignment.loosened({token}))
        left = {check.spot.reference.token for check in _large_gradients(evidence.judged(tried))}
        if left - {token} < wrong - {token} or (stands and left <= wrong):
            correspondence, wrong = tried, left
    return correspondence


def _loosened(
    correspondence: Correspondence, evidence: Evidence, tokens: Set[int], ends: Set[int]
) -> Correspondence | None:
    """Return the correspondence under which the gradients of some tensors are no measure, where they are none."""
    judge = evidence.judged(correspondence)
    loosened = attrs.evolve(correspondence, calls=correspondence.alignment.loosened(tokens))
    again = evidence.judged(loosened)
    # What another loss sends into an output is wrong behind it as well, and be it in the parameters alone.
    lost = evidence.loss and bool(ends & tokens)
    before, after = (len(_wrong_parameters(one)) for one in (judge, again))
    if (lost and after > before) or (after >= before > 0 and not _differs(judge.forward())):
        return None
    fewer = 2 * len(list(_large_gradients(again))) < len(list(_large_gradients(judge)))
    return loosened if fewer or (not lost and len(backward_faults(again)) < len(backward_faults(judge))) else None


def _large_gradients(judge: Judge) -> Iterator[Check]:
    """Yield gradients that are more than rounding apart at first sight, but for those that chance makes so."""
    for check in judge.forced.checks:
        kind = check.spot.pair.reference.module.kind
        # An error that a use of the tensor elsewhere may explain.
        large = check.difference.rel_l2 > ACCUMULATED(epsilon_of(check.spot.reference.dtype))
        if check.backward and large and not (kind and CATALOGUE[kind].stochastic):
            yield check


def _wrong_parameters(judge: Judge) -> list[StateCheck]:
    checks = judge.forced.gradients
    return [one for one in checks if relative(one.difference, one.scale) > ACCUMULATED(epsilon(one.reference.dtype))]


def _differs(suspicions: Sequence[Suspicion]) -> bool:
    return any(suspicion.verdict is Verdict.DIFFERS for suspicion in suspicions)


def backward_faults(judge: Judge) -> Sequence[Suspicion]:
    """Return what differs backward, be it in a parameter alone, and what differs forward does not explain."""
    forward = judge.forward()
    found = judge.backward(forward)
    return [*found, *of_gradients(judge, [*forward, *found])]
