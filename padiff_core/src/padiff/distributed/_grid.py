"""Know where each rank of a job stands: in which group of which sort, at which place of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import attrs

from padiff.kinds import Ranks

PIPELINE = "pp"
"""The groups of a pipeline's stages, which hold modules of their own: no value is spread along them."""
EXPERTS = "ep"
"""The groups whose ranks hold experts of their own, and have everything else as other groups say it."""

T = TypeVar("T")


@attrs.frozen
class Grid:
    """The axes along which a job's ranks lie, and where each of them is."""

    axes: tuple[str, ...]
    """Innermost first: the one whose groups hold neighbours."""
    places: Mapping[int, Mapping[str, tuple[int, ...]]]
    """Rank -> axis -> the ranks of its group along it."""

    _sizes: dict[str, int] = attrs.field(init=False, factory=dict, eq=False, repr=False)

    def groups(self, ranks: Collection[int], axis: str) -> list[list[int]]:
        """Return ranks in their groups along an axis, each in each group's order; of a group those that are given."""
        left, found = dict.fromkeys(ranks), []
        while left:
            first = next(iter(left))
            found.append([rank for rank in self.places[first].get(axis, (first,)) if rank in left])
            for rank in found[-1]:
                del left[rank]
        return found

    def size(self, axis: str) -> int:
        """Return how many ranks a group along an axis has."""
        if axis not in self._sizes:
            self._sizes[axis] = max(len(groups.get(axis, ())) for groups in self.places.values())
        return self._sizes[axis]

    def copies(self, axis: str) -> int:
        """Return how many rows behind each other hold all experts, of the ranks along an axis; 1 where they do not."""
        for groups in self.places.values():
            ranks, experts = groups.get(axis, ()), set(groups.get(EXPERTS, ()))
            found = [number for number, rank in enumerate(ranks) if rank in experts]
            if not found or len(found) == len(ranks) or len(ranks) % len(found) or found[-1] - found[0] >= len(found):
                return 1
        return max(self.size(axis) // max(self.size(EXPERTS), 1), 1)

    def lacks(self, ranks: Collection[int], axis: str) -> bool:
        """Return whether a rank of a group of these along an axis left nothing, so that what it held is not known."""
        return any(other not in self.places for rank in ranks for other in self.places[rank].get(axis, ()))

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many ranks a group of each sort has, a pipeline's stages among them."""
        names = [*self.axes, *(name for groups in self.places.values() for name in groups)]
        return {name: self.size(name) for name in names}

    def folded(self, values: Mapping[int, T], reduce: Callable[[str, list[T]], T]) -> T:
        """Return what the ranks' values make together: axis by axis, those of each group made one."""
        for axis in self.axes:
            groups = self.groups(values, axis)
            values = {group[0]: reduce(axis, [values[rank] for rank in group]) for group in groups}
        return next(iter(values.values()))


def grid_of(ranks: Mapping[int, Ranks]) -> Grid:
    """Return where the ranks stand that are there."""
    spans: dict[str, int] = {}
    for one in ranks.values():
        for name, group in one.groups.items():
            if name in (PIPELINE, EXPERTS):
                continue
            spans[name] = min(spans.get(name, one.world), min(b - a for a, b in itertools.pairwise(group)))
    axes = sorted(spans, key=lambda name: (spans[name], name))
    return Grid(tuple(axes), {rank: one.groups for rank, one in ranks.items()})
