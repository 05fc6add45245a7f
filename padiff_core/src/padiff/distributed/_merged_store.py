"""Hold values that are put together from several ranks' when they are asked for."""

from __future__ import annotations

from collections import OrderedDict

from padiff.numerics import Array
from padiff.trace import MadeStore, Summary

_KEPT = 16 << 20
"""Bytes of values that are kept when they were put together."""


class MergedStore(MadeStore):
    """A store of values that nobody holds as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.summaries: dict[int, Summary] = {}
        """Key, below 0, -> what is known of a value of which there are only sketches: see `Trace.summaries`."""
        self._kept: OrderedDict[int, Array] = OrderedDict()
        self._size = 0

    def get(self, key: int) -> Array:
        """Return the value of a key; never write to it."""
        if key not in self._kept:
            array = super().get(key)
            self._kept[key] = array
            self._size += array.nbytes
            while self._size > _KEPT and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].nbytes
        self._kept.move_to_end(key)
        return self._kept[key]
