"""Read weights that a script moves itself as averages of those that an optimizer steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._parameter_values import When
from padiff.judging._recorded._two_steps import exact, norm
from padiff.judging._sizes import multiple, projected
from padiff.numerics import EXACT, FLOORS, VANISHES, Array
from padiff.parameters import Link
from padiff.report import SIDES, Cause, Finding
from padiff.trace import Trace

_Way = tuple[Array, Array]
"""How far a script moved something, and how far it would have had to go to what it averages."""


@attrs.frozen
class Averages:
    """What both sides' scripts average into one parameter, and how much of it each keeps."""

    kept: tuple[float, float]
    alike: bool
    """Whether each keeps as much: then the averages differ as what is averaged does, by rounding alone, say."""

    @property
    def cause(self) -> Cause | None:
        """Return that one side keeps more, where it does."""
        if self.alike:
            return None
        kept = {side: float(f"{one:.4g}") for side, one in zip(SIDES, self.kept, strict=True)}
        return Cause("average_keeps", kept, verified=True)


def is_scripts(link: Link, meter: Meter) -> bool:
    """Return whether both runs tell what their optimizers step, and a parameter is none of it: it may be frozen."""
    sides = zip(_paths(link), meter.traces, meter.settings(link), strict=True)
    return tell_all(meter) and all(settings is None or _is_idle(path, trace) for path, trace, settings in sides)


def tell_all(meter: Meter) -> bool:
    """Return whether both runs tell what their optimizers step."""
    return all(trace.stepped and all(one.parameters for one in trace.stepped) for trace in meter.traces)


def _is_idle(path: str, trace: Trace) -> bool:
    """Return whether a parameter is frozen, and no gradient came to it: an optimizer that holds it leaves it."""
    held = trace.parameters.get(path)
    return held is not None and not held.trainable and path not in trace.parameter_gradients


def is_untouched(link: Link, meter: Meter) -> bool:
    """Return whether both sides' optimizers step others, and leave a parameter as it is: they have zeros at most."""
    sides = list(zip(_paths(link), meter.traces, strict=True))
    if any(_is_handed(path, trace) or not trace.handed for path, trace in sides):
        return False
    values = zip(*(meter.held(link, when) for when in ("before", "updated")), strict=True)
    both = [tuple(map(projected, one)) for one in values]
    return all(a is not None and b is not None and np.array_equal(a, b) for a, b in both)


def _is_handed(path: str, trace: Trace) -> bool:
    """Return whether an optimizer is given a gradient of a parameter that may move it."""
    key = trace.handed.get(path)
    known = None if key is None else trace.summaries.get(key)
    return key is not None and (known is None or known.norm != 0)


def _paths(link: Link) -> tuple[str, str]:
    return link.reference.parameter.path, link.candidate.parameter.path


def averages_of(meter: Meter, link: Link, links: Sequence[Link], eps: float) -> Averages | None:
    """Return it where a parameter moved towards the same other one of ``links`` on both sides; else None."""
    for other, when in _candidates(link, links):
        ways = _ways(meter, link, other, when)
        shares = [_share(way, eps, scale) for way, scale in ways]
        if len(shares) == len(SIDES) and shares[0] is not None and shares[1] is not None:
            way, scale = ways[1]
            alike = _left(way, shares[0]) <= EXACT(eps) * scale
            return Averages((1 - shares[0], 1 - shares[1]), alike)
    return None


def as_one_average(found: Sequence[tuple[Link, Finding]]) -> list[tuple[Link, Finding]]:
    """Return findings of which those on averages have one cause, where rounding alone lets them tell other shares.

    That of the largest parameter is told. So it is beside what stays as it was, where rounding may be all that moved.
    """
    averages = [(link, one.cause) for link, one in found if one.cause is not None and one.is_caused_by("average_keeps")]
    _, known = max(averages, key=lambda both: math.prod(both[0].candidate.shape), default=(None, None))
    stays = next((one.cause for _, one in found if one.is_caused_by("not_stepped")), None)
    told = []
    for link, one in found:
        kept = one.cause if one.cause is not None and one.is_caused_by("average_keeps") else None
        near = kept is not None and known is not None and all(_is_near(kept, known, side) for side in SIDES)
        stays_too = stays is not None and _may_stay(one, stays.parameters["side"])
        told.append((link, attrs.evolve(one, cause=known if near else stays if stays_too else one.cause)))
    return told


def _may_stay(one: Finding, side: str) -> bool:
    """Return whether one side's step is all that differs, but for a share that rounding may have made."""
    told = next((said.figures for said in one.evidence if said.kind == "update_of_runs" and one.cause is None), None)
    if told is None:
        return False
    rest = told["step_rel_l2"] if side == SIDES[0] else abs(told["rel_l2"] - told["step_rel_l2"])
    return bool(FLOORS * rest <= told["rel_l2"])


def _is_near(one: Cause, other: Cause, side: str) -> bool:
    shares = 1 - one.parameters[side], 1 - other.parameters[side]
    return bool(abs(shares[0] - shares[1]) <= max(shares) / VANISHES)


def _candidates(link: Link, links: Sequence[Link]) -> Iterator[tuple[Link, When]]:
    """Yield what may be averaged into a parameter: of its shape, the likest named first, behind a step or before."""
    own = link.candidate.parameter.path[::-1]

    def named_alike(one: Link) -> int:
        pairs = zip(own, one.candidate.parameter.path[::-1], strict=False)
        return sum(1 for _ in itertools.takewhile(lambda both: both[0] == both[1], pairs))

    alike = [one for one in links if one is not link and one.candidate.shape == link.candidate.shape]
    for one in sorted(alike, key=named_alike, reverse=True):
        yield one, "updated"
        yield one, "before"


def _ways(meter: Meter, link: Link, other: Link, when: When) -> list[tuple[_Way, float]]:
    """Return the way that each side's script went, and that to what it may average, with the size of the values."""
    held = [meter.held(link, "before"), meter.held(link, "updated"), meter.held(other, when)]
    found = []
    for started, ended, target in zip(*held, strict=True):
        values = [projected(one) for one in (started, ended, target)]
        if any(one is None or values[0] is None or one.shape != values[0].shape for one in values):
            return []
        before, after, of = (exact(one) for one in values if one is not None)
        found.append(((after - before, of - before), max(norm(before), norm(of))))
    return found


def _share(way: _Way, eps: float, scale: float) -> float | None:
    """Return what part of the whole way was gone; None where it led elsewhere, or is too short to tell."""
    went, whole = way
    share, left = multiple(whole, went)
    fits = left <= EXACT(eps) * scale < norm(went)
    return share if fits and 0 < share <= 1 + EXACT(eps) else None


def _left(way: _Way, share: float) -> float:
    return norm(way[0] - share * way[1])
