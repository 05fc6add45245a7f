"""A suspect: a value that differs by more than rounding, the call whose code made it, and the ruling on it."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.alignment import Pair
from padiff.forcing import Assess, Assessment, Check, NotRepeated, Spot
from padiff.judging._metrics import Measures
from padiff.judging._tolerance import Rule
from padiff.numerics import FLOORS, NEGLIGIBLE, NEGLIGIBLE_LIBRARY, Difference, Threshold, is_suspect
from padiff.parameters import Held
from padiff.report import Cause, Evidence, Figures, Measurement, Phase, Verdict, What
from padiff.trace import contrasts

AGREEING = (Verdict.EQUAL, Verdict.ROUNDING, Verdict.WITHIN_TOLERANCE)
"""Verdicts of which nothing needs to be said."""


@attrs.frozen(eq=False)
class Suspicion:
    """One settled suspect that is more than rounding."""

    pair: Pair
    """The call whose own code is at issue."""
    phase: Phase
    what: What
    ruling: Ruling
    between: tuple[str, str] | None = None
    spot: Spot | None = None
    held: Held | None = None
    measured: tuple[Measurement, ...] = ()
    """What the metrics of plugins give for the arrays that were compared."""
    arises: bool = True
    """Whether the difference arises there; it may follow from what its code was given, where nothing was fed."""
    vague: bool = False
    """Whether what its own call was given is not known, so that the call around it is named."""
    order: int = attrs.field(kw_only=True)
    """The candidate's call where it was seen."""

    @order.default
    def _seen(self) -> int:
        return (self.pair if self.spot is None else self.spot.pair).candidate.index

    @property
    def verdict(self) -> Verdict:
        """Return the ruling's verdict."""
        return self.ruling.verdict


def suspicion_of(pair: Pair, phase: Phase, what: What, ruling: Ruling, check: Check) -> Suspicion:
    """Return the suspicion that a check of the forced run gives rise to."""
    between, spot = None, check.spot
    if pair.candidate.children:
        in_front = phase is Phase.BACKWARD and spot.what == "input"  # the code that let no gradient through to it
        between = spot.between if spot.owner is pair else beside(pair, spot.pair, in_front=in_front)
    return Suspicion(pair, phase, what, ruling, between, spot, measured=check.measured)


def beside(owner: Pair, pair: Pair, *, in_front: bool) -> tuple[str, str] | None:
    """Return the names of the owner's child that a call is, or is in, and of the child called next, or before it."""
    children = owner.candidate.children
    inside = [any(call is pair.candidate for call in child.subtree()) for child in children]
    if True not in inside:
        return None
    names = ["start", *map(owner.name_of, children), "end"]
    first = inside.index(True) + (not in_front)
    return names[first], names[first + 1]


def value_at(spot: Spot, *, gradient: bool = False) -> What:
    """Return which value a spot is, or its gradient."""
    call = spot.pair.candidate
    leaves = call.outputs if spot.what == "output" else call.inputs
    index = next((i for i, leaf in enumerate(leaves) if leaf.path == spot.candidate.path), None)
    kind = f"{spot.what}_gradient" if gradient else spot.what
    if spot.what == "output":
        return What(kind, spot.candidate.path if len(leaves) > 1 else "", index)
    return What(kind, spot.candidate.path, index, spot.between[1])


def gradient_sent(pair: Pair, spot: Spot) -> What:
    """Return which gradient a call sends wrongly: that of its own input, where it is given the tensor itself."""
    for ours, theirs in pair.inputs if spot.what == "input" or pair is not spot.pair else ():
        if pair.reference.inputs[ours].token == spot.reference.token:
            return What("input_gradient", pair.candidate.inputs[theirs].path, theirs)
    return value_at(spot, gradient=True)


def within(owner: Pair, spot: Spot) -> Hashable:
    """Return what a value of a call and the same value of another such call have in common."""
    return value_at(spot), spot.pair.candidate.path.removeprefix(owner.candidate.path)


def contrasted(pair: Pair, but: frozenset[str] = frozenset()) -> bool:
    """Return whether a hyper-parameter (``but`` some) differs: then even a small difference is worth settling."""
    return any(c.setting not in but for c in contrasts(pair.reference, pair.candidate))


def negligible(pair: Pair) -> Threshold:
    """Return which local errors of a call need no settling."""
    kind = pair.reference.module.kind
    alone = not pair.reference.children and not pair.candidate.children
    return NEGLIGIBLE_LIBRARY if alone and kind is not None and kind == pair.candidate.module.kind else NEGLIGIBLE


def assessing(rule: Rule | None, measures: Measures) -> Assess | None:
    """Return what answers for the user's own rule and for the metrics, as far as a value may become a finding."""
    if rule is None and not measures:
        return None

    def assess(owner: Pair | None, apart: Difference, ours: NDArray[Any], theirs: NDArray[Any]) -> Assessment:
        close = None if rule is None else rule(ours, theirs)
        matters = not close
        if close is None:
            matters = is_suspect(apart, ours.dtype) or (owner is not None and contrasted(owner))
        return Assessment(close, measures(ours, theirs) if measures and matters else ())

    return assess


_LONGEST = 120
"""Characters of an error's first line that are kept."""
_RECORDED = "recorded"
"""Stands for an error: of that side only a recorded run is left."""


UNMEASURED = Figures(float("inf"), float("nan"))
"""Stands for the figures of what has no numbers to compare: its finding has none."""


@attrs.frozen
class Ruling:
    """The verdict on a suspect, and the evidence for it."""

    verdict: Verdict
    figures: Figures
    evidence: tuple[Evidence, ...]
    settled: bool = True
    """Whether the call was replayed by itself: what is seen in the whole model only may be another's."""
    hint: Cause | None = None
    """The cause, where settling found one."""

    def rests_on(self, *kinds: str) -> bool:
        """Return whether it rests on evidence of one of some kinds."""
        return any(one.kind in kinds for one in self.evidence)

    @property
    def is_narrow(self) -> bool:
        """Return whether what is rounded in a narrower type explains all of the difference, as it was seen, too."""
        noises = (one.figures["noise"] for one in self.evidence if one.kind == "narrow_cast")
        return any(self.figures.rel_l2 <= FLOORS * noise for noise in noises)

    def resting_on(self, *evidence: Evidence) -> Ruling:
        """Return it with more evidence."""
        return attrs.evolve(self, evidence=(*self.evidence, *evidence))


Refusal = Mapping[str, str | None]
"""Why a call tells nothing in a wider type, as figures of a piece of evidence."""
DOES_NOT_ARISE: Refusal = {"refused_by": None, "error": ""}


Ruled = tuple[Ruling, bool]
"""How a value is ruled on, and whether a difference arises there."""


def refusal(side: str, error: Exception) -> Refusal:
    """Return that a side cannot run there, with the first line of its error."""
    if isinstance(error, NotRepeated):
        return {"refused_by": side, "error": _RECORDED}
    said = textwrap.shorten(next(iter(str(error).strip().splitlines()), ""), _LONGEST, placeholder=" ...")
    return {"refused_by": side, "error": f"{type(error).__name__}: {said}"}
