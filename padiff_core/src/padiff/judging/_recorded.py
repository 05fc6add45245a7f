"""Judge what one step of two recorded runs left behind: gradients of parameters, buffers, loss, and the update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.alignment import Alignment, Pair
from padiff.forcing import RecordedSide
from padiff.judging._findings import place_of
from padiff.judging._leaps import Leaps, Told
from padiff.judging._meter import Kept, Meter
from padiff.judging._optimizer_step import of_one_cause, rate_between
from padiff.judging._parameters import Ignored, is_ignored
from padiff.judging._ruling import Ruling
from padiff.judging._sizes import Size, held, magnitude, nothing_like
from padiff.judging._state import is_bessel
from padiff.judging._suspicion import AGREEING, Suspicion
from padiff.judging._tolerance import Rule
from padiff.numerics import ACCUMULATION, EXACT, LOSS, SAME, VANISHES, difference, epsilon_of
from padiff.parameters import Correspondence, Link, UnitMatch, canonical
from padiff.report import Cause, Evidence, Figures, Finding, Note, Phase, Place, Verdict, What
from padiff.trace import ParameterRecord, Summary

__all__ = ["drift_of", "loss_told", "of_recorded_state", "of_recorded_update", "step_ahead"]

Array = NDArray[Any]
Sides = tuple[RecordedSide, RecordedSide]
Named = Mapping[str, int]


def _both(link: Link, sides: Sides, named: tuple[Named, Named], *, gradient: bool) -> tuple[Any, Any]:
    """Return what both sides hold of a link under some names: in one layout, or summarised."""
    traces = sides[0].trace, sides[1].trace
    ours: dict[str, Any] = {h.parameter.path: held(traces[0], named[0].get(h.parameter.path)) for h in link.references}
    theirs: Any = held(traces[1], named[1].get(link.candidate.parameter.path))
    if gradient and all(named):
        # Where a pass ran backward on both sides, what it does not lead to gets nothing.
        other = next((one for one in ours.values() if one is not None), None)
        if theirs is None and link.single and not link.candidate.part.partial and not link.reference.part.partial:
            theirs = _nothing(link.candidate.parameter, other)
        elif other is None and theirs is not None and link.single and not link.reference.part.partial:
            ours = {path: _nothing(link.reference.parameter, theirs) for path in ours}
    summaries = [one for one in (*ours.values(), theirs) if isinstance(one, Summary)]
    if theirs is None or all(one is None for one in ours.values()):
        return None, None
    if summaries:
        whole = link.single and not link.reference.part.partial and not link.candidate.part.partial
        return _unordered(next(iter(ours.values())), theirs) if whole else (None, None)

    def native(parameter: ParameterRecord) -> Array | None:
        found = ours.get(parameter.path)
        return found if isinstance(found, np.ndarray) else None

    expected = link.gradient(native) if gradient else link.expected(native)
    return (None, None) if expected is None else (expected, canonical(link.candidate, theirs))


def _nothing(parameter: ParameterRecord, other: Any) -> Any:
    """Return the gradient of a parameter that none comes to."""
    if other is None or isinstance(other, Summary):
        return nothing_like(other)
    return np.zeros(parameter.shape, other.dtype)


def _unordered(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return two summaries of one parameter, which may lie in two layouts: without what depends on the order."""
    if not isinstance(ours, Summary) or not isinstance(theirs, Summary):
        return ours, theirs
    if ours.shape == theirs.shape and len(set(ours.shape)) == len(ours.shape) > 0 and len(ours.shape) < 2:
        return ours, theirs
    shape = (ours.size,) if ours.size == theirs.size else ours.shape
    return attrs.evolve(ours, shape=shape, sample=None), attrs.evolve(
        theirs, shape=shape if ours.size == theirs.size else theirs.shape, sample=None
    )


def of_recorded_state(leaps: Leaps, sides: Sides, known: Correspondence, *, backward: bool) -> Iterator[Told | Note]:
    """Yield the gradients of parameters and the buffers that differ, and notes on conventions."""
    for match in known.matches:
        users = leaps.alignment.using(match.candidate.module.path)
        if users:
            yield from _buffers(leaps, sides, match, users)
        if users and backward:
            yield from _gradients(leaps, sides, match, users)


