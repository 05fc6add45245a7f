"""Measure how far apart two recorded values are, whole or summarised, and whether they say the same."""

from __future__ import annotations

import math
import zlib
from typing import Any

import attrs
import numpy as np

from padiff.forcing import Spot, says_the_same
from padiff.judging._tolerance import Rule
from padiff.numerics import (
    EXACT,
    ORDER,
    SAME,
    Array,
    Difference,
    Seen,
    beside_masks,
    difference,
    epsilon_of,
    hidden_positions,
    numpy_dtype,
    relative,
    root_mean_square,
    work_of,
)
from padiff.trace import Summary, Trace, difference_in_any_order, summarized

Held = Array | Summary | None
_FIGURES = ("norm", "mean", "low", "high", "nans", "sample", "sketch")
_CRC32 = 8
"""Digits of a checksum that no other bytes have, but by chance."""


@attrs.frozen
class Size:
    """How far apart one value of two runs is."""

    difference: Difference
    eps: float
    """Machine epsilon of the coarser type; 0 for whole numbers."""
    close: bool | None = None
    """What the user's own rule says, where one was given."""

    least: bool = False
    """Whether they are at least so far apart: of axes in an unknown order nothing but a few figures tells."""
    scale: float = 0.0
    """The root mean square of what it was computed from, where that counts: see `padiff.numerics.relative`."""

    @property
    def error(self) -> float:
        """Return the relative L2 error."""
        return relative(self.difference, self.scale)

    @property
    def apart(self) -> float:
        """Return the norm of what is between them."""
        return self.difference.rel_l2 * self.difference.scale * math.sqrt(self.difference.count)


def held(trace: Trace, key: int | None) -> Held:
    """Return what a trace holds under a key: a value, a summary of one, or nothing."""
    if key is None:
        return None
    return trace.summaries.get(key) if key < 0 else trace.array(key)


def nothing_like(other: Held) -> Held:
    """Return what a gradient is that does not come: zeros."""
    if isinstance(other, Summary):
        sample, sketch = (None if one is None else np.zeros_like(one) for one in (other.sample, other.sketch))
        return Summary(other.dtype, other.shape, 0.0, 0.0, 0.0, 0.0, 0, 0, sample, sketch)
    return None if other is None else np.zeros_like(other)


def size_of(ours: Held, theirs: Held, rule: Rule | None = None, seen: Seen | None = None) -> Size | None:
    """Return how far apart two values are; None where one of them was not kept. ``seen``: see `difference`."""
    if ours is None or theirs is None:
        return None
    if not isinstance(ours, Summary) and not isinstance(theirs, Summary):
        eps = epsilon_of(ours.dtype.name, theirs.dtype.name) if _floats(ours.dtype, theirs.dtype) else 0.0
        return Size(difference(ours, theirs, seen), eps, None if rule is None else rule(ours, theirs))
    first, second = summaries_of(ours, theirs)
    agree = first.checksum is not None and first.checksum == second.checksum and first.dtype == second.dtype
    if not agree and not _share_figures(first, second):
        return None  # other bytes, of which nobody knows how far they are apart
    dtypes = numpy_dtype(first.dtype), numpy_dtype(second.dtype)
    eps = epsilon_of(first.dtype, second.dtype) if _floats(*dtypes) else 0.0
    close = None
    if rule is not None and first.sample is not None and second.sample is not None:
        close = rule(first.sample, second.sample)
    apart, least = _by_figures(first, second)
    if agree and first.shape == second.shape and len(first.checksum or "") == _CRC32:
        apart, close = attrs.evolve(apart, equal=True, rel_l2=0.0, max_abs=0.0), rule and True
    return Size(apart, eps, close, least)


def _share_figures(ours: Summary, theirs: Summary) -> bool:
    """Return whether there is anything by which two summaries tell how far apart their values are."""
    return any(getattr(ours, name) is not None and getattr(theirs, name) is not None for name in _FIGURES)


def _floats(*dtypes: np.dtype[Any]) -> bool:
    return all(dtype.kind not in "biu" for dtype in dtypes)


