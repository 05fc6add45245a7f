"""Know where what was written recently lies, so that it is written once: in bounded memory, however long a run is."""

from __future__ import annotations

from typing import Generic, TypeVar

from padiff.trace._shards import Placed

Key = TypeVar("Key")


class Recent(Generic[Key]):
    """Places of what was asked for in the step that is open, or in the one before it; the rest is forgotten."""

    def __init__(self) -> None:
        self._now: dict[Key, Placed] = {}
        self._before: dict[Key, Placed] = {}

    def get(self, key: Key) -> Placed | None:
        """Return where something lies, if that is known."""
        found = self._now.get(key) or self._before.get(key)
        if found is not None:
            self._now[key] = found
        return found

    def put(self, key: Key, placed: Placed) -> None:
        """Know where something lies."""
        self._now[key] = placed

    def end_step(self) -> None:
        """Forget what the step that ends did not ask for."""
        self._now, self._before = {}, self._now

    def forget(self, shard: str) -> None:
        """Forget what lies in a shard, which was removed."""
        for known in self._now, self._before:
            for key in [key for key, placed in known.items() if placed.shard == shard]:
                del known[key]
