"""Know of a value what a few numbers say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.codec import name_of
from padiff.numerics import BLOCK, Sketcher, in_order, sample, sketch, work_of

_CHUNK = 4 * BLOCK
"""Elements of 1 MB: in a larger cache than half of them would lie in, and for half of the calls."""
_ROW = 256
_UNCHANGED = nullcontext()
_LOW, _HIGH, _ADD = np.minimum.reduce, np.maximum.reduce, np.add.reduce
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
    sample: NDArray[np.floating[Any]] | None = None
    """A few of the elements, at places that depend on the size alone: see `padiff.numerics.sample`."""
    sketch: NDArray[Any] | None = None
    """What random signs project it onto, as `padiff.numerics.sketch` does: those of parts add up to that of the whole.
    Of a parameter in the canonical layout, where its kind is known."""
    whole: tuple[int, ...] | None = None
    """The shape of the value of which this is a shard, if the sketch says where in it that lies."""
    checksum: str | None = None
    """What another tool made of the bytes: other checksums are of other bytes. Equal ones of eight digits (CRC-32) are
    of equal bytes; a longer one is the bytes' exclusive or, which is the same in whatever order they lie."""

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
    def scale(self) -> float:
        """Return the root mean square; 0 where it is not known."""
        return 0.0 if self.norm is None or not self.size else self.norm / self.size**0.5

    @property
    def std(self) -> float | None:
        """Return the standard deviation, where mean and norm are known."""
        if self.mean is None or self.norm is None or not self.size:
            return None
        return math.sqrt(max(self.norm * self.norm / self.size - self.mean * self.mean, 0.0))


def summarized(array: NDArray[Any], *, extremes: bool = True, sketched: bool = False) -> Summary:
    """Return the summary of an array, in one pass and at little memory; of complex numbers that of their moduli.

    Without ``extremes`` mean, smallest and largest are left out, for half of the time. ``sketched`` adds a sketch.
    """
    name, shape = name_of(array.dtype), tuple(array.shape)
    picked: NDArray[np.floating[Any]] = sample(array)
    beside = sketched and array.dtype.kind != "c"
    values = np.abs(array) if array.dtype.kind == "c" else array if beside else array.ravel(order="K")
    work = work_of(values.dtype)
    found, start = _Figures(), 0
    sketcher = Sketcher(values.size, work) if beside else None
    # Of a few hundred small values the calls are what they cost; nothing warns where nothing is converted.
    with np.errstate(all="ignore") if sketched or values.dtype != work else _UNCHANGED:
        for raw in in_order(values, _CHUNK):
            part = raw.astype(work, copy=False)
            found.add(part, extremes)
            if sketcher is not None:
                sketcher.add(start, part)
                start += part.size
    if sketched and work is np.float32:
        picked = picked.astype(np.float32)  # which loses nothing
    mine = sketcher.found if sketcher is not None else sketch(array) if sketched else None
    figures: dict[str, Any] = {"nans": found.nans, "infinities": found.infinities, "sample": picked, "sketch": mine}
    if found.count:
        figures["norm"] = math.sqrt(found.squares)
        if extremes:
            figures |= {"mean": found.total / found.count, "low": found.low, "high": found.high}
    return Summary(name, shape, **figures)


def summed(parts: Sequence[Summary]) -> Summary:
    """Return what is known of a sum by its summands' summaries: its sketch, and by that its norm.

    Where a sketch is missing, or the parts do not fit together, nothing but the shape is known.
    """
    first = parts[0]
    shape = first.whole or first.shape
    sketches = [one.sketch for one in parts if one.sketch is not None]
    fit = len({(one.shape, one.whole, one.dtype) for one in parts}) == 1
    if not fit or len(sketches) < len(parts) or len({one.shape for one in sketches}) > 1:
        return Summary(first.dtype, shape)
    total = np.sum(sketches, axis=0, dtype=np.float64)
    norm = float(np.linalg.norm(total))
    counts = [sum(one.nans or 0 for one in parts), sum(one.infinities or 0 for one in parts)]
    kept = total.astype(sketches[0].dtype)
    return Summary(first.dtype, shape, norm=norm, nans=counts[0], infinities=counts[1], sketch=kept, whole=first.whole)


def difference_in_any_order(ours: Summary, theirs: Summary) -> float | None:
    """Return how far apart, relatively, the figures are that do not depend on the order of the elements.

    None where no figure is known of both.
    """
    size = max(ours.scale, abs(ours.mean or 0.0)) or max(abs(ours.low or 0.0), abs(ours.high or 0.0))
    errors = [
        0.0 if a == b else abs(a - b) / unit if unit else math.inf
        for a, b, unit in (
            (ours.norm, theirs.norm, ours.norm),
            (ours.mean, theirs.mean, size),
            (ours.low, theirs.low, max(size, abs(ours.low or 0.0))),
            (ours.high, theirs.high, max(size, abs(ours.high or 0.0))),
        )
        if a is not None and b is not None
    ]
    return max(errors, default=None)


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
        square = float(part.dot(part))
        if not math.isfinite(square):
            part = self._finite(part)
            square = float(part.dot(part))
        self.squares += square
        self.count += part.size
        if part.size and extremes:
            self.low = min(self.low, float(_LOW(part)))
            self.high = max(self.high, float(_HIGH(part)))
            self.total += _sum(part)

    def _finite(self, part: NDArray[Any]) -> NDArray[np.float64]:
        finite = np.isfinite(part)
        wrong = int(np.count_nonzero(np.isnan(part)))
        self.nans += wrong
        self.infinities += int(part.size - np.count_nonzero(finite)) - wrong
        found: NDArray[np.float64] = part[finite].astype(np.float64)
        return found


def _sum(part: NDArray[Any]) -> float:
    """Return the sum of a chunk, of which rows are added by a product with ones: that is twice as fast."""
    rows = part.size // _ROW
    ones = _ONES[part.dtype.char]
    rest = float(part[rows * _ROW :].dot(ones[: part.size % _ROW]))
    return rest + float(_ADD(part[: rows * _ROW].reshape(rows, _ROW).dot(ones), dtype=np.float64))