def summaries_of(ours: Array | Summary, theirs: Array | Summary) -> tuple[Summary, Summary]:
    """Return two values as summaries: with a sketch where what is summarised already has one."""
    known = [one for one in (ours, theirs) if isinstance(one, Summary)]
    sketched = any(one.sketch is not None for one in known)
    checked = any(one.checksum is not None for one in known)

    def summary(value: Array | Summary) -> Summary:
        if isinstance(value, Summary):
            return value
        checksum = f"{zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data):08x}" if checked else None
        return attrs.evolve(summarized(value, sketched=sketched), checksum=checksum)

    return summary(ours), summary(theirs)


def projected(value: Held) -> Array | None:
    """Return a value, what random signs project it onto, or a few of its elements: where sums and multiples count."""
    if not isinstance(value, Summary):
        return value
    if value.sketch is not None or value.sample is None:
        return value.sketch
    return value.sample.astype(work_of(numpy_dtype(value.dtype)))


def elements(value: Held) -> Array | None:
    """Return a value, or the sketch of one that is so small that each element has a number there, with a sign."""
    small = isinstance(value, Summary) and value.sketch is not None and value.sketch.size == value.size
    return projected(value) if small or not isinstance(value, Summary) else None


def multiple(of: Array, value: Array) -> tuple[float, float]:
    """Return by which factor one array comes nearest to another, and the norm of what it leaves unexplained."""
    first, second = of.astype(np.float64, copy=False), value.astype(np.float64, copy=False)
    squares = float(np.vdot(first, first))
    times = float(np.vdot(first, second)) / squares if squares else 0.0
    return times, float(np.linalg.norm(second - times * first))


def is_noise(reference: Held, candidate: Held, eps: float) -> bool:
    """Return whether sums are apart as by what their terms round: longer by no factor, and nowhere by far more.

    A factor is as near to one as by chance, or as one that is rounded itself.
    """
    ours, theirs = map(projected, (reference, candidate))
    if ours is None or theirs is None or ours.shape != theirs.shape or not ours.any():
        return True
    ours, apart = ours.astype(np.float64).ravel(), (theirs.astype(np.float64) - ours).ravel()
    factor, _ = multiple(ours, apart)
    by_chance = max(eps / 2, 4 * float(np.linalg.norm(apart) / np.linalg.norm(ours)) / math.sqrt(ours.size))
    return abs(factor) <= by_chance and bool(np.abs(apart).max() <= EXACT(eps) * np.abs(ours).max())


def _by_figures(ours: Summary, theirs: Summary) -> tuple[Difference, bool]:
    """Return what two summaries say of the difference, relative and absolute; and whether it may be far larger.

    Where both have sketches, these estimate it, within `SKETCH_ERROR`; else a few elements do. Of values of one size
    whose axes may lie in another order, figures tell that do not depend on it: at least so far apart are they.
    """
    counts = (ours.nans, theirs.nans), (ours.infinities, theirs.infinities)
    wrong = any(a is not None and b is not None and a != b for a, b in counts)
    alike = ours.shape == theirs.shape
    figures: dict[str, Any] = {"dtype_equal": ours.dtype == theirs.dtype, "count": ours.size, "nan_mismatch": wrong}
    if wrong or sorted(ours.shape) != sorted(theirs.shape):
        inf = float("inf")
        found = Difference(equal=False, rel_l2=inf, max_abs=inf, scale=float("nan"), shape_equal=alike, **figures)
        return found, False
    scale = magnitude(ours)
    errors = [0.0]
    most = 0.0
    estimated = _by_sketches(ours, theirs)
    sketched = estimated is not None and (alike or estimated[0] <= ORDER(0.0))
    if estimated is not None and sketched:
        errors, most = [estimated[0]], estimated[1]
    else:
        errors.append(difference_in_any_order(ours, theirs) or 0.0)
    for a, b in ((ours.low, theirs.low), (ours.high, theirs.high)):
        most = max(most, abs(a - b)) if a is not None and b is not None else most
    few, fewer = ours.sample, theirs.sample
    sampled = False
    if alike and few is not None and fewer is not None and few.shape == fewer.shape:
        sampled, found = True, difference(few, fewer)
        errors += [] if sketched else [found.rel_l2]
        most = max(most, found.max_abs)
    told = Difference(equal=False, rel_l2=max(errors), max_abs=most, scale=scale, shape_equal=True, **figures)
    return told, not (sketched or sampled)


