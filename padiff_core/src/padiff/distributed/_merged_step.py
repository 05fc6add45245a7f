"""Hold one step of a job: as a trace, and what of each of its values the ranks held."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

import attrs

from padiff.distributed._expected import Whole
from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading, merged, ways_of
from padiff.distributed._others import Spot
from padiff.distributed._placements import share_of
from padiff.distributed._sketches import Arrays, Sketches, leading, read
from padiff.kinds import Placement, Spread
from padiff.numerics import Array
from padiff.report import Cause
from padiff.trace import MadeStore, Summary, Trace

_KEPT = 16 << 20
"""Bytes of values that are kept when they were put together."""


class MergedStore(MadeStore):
    """A store of values that nobody holds as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.summaries: dict[int, Summary] = {}
        """Key, below 0, -> what is known of a value of which there are only sketches: see `Trace.summaries`."""
        self._made: OrderedDict[int, Array] = OrderedDict()
        self._size = 0

    def get(self, key: int) -> Array:
        """Return the value of a key; never write to it."""
        if key not in self._made:
            array = super().get(key)
            self._made[key] = array
            self._size += array.nbytes
            while self._size > _KEPT and len(self._made) > 1:
                self._size -= self._made.popitem(last=False)[1].nbytes
        self._made.move_to_end(key)
        return self._made[key]


@attrs.frozen(eq=False)
class Parts:
    """What the ranks hold of one value, and how it is spread."""

    arrays: Mapping[int, Callable[[], Array]]
    spreading: Spreading
    grid: Grid
    whole: tuple[int, ...] | None = None
    added: Array | None = None
    """What is read with each part of a sum, and counts once."""

    def read(self) -> dict[int, Array]:
        """Return what each rank holds."""
        return read(self.arrays)

    def value(self) -> Array:
        """Return the whole value; raises ``ValueError`` where the parts do not fit."""
        how = self.spreading.placements
        return merged(read(leading(self.arrays, self.grid, how)), self.grid, how, self.whole, self.added)

    def share(self, rank: int, arrays: Mapping[int, Array], whole: Array) -> Array | None:
        """Return what of a whole a rank should hold, where ranks hold these ``arrays``: see `share_of`."""
        return share_of(rank, arrays, self.spreading.placements, self.grid, whole)

    @property
    def out_of_step(self) -> Cause | None:
        """Return that ranks do not hold the same, where they should."""
        unlike = list(self.spreading.unlike)
        first = next((rank for rank in self.arrays if rank not in unlike), None)
        return Cause("out_of_step", {"ranks": unlike, "first": first}, verified=True) if unlike else None

    def shares(self, whole: Array) -> dict[int, Array | None]:
        """Return what of a whole each rank should hold."""
        arrays = self.read()
        return {rank: self.share(rank, arrays, whole) for rank in sorted(arrays)}


def _shared(how: Spread, known: Spread) -> dict[str, Placement]:
    """Return how shares of a gradient lie, along axes of which nobody says."""
    free = {axis: one for axis, one in how.items() if axis not in known and one.kind != "replicate"}
    return {**how, **{axis: attrs.evolve(one, mean=True) for axis, one in free.items()}}


@attrs.define(eq=False)
class MergedStep:
    """One step of a job: as a trace, and what the ranks held of each value."""

    trace: Trace
    values: dict[Spot, Parts] = attrs.field(factory=dict)
    parameters: dict[tuple[str, str], Parts] = attrs.field(factory=dict)
    """``weights``, ``parameter_gradients``, ``updated``, ``buffers``, and the path -> what the ranks hold."""
    gradients: dict[int, Parts] = attrs.field(factory=dict)
    """Token in the merged trace -> what the ranks held of that value's gradient."""
    left: int = 0
    """How many values could not be put together."""
    grid: Grid = attrs.field(kw_only=True)
    open: dict[tuple[int, str], tuple[Arrays, Spread]] = attrs.field(factory=dict)
    """Token, and ``value`` or ``gradient``, that could not be put together, or that was guessed -> what ranks hold,
    what is known of it."""
    strides: set[int] = attrs.field(factory=set)
    """How often parts of what ranks share may come behind each other."""

    def weights(self, path: str) -> Parts | None:
        """Return what the ranks hold of a parameter, as the step left it where that was kept."""
        return self.parameters.get(("updated", path)) or self.parameters.get(("weights", path))

    def possible(self, token: int, kind: str) -> list[Whole]:
        """Return what a value may be that could not be put together."""
        arrays, known = self.open.get((token, kind), ({}, {}))
        if isinstance(arrays, Sketches):
            return []

        def whole(how: Spread) -> Callable[[], Array]:
            return lambda: merged(read(arrays), self.grid, how)

        ways = ways_of(read(arrays), self.grid, known, self.strides) if arrays else []
        if kind == "gradient":  # of a mean of losses, where the ranks have some of their own
            ways += [(_shared(how, known), shape) for how, shape in ways if _shared(how, known) != how]
        return [(shape, whole(how)) for how, shape in ways]
