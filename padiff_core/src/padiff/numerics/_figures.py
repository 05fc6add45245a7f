"""Hold what a comparison measured."""

from __future__ import annotations

from typing import TypeAlias

import attrs

__all__ = ["Difference", "Metrics", "Scalar"]

Scalar: TypeAlias = bool | int | float | complex


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


@attrs.frozen
class Metrics:
    """Say how far a candidate is from its reference, by every figure; ``attrs.asdict`` makes a dict of it.

    With e = candidate - reference over the ``count - excluded`` elements that are compared: ``max_abs``
    = max |e|, ``max_rel`` = max |e / reference| (0/0 = 0), ``mean_abs`` = mean |e|, ``rel_l2`` = ||e|| /
    ||reference||; ``cosine`` is that of the angle between both (real part; 1 for two zero vectors, 0 for one)
    and, like the norms, is taken over the elements that are finite on both sides. ``outside`` is the fraction
    of elements with |e| > atol + rtol |reference|. ``worst`` is the index of the largest |e|, or of the first
    element that is not finite on one side; None when nothing is apart. ``mismatched`` counts elements with a
    NaN or infinity without its equal, ``excluded`` those with the same NaN or infinity on both sides.
    """

    count: int
    max_abs: float
    max_rel: float
    mean_abs: float
    rel_l2: float
    cosine: float
    outside: float
    mismatched: int
    excluded: int
    reference_norm: float
    candidate_norm: float
    error_norm: float
    worst: tuple[int, ...] | None
    worst_reference: Scalar | None
    worst_candidate: Scalar | None
