"""Read the gradients of a candidate whose script scales its loss, and its gradients back, in the reference's scale."""

from __future__ import annotations

import math

import attrs
import numpy as np

from padiff.alignment import Alignment
from padiff.forcing import RecordedSide
from padiff.judging._recorded._given_gradients import given_gradients
from padiff.judging._recorded._one_fault import starts
from padiff.judging._sizes import held, magnitude, projected
from padiff.numerics import ACCUMULATED, SAME, Array, epsilon_of, work_of
from padiff.report import Cause, Finding, Note
from padiff.trace import ReadStore, Summary, Trace

_EPS = epsilon_of("float32")


@attrs.frozen
class _Scaled:
    """A gradient divided by the factor of the loss."""

    factor: float

    def read(self, array: Array) -> Array:
        found: Array = array.astype(work_of(array.dtype), copy=False) / self.factor
        return found


def with_one_scale(
    sides: tuple[RecordedSide, RecordedSide], alignment: Alignment
) -> tuple[tuple[RecordedSide, RecordedSide], Note | None]:
    """Return the sides with gradients in one scale, and a note where a script scales its loss and its gradients back.

    That is known where one side's optimizer was given every gradient as it arrived, and the other's each by one factor
    smaller or larger than it arrived, by which its backward pass started off. What else the loss is scaled by stays
    in the gradients, and is told. Where both sides clip, nobody knows: a wrong factor would be clipped away.
    """
    traces = sides[0].trace, sides[1].trace
    started = _started(traces, alignment)
    if started is None:
        return sides, None
    taken = _taken_back(traces[0]), _taken_back(traces[1])
    if taken[0] is None or taken[1] is None or 1.0 not in taken or taken[0] == taken[1]:
        return sides, None
    side = taken.index(1.0) ^ 1
    times = taken[side] or 1.0
    off = math.log(started if side else 1 / started)
    if not abs(off - math.log(times)) < min(abs(off), math.log(2) / 2):
        return sides, None  # it is clipped, say
    found = [sides[0], sides[1]]
    found[side] = attrs.evolve(sides[side], trace=_divided(traces[side], times))
    note = Note("loss_scaled", {"side": ("reference", "candidate")[side], "times": float(f"{times:.4g}")})
    return (found[0], found[1]), note


def scaled_alike(one: Finding, alignment: Alignment, traces: tuple[Trace, Trace]) -> Finding:
    """Return a finding on what the backward pass started from with its factor as the cause, where it has one."""
    first = one.source and one.cause is None and starts(one, alignment)
    started = _started(traces, alignment) if first else None
    if started is None:
        return one
    for pair in alignment.tops:
        for ours, theirs in pair.made:
            both = _gradient(traces[0], ours.token), _gradient(traces[1], theirs.token)
            if both[0] is None and both[1] is None:
                continue
            if both[0] is None or both[1] is None or both[0].shape != both[1].shape:
                return one
            apart = np.linalg.norm(both[1] / started - both[0])
            if not apart <= ACCUMULATED(_EPS) * np.linalg.norm(both[0]):
                return one
    return attrs.evolve(one, cause=Cause("loss_scaled", {"times": float(f"{started:.6g}")}, verified=True))


def _gradient(trace: Trace, token: int) -> Array | None:
    found = projected(held(trace, trace.gradients.get(token)))
    return None if found is None else found.astype(np.float64)


def _started(traces: tuple[Trace, Trace], alignment: Alignment) -> float | None:
    """Return how much larger what the candidate's backward pass started from is; None where it is not."""
    norms = [
        math.hypot(
            *(
                magnitude(held(trace, trace.gradients.get(both[side].token))) * math.prod(both[side].shape) ** 0.5
                for top in alignment.tops
                for both in top.made
            )
        )
        for side, trace in enumerate(traces)
    ]
    if not all(0 < one < math.inf for one in norms):
        return None
    times = norms[1] / norms[0]
    return None if abs(times - 1) <= SAME(_EPS) else times


def _taken_back(trace: Trace) -> float | None:
    """Return by what every gradient was divided between its arrival and the step; None where that is not one number."""
    known = given_gradients(trace)
    rest = [held(trace, trace.handed[path]) for path in trace.handed.keys() - known.keys()]
    if not known or any(magnitude(one) for one in rest):
        return None  # what arrived is not known
    shares = [one.times for one in known.values()]
    if not min(shares) > 0 or any(one.cut for one in known.values()):
        return None
    if max(shares) / min(shares) - 1 > ACCUMULATED(_EPS):
        return None
    found = 1 / max(shares)
    whole = 2.0 ** round(math.log2(found))  # rounds no gradient
    return whole if abs(found / whole - 1) <= ACCUMULATED(_EPS) else found


def _divided(trace: Trace, factor: float) -> Trace:
    """Return a trace with all gradients that arrived divided by a factor."""
    store = ReadStore(trace.store)
    found = attrs.evolve(trace, store=store, summaries=dict(trace.summaries))
    keys: dict[int, int] = {}

    def divided(key: int) -> int:
        if key not in keys:
            known = found.summaries.get(key)
            keys[key] = store.add(key, _Scaled(factor)) if known is None else found.summarized(_by(known, factor))
        return keys[key]

    found.gradients = {token: divided(key) for token, key in trace.gradients.items()}
    found.parameter_gradients = {path: divided(key) for path, key in trace.parameter_gradients.items()}
    found.arrived = {path: divided(key) for path, key in trace.arrived.items()}
    return found


def _by(known: Summary, factor: float) -> Summary:
    names = ("mean", "norm", "low", "high", "sample", "sketch")
    figures = {name: value / factor for name in names if (value := getattr(known, name)) is not None}
    return attrs.evolve(known, checksum=None, **figures)
