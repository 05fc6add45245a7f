"""Find what one side's script adds to the gradients of parameters themselves: a penalty on weights, in its loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from padiff.judging._findings import as_one
from padiff.judging._recorded._meter import Meter
from padiff.judging._sizes import projected
from padiff.numerics import ACCUMULATED, EXACT, SAME, Array, epsilon_of, in_reals
from padiff.parameters import Correspondence, Link
from padiff.paths import joined
from padiff.report import SIDES, Cause, Finding, Note, Phase

_PENALTIES: dict[str, Callable[[Array], Array]] = {"weights": lambda weights: weights, "signs": np.sign}
"""What the gradient of a penalty is a multiple of: of squares, and of sizes."""


@attrs.frozen(eq=False)
class _Added:
    """What one gradient has beyond the other's, beside the weights."""

    more: Array
    weights: Array
    rounding: float
    """The norm of what rounding may add."""


def of_penalty(found: Sequence[Finding], meter: Meter, known: Correspondence) -> list[Finding]:
    """Return findings of which those on gradients that have one multiple of their weights more are one source.

    Where the loss differs, which holds it, that is the source.
    """
    links = {link.candidate.parameter.path: link for _, link in known.links if not link.buffer}
    eps = epsilon_of(*{leaf.dtype for trace in meter.traces for call in trace.calls for leaf in call.outputs})
    told: list[tuple[int, _Added]] = []
    for number, one in enumerate(found):
        link = links.get(joined(one.candidate.path or "", one.what.name))
        if one.source and one.cause is None and one.what.kind == "parameter_gradient" and link is not None:
            added = _added(meter, link, eps)
            told += [] if added is None else [(number, added)]
    cause, numbers = _penalty(told)
    if cause is None:
        return list(found)
    group, at = [found[number] for number in numbers], numbers[0]
    loss = any(one.source and one.phase is Phase.LOSS for one in found)
    evidence = group[0].evidence
    whole = as_one(group, meter.models, "gradients", "parameters", evidence=evidence, cause=cause, source=not loss)
    rest = [whole if number == at else one for number, one in enumerate(found) if number == at or number not in numbers]
    return [attrs.evolve(one, cause=cause) if one.source and one.phase is Phase.LOSS else one for one in rest]


def without_decay(found: Sequence[Finding], meter: Meter, known: Correspondence) -> tuple[list[Finding], list[Note]]:
    """Return findings without a penalty that the other side's optimizer makes of its weights, and a note on that.

    It decays weights by as much as the penalty's gradient does, and nothing else differs: all weights are the same
    behind the step.
    """
    differing = [one for one in found if one.counts]
    causes = [one.cause for one in differing if one.cause is not None and one.is_caused_by("penalty")]
    of_parameters = all(one.what.kind in ("gradients", "parameter_gradient") for one in differing)
    if not causes or not of_parameters or causes[0].parameters["of"] != "weights":
        return list(found), []
    side, times = causes[0].parameters["side"], causes[0].parameters["times"]
    links = [(match, link) for match, link in known.links if not link.buffer and link.differentiated]
    decays = [_decays(meter, link, side) for _, link in links]
    alike = all(_is_stepped_alike(meter, link) for _, link in links)
    if not alike or not any(one is not None and abs(one - times) <= ACCUMULATED(0.0) * times for one in decays):
        return list(found), []
    return [one for one in found if one not in differing], [Note("decay_in_loss", {"side": side, "times": times})]


def _decays(meter: Meter, link: Link, side: str) -> float | None:
    """Return by how much more the other side's optimizer decays a parameter; None where it is not told."""
    sides = [found and found.get("weight_decay", 0.0) for found in meter.settings(link)]
    plain = [one for one in sides if isinstance(one, int | float)]
    return None if len(plain) < 2 else (plain[0] - plain[1]) * (1 if side == SIDES[1] else -1)


def _is_stepped_alike(meter: Meter, link: Link) -> bool:
    """Return whether both sides' steps of a parameter are the same."""
    size, both = meter.of_link(link, "updated"), (meter.held(link, "before"), meter.held(link, "updated"))
    if size is None or size.difference.equal or size.error <= EXACT(size.eps):
        return size is not None
    held = [projected(one) for one in (both[0][0], *both[1])]
    if any(one is None for one in held):
        return False
    before, ours, theirs = (one.astype(np.float64) for one in held if one is not None)
    return float(np.linalg.norm(theirs - ours)) <= ACCUMULATED(size.eps) * float(np.linalg.norm(ours - before))


def _added(meter: Meter, link: Link, eps: float) -> _Added | None:
    """Return what one side's gradient has more; ``eps`` is that of the coarsest type that anything was computed in."""
    held = *meter.held(link, "gradient"), meter.held(link, "before")[0]
    size = meter.of_link(link, "gradient")
    if size is None or not all(isinstance(one, np.ndarray) and np.isfinite(one).all() for one in held):
        return None
    ours, theirs, weights = (in_reals(one).ravel() for one in held)
    if not ours.size == theirs.size == weights.size:
        return None
    rounded = max(SAME(size.eps), ACCUMULATED(eps)) * float(np.linalg.norm(ours) + np.linalg.norm(theirs))
    return _Added(theirs - ours, weights, rounded)


def _penalty(told: Sequence[tuple[int, _Added]]) -> tuple[Cause | None, list[int]]:
    """Return of what one multiple was added, and to which."""
    for name, of in _PENALTIES.items():
        ways = [(one, of(one.weights)) for _, one in told if one.weights.size > 1 and one.weights.any()]
        found = sorted(
            (float(way.dot(one.more) / way.dot(way)), float(np.linalg.norm(one.more)) / (one.rounding or 1.0))
            for one, way in ways
        )
        if not found:
            continue
        middle, _ = found[len(found) // 2]
        times = max((one for one in found if abs(one[0] - middle) <= abs(middle) / 100), key=lambda one: one[1])[0]
        fits = [n for n, each in told if float(np.linalg.norm(each.more - times * of(each.weights))) <= each.rounding]
        if times and 2 * len(fits) > len(told):
            data = {"of": name, "times": float(f"{abs(times):.4g}"), "side": SIDES[times > 0]}
            return Cause("penalty", data, verified=True), fits
    return None, []
