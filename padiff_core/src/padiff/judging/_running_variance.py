"""Know both conventions of running variances: frameworks average that of a batch with Bessel's correction, or without.

So two right models hold other numbers, n/(n-1) apart in what each batch adds.
"""

from __future__ import annotations

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
    momenta = {setting.value for call in calls if (setting := call.settings.get("momentum")) is not None}
    counts = {int(np.prod(call.inputs[0].shape)) // max(size, 1) if call.inputs else 0 for call in calls}
    if len(momenta) != 1 or None in momenta or min(counts) < 2:
        return
    (momentum,) = momenta
    if len(counts) == 1:
        (count,) = counts
        kept = [(1 - momentum) ** len(calls) * values.astype(np.float64) for values in before]
        moved = candidate.astype(np.float64) - kept[1]
        for ratio in (count / (count - 1), (count - 1) / count):
            yield (kept[0] + moved * ratio).astype(reference.dtype)
    added = _added(calls, trace, size, momentum) if size == reference.size else None
    if added is not None:
        for by in (added.reshape(reference.shape), -added.reshape(reference.shape)):
            yield (candidate + by).astype(reference.dtype)


def _added(calls: Sequence[Call], trace: Trace, size: int, momentum: float) -> Array | None:
    """Return what the correction adds to a variance in all, of batches that may be of several sizes."""
    added = np.zeros(size)
    for call in calls:
        value = trace.value(call.inputs[0])
        axes = [] if value is None else [axis for axis in range(value.ndim) if value.shape[axis] == size]
        if value is None or len(axes) != 1:
            return None
        rest = tuple(axis for axis in range(value.ndim) if axis != axes[0])
        added = added * (1 - momentum) + value.astype(np.float64).var(rest) / (value.size // size - 1) * momentum
    return added
