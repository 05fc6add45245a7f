"""Tell where the parameters belong that a module holds beside its layers: where these layers have their counterparts.

Vectors of one shape are many. What neither the dataflow nor names tell apart is matched in its order, which is another
one where one side joins some of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.alignment import Resolved, region_of
from padiff.parameters._correspondence import Correspondence
from padiff.paths import parent, upwards

_Layers = Sequence[tuple[str, str]]
"""Module of a layer on one side, and that of its counterpart on the other."""


def homes_of(known: Correspondence) -> Resolved:
    """Return which modules hold parameters beside the same layers on both sides, as if a user had mapped them."""
    matches = [match for match in known.one_to_one if match.links and all(unit.kind for unit in match.units)]
    ours = [(match.reference.module.path, match.candidate.module.path) for match in matches]
    theirs = [(yours, mine) for mine, yours in ours]
    holding, others = ({unit.module.path for unit in units if unit.loose} for units in known.sides)
    found = {mine: _home(mine, ours) for mine in holding.union(_home(yours, theirs) for yours in others)}
    named = {mine: yours for mine, yours in found.items() if mine and yours and _home(yours, theirs) == mine}
    return attrs.evolve(known.fixed, named=named)


def strays(known: Correspondence, homes: Resolved) -> int:
    """Return how many matches are of what belongs in modules that do not belong together."""
    tops = homes.regions()
    sides = ([region_of(unit.module.path, top) for unit, top in zip(m.units, tops, strict=True)] for m in known.matches)
    return sum(None not in regions and len({*regions}) > 1 for regions in sides)


def _home(path: str, layers: _Layers) -> str:
    """Return the innermost module of the other side around the counterparts of a module's layers."""
    inside = [[*upwards(parent(yours))] for mine, yours in layers if path in upwards(mine)]
    return next((one for one in inside[0] if all(one in some for some in inside)), "") if inside else ""
