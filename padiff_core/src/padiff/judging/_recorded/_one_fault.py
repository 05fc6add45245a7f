"""Make one fault of recorded runs one source, where several values show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from padiff.alignment import Alignment, Pair
from padiff.judging._findings import as_one, pair_of, size_in
from padiff.judging._recorded._moved_weights import behind_another
from padiff.numerics import ACCUMULATED, epsilon_of
from padiff.paths import upwards
from padiff.report import Cause, Evidence, Finding, Phase, Place, Verdict
from padiff.trace import Description


def of_one_fault(found: Sequence[Finding], alignment: Alignment) -> list[Finding]:
    """Return findings of which those are no sources that tell of a fault which another one tells.

    A loss that is another from the same outputs, and what the backward pass starts from. What one setting of a module
    does to its output, and to its buffers; what code that computes something else sends back. What a script gives to a
    model that was made of what differed before, or keeps of that (a queue, a copy of statistics), or where it makes a
    loss of it too; and what a loss sends that it makes of other inputs. The order in which two optimizers step: each in
    front of calls that the other side's are behind. A loss of what several modules give, which sends other gradients to
    each of them. Weights of several modules that a script moves in front of one call.
    """
    first = [one for one in found if one.source and starts(one, alignment)]
    begun = (pair for one in first if (pair := pair_of(one, alignment)) is not None)
    sent = {leaf.token for pair in begun for _, leaf in pair.made}
    # To what a script gives come the gradients of all calls that it gives it to: of others, where it gives these more.
    inputs = any(one.source and one.is_caused_by("inputs") for one in found)
    given = {leaf.token for top in alignment.tops for _, leaf in top.taken} if inputs else set[int]()
    forward = {one.candidate.path for one in found if one.source and one.phase is Phase.FORWARD}
    kept = {one.candidate.path for one in found if one.source and one.phase is Phase.BUFFER and one.cause is not None}
    behind, lost = _behind(found, alignment), any(one.source and one.phase is Phase.LOSS for one in found)
    begins = [one for one in first if one.cause is None]
    seen: set[tuple[str | None, str]] = set()
    told = []
    for one in _with_the_loss(found, first):
        timed, pair = one.is_caused_by("stepped_before"), pair_of(one, alignment)
        moved = pair if one.rests_on("changed_within_step") else None  # all weights by one line of the script's
        key = ("", "timed") if timed else (one.candidate.path, str(one.cause))
        key = key if moved is None else ("", str(moved.candidate.top.key))
        again = ((one.cause is not None or moved is not None) and key in seen) or one in begins[1:]
        kept_too = one.phase is Phase.BUFFER and one.cause is None
        again |= kept_too and (one.candidate.path in forward or (pair is None and (lost or bool(forward or kept))))
        sent_by = one.phase is Phase.BACKWARD and one.cause is None and not starts(one, alignment)
        again |= inputs and one in begins and not one.rests_on("gradient_cut")
        again |= sent_by and one.candidate.path in forward and not one.rests_on("gradient_cut")
        again |= one.phase is Phase.FORWARD and one.candidate.path in kept and _is_read(one, alignment)
        again |= (one.rests_on("other_inputs") and pair in behind) or behind_another(one, found, alignment)
        again |= pair is not None and _token(one, pair) in (sent | given if _is_end(pair) else given)
        if one.source and not again:
            seen.add(key)
        told.append(attrs.evolve(one, source=one.source and not again))
    return told


def as_one_term(
    found: Sequence[Finding], models: tuple[Description, Description], alignment: Alignment
) -> list[Finding]:
    """Return findings of which those on gradients of several modules are one source, where no call is sent another.

    A term of the loss comes to the parameters past all calls: the norm of a gradient, by a backward pass of its own.
    What code around these modules sends to what they give is of that term too, where that code is not linear.
    """
    sources = [one for one in found if one.source]
    group = [one for one in sources if one.cause is None and one.what.kind == "parameter_gradient"]
    around = set.intersection(*({*upwards(one.candidate.path or "")} for one in group)) if group else set[str]()
    inside = [one for one in sources if one.cause is None and starts(one, alignment) and one.candidate.path in around]
    several = {one.candidate.path for one in (*group, *inside)}
    if not group or len(group) + len(inside) < len(sources) or len(several) < 2:
        return list(found)
    worst = max(group, key=size_in)
    found = [attrs.evolve(one, source=False) if one in inside else one for one in found]
    whole = as_one(group, models, "gradients", "parameters", evidence=worst.evidence, figures=worst.figures)
    return [whole if one is group[0] else one for one in found if one is group[0] or one not in group]


def of_the_model(finding: Finding, models: tuple[Description, Description]) -> Finding:
    """Return a finding on the loss, placed at the model itself: a script may make it of what several modules give."""
    reference, candidate = (
        Place("", model.modules[""].module.class_name) if place.path else place
        for model, place in zip(models, (finding.reference, finding.candidate), strict=True)
    )
    return attrs.evolve(finding, reference=reference, candidate=candidate)


def is_loss_alone(found: Sequence[Finding]) -> bool:
    """Return whether nothing but the loss differs, that a script gave: neither what it is made of, nor any gradient."""
    return {one.phase for one in found if one.verdict is Verdict.DIFFERS} == {Phase.LOSS}


def beside_equal_gradients(finding: Finding) -> Finding:
    """Return a finding on the loss that says so: the step that follows rests on these gradients, and on no loss."""
    if finding.phase is not Phase.LOSS:
        return finding
    return attrs.evolve(finding, evidence=(*finding.evidence, Evidence("no_gradient_differs")))


def starts(finding: Finding, alignment: Alignment) -> bool:
    """Return whether a finding is on what the backward pass starts from: the gradient of what a script is given."""
    pair = pair_of(finding, alignment)
    return finding.what.kind == "output_gradient" and pair is not None and _is_end(pair)


def _with_the_loss(found: Sequence[Finding], first: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings without the ``first`` of the backward pass as sources, where the loss is one.

    The loss has the factor of these as its cause, where it is that; another factor is another fault. What it sends past
    all that is given (by a gradient's own norm) is no source: to parameters, where no value is sent another gradient
    inside, and to these values too, where none is that the backward pass starts from.
    """
    loss = next((one for one in found if one.phase is Phase.LOSS and one.source), None)
    scaled = next((one.cause for one in first if one.is_caused_by("loss_scaled", "loss_of_each_batch")), None)
    if loss is None or (scaled is not None and not _is_factor(scaled, loss)):
        yield from found
        return
    inside = any(one.source and one.what.kind in _SENT for one in found if one not in first)
    past_all = ("parameter_gradient",) if first else ("parameter_gradient", *_SENT)
    kinds = () if first and inside else past_all
    for one in found:
        past = one.what.kind in kinds and one.cause is None and not one.rests_on("gradient_cut")
        if one is loss:
            cause = one.cause or scaled
            yield attrs.evolve(one, cause=cause, evidence=(*one.evidence, *(() if cause else _sent(first))))
        else:
            yield attrs.evolve(one, source=one.source and not past and not any(one is other for other in first))


