"""Know gradients that differ where rounding in a coarse type turns signs: at a kink (a ReLU) few elements come or go.

Of what differs so, half comes and half goes, and the norm stays as it is. What a fault cuts off goes, nothing comes,
and the norm shrinks by half the square of the error; what it scales, or adds, shows in the norm as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from padiff.alignment import Pair
from padiff.forcing import Spot
from padiff.judging._recorded._levels import Level
from padiff.judging._recorded._magnified import Magnified
from padiff.judging._recorded._meter import Meter
from padiff.judging._sizes import Size, held, magnitude, norm_of
from padiff.judging._suspicion import AGREEING, Ruled, Ruling
from padiff.kinds import PRODUCTS
from padiff.numerics import FLOORS, NEGLIGIBLE, is_coarse
from padiff.parameters import Link, UnitMatch
from padiff.report import Evidence, Verdict
from padiff.trace import Key

TURNED: tuple[Magnified | None, ...] = ("at_a_kink", "signs_turned")
"""What keeps the norm of a gradient."""
_MOST = math.sqrt(0.5)
"""The error up to which more stays than comes and goes."""


def as_rounding(
    ruled: Ruled, how: Magnified | None, spot: Spot, size: Size, known: Level, meter: Meter
) -> tuple[Ruled, Magnified | None]:
    """Return how a gradient is ruled that differs by rounding alone, and why that is so much, where it is known.

    It may be known ``how`` rounding is magnified there; where nothing leaps, signs may have turned. Behind such, what
    rounding makes up is of about one norm as well.
    """
    ruling, source = ruled
    eps = max(size.eps, known.cast)
    behind = known.turned and is_coarse(eps) and ruling.rests_on("rounding_magnified")
    agrees = ruling.verdict in AGREEING and not behind
    arises = not (agrees or source or known.differs or size.close is not None)
    if how is None and (behind or arises) and is_coarse(eps):
        norms = _norms(spot, meter)
        # Of signs that were turned in front of it, by chance more came than went, or fewer.
        most = max(NEGLIGIBLE(eps), size.error * (1 if known.turned else size.error) / 4)
        if not min(norms):
            return ruled, None  # nothing came to one side, or it is not known how much
        if size.error <= _MOST and abs(norms[0] - norms[1]) <= most * norms[0]:
            how = "signs_turned"
        elif known.turned:
            told = known.consequence if known.differs else Evidence.of("other_norm", times=norms[1] / norms[0])
            return (Ruling(Verdict.DIFFERS, ruling.figures, (told,)), False), None
    if how is None or agrees:
        return ruled, how
    return (Ruling(Verdict.ROUNDING, ruling.figures, (Evidence(how),)), False), how


def _norms(spot: Spot, meter: Meter) -> tuple[float, float]:
    leaves = zip(meter.traces, (spot.reference, spot.candidate), strict=True)
    ours, theirs = (norm_of(held(trace, trace.gradients.get(leaf.token))) for trace, leaf in leaves)
    return ours, theirs


def sums_up(
    match: UnitMatch, link: Link, size: Size, users: Sequence[Pair], levels: Mapping[Key, Level], meter: Meter
) -> bool:
    """Return whether a parameter's gradient differs by no more than the gradients that it sums up.

    What these are apart adds up as random numbers do, each times what the layer takes there; what is summed may cancel.
    Known of layers that multiply what they take by their weights, and of weights along one axis (a bias, a norm's).
    ``levels`` are those of the gradients that came to calls.
    """
    shape, total = link.candidate.shape, 0.0
    told = all(pair.key in levels and not levels[pair.key].differs for pair in users)
    coarse = told and any(is_coarse(max(size.eps, levels[pair.key].cast)) for pair in users)
    if size.close is not None or not coarse or not (len(shape) == 1 or match.reference.kind in PRODUCTS):
        return False
    ours, theirs = meter.traces
    for pair in users:
        sent = [meter.size(ours.gradients.get(a.token), theirs.gradients.get(b.token)) for a, b in pair.made]
        taken = max((magnitude(held(ours, ours.values.get(leaf.token))) for leaf, _ in pair.taken), default=0.0)
        times = max(1.0, taken) if len(shape) == 1 else taken * math.sqrt(math.prod(shape[1:]))
        if not sent or not (pair.reference.leaf and pair.candidate.leaf):
            return False
        total += sum(math.inf if one is None else (times * one.apart) ** 2 for one in sent)
    return math.isfinite(total) and size.apart <= FLOORS * math.sqrt(total)
