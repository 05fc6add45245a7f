"""Judge what one step of two recorded runs left behind: gradients of parameters, buffers, loss, and the update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from padiff.alignment import Pair
from padiff.forcing import RecordedSide
from padiff.judging._leaps import Leaps
from padiff.judging._meter import Kept, Meter
from padiff.judging._ruling import Ruling
from padiff.judging._running_variance import by_convention
from padiff.judging._sizes import Held, Size, held, magnitude, nothing_like, projected, size_of, summaries_of
from padiff.judging._suspicion import AGREEING, Suspicion
from padiff.parameters import Correspondence, Link, UnitMatch, canonical, read_of
from padiff.report import Note, Phase, What
from padiff.trace import Summary, Trace, summarized

Sides = tuple[RecordedSide, RecordedSide]
Named = Mapping[str, int]
Reader = Callable[[str], Held]


def both(link: Link, sides: Sides, named: tuple[Named, Named], *, gradient: bool) -> tuple[Any, Any]:
    """Return what both sides hold of a link under some names: in one layout, or summarised.

    Where a pass ran backward on both sides, what it does not lead to gets zeros.
    """
    if gradient and not all(named):
        return None, None
    mine, yours = (_reader(side.trace, names) for side, names in zip(sides, named, strict=True))
    return _read(link, mine, yours, gradient=gradient)


def before(link: Link, sides: Sides) -> tuple[Any, Any]:
    """Return what both sides held of a link before the step."""
    return _read(link, _kept(sides[0]), _kept(sides[1]))


def _reader(trace: Trace, named: Named) -> Reader:
    return lambda path: held(trace, named.get(path))


def _kept(side: RecordedSide) -> Reader:
    def read(path: str) -> Held:
        trace, key = side.before.get(path, (side.trace, None))
        return held(trace, key)

    return read


def _read(link: Link, mine: Reader, yours: Reader, *, gradient: bool = False) -> tuple[Any, Any]:
    ours: dict[str, Any] = {one.parameter.path: mine(one.parameter.path) for one in link.references}
    theirs: Any = yours(link.candidate.parameter.path)
    if not any(isinstance(one, Summary) for one in (*ours.values(), theirs)):
        values = read_of(
            link,
            lambda parameter: ours.get(parameter.path),
            lambda _: theirs,
            gradient=gradient,
            zeros=gradient and link.single,
        )
        return values or (None, None)
    if not link.single or link.reference.part.partial or link.candidate.part.partial:
        return None, None
    (own,) = ours.values()
    if gradient:
        own, theirs = (nothing_like(b) if a is None else a for a, b in ((own, theirs), (theirs, own)))
    return (None, None) if own is None or theirs is None else _laid_alike(link, own, theirs)


def _laid_alike(link: Link, ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return two summaries of one parameter; without what depends on the order, where layouts may be two."""
    sketched = any(isinstance(one, Summary) and one.sketch is not None for one in (ours, theirs))
    told = not (link.transposed or link.open or link.patch)
    if sketched and told:
        held = zip((link.reference, link.candidate), (ours, theirs), strict=True)
        both = [one if isinstance(one, Summary) else summarized(canonical(h, one), sketched=True) for h, one in held]
        if both[0].size == both[1].size:
            return attrs.evolve(both[0], shape=(both[0].size,)), attrs.evolve(both[1], shape=(both[1].size,))
    ours, theirs = summaries_of(ours, theirs)
    if ours.shape == theirs.shape and len(ours.shape) == 1:
        return ours, theirs
    parts = {attrs.evolve(held.part, parameter="") for held in (link.reference, link.candidate)}
    alike = told and len(parts) == 1 and ours.shape == theirs.shape
    flat = ours.size == theirs.size
    return _unordered(ours, flat=flat, alike=alike), _unordered(theirs, flat=flat, alike=alike)


def _unordered(known: Summary, *, flat: bool, alike: bool) -> Summary:
    """Return a summary of a parameter, of which layouts may be two, without what depends on the order."""
    shape, checksum = (known.size,) if flat else known.shape, known.checksum if alike else None
    return attrs.evolve(known, shape=shape, sample=None, sketch=None, checksum=checksum)


def of_recorded_state(
    leaps: Leaps, sides: Sides, known: Correspondence, *, backward: bool
) -> Iterator[Suspicion | Note]:
    """Yield the gradients of parameters and the buffers that differ, and notes on conventions."""
    for match in known.matches:
        users = leaps.alignment.using(match.candidate.module.path)
        if users:
            yield from _buffers(leaps, sides, match, users)
        if users and backward:
            yield from _gradients(leaps, sides, match, users)


