"""Hold values that are put together from several ranks' when they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from padiff.numerics import Array
from padiff.trace import Lent, Summary, ValueStore

_KEPT = 16 << 20
"""Bytes of values that are kept when they were put together."""


class MergedStore(ValueStore):
    """A store of values that nobody holds as a whole."""

    def __init__(self) -> None:
        super().__init__(0)
        self.summaries: dict[int, Summary] = {}
        """Key, below 0, -> what is known of a value of which there are only sketches: see `Trace.summaries`."""
        self._makers: list[Callable[[], Array]] = []
        self._lent: list[Lent | None] = []
        self._kept: OrderedDict[int, Array] = OrderedDict()
        self._size = 0

    def promise(self, make: Callable[[], Array], lent: Lent | None = None) -> int:
        """Return the key of a value that a function makes; ``lent`` makes it in another process too."""
        self._makers.append(make)
        self._lent.append(lent)
        return len(self._makers) - 1

    def get(self, key: int) -> Array:
        """Return the value of a key; never write to it."""
        if key not in self._kept:
            array = self._makers[key]()
            self._kept[key] = array
            self._size += array.nbytes
            while self._size > _KEPT and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].nbytes
        self._kept.move_to_end(key)
        return self._kept[key]

    def lent(self, key: int) -> Lent | None:
        """Return what makes the value of a key in another process too, or None."""
        return self._lent[key]

    def arrays(self) -> Sequence[Array]:
        """Return all values, in the order of the keys."""
        return [self.get(key) for key in range(len(self._makers))]
