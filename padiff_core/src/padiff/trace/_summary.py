"""Know of a value what a few numbers say."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.numerics import sample

__all__ = ["Summary", "summarized"]

_CHUNK = 1 << 17
_ROW = 256
_ONES = {dtype.char: np.ones(_ROW, dtype) for dtype in (np.dtype(np.float32), np.dtype(np.float64))}


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
    def wrong(self) -> str:
        """Return ``NaN`` or ``Inf`` where an element is one, as far as the figures show; else nothing."""
        figures = [figure for figure in (self.mean, self.norm, self.low, self.high) if figure is not None]
        if self.nans or any(map(math.isnan, figures)):
            return "NaN"
        return "Inf" if self.infinities or any(map(math.isinf, figures)) else ""

    @property
    def std(self) -> float | None:
        """Return the standard deviation, where mean and norm are known."""
        if self.mean is None or self.norm is None or not self.size:
            return None
        return math.sqrt(max(self.norm * self.norm / self.size - self.mean * self.mean, 0.0))


def summarized(array: NDArray[Any], *, extremes: bool = True) -> Summary:
    """Return the summary of an array, in one pass and at little memory; of complex numbers that of their moduli.

    Without ``extremes`` mean, smallest and largest are left out, for half of the time.
    """
    name, shape, picked = array.dtype.name, tuple(array.shape), sample(array)
    flat = np.abs(array).ravel() if array.dtype.kind == "c" else array.ravel(order="K")
    work = _work(flat.dtype)
    found = _Figures()
    step = min(_CHUNK, flat.size) or 1
    for start in range(0, flat.size, step):
        found.add(flat[start : start + step].astype(work, copy=False), extremes)
    if not found.count:
        return Summary(name, shape, None, None, None, None, found.nans, found.infinities, picked)
    norm = math.sqrt(found.squares)
    if not extremes:
        return Summary(name, shape, norm=norm, nans=found.nans, infinities=found.infinities, sample=picked)
    mean = found.total / found.count
    return Summary(name, shape, mean, norm, found.low, found.high, found.nans, found.infinities, picked)


@attrs.define
class _Figures:
    """The figures of the chunks so far."""

    count: int = 0
    nans: int = 0
    infinities: int = 0
    total: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, part: NDArray[Any], extremes: bool) -> None:
        """Add a chunk of float32 or float64: the first figure brings it into the cache for the others."""
        square = float(np.dot(part, part))
        if not math.isfinite(square):
            part = self._finite(part)
            square = float(np.dot(part, part))
        self.squares += square
        self.count += part.size
        if part.size and extremes:
            self.low = min(self.low, float(np.minimum.reduce(part)))
            self.high = max(self.high, float(np.maximum.reduce(part)))
            self.total += _sum(part)

    def _finite(self, part: NDArray[Any]) -> NDArray[np.float64]:
        finite = np.isfinite(part)
        wrong = int(np.count_nonzero(np.isnan(part)))
        self.nans += wrong
        self.infinities += int(part.size - np.count_nonzero(finite)) - wrong
        found: NDArray[np.float64] = part[finite].astype(np.float64)
        return found


def _work(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    """Return the type to compute in: of small floats float32, whose products of sums that overflow are made anew."""
    return np.float32 if dtype == np.float32 or (dtype.itemsize <= 2 and dtype.kind not in "biu") else np.float64


def _sum(part: NDArray[Any]) -> float:
    """Return the sum of a chunk, of which rows are added by a product with ones: that is twice as fast."""
    rows = part.size // _ROW
    ones = _ONES[part.dtype.char]
    whole = float(np.dot(part[: rows * _ROW].reshape(rows, _ROW), ones).sum(dtype=np.float64))
    return whole + float(part[rows * _ROW :].sum(dtype=np.float64))
