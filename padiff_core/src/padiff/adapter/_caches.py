"""Let modules make anew what they keep of their weights in evaluation mode: a transfer leaves it behind.

LeViT gathers its attention biases when it is put into evaluation mode, RepVGG may fuse its branches. Such a module
overrides what changes its mode, and so it is put into training mode and back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from padiff.adapter.restoring import Attributes, machinery_of
from padiff.numerics import difference


class Cache:
    """What a native module may keep of its weights; ``base`` is the framework's class of modules."""

    def __init__(self, native: Any, base: type, switches: Sequence[str]) -> None:
        self._native, self._machinery = native, machinery_of(base)
        names = [name for name in switches if getattr(type(native), name, None) is not getattr(base, name, None)]
        self._switch = None if native.training or not names else self._switch_of(names[0], switches)
        """Puts the module into a mode."""

    def _switch_of(self, name: str, switches: Sequence[str]) -> Callable[[bool], Any]:
        own: Callable[[bool], Any] = getattr(self._native, name)
        if inspect.signature(own).parameters:
            return own
        modes = {True: switches[0], False: switches[-1]}
        return lambda training: getattr(self._native, modes[training])()

    def _plain(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in vars(self._native).items() if name not in self._machinery)

    def __bool__(self) -> bool:
        """Return whether it may keep something: it is in evaluation mode, and has code of its own that put it there."""
        return self._switch is not None

    def rebuilt(self, attributes: Attributes, tensors: Callable[[Any], list[Any]]) -> list[str]:
        """Put the module into training mode and back; return the attributes that hold something else then.

        ``attributes`` are its own as they are; they are put back where the module has lost some of them.
        """
        assert self._switch is not None
        before = {name: [view.copy() for view in tensors(value)] for name, value in self._plain()}
        self._switch(True)
        self._switch(False)
        now = dict(self._plain())
        if before.keys() - now.keys():
            attributes.restore()
            return []
        return [name for name, values in before.items() if values and _differ(values, tensors(now[name]))]


def _differ(before: Sequence[Any], now: Sequence[Any]) -> bool:
    return len(before) != len(now) or not all(
        a.shape == b.shape and difference(a, b).equal for a, b in zip(before, now, strict=True)
    )
