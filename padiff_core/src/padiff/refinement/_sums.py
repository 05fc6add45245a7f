"""Take biases that count in their sum alone for one bias, where the other side has fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from padiff.forcing import NotRepeated, Side, holding, is_recorded
from padiff.numerics import ACCUMULATED, Array, difference, epsilon
from padiff.parameters import Correspondence, Held, HeldUnit, Sums, sums_between, with_added
from padiff.recording import Task
from padiff.refinement._evidence import Evidence
from padiff.trace import Trace, temporary_store

_SCALE = 0.1
"""Standard deviation of what one bias gains and another one loses: a bias of that size is a usual one."""
_MOST = 8
"""Biases that are moved one by one, where all of them at once change something."""
Match = Callable[[Sequence[HeldUnit], Sequence[HeldUnit]], Correspondence]


def with_sums(
    known: Correspondence,
    units: tuple[Sequence[HeldUnit], Sequence[HeldUnit]],
    evidence: Evidence,
    match: Match,
) -> Correspondence:
    """Return what matches the units where biases that are only added up are one.

    Those of a side are that whose outputs stay as they are where one gains what another one loses, and change where one
    gains alone. Where a gate scales one of them it is otherwise: there a bias that a port lacks is a difference.
    """
    sums = [_sums(known, evidence, ours=ours) for ours in (True, False)]
    if not any(sums):
        return known
    ours, theirs = (with_added(some, added) for some, added in zip(units, sums, strict=True))
    other = match(ours, theirs)
    gone = [{held.parameter.path for some in added.values() for held in some} for added in sums]
    fewer = sum(map(len, other.left)) < sum(map(len, known.left))
    return other if fewer and all(map(set.issubset, gone, other.linked)) else known


def _sums(known: Correspondence, evidence: Evidence, *, ours: bool) -> Sums:
    """Return what one side's biases without counterpart are added to, as runs of it show."""
    side, task = (evidence.reference, evidence.ours) if ours else (evidence.candidate, evidence.task)
    maybe = sums_between(known, evidence.flows()[not ours], ours=ours)
    if not maybe:
        return {}
    task = attrs.evolve(task, backward=False, loss=None, ends=True)
    try:
        before = None if is_recorded(side) else _outputs(side, task)
    except NotRepeated:
        before = None
    if before is None:
        return _with_one_gradient(maybe, evidence.trace if ours else evidence.free())

    def stays(sums: Sums, loss: float = 1.0) -> bool:
        moved: dict[str, Array] = {}
        random = np.random.default_rng(0)
        for held, added in sums.items():
            for one in added:
                gain = random.normal(0, _SCALE, held.shape)
                for path, change in ((held.parameter.path, -loss * gain), (one.parameter.path, gain)):
                    now = moved.get(path, side.value(path))
                    moved[path] = (now + change).astype(now.dtype)
        with holding(side, moved):
            after = _outputs(side, task)
        return len(before) == len(after) and all(map(_same, before, after))

    if stays(maybe):
        return {} if stays(maybe, 0.0) else maybe
    each = ({held: added} for held, added in list(maybe.items())[:_MOST])
    return {held: added for one in each if stays(one) and not stays(one, 0.0) for held, added in one.items()}


def _with_one_gradient(sums: Sums, trace: Trace) -> Sums:
    """Return the sums of which all terms got the same gradient, where no run is to be had: as far as that was kept."""

    def gradient(one: Held) -> Array | None:
        key = trace.parameter_gradients.get(one.parameter.path, -1)  # that of a summary is below zero, too
        return None if key < 0 else trace.array(key)

    def alike(first: Held, others: Sequence[Held]) -> bool:
        own, further = gradient(first), list(map(gradient, others))
        return own is not None and bool(own.any()) and all(one is not None and _same(own, one) for one in further)

    return {first: others for first, others in sums.items() if alike(first, others)}


def _outputs(side: Side, task: Task) -> list[Array]:
    with temporary_store() as store:
        return list(side.record(task, store, values=False).outputs)


def _same(one: Array, other: Array) -> bool:
    return difference(one, other).rel_l2 <= ACCUMULATED(epsilon(one.dtype))
