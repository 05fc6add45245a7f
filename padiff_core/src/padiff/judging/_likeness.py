"""Say how two values that differ are alike: what one would look for who prints both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.judging._activations import applied
from padiff.numerics import FLOORS, Array, difference, same_numbers
from padiff.report import Evidence
from padiff.trace import Leaf

Named = Iterable[tuple[str, Array]]
"""Values of the reference around the one in question, each by its name."""

_FEW = 8
"""Elements of which nothing is concluded: any two numbers are multiples of each other."""
_LARGEST = 1 << 24
"""Elements beyond which it is not looked for."""
_ROOTS = 4096
"""Up to which whole number a factor is told as its root, or as one divided by that."""


def likeness(ours: Array, theirs: Array, named: Named, bound: float, *, gradient: bool = False) -> Evidence | None:
    """Return in which way the candidate's value is like the reference's, from which it differs; None for no known one.

    ``bound`` is up to what relative L2 two values count as one.
    """
    if ours.shape != theirs.shape or ours.size > _LARGEST or {ours.dtype.kind, theirs.dtype.kind} != {"f"}:
        return None
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)  # what masks is too large for a product
    if _same(ours, theirs, FLOORS * bound):
        return None
    if not (ours.any() and theirs.any()):
        side = "candidate" if ours.any() else "reference"
        return Evidence.of("no_gradient_comes" if gradient else "all_zeros", side=side)
    fitting = ((name, value.astype(np.float64)) for name, value in named if value.shape == ours.shape and value.any())
    known = [(name, value) for name, value in fitting if not _same(ours, value, bound)]
    lacks = [partial(_lacking, value=value, name=name, gradient=gradient) for name, value in known]
    tells: list[Callable[..., Evidence | None]] = [
        *(partial(tell, whole=True) for tell in lacks),
        *(partial(_function, value=value, name=name) for name, value in known),
        *(partial(_mistaken, value=value, name=name) for name, value in known),
        _multiple,
        _offset,
        *lacks,
        _in_part,
        _moved,
    ]
    found = (tell(ours, theirs, bound) for tell in tells) if ours.size >= _FEW else ()
    return next((one for one in found if one is not None), None)


def named_around(owner: Pair, alignment: Alignment) -> Iterator[tuple[str, Leaf]]:
    """Yield the values around a call's own code, as the reference has them, by names that repeated blocks share."""
    call = owner.reference
    inside = [inner for inner in call.subtree() if inner is not call and alignment.of_reference(inner) is not None]
    below = [(inner, f" of {inner.path.removeprefix(f'{call.path}.')}") for inner in inside]
    told: set[int] = set()
    for what, holders in (("output", [(call, "")]), ("input", [(call, "")]), ("output", below), ("input", below)):
        for holder, whose in holders:
            for leaf in holder.leaves(what):
                if leaf.token not in told:
                    told.add(leaf.token)
                    yield (what if leaf.path in ("", what) else f"{what} {leaf.path}") + whose, leaf


def _same(ours: Array, theirs: Array, bound: float) -> bool:
    return difference(ours, theirs).rel_l2 <= bound


def _mistaken(_: Array, theirs: Array, bound: float, *, value: Array, name: str) -> Evidence | None:
    return Evidence.of("mistaken_value", value=name) if _same(value, theirs, bound) else None


def _function(ours: Array, theirs: Array, bound: float, *, value: Array, name: str) -> Evidence | None:
    found = applied((ours, theirs), value, bound)
    return found and Evidence.of("functions", reference=found[0], candidate=found[1], value=name)


def _multiple(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    factor = _times(ours, theirs)
    if not _same(ours * factor, theirs, bound):
        return None
    return Evidence.of("multiple", factor=factor, also=_known(factor, bound))


def _times(of: Array, value: Array) -> float:
    """Return the factor by which one array comes nearest to another."""
    return float(np.vdot(of, value) / np.vdot(of, of))


def _known(factor: float, bound: float) -> str:
    """Return a factor as what code would say, where it is no short number: a root, a part, or one divided by a root."""
    if abs(float(f"{factor:.4g}") - factor) <= bound * abs(factor):
        return ""
    size, sign = abs(factor), "-" if factor < 0 else ""
    for form, power in (("1/{}", 1 / size), ("sqrt({})", size**2), ("1/sqrt({})", size**-2)):
        whole = round(power)
        if 1 < whole <= _ROOTS and abs(power - whole) <= bound * whole:
            return sign + form.format(whole)
    return ""


def _offset(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    more = theirs - ours
    mean = float(more.mean())
    alike = bool(np.abs(more - mean).max() <= bound * max(abs(mean), float(np.abs(ours).max())))
    told = alike and abs(mean) > bound * float(np.abs(ours).max())
    return Evidence.of("offset", more=mean) if told else None


def _lacking(
    ours: Array, theirs: Array, bound: float, *, value: Array, name: str, gradient: bool, whole: bool = False
) -> Evidence | None:
    """Return that a value is missing, or was added: as it is, or unless that is asked for, a multiple of it."""
    rest = ours - theirs
    factor = _times(value, rest)
    once = abs(abs(factor) - 1) <= bound
    if (whole and not once) or not _same(value * factor, rest, bound):
        return None
    return Evidence.of("lacks", value=name, factor=factor, whole=once, gradient=gradient)


def _in_part(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return along which axis the difference is at few indices alone."""
    wrong = np.abs(theirs - ours) > bound * np.abs(ours).max()
    for axis, extent in enumerate(ours.shape):
        at = np.flatnonzero(wrong.any(axis=tuple(i for i in range(ours.ndim) if i != axis)))
        if 0 < len(at) <= extent / 2 and at[-1] - at[0] == len(at) - 1:
            return Evidence.of("in_part", axis=axis, first=int(at[0]), last=int(at[-1]), extent=extent)
    return None


def _moved(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return how the reference's elements were moved: axes exchanged, one reversed or shifted, or just as many."""
    axes = range(ours.ndim)
    for axis in axes:
        for step in (1, -1) if ours.shape[axis] > 2 else ():
            if _same(_cut(ours, axis, -step), _cut(theirs, axis, step), bound):
                return Evidence.of("shifted", axis=axis, step=step)
    if not same_numbers(ours, theirs):
        return None
    for one, other in itertools.combinations(axes, 2):
        if ours.shape[one] == ours.shape[other] and _same(ours.swapaxes(one, other), theirs, bound):
            return Evidence.of("axes_exchanged", axes=(one, other))
    for axis in axes:
        if _same(np.flip(ours, axis), theirs, bound):
            return Evidence.of("reversed", axis=axis)
    alike = _same(np.sort(ours, axis=None), np.sort(theirs, axis=None), bound)
    return Evidence.of("other_order") if alike else None


def _cut(array: Array, axis: int, step: int) -> Array:
    """Return an array without what comes first along an axis, or last where ``step`` is negative."""
    kept = slice(step, None) if step > 0 else slice(None, step)
    return array[(slice(None),) * axis + (kept,)]
