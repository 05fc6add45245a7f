"""What a sketch and a sample are made of, for adapters that compute them where a value lies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from padiff.numerics._compare import places_of_sample
from padiff.numerics._sketch import BATCH, BLOCK, WIDTH, exchanges_of, signs_of

__all__ = ["BLOCK", "WIDTH", "exchanges", "places_of_sample", "signs_of"]


def exchanges(count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return of the first blocks the sign of each bucket, and which of a block's sums comes to it: (count, WIDTH) each.

    A block's sums are those of its columns, laid out in rows of WIDTH, each element with its sign (see `signs_of`).
    """
    found = [exchanges_of(batch) for batch in range(-(-count // BATCH))]
    return np.concatenate([one[0] for one in found])[:count], np.concatenate([one[1] for one in found])[:count]
