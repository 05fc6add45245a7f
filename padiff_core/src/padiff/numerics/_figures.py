"""Hold what a comparison measured."""

from __future__ import annotations

import attrs


@attrs.frozen
class Difference:
    """Say how far a candidate is from its reference, by the two figures that are cheap.

    ``equal``: the same values (0.0 equals -0.0, NaN equals NaN), whatever the dtypes. ``rel_l2``:
    ||candidate - reference|| / ||reference||, with 0/0 = 0 and x/0 = inf. ``max_abs``: the largest
    |candidate - reference|. ``scale``: the root mean square of the reference; NaN where it was not measured
    (equal bits, empty arrays, unequal shapes). ``nan_mismatch``: a NaN or infinity is on one side only, or
    infinities of two signs; then, as for unequal shapes, both errors are infinite. ``count``: elements of the
    reference.
    """

    equal: bool
    rel_l2: float
    max_abs: float
    scale: float
    shape_equal: bool
    dtype_equal: bool
    nan_mismatch: bool
    count: int
    not_finite: tuple[int, int] | None = None
    """How many elements of the reference and of the candidate are NaN or infinite, where that is another number."""
