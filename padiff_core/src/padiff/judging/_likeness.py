"""Say how two values that differ are alike: what one would look for who prints both."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import Spot
from padiff.judging._activations import applied
from padiff.judging._sizes import multiple
from padiff.numerics import FLOORS, Array, beside_masks, difference, same_numbers, sample
from padiff.paths import below
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
_CHANCE = 1 / 32
"""Share of all factors up to which a root of a whole number is no chance."""
_NEAR = 16
"""Calls nearest to a value of whose own values it may be made: a model may call thousands."""
_GLANCE = 1024
"""Elements that are looked at before all are."""


def likeness(ours: Array, theirs: Array, named: Named, bound: float, *, gradient: bool = False) -> Evidence | None:
    """Return in which way the candidate's value is like the reference's, from which it differs; None for no known one.

    ``bound`` is up to what relative L2 two values count as one.
    """
    if ours.shape != theirs.shape or ours.size > _LARGEST or {ours.dtype.kind, theirs.dtype.kind} != {"f"}:
        return None
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)  # masks are too large for a product
    with np.errstate(all="ignore"):  # the square of a mask may be more than float64 holds
        if _same(ours, theirs, FLOORS * bound):
            return None
        if not (ours.any() and theirs.any()):
            side = "candidate" if ours.any() else "reference"
            return Evidence.of("no_gradient_comes" if gradient else "all_zeros", side=side)
        known = [one for one in named if _tells(one[1], ours, bound)] if ours.size >= _FEW else []
        whole, lacks = (
            [_with(partial(_lacking, name=name, gradient=gradient, whole=once), value) for name, value in known]
            for once in (True, False)
        )
        tells: list[Callable[..., Evidence | None]] = [
            *whole,
            *(partial(_function, value=value, name=name) for name, value in known),
            *(_with(partial(_mistaken, name=name, gradient=gradient), value) for name, value in known),
            _multiple,
            _offset,
            *lacks,
            _in_part,
            _factor_of_each,
            _one_of_each_row,
            _moved,
            _scaled_and_shifted,
        ]
        found = (tell(ours, theirs, bound) for tell in tells) if ours.size >= _FEW else ()
        return next((one for one in found if one is not None), None)


def likeness_of_inputs(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return in which way what a candidate was given is like what the reference was: whole numbers and types count."""
    numbers = {ours.dtype.kind, theirs.dtype.kind} <= set("fiu")
    if ours.shape != theirs.shape or ours.size > _LARGEST or not numbers:
        return None
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.ndim and 1 < len(ours) <= _GLANCE:
        keys = [[row.tobytes() for row in one] for one in (ours, theirs)]
        if sorted(keys[0]) == sorted(keys[1]) and len(set(keys[0])) == len(ours):
            return Evidence.of("rows_moved", rows=[keys[0].index(key) for key in keys[1]])
    return likeness(ours, theirs, (), bound)


def _tells(value: Array, ours: Array, bound: float) -> bool:
    """Return whether a value may tell what another one is made of: it has its shape, is another, and no constant."""
    if value.shape != ours.shape or value.dtype.kind not in "fiubV":  # "V": bfloat16
        return False
    few = sample(value, _GLANCE)
    alike = _same(sample(ours, _GLANCE), few, FLOORS * bound)
    return bool((few != few[0]).any()) and not (alike and _same(ours, value.astype(np.float64), bound))


def _with(tell: Callable[..., Evidence | None], value: Array) -> Callable[..., Evidence | None]:
    """Return what tells something of two values and a third, where that holds of a few elements of them."""

    def told(ours: Array, theirs: Array, bound: float) -> Evidence | None:
        few = (sample(one, _GLANCE) for one in (ours, theirs))
        if tell(*few, FLOORS * bound, value=sample(value, _GLANCE)) is None:
            return None
        return tell(ours, theirs, bound, value=value.astype(np.float64))

    return told


def named_around(owner: Pair, spot: Spot, alignment: Alignment) -> Iterator[tuple[str, Leaf]]:
    """Yield the reference's values near one of a call's own code, by names that repeated blocks share."""
    call = owner.reference
    inside = [inner for inner in call.subtree() if inner is not call and alignment.of_reference(inner) is not None]
    place = inside[-1].index if inside and spot.pair is owner else spot.pair.reference.index
    inside = heapq.nsmallest(_NEAR, inside, key=lambda inner: abs(inner.index - place))
    named = [(inner, f" of {below(inner.path, call.path)}") for inner in inside]
    told: set[int] = set()
    for what, holders in (("output", [(call, "")]), ("input", [(call, "")]), ("output", named), ("input", named)):
        for holder, whose in holders:
            for leaf in holder.leaves(what):
                if leaf.token not in told:
                    told.add(leaf.token)
                    yield (what if leaf.path in ("", what) else f"{what} {leaf.path}") + whose, leaf


def _same(ours: Array, theirs: Array, bound: float) -> bool:
    """Return whether two values are one, beside what masks drown on both sides, too."""
    if not difference(ours, theirs).rel_l2 <= bound:
        return False
    rest = beside_masks(ours, theirs)
    return rest is None or rest.rel_l2 <= bound


def _mistaken(_: Array, theirs: Array, bound: float, *, value: Array, name: str, gradient: bool) -> Evidence | None:
    kind = "mistaken_gradient" if gradient else "mistaken_value"
    return Evidence.of(kind, value=name) if _same(value, theirs, bound) else None


def _function(ours: Array, theirs: Array, bound: float, *, value: Array, name: str) -> Evidence | None:
    found = applied((ours, theirs), value, bound)
    return found and Evidence.of("functions", reference=found[0], candidate=found[1], value=name)


