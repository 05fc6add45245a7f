"""Read the gradients of a candidate whose script scales its loss, and its gradients back, in the reference's scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import RecordedSide
from padiff.judging._recorded._one_fault import starts
from padiff.judging._recorded._taken_back import TakenBack, plain_factor
from padiff.judging._sizes import held, multiple, norm_of, projected
from padiff.numerics import ACCUMULATED, SAME, Array, epsilon_of, work_of
from padiff.report import SIDES, Cause, Finding, Note
from padiff.trace import Leaf, ReadStore, Summary, Trace

_EPS = epsilon_of("float32")
_SCALER = 6
"""How many times two scalers' factors are doubled at least: training stacks begin with 2^10 to 2^32."""


@attrs.frozen
class _Scaled:
    """A gradient divided by the factor of the loss."""

    factor: float

    def read(self, array: Array) -> Array:
        found: Array = array.astype(work_of(array.dtype), copy=False) / self.factor
        return found


def with_one_scale(
    sides: tuple[RecordedSide, RecordedSide], alignment: Alignment, step: int, taken_back: TakenBack
) -> tuple[tuple[RecordedSide, RecordedSide], Note | None]:
    """Return the sides with gradients in one scale, and a note where a script scales its loss and its gradients back.

    That is known where one side's optimizer was given every gradient as it arrived, and the other's each by one factor
    smaller or larger than it arrived, by which its backward pass started off; or both by powers of two. What else the
    loss is scaled by stays in the gradients, and is told. Where both sides clip, a wrong factor would be clipped away:
    there the other steps tell whether it is taken back, or a note that it does not show.
    """
    traces = sides[0].trace, sides[1].trace
    started = _started(traces, alignment)
    if started is None:
        return sides, None
    ours, theirs = taken_back.by(step, traces)
    if ours is None or theirs is None or ours == theirs:
        return sides, None
    clipped = 1.0 not in (ours, theirs) and not all(math.log2(one).is_integer() for one in (ours, theirs))
    side = int(abs(math.log(theirs)) > abs(math.log(ours)))
    times = plain_factor(theirs / ours if side else ours / theirs)
    shown = taken_back.is_shown(side, times) if clipped else True
    hidden = shown is None
    scale = _scale(traces, alignment) if hidden else None
    if shown is False or (hidden and scale is None):
        return sides, None
    if scale is not None:  # what the optimizers were given tells whether both clip alike
        side = int(scale > 1)
        times = plain_factor(scale if side else 1 / scale, _rounded(alignment))
    whole = math.log2(times).is_integer()  # a gradient scaler's; any other may be what one side clips by
    close = math.log(2) / 2 if whole and not clipped else ACCUMULATED(_EPS)
    off = math.log(started if side else 1 / started)
    if not hidden and not abs(off - math.log(times)) < min(abs(off), close):
        return sides, None  # it is clipped, say
    found = [sides[0], sides[1]]
    found[side] = attrs.evolve(sides[side], trace=_divided(traces[side], times))
    kind = "loss_scaled_and_clipped" if hidden else "loss_scaled"
    return (found[0], found[1]), Note(kind, {"side": SIDES[side], "times": float(f"{times:.4g}")})


def _scale(traces: tuple[Trace, Trace], alignment: Alignment) -> float | None:
    """Return of which multiple of the other's a backward pass starts, where it is as large as gradient scalers make it.

    Less may be batches by whose number a script forgets to divide, which clipping hides as well. Where it is no
    multiple another loss is scaled: by a power of two, which one of the outputs shows, or all are nearest to.
    """
    rounded, ends = _rounded(alignment), [both for top in alignment.tops for both in top.made]
    found = [_times([both], traces, rounded) for both in ends]
    tops = [_times(top.made, traces, rounded) for top in alignment.tops if _is_started(top, traces)]
    times = [math.log2(one) for one in tops if one is not None]
    if len(times) < len(tops):
        plain = [one for one in found if one is not None and math.log2(plain_factor(one, rounded)).is_integer()]
        norms = [
            [norm_of(held(trace, trace.gradients.get(leaf.token))) for trace, leaf in zip(traces, both, strict=True)]
            for both in ends
        ]
        plain = plain or [theirs / ours for ours, theirs in norms if ours and theirs]
        times = [float(round(math.log2(one))) for one in plain]
    if not times or min(map(abs, times)) < _SCALER or max(times) - min(times) >= 1:
        return None
    return float(2.0 ** times[0])


