"""Choose among units that look alike in the dataflow: by what they lie in, by names beyond doubt, ends, their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from padiff.alignment import SURE, agreement
from padiff.grouping import grouped
from padiff.parameters._colours import Chooser
from padiff.parameters._graph import inputs_behind, outputs_ahead
from padiff.parameters._units import HeldUnit
from padiff.trace import Flow

_ENDS = (inputs_behind, outputs_ahead)
Units = Sequence[HeldUnit]


def chooser(ours: Units, theirs: Units, listed: tuple[Units, Units], flows: tuple[Flow, Flow]) -> Chooser:
    """Return what tells which of like units one is, where the dataflow between units leaves that open."""
    ranks = [{unit: rank for rank, unit in enumerate(units)} for units in listed]

    @cache
    def ends() -> list[list[list[frozenset[str]]]]:
        """Return which inputs lead to each unit, and to which outputs it leads, of those that both models have."""
        found = [[of(units, flow) for units, flow in zip((ours, theirs), flows, strict=True)] for of in _ENDS]
        both = [frozenset[str]().union(*one) & frozenset[str]().union(*other) for one, other in found]
        return [[[unit & shared for unit in side] for side in sides] for sides, shared in zip(found, both, strict=True)]

    nested = _nested([unit.module.path for unit in ours])

    def choose(unit: int, like: Sequence[int], free: Sequence[int], known: Mapping[int, int]) -> int:
        """Return the partner that lies in, or holds, the ``known`` partners of what the unit lies in, or holds.

        Where these tell of none it is the one that names give beyond doubt, else the one listed at the same place.
        Which inputs of the model lead there, and to which outputs it leads, comes before the place.
        """
        partners = [(theirs[known[other]].module.path, inner) for other, inner in nested[unit] if other in known]
        nests = [sum(_is_nested(path, theirs[j].module.path, inner) for path, inner in partners) for j in free]
        if nests.count(max(nests)) == 1:
            return free[nests.index(max(nests))]
        sure = agreement([ours[i].path for i in like], [theirs[j].path for j in free])
        row = like.index(unit)
        named = [n for n in range(len(free)) if sure[row, n] >= SURE and (sure[:, n] >= SURE).sum() == 1]
        if len(named) == 1:
            return free[named[0]]
        for mine, yours in ends():
            near = [i for i in like if mine[i] == mine[unit]], [j for j in free if yours[j] == mine[unit]]
            like, free = near if len(near[0]) == len(near[1]) else (like, free)
        place = sorted(like, key=lambda i: ranks[0][ours[i]]).index(unit)
        return sorted(free, key=lambda j: ranks[1][theirs[j]])[min(place, len(free) - 1)]

    return choose


def _nested(paths: Sequence[str]) -> list[list[tuple[int, bool]]]:
    """Return for each module (another one, whether it lies inside) for all that lie in it, or around it."""
    at = grouped(range(len(paths)), paths.__getitem__)
    found: list[list[tuple[int, bool]]] = [[] for _ in paths]
    for place, path in enumerate(paths):
        while path := path.rpartition(".")[0]:
            for other in at.get(path, ()):
                found[other].append((place, True))
                found[place].append((other, False))
    return found


def _is_nested(other: str, path: str, inner: bool) -> bool:
    """Return whether another module lies in one, as its ``inner`` one, or around it."""
    inside, around = (other, path) if inner else (path, other)
    return bool(around) and inside.startswith(f"{around}.")