def _sent(first: Sequence[Finding]) -> Iterator[Evidence]:
    """Yield how a loss without a known factor sends other gradients to what the model gives."""
    for one in first[:1]:
        if one.figures is not None:
            yield Evidence.of("sent_otherwise", rel_l2=one.figures.rel_l2)
            yield from (said for said in one.evidence if said.kind not in ("leap", "consequence"))


_SENT = ("output_gradient", "input_gradient")


def _is_factor(scaled: Cause, loss: Finding) -> bool:
    if scaled.name != "loss_scaled":
        return True
    figures = next((one.figures for one in loss.evidence if {"reference", "candidate"} <= one.figures.keys()), None)
    if figures is None or not figures["reference"]:
        return False
    times = figures["candidate"] / figures["reference"]
    return bool(abs(times / scaled.parameters["times"] - 1) <= ACCUMULATED(epsilon_of("float32")))


def _behind(found: Sequence[Finding], alignment: Alignment) -> list[Pair]:
    """Return the calls that a script makes behind one that is given, or gives, something else."""
    differing = (pair_of(one, alignment) for one in found if one.source and one.phase is Phase.FORWARD)
    ends = [pair.candidate.top.end[0] for pair in differing if pair is not None]
    return [pair for pair in alignment.pairs if ends and _is_end(pair) and pair.candidate.index > min(ends)]


def _is_end(pair: Pair) -> bool:
    """Return whether a script calls a module on one side: what that gives may go into a loss."""
    return pair.reference.parent is None or pair.candidate.parent is None


def _is_read(one: Finding, alignment: Alignment) -> bool:
    """Return whether a finding is on what an evaluation gives: by statistics that were kept before."""
    pair = pair_of(one, alignment)
    return pair is not None and not (pair.reference.training or pair.candidate.training)


def _token(one: Finding, pair: Pair) -> int | None:
    """Return the tensor of a call's inputs whose gradient a finding is on."""
    if one.what.kind != "input_gradient" or one.what.index is None:
        return None
    given = pair.candidate.inputs[one.what.index : one.what.index + 1]  # none where it is a call's inside
    return next((leaf.token for leaf in given if leaf.path == one.what.name), None)
