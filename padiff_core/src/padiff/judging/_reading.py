"""Read one value, or one gradient, from what a call did by itself."""

from __future__ import annotations

from collections.abc import Callable

from padiff.forcing import Reader, Replayed, Spot
from padiff.numerics import Array


def value_of(spot: Spot, given: Array | None = None) -> Reader:
    """Read a value: the candidate's where it was seen, since it may hold several tensors for one of the reference's.

    ``given`` is the reference's where its code was fed with it.
    """

    def read(alone: Replayed, ours: bool) -> Array | None:
        whole = alone.observed.values.get(spot.reference.token)
        if ours:
            return whole if given is None else given
        return alone.observed.spots.get(spot.key, whole)

    return read


def gradient_of(token: int) -> Callable[[Replayed, bool], Array | None]:
    """Read a gradient by the token of its tensor."""
    return lambda alone, _: alone.observed.gradients.get(token)