def _by_sketches(ours: Summary, theirs: Summary) -> tuple[float, float] | None:
    """Return the relative L2 error that two sketches tell, and what one element differs by at least."""
    if ours.sketch is None or theirs.sketch is None or ours.sketch.shape != theirs.sketch.shape:
        return None
    apart = float(np.linalg.norm(ours.sketch.astype(np.float64) - theirs.sketch))
    norm = float(np.linalg.norm(ours.sketch)) if ours.norm is None else ours.norm
    share = 0.0 if apart == 0 else apart / norm if norm else float("inf")
    return share, apart / max(ours.size, 1) ** 0.5


def magnitude(value: Held) -> float:
    """Return the root mean square of a value; 0 where it is not known."""
    if isinstance(value, Summary):
        return value.scale
    return 0.0 if value is None or value.dtype.kind in "biuc" else root_mean_square(value)


def norm_of(value: Held) -> float:
    """Return the norm of a value; 0 where it is not known, or not finite."""
    known, array = value.norm if isinstance(value, Summary) else None, elements(value)
    found = known if known is not None else 0.0 if array is None else float(np.linalg.norm(array.astype(np.float64)))
    return found if math.isfinite(found) else 0.0


Traces = tuple[Trace, Trace]


def says_the_same_here(spot: Spot, size: Size, traces: Traces) -> bool:
    """Return whether a value that differs is a mask or an index in another spelling."""
    if spot.candidate.differentiable or (both := _both(spot, size, traces)) is None:
        return False
    given = spot.owner is None and both[0].dtype.kind in "iu"  # a batch, and another one
    return not given and says_the_same(spot, *both)


def size_compared(spot: Spot, size: Size, traces: Traces) -> tuple[Size, str]:
    """Return how far apart a value is as far as it is compared, and for what reason not as a whole, if so."""
    for why, beside in (("masks", size_beside_masks), ("hidden_positions", size_beside_hidden)):
        if (rest := beside(spot, size, traces)) is not None:
            return rest, why
    return size, ""


def size_beside_masks(spot: Spot, size: Size, traces: Traces) -> Size | None:
    """Return how far apart a value that differs is where no mask drowns it; None where both do not mask alike.

    What the model returns is compared as it is: nothing shows there that a mask drowns it.
    """
    returned = any(leaf.token == spot.reference.token for leaf in traces[0].root.outputs)
    both = None if returned else _both(spot, size, traces)
    rest = None if both is None else beside_masks(*both)
    return None if rest is None else attrs.evolve(size, difference=rest)


def size_beside_hidden(spot: Spot, size: Size, traces: Traces) -> Size | None:
    """Return how far apart a value that differs is at positions that some gradient comes to, on either side.

    None where it differs at no other. Of what the script is given a position has several elements (a word's scores): of
    single ones (of an action) that the loss leaves out others may have told it which.
    """
    returned = any(leaf.token == spot.reference.token for call in traces[0].tops for leaf in call.outputs)
    both = _both(spot, size, traces)
    keys = traces[0].gradients.get(spot.reference.token, -1), traces[1].gradients.get(spot.candidate.token, -1)
    if both is None or min(keys) < 0:
        return None
    sent = traces[0].array(keys[0]), traces[1].array(keys[1])
    alike = len({array.shape for array in (*both, *sent)}) == 1
    found = hidden_positions((sent[0] == 0) & (sent[1] == 0)) if alike else None
    if found is None:
        return None
    axes, hidden = found
    others = [axis for axis in range(sent[0].ndim) if axis not in axes]
    if returned and sent[0].size == hidden.size:
        return None
    seen = np.broadcast_to(np.expand_dims(~hidden, others), sent[0].shape)
    rest = attrs.evolve(size, difference=difference(both[0][seen], both[1][seen]))
    return rest if rest.error < size.error else None


def _both(spot: Spot, size: Size, traces: Traces) -> tuple[Array, Array] | None:
    """Return both values, where they differ by more than free runs do; None where they were not kept."""
    if not size.error > SAME(size.eps) or size.close is not None:
        return None
    ours, theirs = (
        trace.values[leaf.token] for trace, leaf in zip(traces, (spot.reference, spot.candidate), strict=True)
    )
    return None if min(ours, theirs) < 0 else (traces[0].array(ours), traces[1].array(theirs))
