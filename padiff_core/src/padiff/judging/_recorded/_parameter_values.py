"""Read what both sides of a recorded step hold of a parameter: values in one layout, or summaries of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from padiff.forcing import RecordedSide
from padiff.judging._recorded._given_gradients import of_last_pass
from padiff.judging._sizes import held, nothing_like, summaries_of
from padiff.parameters import Link, canonical, read_of
from padiff.trace import Summary, Trace, summarized

When = Literal["before", "gradient", "arrived", "kept", "used", "buffer", "updated"]
"""What is asked of a parameter: its value before the step, or its gradient, what of that had arrived when the optimizer
first, or last, stepped it, what of that no script had cleared by then, or the value after the step."""
GRADIENTS = frozenset(("gradient", "arrived", "kept", "used"))
Kept = Mapping[str, tuple[Trace, int]]
"""Path -> the trace that holds it, and under which key."""
_NAMED = {"gradient": "parameter_gradients", "buffer": "buffers"}


def kept_by(side: RecordedSide, when: When) -> Kept:
    """Return where what is asked of a side's parameters lies."""
    if when == "before":
        return side.before
    named = "arrived" if when == "kept" else when
    found = getattr(side.trace, _NAMED.get(named, named))
    if named in ("arrived", "used"):
        found = {**side.trace.parameter_gradients, **found}
    if when == "kept":
        found |= {path: side.trace.latest[path] for path in set().union(*of_last_pass(side.trace))}
    return {path: (side.trace, key) for path, key in found.items()}


def both_of(link: Link, kept: tuple[Kept, Kept], *, gradient: bool) -> tuple[Any, Any]:
    """Return what both sides hold of a link; None twice where one of them holds nothing.

    Where a pass ran backward on both sides, a ``gradient`` that it does not lead to is zeros.
    """
    if gradient and not all(kept):
        return None, None
    ours: dict[str, Any] = {one.parameter.path: _held(kept[0], one.parameter.path) for one in link.references}
    theirs: Any = _held(kept[1], link.candidate.parameter.path)
    if not any(isinstance(one, Summary) for one in (*ours.values(), theirs)):
        values = read_of(
            link,
            lambda parameter: ours.get(parameter.path),
            lambda _: theirs,
            gradient=gradient,
            zeros=gradient and link.single,
        )
        return values or (None, None)
    if not link.single or (link.packed and not link.packed_alike):
        return None, None
    (own,) = ours.values()
    if link.packed and not all(isinstance(one, Summary) for one in (own, theirs)):
        return None, None
    if gradient:
        own, theirs = with_nothing(own, theirs)
    return (None, None) if own is None or theirs is None else _laid_alike(link, own, theirs)


def with_nothing(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return two gradients, of which one that did not come is zeros like the other."""
    return nothing_like(theirs) if ours is None else ours, nothing_like(ours) if theirs is None else theirs


def _held(kept: Kept, path: str) -> Any:
    return held(*kept[path]) if path in kept else None


def _laid_alike(link: Link, ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return two summaries of one parameter; without what depends on the order, where layouts may be two."""
    sketched = any(isinstance(one, Summary) and one.sketch is not None for one in (ours, theirs))
    told = link.alike
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
