"""Judge the gradients that come to a model's inputs, behind all that its calls sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from padiff.judging._reading import gradient_of
from padiff.judging._ruling import Ruling
from padiff.judging._suspicion import Suspicion
from padiff.judging._wholes import is_mask
from padiff.numerics import ACCUMULATED, epsilon, relative
from padiff.report import Evidence, Figures, Phase, Verdict, What
from padiff.trace import Key

if TYPE_CHECKING:
    from padiff.judging._judge import Judge


def of_inputs(judge: Judge, excused: set[Key]) -> Iterator[Suspicion]:
    """Yield the model's inputs to which another gradient comes, though what the calls sent was put right."""
    root = judge.alignment.pairs[0]
    for check in judge.forced.inputs:
        apart = check.difference
        known = any(pair.key in excused for pair in (root, *check.users))
        users = [pair for pair in check.users if pair is not root]
        if any(pair.key in judge.forced.unreached for pair in users):
            judge.unproven = True  # cut off further on
            continue
        if known or relative(apart) <= ACCUMULATED(epsilon(check.reference.dtype)) or judge.leaks(root, excused):
            continue
        if check.alone is None and judge.is_right(root):
            judge.unproven = True
            continue
        leaf = root.reference.inputs[check.index]
        if check.alone is None and judge.settler.rounding(users, gradient_of(leaf.token), apart) is not None:
            continue  # what takes the input sends that gradient, in a narrower type on one side
        evidence, pair = Evidence("model_changes_gradient"), root
        if check.alone:
            if is_mask(judge.trace.value(leaf)):
                continue
            evidence = Evidence.of("gradient_to_one", side=check.alone)
            # What took it got a gradient, and sent none on.
            pair = max(users, key=lambda pair: pair.candidate.index, default=root)
        ruling = Ruling(Verdict.DIFFERS, Figures.of(apart), (evidence,))
        what = What("input_gradient", leaf.path, check.index)
        measured = judge.measures(check.reference, check.candidate)
        yield Suspicion(pair, Phase.BACKWARD, what, ruling, pair.candidate.index, measured=measured)
