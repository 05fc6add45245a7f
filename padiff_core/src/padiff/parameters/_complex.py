"""Read complex parameters as real ones where the other side has none: in pairs, or as two parameters.

That is how a port holds them whose framework trains no complex numbers. A gradient of a complex parameter holds those
of its parts, so that it is read alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

from padiff.parameters._units import Held, HeldUnit

Units = list[HeldUnit]
_Shapes = Counter[tuple[int, ...]]


def in_real_numbers(ours: Units, theirs: Units) -> tuple[Units, Units]:
    """Return the units of both sides, as they are where both have complex parameters or none has."""
    if _has_complex(ours) == _has_complex(theirs):
        return ours, theirs
    if _has_complex(ours):
        return _real(ours, theirs), theirs
    return ours, _real(theirs, ours)


def _has_complex(units: Units) -> bool:
    return any(_is_complex(held) for unit in units for held in unit.roles.values())


def _is_complex(held: Held) -> bool:
    return held.parameter.dtype.startswith("complex")


def _real(units: Units, others: Units) -> Units:
    """Return units whose complex parameters are read as the other side, by the shapes that it has, may hold them."""
    shapes: _Shapes = Counter(held.shape for unit in others for held in unit.roles.values())
    return [
        attrs.evolve(unit, roles=dict(one for role, held in unit.roles.items() for one in _parts(role, held, shapes)))
        if unit.special is None
        else unit
        for unit in units
    ]


def _parts(role: str, held: Held, shapes: _Shapes) -> Iterator[tuple[str, Held]]:
    if not _is_complex(held):
        yield role, held
        return
    pairs = Held(held.parameter, attrs.evolve(held.part, numbers="pairs"), (*held.shape, 2))
    if shapes[pairs.shape] or shapes[held.shape] < 2:
        yield role, pairs
        return
    for name in ("real", "imag"):
        part = attrs.evolve(held.part, numbers=name)
        yield f"{role}.{name}", Held(held.parameter, part, held.shape)
