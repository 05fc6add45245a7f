"""Ask for few numbers of values that numpy cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from padiff.numerics import Array


@attrs.frozen
class Reduction:
    """What a `Reducer` computes where the value lies.

    It gives numbers by name: ``sample``, the elements at `sketching.places_of_sample`, as they are; with
    ``norm`` also the L2 ``norm`` in float64, in which what is not finite counts as zero, and how many elements are
    ``wrong`` (not finite), and ``nans``. With ``extremes`` the ``total`` in float64, ``low`` and ``high``; where it is
    ``sketched`` the ``sketch``, in float64. All of the value with its axes in ``order``, in C order.
    """

    norm: bool = True
    extremes: bool = True
    sketched: bool = False
    order: tuple[int, ...] | None = None


class Reducer:
    """What reduces tensors to few numbers where they lie, and brings these over at once; as it stands it takes none."""

    def add(self, native: Any, reduction: Reduction, *, steady: bool = False) -> bool:
        """Take a native tensor, without waiting for its device; return False where it is better read here.

        That is: it lies on the host, is empty, or is no plain block of real numbers. One that is ``steady`` is not
        written to before `fetch`.
        """
        return False

    def fetch(self) -> list[Mapping[str, Array]]:
        """Return the numbers of each tensor that was taken since the last time, in that order, each an array."""
        return []
