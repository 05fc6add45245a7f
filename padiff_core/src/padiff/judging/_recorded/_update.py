"""Judge what the step of two recorded runs made of the parameters, by the gradients that it was given."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.judging._causes import not_verified
from padiff.judging._optimizer_step import contrast, of_one_cause, rate_between
from padiff.judging._parameters import Ignored, finding_of_link, is_ignored
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._step_sums import step_sums
from padiff.judging._sizes import Held, Size, held, projected
from padiff.numerics import ACCUMULATED, ACCUMULATION, EXACT, SAME, Array, epsilon_of
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.report import SIDES, Cause, Evidence, Figures, Finding, Note, Phase
from padiff.trace import Summary, Trace


@attrs.frozen(eq=False)
class _Step:
    """What the step of both sides did to one parameter, in one layout."""

    before: tuple[Array, Array]
    after: tuple[Array, Array]
    gradients: tuple[Array, Array] | None
    scale: float
    """The largest root mean square of a gradient of its module's parameters."""
    eps: float

    @property
    def ours(self) -> Array:
        """Return the reference's step."""
        return _exact(self.after[0]) - _exact(self.before[0])

    @property
    def theirs(self) -> Array:
        """Return the candidate's step."""
        return _exact(self.after[1]) - _exact(self.before[1])

    @property
    def moved(self) -> float:
        """Return how far the reference's step went, relative to the values."""
        return _norm(self.ours) / (_norm(_exact(self.before[0])) or 1.0)

    @property
    def difference(self) -> float:
        """Return how far apart both steps are, relative to the values."""
        return _norm(self.theirs - self.ours) / (_norm(_exact(self.before[0])) or 1.0)

    @property
    def cause(self) -> Cause | None:
        """Return that one side did not step, or that one step is a multiple of the other, where it is so."""
        still = [not np.any(step) for step in (self.ours, self.theirs)]
        if any(still):
            return None if all(still) else Cause("not_stepped", {"side": SIDES[still[1]]}, verified=True)
        start = _exact(self.before[0])
        times = rate_between((start + self.ours, start + self.theirs), self.before[0])
        return None if times is None else Cause("step_scaled", {"times": float(f"{times:.4g}")}, verified=True)


def unsure_of(meter: Meter, known: Correspondence) -> Iterator[str]:
    """Yield the candidate's parameters whose gradients rounding alone left further apart than it does values.

    What an optimizer keeps of them is no more the same, and nor are its later steps.
    """
    for _, link in known.links:
        if not link.buffer and link.differentiated:
            size = meter.of_link(link, "gradient")
            if size is not None and size.error > SAME(size.eps):
                yield link.candidate.parameter.path


