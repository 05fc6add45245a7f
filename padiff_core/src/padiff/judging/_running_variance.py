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
    for added in _added(calls, trace, size, momenta) if size == reference.size else ():
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


def _added(calls: Sequence[Call], trace: Trace, size: int, momenta: Sequence[float]) -> Iterator[Array]:
    """Yield what the correction adds to a variance in all, of batches that may be of several sizes.

    Channels may lie along any axis as long as there are channels, the same one in all of the calls.
    """
    values = [trace.value(call.inputs[0]) for call in calls]
    batches = [value.astype(np.float64) for value in values if value is not None]
    if len(batches) < len(calls):
        return
    for axis in range(min(value.ndim for value in batches)):
        if any(value.shape[axis] != size for value in batches):
            continue
        added = np.zeros(size)
        for value, momentum in zip(batches, momenta, strict=True):
            rest = tuple(one for one in range(value.ndim) if one != axis)
            added = added * (1 - momentum) + value.var(rest) / (value.size // size - 1) * momentum
        yield added
