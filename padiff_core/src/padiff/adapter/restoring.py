"""Put back what a run or a wider dtype changes: the attributes of a model's modules, a framework's global settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

__all__ = ["Attributes", "machinery_of", "switched"]

Value = TypeVar("Value")


class Attributes:
    """The plain attributes of a native module as they are now: a cache that a run fills would keep its dtype and batch.

    ``machinery`` are the attributes that are the framework's own; of those in ``tables``, dicts and sets (of buffers),
    the content is put back in place. ``modes`` are put back also where a first run made the module one of another
    class, as lazy ones: that cannot be undone.
    """

    def __init__(
        self,
        module: Any,
        machinery: Collection[str],
        tables: Iterable[str] = (),
        modes: Collection[str] = ("training",),
    ) -> None:
        self._module = module
        self._class = type(module)
        self._machinery = machinery
        self._modes = modes
        self._plain = self._now()
        self._tables = [(vars(module)[name], vars(module)[name].copy()) for name in tables]

    def _now(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self._module).items()
            if name in self._modes or name not in self._machinery
        }

    def restore(self) -> None:
        """Put them back, in place."""
        attributes, plain = vars(self._module), self._plain
        if type(self._module) is self._class:
            for name in self._now().keys() - plain.keys():
                del attributes[name]
        else:
            plain = {name: value for name, value in plain.items() if name in self._modes}
        attributes.update(plain)
        for table, content in self._tables:
            table.clear()
            table.update(content)


@cache
def machinery_of(base: type) -> frozenset[str]:
    """Return the names of the attributes that a framework itself keeps on every module: ``base`` is their class."""
    return frozenset(vars(base()))


@contextmanager
def switched(read: Callable[[], Value], write: Callable[[Value], Any], value: Value) -> Iterator[None]:
    """Let one of the framework's global settings have another value within."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)
