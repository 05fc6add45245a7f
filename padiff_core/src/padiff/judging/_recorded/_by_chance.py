"""Know how far an optimizer steps by a gradient that is rounding alone: by chance, on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._two_steps import exact
from padiff.judging._sizes import projected
from padiff.numerics import Array
from padiff.parameters import Link, UnitMatch
from padiff.report import Finding


def beside_chance(found: Sequence[tuple[Link, Finding]], by_chance: Mapping[Link, bool]) -> list[tuple[Link, Finding]]:
    """Return findings of which those on steps ``by_chance`` are no sources beside others.

    They are none by themselves either, but where they go further than any other step of the module does.
    """
    if all(by_chance.get(link) is False for link, _ in found):
        return []
    others = any(link not in by_chance for link, _ in found)
    return [(link, attrs.evolve(one, source=one.source and not (others and link in by_chance))) for link, one in found]


def longest_step(meter: Meter, match: UnitMatch) -> float:
    """Return the reference's longest step of any element of a module.

    Where one side alone casts, what is rounding alone in a gradient is of another size on each side; and so is a whole
    gradient that is nothing else (of the bias of keys), beside the epsilon that an optimizer adds.
    """
    found = [0.0]
    for link in (one for one in match.links if not one.buffer and one.differentiated):
        started, ended = (projected_alike(meter.held(link, when)) for when in ("before", "updated"))
        if started is not None and ended is not None:
            found.append(float(np.max(np.abs(exact(ended[0]) - exact(started[0])), initial=0.0)))
    return max(found)


def projected_alike(values: tuple[Any, Any]) -> tuple[Array, Array] | None:
    """Return both values, or both sketches: a step is a difference, and so is its sketch."""
    ours, theirs = map(projected, values)
    return None if ours is None or theirs is None or ours.shape != theirs.shape else (ours, theirs)
