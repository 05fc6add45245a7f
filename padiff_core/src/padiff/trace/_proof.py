"""Try whether bytes that were read are those that were written: beside whatever else looks at them, or alone."""

from __future__ import annotations

from collections.abc import Callable

from padiff.numerics import Array
from padiff.trace._staging import SUMMED, checksum


class Proof:
    """A checksum of bytes, of which as much is summed as somebody has in the cache already."""

    def __init__(self, raw: Array, expected: int, sound: Callable[[], None], damaged: Callable[[], Exception]) -> None:
        self._raw, self._expected = raw, expected
        self._sound, self._damaged = sound, damaged
        self._done = self._sum = 0

    def add(self, stop: int) -> None:
        """Add all bytes in front of a place, which are in the cache from where it stopped."""
        stop = stop // SUMMED * SUMMED
        if stop > self._done:
            self._sum = checksum(self._raw[self._done : stop], self._sum)
            self._done = stop

    def follow(self, other: Proof) -> None:
        """Take over what another knows, whose bytes so far are the same ones."""
        if other._done > self._done:
            self._done, self._sum = other._done, other._sum

    def finish(self) -> None:
        """Add the rest; raise `InputError` where the bytes are not those that were written."""
        if checksum(self._raw[self._done :], self._sum) != self._expected:
            raise self._damaged()
        self._sound()
