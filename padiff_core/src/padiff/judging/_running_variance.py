"""Know both conventions of running variances: frameworks average that of a batch with Bessel's correction, or without.

So two right models hold other numbers, n/(n-1) apart in what each batch adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from padiff.numerics import Array
from padiff.trace import Call, Trace


def by_convention(
    calls: Sequence[Call],
    trace: Trace,
    before: tuple[Array, Array],
    reference: Array,
    candidate: Array,
    size: int,
) -> Iterator[Array]:
    """Yield a candidate's running variance as it were if it followed the reference's convention, in either direction.

    ``before`` is what both sides held, ``calls`` are the reference's that changed it, in ``trace``; ``size`` says how
    many elements the values have that may be sketches here.
    """
    momenta = _momenta(calls)
    counts = {int(np.prod(call.inputs[0].shape)) // max(size, 1) if call.inputs else 0 for call in calls}
    if momenta is None or min(counts) < 2:
        return
    if len(counts) == 1:
        (count,) = counts
        kept = [math.prod(1 - one for one in momenta) * values.astype(np.float64) for values in before]
        moved = candidate.astype(np.float64) - kept[1]
        for ratio in (count / (count - 1), (count - 1) / count):
            yield (kept[0] + moved * ratio).astype(reference.dtype)
    added = _added(calls, trace, size, momenta) if size == reference.size else None
    if added is not None:
        for by in (added.reshape(reference.shape), -added.reshape(reference.shape)):
            yield (candidate + by).astype(reference.dtype)


def _momenta(calls: Sequence[Call]) -> list[float] | None:
    """Return what share of the average each call's batch is; None where that is not known.

    Without a number (None) it is the mean over all batches, and may have begun with these.
    """
    told = [setting.value for call in calls if (setting := call.settings.get("momentum")) is not None]
    if len(told) < len(calls):
        return None
    return [1 / number if one is None else float(one) for number, one in enumerate(told, 1)]


def _added(calls: Sequence[Call], trace: Trace, size: int, momenta: Sequence[float]) -> Array | None:
    """Return what the correction adds to a variance in all, of batches that may be of several sizes."""
    added = np.zeros(size)
    for call, momentum in zip(calls, momenta, strict=True):
        value = trace.value(call.inputs[0])
        axes = [] if value is None else [axis for axis in range(value.ndim) if value.shape[axis] == size]
        if value is None or len(axes) != 1:
            return None
        rest = tuple(axis for axis in range(value.ndim) if axis != axes[0])
        added = added * (1 - momentum) + value.astype(np.float64).var(rest) / (value.size // size - 1) * momentum
    return added
