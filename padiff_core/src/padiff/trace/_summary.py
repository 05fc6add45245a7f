"""Know of a value what a few numbers say."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.numerics import sample

__all__ = ["Summary", "summarized"]

_CHUNK = 1 << 16


@attrs.frozen(eq=False)
class Summary:
    """What is known of a tensor whose values were not kept; a figure is None where its writer did not measure it."""

    dtype: str
    shape: tuple[int, ...]
    mean: float | None = None
    """Of the finite elements, as all figures but the counts."""
    norm: float | None = None
    """The L2 norm."""
    low: float | None = None
    high: float | None = None
    nans: int | None = None
    infinities: int | None = None
    sample: NDArray[np.float64] | None = None
    """A few of the elements, at places that depend on the size alone: see `padiff.numerics.sample`."""

    @property
    def size(self) -> int:
        """Return how many elements the tensor has."""
        return math.prod(self.shape)

    @property
    def std(self) -> float | None:
        """Return the standard deviation, where mean and norm are known."""
        if self.mean is None or self.norm is None or not self.size:
            return None
        return math.sqrt(max(self.norm**2 / self.size - self.mean**2, 0.0))


def summarized(array: NDArray[Any]) -> Summary:
    """Return the summary of an array, in one pass and at little memory; of complex numbers that of their moduli."""
    name, shape, picked = array.dtype.name, tuple(array.shape), sample(array)
    flat = np.abs(array).ravel() if array.dtype.kind == "c" else array.ravel(order="K")
    nans = infinities = count = 0
    total = squares = 0.0
    low, high = math.inf, -math.inf
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        part = chunk if chunk.dtype in (np.float32, np.float64) else chunk.astype(np.float64)
        square = float(np.dot(part, part))
        if not math.isfinite(square):
            finite = np.isfinite(part)
            wrong = int(np.count_nonzero(np.isnan(part)))
            nans, infinities = nans + wrong, infinities + int(part.size - np.count_nonzero(finite)) - wrong
            part = part[finite].astype(np.float64)
            square = float(np.dot(part, part))
        if part.size:
            count += part.size
            squares += square
            total += float(part.sum(dtype=np.float64))
            low, high = min(low, float(part.min())), max(high, float(part.max()))
    if not count:
        return Summary(name, shape, None, None, None, None, nans, infinities, picked)
    return Summary(name, shape, total / count, math.sqrt(squares), low, high, nans, infinities, picked)
