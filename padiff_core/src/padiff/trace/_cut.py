"""Read values as if they had fewer rows: what a model pads is no part of what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.trace._model import Description
from padiff.trace._records import ParameterRecord


@attrs.frozen
class Cut:
    """How many rows along an axis are read, the first ones."""

    axis: int
    count: int
    whole: int
    """How many there are."""

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of what is read of a value."""
        return (*shape[: self.axis], self.count, *shape[self.axis + 1 :])

    def read(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return what is read of a value; a view."""
        return array[(*[slice(None)] * self.axis, slice(self.count))]

    def rest(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return what is not read of a value; a view."""
        return array[(*[slice(None)] * self.axis, slice(self.count, None))]

    def filled(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a whole value of which this is read; what lies behind is zero."""
        found: NDArray[Any] = np.zeros(
            (*array.shape[: self.axis], self.whole, *array.shape[self.axis + 1 :]), array.dtype
        )
        self.read(found)[...] = array
        return found


def cut_description(about: Description, parameters: Mapping[str, Cut]) -> Description:
    """Return a model as it would be had some parameters fewer rows."""
    return attrs.evolve(about, parameters=cut_records(about.parameters, parameters))


def cut_records(records: Mapping[str, ParameterRecord], cuts: Mapping[str, Cut]) -> dict[str, ParameterRecord]:
    """Return the records of parameters, some of them with fewer rows."""
    return {
        path: attrs.evolve(one, shape=cuts[path].shape(one.shape)) if path in cuts else one
        for path, one in records.items()
    }
