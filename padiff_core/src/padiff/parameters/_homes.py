"""Tell where the parameters belong that a module holds beside its layers: where these layers have their counterparts.

Vectors of one shape are many. What neither the dataflow nor names tell apart is matched in its order, which is another
one where one side joins some of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

import attrs

from padiff.alignment import Resolved, region_of
from padiff.parameters._correspondence import Correspondence
from padiff.paths import parent, upwards

_Layers = Sequence[tuple[str, str]]
"""Module of a layer on one side, and that of its counterpart on the other."""


def homes_of(known: Correspondence) -> Resolved:
    """Return which modules of both sides hold parameters beside the same layers, as if a user had mapped them."""
    layers = [match for match in known.one_to_one if match.links and all(unit.kind for unit in match.units)]
    ours = [(match.reference.module.path, match.candidate.module.path) for match in layers]
    theirs = [(yours, mine) for mine, yours in ours]
    holding = [{unit.module.path for unit in units if unit.loose} for units in known.sides]
    found = dict(_homes(holding[0], ours, theirs))
    found |= {yours: mine for mine, yours in _homes(holding[1], theirs, ours)}
    counts = Counter(found.values())
    return attrs.evolve(known.fixed, named={mine: yours for mine, yours in found.items() if counts[yours] == 1})


def strays(known: Correspondence, homes: Resolved) -> int:
    """Return how many matches are of what belongs in modules that do not belong together."""
    tops = homes.regions()
    sides = ([region_of(unit.module.path, top) for unit, top in zip(m.units, tops, strict=True)] for m in known.matches)
    return sum(None not in regions and len({*regions}) > 1 for regions in sides)


def _homes(holding: set[str], layers: _Layers, back: _Layers) -> Iterator[tuple[str, str]]:
    """Yield modules of one side that hold parameters, with the innermost one of the other side that has their layers.

    That one has no others: what holds the layers of two modules is no home of one of them.
    """
    for path in holding:
        inside = [parent(yours) for mine, yours in layers if path in upwards(mine)]
        home = _around(inside)
        if home is not None and all(path in upwards(mine) for yours, mine in back if home in upwards(yours)):
            yield path, home


def _around(paths: Sequence[str]) -> str | None:
    """Return the innermost module around some; None where there are none."""
    if not paths:
        return None
    first, last = min(paths).split("."), max(paths).split(".")
    return ".".join(a for a, _ in takewhile(lambda both: both[0] == both[1], zip(first, last, strict=False)))
