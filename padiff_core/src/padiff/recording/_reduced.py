"""Keep summaries whose numbers still lie on a device, and bring them over together: one copy a step, not for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Adapter, Parameter, Reduction, Tensor
from padiff.numerics import Array, numpy_dtype, sample, work_of
from padiff.trace import Summary, Trace


def sampled(adapter: Adapter, tensor: Tensor) -> NDArray[np.float64]:
    """Return a sample of a tensor: a device hands over these elements alone."""
    numbers = tensor.reduced(Reduction(norm=False))
    if numbers is None:
        found: NDArray[np.float64] = tensor.read(sample)
        return found
    return adapter.fetched([numbers["sample"]])[0].astype(np.float64)


@attrs.frozen
class _Awaited:
    """A summary of which only the type and the shape are known so far."""

    summary: Summary
    asked: Reduction
    numbers: Mapping[str, Any]
    """Name of a figure -> a native tensor."""


class Reductions:
    """The summaries of one step's trace that are computed on a device."""

    def __init__(self, adapter: Adapter, trace: Trace) -> None:
        self._adapter, self._trace = adapter, trace
        self._awaited: dict[int, _Awaited] = {}

    def keep(self, value: Tensor | Parameter, asked: Reduction) -> int | None:
        """Let a tensor or a parameter be reduced where it lies; return the summary's key, or None where it is not."""
        numbers = value.reduced(asked)
        if numbers is None:
            return None
        summary = Summary(value.dtype, tuple(value.shape))
        key = self._trace.summarized(summary)
        self._awaited[key] = _Awaited(summary, asked, numbers)
        return key

    def fetch(self) -> None:
        """Wait for the device, and complete the summaries."""
        awaited, self._awaited = self._awaited, {}
        arrays = iter(self._adapter.fetched([native for one in awaited.values() for native in one.numbers.values()]))
        for key, one in awaited.items():
            self._trace.summaries[key] = _summary(one, {name: next(arrays) for name in one.numbers})


def _summary(one: _Awaited, numbers: Mapping[str, Array]) -> Summary:
    """Return a summary as `padiff.trace.summarized` makes it of an array."""
    work = work_of(numpy_dtype(one.summary.dtype))
    picked = numbers["sample"].astype(work if one.asked.sketched else np.float64)
    figures: dict[str, Any] = {"sample": picked}
    if one.asked.norm:
        wrong, nans = int(numbers["wrong"][0]), int(numbers["nans"][0])
        count = one.summary.size - wrong
        figures |= {"nans": nans, "infinities": wrong - nans}
        if count:
            figures["norm"] = float(numbers["norm"][0])
        if count and one.asked.extremes:
            figures["mean"] = float(numbers["total"][0]) / count
            if not wrong:  # else zeros stand there for what is not finite
                figures |= {"low": float(numbers["low"][0]), "high": float(numbers["high"][0])}
    if "sketch" in numbers:
        figures["sketch"] = numbers["sketch"][: one.summary.size].astype(work)
    return attrs.evolve(one.summary, **figures)
