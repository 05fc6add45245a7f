"""Say where a whole value lies that ranks hold parts of: plain data, which puts it together in whatever process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.distributed._grid import Grid
from padiff.distributed._placements import REPLICATE, joined
from padiff.kinds import Placement
from padiff.trace import Lent


@attrs.frozen
class Joined:
    """What lies on the ranks of one group: see `Lent`."""

    parts: tuple[Lent, ...]
    placement: Placement
    whole: tuple[int, ...] | None = None
    count: int | None = None
    """How many ranks a mean is over."""

    @property
    def bytes(self) -> int:
        """Return how many bytes the parts take."""
        return sum(part.bytes for part in self.parts)

    @property
    def name(self) -> str | None:
        """Return what no other value is called."""
        names = [part.name for part in self.parts]
        if not all(names):
            return None
        how = names, self.placement, self.whole, self.count
        return hashlib.blake2b(repr(how).encode(), digest_size=20).hexdigest()

    def read(self) -> NDArray[Any]:
        """Return the value."""
        return joined([part.read() for part in self.parts], self.placement, self.whole, count=self.count)


def joined_of(
    parts: Mapping[int, Lent], grid: Grid, placements: Mapping[str, Placement], whole: tuple[int, ...] | None
) -> Lent:
    """Return where a value lies of which each rank's part lies somewhere: of replicas the first is read."""

    def one(axis: str, group: list[Lent]) -> Lent:
        how, count = placements.get(axis, REPLICATE), grid.size(axis)
        alone = how.kind == "replicate" or (len(group) == 1 and how.kind != "range")
        return group[0] if alone and not how.mean else Joined(tuple(group), how, whole, count)

    return grid.folded(parts, one)