def of_recorded_update(
    meter: Meter, known: Correspondence, ignored: Ignored, step: int, unsure: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield the parameters that the step left with other values than their gradients explain.

    Of those that are ``unsure`` from the steps before only how far a step went is held against the reference's.
    """
    meter.ahead(meter.parameter_pairs(known, "updated"))
    found = []
    links = [(match, link) for match, link in known.links if not link.buffer and link.differentiated]
    for match, link in links:
        size = meter.of_link(link, "updated")
        if size is None or size.difference.equal or is_ignored(match, link, ignored):
            continue
        if size.close is None and not size.error > EXACT(size.eps):
            continue  # however far the step went
        done = _step(meter, match, link, size.eps)
        if link.candidate.parameter.path in unsure:
            if done is None or done.gradients is None:
                continue
            done = attrs.evolve(done, scale=math.inf)
        if not size.close if size.close is not None else _exceeds(meter, match, link, size, done):
            found.append((link, _finding(match, link, size, done, step)))
    models = meter.sides[0].about, meter.sides[1].about
    found = _with_causes(found, meter)
    yield from of_one_cause(found, models, len({link.candidate.parameter.path for _, link in links}))


def _finding(match: UnitMatch, link: Link, size: Size, done: _Step | None, step: int) -> Finding:
    figures = {
        "step_rel_l2": 0.0 if done is None else done.moved,
        "rel_l2": size.error if done is None else done.difference,
    }
    return finding_of_link(
        match,
        link,
        Phase.UPDATE,
        "updated_parameter",
        Evidence("update_of_runs", figures),
        figures=Figures.of(size.difference),
        cause=None if done is None else done.cause,
        step=step,
    )


def _with_causes(found: Sequence[tuple[Link, Finding]], meter: Meter) -> list[tuple[Link, Finding]]:
    """Return findings with what the optimizers do otherwise, where both were recorded, by the rules of `diff`.

    What the step of one parameter verifies, a rate say, is the cause of all that have the same settings.
    """
    handed = (given_gradients(meter.traces[0]), given_gradients(meter.traces[1])) if found else ({}, {})
    causes = [_settings_cause(link, finding, meter, handed) for link, finding in found]
    verified = {str(cause) for cause in causes if cause is not None and cause.verified}
    named = []
    for (link, finding), cause in zip(found, causes, strict=True):
        if cause is not None and str(cause) in verified:
            finding = attrs.evolve(finding, cause=attrs.evolve(cause, verified=True))
        elif cause is not None:
            finding = attrs.evolve(finding, evidence=(*finding.evidence, not_verified(cause)))
        named.append((link, finding))
    return named


def _settings_cause(
    link: Link, finding: Finding, meter: Meter, handed: tuple[dict[str, GivenGradient], dict[str, GivenGradient]]
) -> Cause | None:
    """Return the settings that differ where a parameter is stepped on both sides; None where nobody says.

    Where both runs tell what gradients the optimizers were given, that tells more than one side's setting of clipping.
    """
    paths = link.reference.parameter.path, link.candidate.parameter.path
    ours, theirs = (dict(found or {}) for found in meter.settings(link))
    known = finding.cause
    if known is not None and known.name == "not_stepped":
        return None
    given = [known.get(path) for known, path in zip(handed, paths, strict=True)]
    told = given[0] is not None and given[1] is not None
    if told and not ("clip" in ours and "clip" in theirs):
        ours.pop("clip", None), theirs.pop("clip", None)
    cause = contrast(ours, theirs, None if known is None else known.parameters.get("times"))
    cause = None if cause is None or cause.name == "step_scaled" else cause
    if given[0] is None or given[1] is None or not given[0].differs(given[1]):
        return cause
    shares = dict(zip(SIDES, map(shares_of, handed), strict=True))
    found = {} if cause is None else cause.parameters
    return Cause("optimizer_settings", {**found, "gradients": shares}, verified=True)


def _step(meter: Meter, match: UnitMatch, link: Link, eps: float) -> _Step | None:
    """Return what both sides did to a parameter; None where its values were not kept."""
    after, sent = meter.held(link, "updated"), meter.held(link, "gradient")
    started, ended = (_projected(both) for both in (meter.held(link, "before"), after))
    if started is None or ended is None or started[0].shape != ended[0].shape:
        return None
    whole = all(isinstance(one, np.ndarray) for one in (*after, *sent))
    known = whole and all(one.shape == started[0].shape for one in sent)
    others = [one for one in match.links if not one.buffer and one.differentiated]
    scale = max(meter.scale(one, "gradient") for one in others)
    return _Step(started, ended, sent if known else None, scale, eps)


def _projected(values: tuple[Any, Any]) -> tuple[Array, Array] | None:
    """Return both values, or both sketches: a step is a difference, and so is its sketch."""
    ours, theirs = map(projected, values)
    return None if ours is None or theirs is None or ours.shape != theirs.shape else (ours, theirs)


def _exact(values: Array) -> Array:
    return values.astype(np.float64)


def _norm(values: Array) -> float:
    return float(np.linalg.norm(values))


def _exceeds(meter: Meter, match: UnitMatch, link: Link, size: Size, done: _Step | None) -> bool:
    """Return whether two steps from equal gradients, but for rounding, can lead so far apart.

    Of elements that lie as dense around zero as elsewhere, those that are rounding alone move the step by the square
    root of the gradient's relative error. Settings that differ are seen by less than what nothing tells.
    """
    sent = meter.of_link(link, "gradient")
    noise = max(size.eps, 0.0 if sent is None else sent.error)
    least = (ACCUMULATED if unlike_settings(meter, link) else SAME)(size.eps)
    allowed = max(least, ACCUMULATION * math.sqrt(noise))
    if sent is None:
        allowed = max(allowed, EXACT(max(_computed_with(match, meter.traces))))
    if done is None:
        return size.error > max(allowed, EXACT(size.eps))
    if done.gradients is not None:
        clean = noise <= SAME(size.eps)
        sums = step_sums(done.before, done.after, done.gradients, done.scale, done.eps, clean=clean)
        if not sums.exceeds(done.eps, least):
            return False
        ours, theirs = _computed_with(match, meter.traces)
        return ours == theirs or sums.exceeds(done.eps, least, _longest(meter, match))
    return done.difference > max(allowed * done.moved, EXACT(size.eps))


def unlike_settings(meter: Meter, link: Link) -> dict[str, Any]:
    """Return the numbers that differ among what both sides' optimizers step a parameter with, by name."""
    ours, theirs = (found or {} for found in meter.settings(link))
    shared = [name for name in ours if _is_number(ours[name]) and _is_number(theirs.get(name))]
    cause = contrast({name: ours[name] for name in shared}, {name: theirs[name] for name in shared}, None)
    return {} if cause is None else dict(cause.parameters)


def setting_notes(meter: Meter, known: Correspondence) -> Iterator[Note]:
    """Yield a note on each number that differs among the optimizers' settings, of whatever parameters."""
    for _, link in known.links:
        for name, both in unlike_settings(meter, link).items() if link.differentiated and not link.buffer else ():
            yield Note("optimizer_setting", {"name": name, **both})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _computed_with(match: UnitMatch, traces: tuple[Trace, Trace]) -> tuple[float, float]:
    """Return, of each side, the epsilon of the coarsest type in which a module gave values."""
    paths = match.modules.reference, match.modules.candidate
    ours, theirs = (
        max((epsilon_of(leaf.dtype) for call in trace.calls if call.path == path for leaf in call.outputs), default=0.0)
        for trace, path in zip(traces, paths, strict=True)
    )
    return ours, theirs


def _longest(meter: Meter, match: UnitMatch) -> float:
    """Return the reference's longest step of any element of a module.

    Where one side alone casts, what is rounding alone in a gradient is of another size on each side.
    """
    found = [0.0]
    for link in (one for one in match.links if not one.buffer and one.differentiated):
        started, ended = (_projected(meter.held(link, when)) for when in ("before", "updated"))
        if started is not None and ended is not None:
            found.append(float(np.max(np.abs(_exact(ended[0]) - _exact(started[0])), initial=0.0)))
    return max(found)


@attrs.frozen
class GivenGradient:
    """What an optimizer stepped one parameter with, beside what had arrived there."""

    times: float
    """Its norm by that of what arrived; 1 where that is rounding."""
    largest: float
    """The largest element's size."""
    cut: bool
    """Whether elements of both signs have exactly that size, of less than had arrived: values are clipped there."""
    eps: float

    def differs(self, other: GivenGradient) -> bool:
        """Return whether the other side's optimizer was given another share of what arrived."""
        return abs(self.times - other.times) > _rounding(self, other) * max(self.times, other.times)


def given_gradients(trace: Trace) -> dict[str, GivenGradient]:
    """Return what is known of the gradients that were handed to optimizers, by the paths of parameters."""
    found = {}
    for path, key in trace.handed.items():
        known, arrived = trace.summaries.get(key), _norm_of(held(trace, trace.parameter_gradients.get(path)))
        if known is not None and known.norm is not None and arrived:
            eps = epsilon_of(known.dtype)
            times = known.norm / arrived
            low, high = known.low or 0.0, known.high or 0.0
            one = GivenGradient(times, max(-low, high), times < 1 and high == -low > 0, eps)
            same = abs(times - 1) <= _rounding(one, one)
            found[path] = attrs.evolve(one, times=1.0, cut=False) if same else one
    return found


def shares_of(handed: dict[str, GivenGradient]) -> dict[str, Any]:
    """Return what is said of all parameters: the least and the largest share, and what values are clipped at."""
    times = [float(f"{one.times:.4g}") for one in handed.values()]
    largest = max(one.largest for one in handed.values())
    cut = any(one.cut and one.largest == largest for one in handed.values())
    return {"least": min(times), "most": max(times), "limit": largest if cut else None}


def _rounding(ours: GivenGradient, theirs: GivenGradient) -> float:
    return ACCUMULATED(max(ours.eps, theirs.eps))


def _norm_of(value: Held) -> float:
    if value is None:
        return 0.0
    found = value.norm or 0.0 if isinstance(value, Summary) else _norm(_exact(value))
    return found if math.isfinite(found) else 0.0
