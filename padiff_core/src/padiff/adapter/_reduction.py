"""Say which few numbers are asked of a value that numpy cannot see."""

from __future__ import annotations

import attrs


@attrs.frozen
class Reduction:
    """What `Tensor.reduced` computes where the value lies.

    It gives native tensors by name: ``sample``, the elements at `sketching.places_of_sample`, as they are; with
    ``norm`` also the L2 ``norm`` in float64, in which what is not finite counts as zero, and how many elements are
    ``wrong`` (not finite), and ``nans``. With ``extremes`` the ``total`` in float64, ``low`` and ``high``; where it is
    ``sketched`` the ``sketch``, in float64. All of the value with its axes in ``order``, in C order.
    """

    norm: bool = True
    extremes: bool = True
    sketched: bool = False
    order: tuple[int, ...] | None = None
