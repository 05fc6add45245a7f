"""Put back what a run or a wider dtype changes: the attributes of a model's modules, a framework's global settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

from padiff.pytree import Memo, contents, is_as_before, put_back

Value = TypeVar("Value")


class Keeper:
    """What keeps the values of tensors that hang at plain attributes, each once.

    ``keep`` returns, of a tensor, what tells whether it has other values now and what puts the old ones back; or None.
    """

    def __init__(
        self,
        is_tensor: Callable[[Any], bool],
        keep: Callable[[Any], tuple[Callable[[], bool], Callable[[], None]] | None],
    ) -> None:
        self.is_tensor = is_tensor
        self.keep = keep
        self.seen: Memo = {}
        """The containers and tensors that were met."""


class Attributes:
    """The plain attributes of a native module as they are now: a cache that a run fills would keep its dtype and batch.

    ``machinery`` are the attributes that are the framework's own; of those in ``tables``, dicts and sets (of buffers),
    the content is put back in place. ``modes`` are put back also where a first run made the module one of another
    class, as lazy ones: that cannot be undone. With a ``keeper`` the lists, dicts and objects that hang there get their
    content back in place, and tensors their values.
    """

    def __init__(
        self,
        module: Any,
        machinery: Collection[str],
        tables: Iterable[str] = (),
        modes: Collection[str] = ("training",),
        keeper: Keeper | None = None,
    ) -> None:
        self._module = module
        self._class = type(module)
        self._machinery = machinery
        self._modes = modes
        self._plain = self._now()
        self._tables = [(vars(module)[name], vars(module)[name].copy()) for name in tables]
        self._contents = [] if keeper is None else list(self._held(keeper))
        """Of each attribute that holds something that can change in place: whether it did, and what undoes that."""

    def _held(self, keeper: Keeper) -> Iterator[tuple[str, Callable[[], bool], Callable[[], None]]]:
        for name, value in self._plain.items():
            for one, content in contents(value, keeper.is_tensor, keeper.seen):
                if content is not None:
                    yield name, partial(_is_other, one, content), partial(put_back, one, content)
                elif (kept := keeper.keep(one)) is not None:
                    yield name, *kept

    def changed(self) -> list[str]:
        """Return the names of the attributes that were there, and are others now, or hold something else."""
        now = vars(self._module)
        found = [name for name, value in self._plain.items() if name in now and _differs(value, now[name])]
        return list(dict.fromkeys([*found, *(name for name, is_other, _ in self._contents if is_other())]))

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
        for _, _, undo in self._contents:
            undo()


def _is_other(container: Any, content: Any) -> bool:
    return not is_as_before(container, content)


def _differs(before: Any, now: Any) -> bool:
    """Return whether an attribute's value was exchanged: of plain numbers and words, for another one."""
    if isinstance(before, bool | int | float | str) and isinstance(now, bool | int | float | str):
        return type(before) is not type(now) or before != now
    return before is not now


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


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let an attribute of a module or class be another within; an inherited one is inherited again after."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