def _rounded(alignment: Alignment) -> float:
    """Return how far rounding moves the size of what a backward pass starts from."""
    types = [leaf.dtype for top in alignment.tops for both in top.made for leaf in both]
    return ACCUMULATED(max(_EPS, epsilon_of(*types)))


def scaled_alike(one: Finding, alignment: Alignment, traces: tuple[Trace, Trace]) -> Finding:
    """Return a finding on what the backward pass started from with its factor as the cause, where it has one.

    Of a step of several batches each may have another: a mean over what each holds, and one over all of them.
    """
    if not one.source or one.cause is not None or not starts(one, alignment):
        return one
    found = [_times(top.made, traces) for top in alignment.tops if _is_started(top, traces)]
    times = [factor for factor in found if factor is not None]
    if not times or len(times) < len(found):
        return one
    if max(times) - min(times) <= ACCUMULATED(_EPS) * max(times):
        alike = abs(times[0] - 1) <= SAME(_EPS)
        cause = None if alike else Cause("loss_scaled", {"times": float(f"{times[0]:.6g}")}, verified=True)
    elif len({top.candidate.path for top in alignment.tops}) > 1:
        return one
    else:
        cause = Cause("loss_of_each_batch", {"times": [float(f"{factor:.4g}") for factor in times]}, verified=True)
    return attrs.evolve(one, cause=cause)


def _is_started(top: Pair, traces: tuple[Trace, Trace]) -> bool:
    return any(leaf.token in trace.gradients for both in top.made for leaf, trace in zip(both, traces, strict=True))


def _times(
    made: Sequence[tuple[Leaf, Leaf]], traces: tuple[Trace, Trace], close: float = ACCUMULATED(_EPS)
) -> float | None:
    """Return how many times the reference's what is sent to outputs of the candidate's is; None where it is none."""
    found = []
    for pair in made:
        ours, theirs = (_gradient(trace, leaf.token) for trace, leaf in zip(traces, pair, strict=True))
        if ours is not None and theirs is not None and ours.shape == theirs.shape:
            found.append((ours.ravel(), theirs.ravel()))
        elif ours is not None or theirs is not None:
            return None
    if not found:
        return None
    mine, yours = (np.concatenate(one) for one in zip(*found, strict=True))
    times, apart = multiple(mine, yours)
    return times if times > 0 and apart <= close * float(np.linalg.norm(yours)) else None


def _gradient(trace: Trace, token: int) -> Array | None:
    found = projected(held(trace, trace.gradients.get(token)))
    return None if found is None else found.astype(np.float64)


def _started(traces: tuple[Trace, Trace], alignment: Alignment) -> float | None:
    """Return how much larger what the candidate's backward pass started from is; None where it is not."""
    ends = [both for top in alignment.tops for both in top.made]
    norms = [
        math.hypot(*(norm_of(held(trace, trace.gradients.get(both[side].token))) for both in ends))
        for side, trace in enumerate(traces)
    ]
    if not all(norms):
        return None
    times = norms[1] / norms[0]
    return None if abs(times - 1) <= SAME(_EPS) else times


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
    found.used = {path: divided(key) for path, key in trace.used.items()}
    return found


def _by(known: Summary, factor: float) -> Summary:
    names = ("mean", "norm", "low", "high", "sample", "sketch")
    figures = {name: value / factor for name in names if (value := getattr(known, name)) is not None}
    return attrs.evolve(known, checksum=None, **figures)