def _buffers(leaps: Leaps, sides: Sides, match: UnitMatch, users: list[Pair]) -> Iterator[Told | Note]:
    named = sides[0].trace.buffers, sides[1].trace.buffers
    for link in (link for link in match.links if link.buffer):
        values = partial(_both, link, sides, named, gradient=False)
        size = leaps.meter.of_link(link, "buffer", values)
        if size is not None and link.role == "running_var" and _is_convention(link, sides, values(), users):
            frameworks = {"reference": sides[0].about.framework, "candidate": sides[1].about.framework}
            yield Note("running_variance", frameworks)
        elif size is not None:
            what = What("updated_buffer", link.candidate.part.parameter)
            yield from _told(leaps.left_behind(size, users), users[0], link, Phase.BUFFER, what)


def _gradients(leaps: Leaps, sides: Sides, match: UnitMatch, users: list[Pair]) -> Iterator[Told]:
    """Yield the gradients that differ; one that cancels to zero (a bias before a softmax) is held to its unit's."""
    named = sides[0].trace.parameter_gradients, sides[1].trace.parameter_gradients
    links = [link for link in match.links if not link.buffer and link.differentiated]
    values = [partial(_both, link, sides, named, gradient=True) for link in links]
    found = [(link, leaps.meter.of_link(link, "gradient", both)) for link, both in zip(links, values, strict=True)]
    if all(size is None or size.apart.equal for _, size in found):
        return
    scale = max(_scale(size, both) for (_, size), both in zip(found, values, strict=True))
    for link, size in found:
        if size is not None:
            what = What("parameter_gradient", link.candidate.part.parameter)
            ruled = leaps.graded(attrs.evolve(size, scale=scale), users)
            yield from _told(ruled, users[0], link, Phase.BACKWARD, what)


def _scale(size: Size | None, values: Callable[[], tuple[Any, Any]]) -> float:
    """Return the root mean square of what the reference holds, which is read where it was not measured."""
    measured = size is not None and math.isfinite(size.apart.scale)
    return size.apart.scale if size is not None and measured else magnitude(values()[0])


def _told(ruled: tuple[Ruling, bool], pair: Pair, link: Link, phase: Phase, what: What) -> Iterator[Told]:
    ruling, source = ruled
    if ruling.verdict not in AGREEING:
        yield Told(Suspicion(pair, phase, what, ruling, pair.candidate.index, held=link.candidate), source)


def _is_convention(link: Link, sides: Sides, values: tuple[Any, Any], users: Sequence[Pair]) -> bool:
    path = link.reference.parameter.path
    before = sides[0].before.get(path, (sides[0].trace, -1))
    if sides[0].about.framework == sides[1].about.framework or before[1] < 0 or len(users) != 1:
        return False
    if not all(isinstance(one, np.ndarray) for one in values):
        return False
    start = link.to_candidate(canonical(link.reference, before[0].array(before[1])))
    return is_bessel(users[0].reference, start, *values)


def loss_told(sides: Sides, alignment: Alignment, rule: Rule | None, worst: float, step: int) -> Iterator[Finding]:
    """Yield the loss, where it differs by more than the outputs that it was computed from."""
    ours, theirs = sides[0].trace.loss, sides[1].trace.loss
    if ours is None or theirs is None:
        return
    error = abs(ours - theirs)
    root = alignment.pairs[0]
    eps = epsilon_of(*(leaf.dtype for leaf in root.reference.outputs)) or epsilon_of("float32")
    bound = max(LOSS(eps), VANISHES * worst)
    if rule(np.asarray(ours), np.asarray(theirs)) if rule else error <= bound * max(abs(ours), abs(theirs)):
        return
    yield Finding(
        verdict=Verdict.DIFFERS,
        phase=Phase.LOSS,
        reference=place_of(root.reference, stack=False),
        candidate=place_of(root.candidate, stack=False),
        what=What("loss"),
        figures=Figures(error / abs(ours) if ours else math.inf, error),
        evidence=(Evidence.of("losses_of_runs", reference=ours, candidate=theirs),),
        source=worst <= SAME(eps),
        step=step,
    )


