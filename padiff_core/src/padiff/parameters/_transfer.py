"""Write the reference's parameters to the candidate: the one place where a model is given other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from padiff.numerics import Array, epsilon
from padiff.parameters._alone import parts_alone
from padiff.parameters._links import Link, SpecialLink
from padiff.parameters._roles import UnitMatch
from padiff.parameters._units import Native
from padiff.trace import ParameterRecord

_AT_ONCE = 1 << 28
"""Bytes that are handed over together: a whole model's need not lie in memory a second time."""


class Holder(Protocol):
    """Whoever holds a model's parameters: a side."""

    def value(self, path: str) -> Array:
        """Return the value of a parameter, native layout; never write to it or keep it."""

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite parameters."""

    def native(self, path: str) -> Any | None:
        """Return the live module of a path, where it lives in this process."""


def values_of(holder: Holder) -> Callable[[ParameterRecord], Array]:
    """Return what reads a parameter's values."""
    return lambda parameter: holder.value(parameter.path)


def held_of(link: Link, reference: Holder, candidate: Holder) -> tuple[Array | None, Array]:
    """Return what both sides hold of a link now, in one layout; of the reference None where a function writes it."""
    theirs = link.held(values_of(candidate))
    assert theirs is not None
    return link.expected(values_of(reference)), theirs


def read_of(
    link: Link, ours: Native, theirs: Native, *, gradient: bool = False, zeros: bool = False
) -> tuple[Array, Array] | None:
    """Return what both sides have of a link in one layout, as these read it; None where one of them has nothing.

    With ``zeros`` these stand for what one side alone has, of a ``gradient`` that does not come.
    """
    expected = link.gradient(ours) if gradient else link.expected(ours)
    held = Link.held(link, theirs) if gradient else link.held(theirs)
    if zeros and expected is None and held is not None:
        expected = np.zeros_like(held)
    if zeros and held is None and expected is not None:
        held = np.zeros_like(expected)
    return None if expected is None or held is None else (expected, held)


def transfer(matches: Iterable[UnitMatch], reference: Holder, candidate: Holder) -> None:
    """Write every matched parameter of the reference to the candidate, through canonical layouts.

    A part of a packed bias that the candidate alone has becomes zero: it adds nothing then.
    """
    matches = list(matches)
    waiting: dict[str, Array] = {}
    own: set[str] = set()
    held = 0
    read = values_of(reference)

    def current(path: str, like: Array | None = None) -> Array:
        """Return what is written to, which holds what is ``like`` that; what waits may be the reference's own memory.

        In a type that is too narrow for the parts of a packed parameter, a run in a wider one would miss their digits.
        """
        known = waiting[path] if path in waiting else candidate.value(path)
        narrow = like is not None and epsilon(known.dtype) > epsilon(like.dtype)
        dtype = np.promote_types(like.dtype, np.float32) if like is not None and narrow else known.dtype
        if path not in own or known.dtype != dtype:
            waiting[path] = np.array(known, dtype, order="C")
            own.add(path)
        return waiting[path]

    def write(link: Link) -> int:
        path = link.candidate.parameter.path
        values = link.expected(read)
        assert values is not None
        made = link.written(values, lambda: current(path, values))
        if made is not waiting.get(path):
            own.discard(path)
        waiting[path] = made
        return made.nbytes

    def hand_over() -> None:
        candidate.assign(waiting)
        waiting.clear()
        own.clear()

    for part in parts_alone(matches, whole=True):
        if not part.ours and part.role == "bias":
            path = part.held.parameter.path
            part.held.part.write(current(path), np.zeros(part.held.shape, current(path).dtype))
    for match in matches:
        for link in match.links:
            if link.known:
                held += write(link)
            elif isinstance(link, SpecialLink) and link.first:
                hand_over()
                modules = reference.native(match.reference.module.path), candidate.native(match.candidate.module.path)
                link.relation.copy(*modules)
        # Between units, so that a packed parameter's pieces of one unit are written together.
        if held > _AT_ONCE:
            hand_over()
            held = 0
    hand_over()