def _multiple(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    factor, _ = multiple(ours, theirs)
    if not _same(ours * factor, theirs, bound):
        return None
    return Evidence.of("multiple", factor=factor, also=_known(factor, bound))


def _known(factor: float, bound: float) -> str:
    """Return a factor as what code would say, where it is no short number: a root, a part, or one divided by a root."""
    if abs(float(f"{factor:.4g}") - factor) <= bound * abs(factor):
        return ""
    size, sign = abs(factor), "-" if factor < 0 else ""
    for form, power in (("1/{}", 1 / size), ("sqrt({})", size**2), ("1/sqrt({})", size**-2)):
        whole = round(power)
        if 1 < whole <= _ROOTS and abs(power - whole) <= bound * whole <= _CHANCE:
            return sign + form.format(whole)
    return ""


def _offset(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    more = theirs - ours
    mean = float(more.mean())
    alike = bool(np.abs(more - mean).max() <= bound * max(abs(mean), float(np.abs(ours).max())))
    told = alike and bool(np.isfinite(mean)) and abs(mean) > bound * float(np.abs(ours).max())
    return Evidence.of("offset", more=mean) if told else None


def _lacking(
    ours: Array, theirs: Array, bound: float, *, value: Array, name: str, gradient: bool, whole: bool
) -> Evidence | None:
    """Return that a value is missing, or was added: as it is, or unless that is asked for, a multiple of it."""
    rest = ours - theirs
    factor, _ = multiple(value, rest)
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


def _factor_of_each(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return along which axes each index has a factor of its own: weights of a loss, a mask, a gain left out."""
    single = [(axis,) for axis in range(ours.ndim)]
    for axes in [*single, tuple(range(ours.ndim - 1))] if ours.ndim > 1 else []:
        rest = tuple(axis for axis in range(ours.ndim) if axis not in axes)
        squares = np.sum(ours * ours, axis=rest, keepdims=True)
        if squares.size < 2 or 2 * squares.size >= ours.size:
            continue  # any two numbers are multiples of each other
        factors = np.sum(ours * theirs, axis=rest, keepdims=True) / np.where(squares, squares, 1)
        if _same(ours * factors, theirs, bound):
            told = factors[squares > 0]
            return Evidence.of("factor_of_each", axes=axes, least=float(told.min()), most=float(told.max()))
    return None


def _scaled_and_shifted(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return that the candidate's is scaled and shifted, as a whole or at each index of an axis."""
    if len(np.unique(sample(ours, _GLANCE))) <= 2:
        return None  # any two masks are that
    for axes in ((), *((axis,) for axis in range(ours.ndim))):
        rest = tuple(axis for axis in range(ours.ndim) if axis not in axes)
        count = ours.size // max(math.prod(ours.shape[axis] for axis in axes), 1)
        if count < _FEW:
            continue  # a line goes through any two points
        means = [one.mean(axis=rest, keepdims=True) for one in (ours, theirs)]
        apart = ours - means[0]
        squares = np.square(apart).sum(axis=rest, keepdims=True)
        factors = (apart * theirs).sum(axis=rest, keepdims=True) / np.where(squares, squares, 1)
        more = means[1] - factors * means[0]
        if squares.all() and factors.all() and _same(ours * factors + more, theirs, bound):
            figures = {"least": factors.min(), "most": factors.max(), "low": more.min(), "high": more.max()}
            return Evidence.of("scaled_and_shifted", axes=axes, **{name: float(one) for name, one in figures.items()})
    return None


def _one_of_each_row(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return that one element of each row has more, and all others less, by two numbers: targets that are smoothed."""
    more = (theirs - ours).reshape(-1, ours.shape[-1])
    other = float(np.median(more))
    scale = bound * float(np.abs(ours).max())
    apart = np.abs(more - other) > scale
    if ours.shape[-1] < 3 or abs(other) <= scale or not (apart.sum(axis=-1) == 1).all():
        return None
    ones = more[apart]
    alike = float(np.ptp(ones)) <= scale and float(ones.mean()) * other < 0
    return Evidence.of("one_of_each_row", one=float(ones.mean()), others=other) if alike else None


def _moved(ours: Array, theirs: Array, bound: float) -> Evidence | None:
    """Return how the reference's elements were moved: axes exchanged, one reversed or shifted, or just as many."""
    axes = range(ours.ndim)
    for axis in axes:
        for step in (1, -1) if ours.shape[axis] > 2 else ():
            kept, moved = _cut(ours, axis, -step), _cut(theirs, axis, step)
            most = np.count_nonzero(kept) >= np.count_nonzero(ours) / 2  # else what is compared is what is empty
            if most and _same(kept, moved, bound):
                return Evidence.of("shifted", axis=axis, step=step)
    if not same_numbers(ours, theirs):
        return None
    for one, other in itertools.combinations(axes, 2):
        if _same(ours.swapaxes(one, other), theirs, bound):
            return Evidence.of("axes_exchanged", axes=(one, other))
    for axis in axes:
        if _same(np.flip(ours, axis), theirs, bound):
            return Evidence.of("reversed", axis=axis)
    numbers, others = np.sort(ours, axis=None), np.sort(theirs, axis=None)
    several = np.count_nonzero(np.diff(numbers)) >= _FEW  # any two masks with as many ones are that
    return Evidence.of("other_order") if several and _same(numbers, others, bound) else None


def _cut(array: Array, axis: int, step: int) -> Array:
    """Return an array without what comes first along an axis, or last where ``step`` is negative."""
    kept = slice(step, None) if step > 0 else slice(None, step)
    return array[(slice(None),) * axis + (kept,)]
