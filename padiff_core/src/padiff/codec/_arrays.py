"""Say what an array may be made of, where its values go, and where they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_NUMPY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
DTYPES: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in _NUMPY.split()},
    **{
        name: np.dtype(kind)
        for name, kind in vars(ml_dtypes).items()
        if isinstance(kind, type) and issubclass(kind, np.generic)
    },
}
"""What an array may be made of."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Sink(Protocol):
    """Where the values of arrays go."""

    def put(self, array: Array) -> Sequence[int | str]:
        """Keep an array; return what says where it lies."""


class Source(Protocol):
    """Where the values of arrays are read."""

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array that lies at a place; raise `Malformed` where that is none."""


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, for which numpy looks for long; a framework may have a bfloat16 of its own."""
    return _NAMES.get(dtype) or dtype.name