def of_recorded_update(
    meter: Meter, sides: Sides, known: Correspondence, ignored: Ignored, step: int
) -> Iterator[Finding]:
    """Yield the parameters that the step left with other values than their gradients explain."""
    meter.ahead(meter.of_links(known, "updated", _of_traces(sides, "updated")))
    found = []
    links = [(match, link) for match, link in known.links if not link.buffer and link.differentiated]
    traces = sides[0].trace, sides[1].trace
    for match, link in links:
        both = partial(_both, link, sides, (traces[0].updated, traces[1].updated), gradient=False)
        size = meter.of_link(link, "updated", both)
        if size is None or size.apart.equal or is_ignored(match, link, ignored):
            continue
        if size.close is None and not size.error > EXACT(size.eps):
            continue  # however far the step went
        ours, theirs = both()
        moved = _moved(link, sides, ours)
        named = traces[0].parameter_gradients, traces[1].parameter_gradients
        sent = meter.of_link(link, "gradient", partial(_both, link, sides, named, gradient=True))
        if not size.close if size.close is not None else _exceeds(size, moved, sent):
            finding = Finding(
                verdict=Verdict.DIFFERS,
                phase=Phase.UPDATE,
                reference=_place(match.reference.module.class_name, link.reference.parameter.path),
                candidate=_place(match.candidate.module.class_name, link.candidate.parameter.path),
                what=What("updated_parameter", link.candidate.part.parameter),
                figures=Figures(size.apart.rel_l2, size.apart.max_abs),
                evidence=(Evidence.of("update_of_runs", step_rel_l2=moved or 0.0, rel_l2=size.error),),
                cause=_scaled(link, sides, ours, theirs),
                source=True,
                step=step,
            )
            found.append((link, finding))
    yield from of_one_cause(found, sides, len({link.candidate.parameter.path for _, link in links}))


def step_ahead(meter: Meter, sides: Sides, known: Correspondence, *, backward: bool) -> None:
    """Measure what `Leaps` and `of_recorded_state` ask for."""
    asks = [*meter.of_values(known.alignment), *meter.of_links(known, "buffer", _of_traces(sides, "buffers"))]
    if backward:
        asks += meter.of_links(known, "gradient", _of_traces(sides, "parameter_gradients"))
    meter.ahead(asks)


def _of_traces(sides: Sides, named: str) -> tuple[Kept, Kept]:
    """Return where both sides' traces of the step keep what they have under some names."""
    ours, theirs = ({path: (side.trace, key) for path, key in getattr(side.trace, named).items()} for side in sides)
    return ours, theirs


def _before(link: Link, sides: Sides) -> tuple[Any, Any]:
    ours = link.expected(lambda parameter: sides[0].value(parameter.path))
    return ours, canonical(link.candidate, sides[1].value(link.candidate.parameter.path))


def _place(class_name: str, path: str) -> Place:
    return Place(path.rpartition(".")[0], class_name)


def _moved(link: Link, sides: Sides, after: Any) -> float | None:
    """Return how far the reference's step went, relative to the values; None where that is not known."""
    if isinstance(after, Summary) or after is None:
        return None
    kept = {h.parameter.path: sides[0].before.get(h.parameter.path) for h in link.references}
    if any(one is None or one[1] < 0 for one in kept.values()):
        return None
    before = link.expected(lambda parameter: sides[0].value(parameter.path))
    return None if before is None else (0.0 if (d := difference(after, before)).equal else d.rel_l2)


def _scaled(link: Link, sides: Sides, ours: Any, theirs: Any) -> Cause | None:
    """Return that one step is a multiple of the other, where it is."""
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray) or _moved(link, sides, ours) is None:
        return None
    before = link.expected(lambda parameter: sides[0].value(parameter.path))
    times = None if before is None else rate_between((ours, theirs), before)
    return None if times is None else Cause("step_scaled", {"times": float(f"{times:.4g}")}, verified=True)


def _exceeds(size: Size, moved: float | None, sent: Size | None) -> bool:
    """Return whether two steps from equal gradients, but for rounding, can lead so far apart.

    An optimizer that divides a gradient by its size makes a whole step of one that is rounding alone; of elements
    that lie as dense around zero as elsewhere this moves the step by the square root of their relative error.
    """
    noise = max(size.eps, 0.0 if sent is None else sent.error)
    allowed = max(SAME(size.eps), ACCUMULATION * math.sqrt(noise))
    reach = 1.0 if moved is None else max(moved, 0.0)
    return size.error > max(allowed * reach, EXACT(size.eps))


def drift_of(meter: Meter, sides: Sides, known: Correspondence) -> float:
    """Return how far apart all parameters together are before a step, relative L2; 0 where they are not known."""
    meter.ahead(meter.of_links(known, "before", (sides[0].before, sides[1].before)))
    apart = whole = 0.0
    for _, link in known.links:
        kept = [sides[0].before.get(h.parameter.path) for h in link.references]
        kept.append(sides[1].before.get(link.candidate.parameter.path))
        if link.buffer or any(one is None or one[1] < 0 for one in kept):
            continue
        values = partial(_before, link, sides)
        size = meter.of_link(link, "before", values)
        if size is not None:
            squares = _scale(size, values) ** 2 * size.apart.count
            whole += squares
            apart += 0.0 if size.apart.equal else size.apart.rel_l2**2 * squares
    return math.sqrt(apart / whole) if whole else 0.0
