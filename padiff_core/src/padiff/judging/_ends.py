"""Judge what lies at a model's ends: its inputs, its outputs that have no counterpart, and its loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from padiff.alignment import Alignment
from padiff.forcing import Forced, Given
from padiff.judging._findings import place_of
from padiff.judging._tolerance import Rule
from padiff.kinds import CATALOGUE
from padiff.numerics import LOSS, NEGLIGIBLE, epsilon_of
from padiff.report import Cause, Evidence, Figures, Finding, Phase, Place, Verdict, What
from padiff.trace import Trace

__all__ = ["loss_finding", "unlike_inputs", "unmatched_outputs"]


def unlike_inputs(forced: Forced, step: int) -> Iterator[Finding]:
    """Yield the arguments that were given as other values to each side: then the inputs differ, not the models."""
    for check in forced.checks:
        spot, found = check.spot, check.difference
        if check.backward or check.kept or spot.owner is not None or spot.what != "input":
            continue
        coarser = epsilon_of(spot.reference.dtype, spot.candidate.dtype)
        if found.rel_l2 <= NEGLIGIBLE(coarser) if check.close is None else check.close:
            continue
        name = spot.candidate.path
        yield Finding(
            verdict=Verdict.DIFFERS,
            phase=Phase.FORWARD,
            reference=place_of(spot.pair.reference),
            candidate=place_of(spot.pair.candidate),
            what=What("input", name),
            figures=Figures(found.rel_l2, found.max_abs, metrics=check.measured),
            evidence=(Evidence("other_inputs"),),
            cause=Cause("inputs", {"name": name}, verified=True),
            source=True,
            step=step,
        )


def loss_finding(
    trace: Trace, forced: Forced, given: tuple[Given, Given], rule: Rule | None, step: int
) -> Iterator[Finding]:
    """Yield the loss, where the two sides' functions make another number of the same output."""
    ours, theirs = trace.loss, forced.loss
    if ours is None or theirs is None:
        return
    error = abs(ours - theirs)
    bound = LOSS(epsilon_of(*(str(output.dtype) for output in trace.outputs)) or epsilon_of("float32"))
    if rule(np.asarray(ours), np.asarray(theirs)) if rule else error <= bound * max(abs(ours), abs(theirs)):
        return
    yield Finding(
        verdict=Verdict.DIFFERS,
        phase=Phase.LOSS,
        reference=Place("", location=given[0].loss_location),
        candidate=Place("", location=given[1].loss_location),
        what=What("loss"),
        figures=Figures(error / abs(ours) if ours else float("inf"), error),
        evidence=(Evidence.of("losses", reference=ours, candidate=theirs),),
        source=True,
        step=step,
    )


def unmatched_outputs(alignment: Alignment, step: int) -> Iterator[Finding]:
    """Yield the tensors that one model returns and the other does not."""
    root = alignment.of_reference(alignment.pairs[0].reference)
    assert root is not None
    kind = CATALOGUE.get(root.reference.module.kind or "")
    needed = kind.outputs if kind and kind.outputs is not None else None
    for side, call in (("reference", root.reference), ("candidate", root.candidate)):
        matched = {call.outputs[pair[0 if side == "reference" else 1]].token for pair in root.outputs}
        for index, leaf in enumerate(call.outputs):
            if leaf.token in matched or (needed is not None and index >= needed):
                continue
            returned = {"side": side, "name": leaf.path, "dtype": leaf.dtype, "shape": tuple(leaf.shape)}
            yield Finding(
                verdict=Verdict.UNMATCHED,
                phase=Phase.FORWARD,
                reference=place_of(root.reference),
                candidate=place_of(root.candidate),
                what=What("output", leaf.path, index),
                evidence=(Evidence("missing_output", returned),),
                source=True,
                side=side,
                step=step,
            )
