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
    reducer = adapter.reducer()
    if tensor.reduce(reducer, Reduction(norm=False)):
        return reducer.fetch()[0]["sample"].astype(np.float64)
    found: NDArray[np.float64] = tensor.read(sample)
    return found


class Reductions:
    """The summaries of one step's trace that are computed on a device."""

    def __init__(self, adapter: Adapter, trace: Trace) -> None:
        self._reducer, self._trace = adapter.reducer(), trace
        self._awaited: list[tuple[int, Reduction]] = []
        """The keys of the summaries of which only the type and the shape are known so far."""

    def keep(self, value: Tensor | Parameter, reduction: Reduction, *, steady: bool = False) -> int | None:
        """Let a tensor or a parameter be reduced where it lies; return the summary's key, or None where it is not."""
        if not value.reduce(self._reducer, reduction, steady=steady):
            return None
        key = self._trace.summarized(Summary(value.dtype, tuple(value.shape)))
        self._awaited.append((key, reduction))
        return key

    def fetch(self) -> None:
        """Wait for the device, and complete the summaries."""
        awaited, self._awaited = self._awaited, []
        summaries = self._trace.summaries
        for (key, reduction), numbers in zip(awaited, self._reducer.fetch(), strict=True):
            summaries[key] = completed(summaries[key], reduction, numbers)


def completed(known: Summary, reduction: Reduction, numbers: Mapping[str, Array]) -> Summary:
    """Return a summary as `padiff.trace.summarized` makes it of an array."""
    work = work_of(numpy_dtype(known.dtype))
    figures: dict[str, Any] = {"sample": numbers["sample"].astype(work if reduction.sketched else np.float64)}
    if reduction.norm:
        wrong, nans = int(numbers["wrong"]), int(numbers["nans"])
        count = known.size - wrong
        figures |= {"nans": nans, "infinities": wrong - nans}
        if count:
            figures["norm"] = float(numbers["norm"])
        if count and reduction.extremes:
            figures["mean"] = float(numbers["total"]) / count
            if not wrong:  # else zeros stand there for what is not finite
                figures |= {"low": float(numbers["low"]), "high": float(numbers["high"])}
    if "sketch" in numbers:
        figures["sketch"] = numbers["sketch"][: known.size].astype(work)
    return attrs.evolve(known, **figures)
