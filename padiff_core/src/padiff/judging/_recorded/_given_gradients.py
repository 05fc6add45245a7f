"""Tell what optimizers were given of the gradients that arrived: all of each, or a share, which clipping leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.judging._sizes import Held, held, multiple, norm_of
from padiff.numerics import ACCUMULATED, FLOORS, Array, epsilon_of, sample
from padiff.report import SIDES, Cause, Finding
from padiff.trace import Summary, Trace


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

    def differs(self, other: GivenGradient, noise: float = 0.0) -> bool:
        """Return whether the other side's optimizer was given another share of what arrived, there with a ``noise``."""
        bound = max(_rounding(self, other), FLOORS * noise)
        return abs(self.times - other.times) > bound * max(self.times, other.times)


def of_last_pass(trace: Trace) -> list[set[str]]:
    """Return the parameters whose optimizer was given what the last of several passes sent: all before was cleared.

    They are those of one optimizer, which may be given a part of all of them: they are clipped as one.
    """
    kept, found = {**trace.parameter_gradients, **trace.arrived}, []
    for one in trace.stepped:
        held = (
            trace.latest.keys() if one.parameters is None else [path for path in one.parameters if path in trace.latest]
        )
        given, last, whole = (
            [sampled(trace, by.get(path)) for path in held] for by in (trace.handed, trace.latest, kept)
        )
        eps = max((epsilon_of(trace.parameters[path].dtype) for path in held), default=0.0)
        if given and _is_multiple(given, last, eps) and not _is_multiple(given, whole, eps):
            found.append(set(held))
    return found


def of_the_script(trace: Trace) -> set[str]:
    """Return the parameters whose optimizer was given what a script made of several passes itself: no share of all.

    They are those of one optimizer, where that is so of each; one number is a share of any other.
    """
    found, kept = set[str](), {**trace.parameter_gradients, **trace.arrived}
    for one in trace.stepped:
        paths = [path for path in trace.latest if one.parameters is None or path in one.parameters]
        pairs = [(sampled(trace, trace.handed.get(path)), sampled(trace, kept.get(path))) for path in paths]
        known = [(given, whole) for given, whole in pairs if given is not None and whole is not None and given.size > 1]
        if known and not any(_is_multiple([a], [b], epsilon_of("float32")) for a, b in known):
            found.update(paths)
    return found


def given_alike(ours: Held, theirs: Held) -> bool:
    """Return whether figures of what both optimizers were given for a parameter agree, in whatever layout it is."""
    if not (isinstance(ours, Summary) and isinstance(theirs, Summary)):
        return False
    figures = [(one.norm, one.low, one.high) for one in (ours, theirs)]
    if any(None in one for one in figures):
        return False
    bound = ACCUMULATED(epsilon_of(ours.dtype, theirs.dtype)) * max(figures[0][0] or 0.0, figures[1][0] or 0.0)
    return all(abs((a or 0.0) - (b or 0.0)) <= bound for a, b in zip(*figures, strict=True))


def given_gradients(
    trace: Trace,
    earlier: Sequence[Trace] = (),
    norms: Mapping[str, float] | None = None,
    cleared: Collection[str] = (),
) -> dict[str, GivenGradient]:
    """Return what is known of the gradients that were handed to optimizers, by the paths of parameters.

    What arrived in ``earlier`` steps, in which no optimizer stepped, counts as well. ``norms`` are those of what
    arrived where the trace itself tells none: of what ranks add up. Of those that both sides ``cleared`` in front of
    the last pass, what arrived is what that sent.
    """
    found, kept = {}, {**trace.parameter_gradients, **trace.arrived}
    kept |= {path: trace.latest[path] for path in cleared if path in trace.latest}
    for path, key in trace.handed.items():
        known = trace.summaries.get(key)
        before = [held(one, one.parameter_gradients[path]) for one in earlier if path in one.parameter_gradients]
        arrived = norm_of(_sum([*before, held(trace, kept.get(path))])) or (norms or {}).get(path, 0.0)
        if known is not None and known.norm is not None and arrived:
            eps = epsilon_of(known.dtype)
            times = known.norm / arrived
            low, high = known.low or 0.0, known.high or 0.0
            one = GivenGradient(times, max(-low, high), times < 1 and high == -low > 0, eps)
            same = abs(times - 1) <= _rounding(one, one)
            found[path] = attrs.evolve(one, times=1.0, cut=False) if same else one
    return found


def _sum(values: Sequence[Held]) -> Held:
    """Return the sum of what arrived; of several summaries, of which no norm of a sum is known, nothing."""
    if len(values) == 1:
        return values[0]
    arrays = [one for one in values if isinstance(one, np.ndarray)]
    if len(arrays) < sum(one is not None for one in values):
        return None
    return sum((one.astype(np.float64) for one in arrays[1:]), arrays[0].astype(np.float64)) if arrays else None