def _buffers(leaps: Leaps, sides: Sides, match: UnitMatch, users: list[Pair]) -> Iterator[Suspicion | Note]:
    named = sides[0].trace.buffers, sides[1].trace.buffers
    for link in (link for link in match.links if link.buffer):
        values = partial(both, link, sides, named, gradient=False)
        size = leaps.meter.of_link(link, "buffer", values)
        if size is not None and link.role == "running_mean":
            size = attrs.evolve(size, scale=_averaged(sides[0].trace, users))
        if size is not None and link.role == "running_var" and _is_convention(leaps, link, sides, values(), users):
            frameworks = {"reference": sides[0].about.framework, "candidate": sides[1].about.framework}
            yield Note("running_variance", frameworks)
        elif size is not None:
            what = What("updated_buffer", link.candidate.part.parameter)
            yield from _told(leaps, leaps.left(size, users, gradient=False), users[0], link, Phase.BUFFER, what)


def _averaged(trace: Trace, users: Sequence[Pair]) -> float:
    """Return the magnitude of what a mean is of: the mean itself may be zero but for rounding."""
    given = (call.inputs[0].token for call in (pair.reference for pair in users) if call.inputs)
    return max((magnitude(held(trace, trace.values.get(token))) for token in given), default=0.0)


def _gradients(leaps: Leaps, sides: Sides, match: UnitMatch, users: list[Pair]) -> Iterator[Suspicion]:
    """Yield the gradients that differ; one that cancels to zero (a bias before a softmax) is held to its unit's."""
    named = sides[0].trace.parameter_gradients, sides[1].trace.parameter_gradients
    links = [link for link in match.links if not link.buffer and link.differentiated]
    values = [partial(both, link, sides, named, gradient=True) for link in links]
    found = [(link, leaps.meter.of_link(link, "gradient", read)) for link, read in zip(links, values, strict=True)]
    if all(size is None or size.apart.equal for _, size in found):
        return
    scale = max(scale_of(size, read) for (_, size), read in zip(found, values, strict=True))
    for link, size in found:
        if size is not None:
            what = What("parameter_gradient", link.candidate.part.parameter)
            ruled = leaps.left(attrs.evolve(size, scale=scale), users, gradient=True)
            yield from _told(leaps, ruled, users[0], link, Phase.BACKWARD, what)


def scale_of(size: Size | None, values: Callable[[], tuple[Any, Any]]) -> float:
    """Return the root mean square of what the reference holds, which is read where it was not measured."""
    measured = size is not None and math.isfinite(size.apart.scale)
    return size.apart.scale if size is not None and measured else magnitude(values()[0])


def _told(
    leaps: Leaps, ruled: tuple[Ruling, bool], pair: Pair, link: Link, phase: Phase, what: What
) -> Iterator[Suspicion]:
    ruling, source = ruled
    if ruling.verdict not in AGREEING:
        blamed = leaps.blamed(pair, backward=phase is Phase.BACKWARD)
        order, vague = pair.candidate.index, blamed is not pair
        yield Suspicion(blamed, phase, what, ruling, order, held=link.candidate, arises=source, vague=vague)


def _is_convention(leaps: Leaps, link: Link, sides: Sides, values: tuple[Any, Any], users: list[Pair]) -> bool:
    """Return whether running variances differ by two conventions, and else by no more than what was averaged does."""
    started = before(link, sides)
    calls = [pair.reference for pair in users if pair.reference.training]
    if sides[0].about.framework == sides[1].about.framework or not calls:
        return False
    known = [one for one in map(projected, (*started, *values)) if one is not None]
    if len(known) < 4 or len({one.shape for one in known}) > 1:
        return False
    count, earlier = math.prod(link.reference.shape), (known[0], known[1])
    found = by_convention(calls, sides[0].trace, earlier, known[2], known[3], count)
    sizes = (size_of(known[2], one) for one in found)
    return any(one is not None and leaps.left(one, users, gradient=False)[0].verdict in AGREEING for one in sizes)


def step_ahead(meter: Meter, sides: Sides, known: Correspondence, *, backward: bool) -> None:
    """Measure what `Leaps` and `of_recorded_state` ask for."""
    asks = [*meter.of_values(known.alignment), *meter.of_links(known, "buffer", of_traces(sides, "buffers"))]
    if backward:
        asks += meter.of_links(known, "gradient", of_traces(sides, "parameter_gradients"))
    meter.ahead(asks)


def of_traces(sides: Sides, named: str) -> tuple[Kept, Kept]:
    """Return where both sides' traces of the step keep what they have under some names."""
    ours, theirs = ({path: (side.trace, key) for path, key in getattr(side.trace, named).items()} for side in sides)
    return ours, theirs
