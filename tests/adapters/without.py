"""Stand in for another version of a framework: as it is, but for some of what it offers."""

from __future__ import annotations

from typing import Any


class Without:
    """A framework's package as it is, but for some of what stands below it."""

    def __init__(self, of: Any, *paths: str) -> None:
        self._of = of
        self._gone = {path for path in paths if "." not in path}
        heads = {path.partition(".")[0] for path in paths if "." in path}
        self._deeper = {name: [p.partition(".")[2] for p in paths if p.startswith(f"{name}.")] for name in heads}

    def __getattr__(self, name: str) -> Any:
        if name in self._gone:
            raise AttributeError(name)
        found = getattr(self._of, name)
        return Without(found, *self._deeper[name]) if name in self._deeper else found