def with_what_was_given(
    found: Sequence[Finding],
    traces: tuple[Trace, Trace],
    before: tuple[Trace, Trace] | None,
    cleared: tuple[Collection[str], Collection[str]],
) -> list[Finding]:
    """Return findings on steps of which those by other gradients have one cause, with what these are, where known.

    A share that is nearly the other side's is not seen at each parameter: what no setting explains beside is so, too.
    """
    causes = [one.cause for one in found if one.cause is not None and list(one.cause.parameters) == ["gradients"]]
    if not causes:
        return list(found)
    earlier: Sequence[Trace | None] = before or (None, None)
    shares = dict(causes[0].parameters["gradients"])
    for name, trace, one, alike in zip(SIDES, traces, earlier, cleared, strict=True):
        whole = shares[name]["least"] == shares[name]["most"] == 1
        of = None if whole else _made_of(trace, one, alike)
        shares[name] = shares[name] if of is None else {**shares[name], "of": of}
    cause = attrs.evolve(causes[0], parameters={"gradients": shares})
    told = []
    lost = [name for name in SIDES if shares[name].get("of") == "last"]  # nothing is left of what came before alone
    causes += [Cause("not_stepped", {"side": name}, verified=True) for name in lost]
    for finding in found:
        rest = tuple(evidence for evidence in finding.evidence if evidence.kind != "same_settings")
        open_yet = finding.cause is None or finding.is_caused_by("step_scaled")  # a step of one number is, say
        untold = finding.cause is None and len(finding.evidence) == 1  # what arrived on one side is nothing, say
        of_it = finding.cause in causes or untold or (open_yet and len(rest) < len(finding.evidence))
        told.append(attrs.evolve(finding, cause=cause, evidence=rest) if of_it else finding)
    return told


def _made_of(trace: Trace, before: Trace | None, cleared: Collection[str]) -> str | None:
    """Return what the optimizer was given in place of all that arrived: the ``last`` pass alone, or ``uncleared`` too.

    That is what the step ``before`` was given, and what came behind it. All may have been clipped as one. None where it
    is neither, or unknown.
    """
    known = given_gradients(
        trace, cleared=cleared
    )  # others are stepped with what arrived: those of another optimizer, say
    given = {path: sampled(trace, trace.handed[path]) for path, one in known.items() if one.times != 1}
    last = {path: sampled(trace, trace.latest.get(path)) for path in given}
    kept = {**trace.parameter_gradients, **trace.arrived}
    arrived = {path: sampled(trace, kept.get(path)) for path in given}
    ways: list[tuple[str, dict[str, Array | None]]] = [("last", last)]
    for stepped in (True, False):
        earlier = {path: None if before is None else _left_by(before, path, stepped=stepped) for path in given}
        ways.append(("uncleared", {path: _both(arrived[path], earlier[path]) for path in given}))
    eps = max((one.eps for one in known.values()), default=0.0)
    for name, parts in ways:
        if parts and not parts.keys() <= set(cleared) and _is_multiple(list(given.values()), list(parts.values()), eps):
            return name
    return None


def _left_by(trace: Trace, path: str, *, stepped: bool) -> Array | None:
    """Return a few elements of the gradient that a step leaves without clearing: what came behind, and as ``stepped``.

    A script may clear it right behind the step, and never again. What nothing steps there is left as it arrived.
    """
    given = sampled(trace, trace.handed.get(path))
    whole, used = (sampled(trace, kept.get(path)) for kept in (trace.parameter_gradients, trace.used))
    if given is None:
        return whole
    behind = None if whole is None or used is None else whole - used
    return (given if behind is None else _both(given, behind)) if stepped else behind


def _both(one: Array | None, other: Array | None) -> Array | None:
    return None if one is None or other is None else one + other


def sampled(trace: Trace, key: int | None) -> Array | None:
    """Return a few elements of a value; None where they are not known."""
    found = held(trace, key)
    return found.sample if isinstance(found, Summary) else None if found is None else sample(found)


def _is_multiple(given: Sequence[Array | None], parts: Sequence[Array | None], eps: float) -> bool:
    """Return whether values that are given are those of some parts, all together by one factor.

    One number is a multiple of any other: it has to be that itself.
    """
    pairs = [(one, part) for one, part in zip(given, parts, strict=True) if one is not None and part is not None]
    if len(pairs) < len(given) or any(one.shape != part.shape for one, part in pairs):
        return False
    ours, whole = (np.concatenate(one).astype(np.float64) for one in zip(*pairs, strict=True))
    times, left = multiple(whole, ours)
    alike = times > 0 if ours.size > 1 else abs(times - 1) <= ACCUMULATED(eps)
    return alike and left <= ACCUMULATED(eps) * float(np.linalg.norm(ours))


def shares_of(handed: dict[str, GivenGradient]) -> dict[str, Any]:
    """Return what is said of all parameters: the least and the largest share, and what values are clipped at."""
    times = [float(f"{one.times:.4g}") for one in handed.values()]
    largest = max(one.largest for one in handed.values())
    cut = any(one.cut and one.largest == largest for one in handed.values())
    return {"least": min(times), "most": max(times), "limit": largest if cut else None}


def _rounding(ours: GivenGradient, theirs: GivenGradient) -> float:
    return ACCUMULATED(max(ours.eps, theirs.eps))
