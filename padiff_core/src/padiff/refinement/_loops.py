"""Ask the first calls of a module for all of them: the calls of a loop share their code, and what that holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from padiff.alignment import Pair
from padiff.grouping import grouped

_ASKED = 2
"""So many calls of one module: a fault that follows may make one of them look wrong, or a state of zeros right."""


def first_of_loops(pairs: Iterable[Pair]) -> list[tuple[Sequence[Pair], Sequence[Pair]]]:
    """Return the calls of each match of modules that are asked, and all of them."""
    loops = grouped(pairs, lambda pair: (pair.reference.path, pair.candidate.path)).values()
    return [(calls[:_ASKED], calls) for calls in loops]
