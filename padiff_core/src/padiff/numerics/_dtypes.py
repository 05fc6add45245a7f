"""Choose the type in which two arrays are compared, and look at their bytes."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An array of any type."""

Seen: TypeAlias = Callable[[int, bool], None]
"""What is told of how many bytes of both arrays, in the order of memory, a pass has just seen, and if they are the same
so far. They lie in the cache then."""

_AT_ONCE = 1 << 20
"""Bytes that are compared in one go where somebody wants to see them."""
_SMALL = 1 << 14
"""Bytes up to which a copy costs less than a call of the C library."""
_WORK = tuple(np.dtype(name) for name in ("f4", "c8", "f8", "c16", "longdouble", "clongdouble"))


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy's, or one of its numbers."""
    return isinstance(value, np.ndarray | np.generic)


def is_float(array: Array) -> bool:
    """Return whether an array's dtype is real floating point, of numpy's or of ml_dtypes."""
    return "float" in array.dtype.name


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of numpy or ml_dtypes of that name.

    Not ``np.dtype(name)``: MindSpore has a bfloat16 of its own, which goes by that name where it was imported later.
    """
    return np.dtype(getattr(ml_dtypes, name, name))


def work_dtype(ref: Array, cand: Array) -> np.dtype[Any]:
    """Return the narrowest floating type that holds the values of both arrays; for int64 see `is_exact`."""
    return _work_dtype(ref.dtype, cand.dtype)


@functools.cache
def _work_dtype(ref: np.dtype[Any], cand: np.dtype[Any]) -> np.dtype[Any]:
    dtypes = []
    for side, given in (("reference", ref), ("candidate", cand)):
        dtype = given
        # Integers are summed in float64: their figures are exact as long as float64 is.
        dtype = np.dtype("f8") if dtype.kind in "biu" else np.dtype("f4") if is_narrow(dtype) else dtype
        if dtype.kind not in "fc":
            msg = f"{side} has dtype {given}, expected numbers. Hint: convert it before comparing"
            raise TypeError(msg)
        dtypes.append(dtype)
    return next(work for work in _WORK if all(np.can_cast(dtype, work) for dtype in dtypes))


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Tell whether float32 holds every value: float16 and the types of ml_dtypes, whose kind is often "V"."""
    return dtype.kind in "fV" and dtype.names is None and np.can_cast(dtype, np.float32)


def is_exact(ref: Array, cand: Array) -> bool:
    """Tell whether both are integers of which one has values that float64 would round."""
    return ref.dtype.kind in "biu" and cand.dtype.kind in "biu" and max(ref.itemsize, cand.itemsize) == 8


@functools.cache
def _memcmp() -> Callable[[int, int, int], int] | None:
    """Return the C library's memcmp: as fast as memory, stops at the first difference, makes no copy."""
    try:
        found = ctypes.CDLL("msvcrt" if os.name == "nt" else None).memcmp
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    found.restype = ctypes.c_int
    return cast(Callable[[int, int, int], int], found)


def lie_alike(ref: Array, cand: Array) -> bool:
    """Tell whether the elements of two arrays of one shape follow each other in one order, without gaps."""
    both_c = ref.flags.c_contiguous and cand.flags.c_contiguous
    both_f = ref.flags.f_contiguous and cand.flags.f_contiguous
    return both_c or both_f


def read_only(array: Array) -> Array:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def same_bytes(ref: Array, cand: Array, seen: Seen | None = None) -> bool:
    """Tell whether arrays of one shape lie alike in memory and hold the same bytes; False settles nothing.

    ``seen`` is told how far they are the same, while that lies in the cache.
    """
    if ref.dtype != cand.dtype or not lie_alike(ref, cand):
        return False
    if ref.nbytes <= _SMALL:
        return ref.tobytes() == cand.tobytes()
    memcmp = _memcmp()
    if memcmp is None:
        return False
    ours, theirs, step = ref.ctypes.data, cand.ctypes.data, ref.nbytes if seen is None else _AT_ONCE
    for start in range(0, ref.nbytes, step):
        size = min(step, ref.nbytes - start)
        if memcmp(ours + start, theirs + start, size):
            return False
        if seen is not None:
            seen(start + size, True)
    return True


def in_reals(array: Array) -> Array:
    """Return an array in float64, with the parts of complex numbers along one more axis."""
    parts = np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array
    return parts.astype(np.float64)
