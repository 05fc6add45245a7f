"""Say where the values of arrays go, and where they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Sink(Protocol):
    """Where the values of arrays go."""

    def put(self, array: Array) -> Sequence[int | str]:
        """Keep an array; return what says where it lies."""


class Source(Protocol):
    """Where the values of arrays are read."""

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array that lies at a place; raise `Malformed` where that is none."""
