"""Report calls and intercept functions: who is told, and how that ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from padiff.adapter._module import Module

Intercept = Callable[[Callable[..., Any], str, tuple[Any, ...], dict[str, Any]], Any]
"""Takes a function, its full name, and the arguments of a call of it; returns what the caller gets."""
Hear = Intercept
"""Its name before padiff 0.5."""
_NONE: Mapping[str, Any] = {}


def handed_on(function: Callable[..., Any], args: Iterable[Any] = (), kwargs: Mapping[str, Any] = _NONE) -> Any:
    """Call what the user's code calls, in its place.

    An adapter calls so the model itself, the framework's functions that it intercepts, and what a device answers
    later: an error that arises in there is theirs. One that arises in any other line of an adapter's is the adapter's.
    """
    return function(*args, **kwargs)


class Hook:
    """What removes what was registered, once it is closed; closing twice is harmless."""

    def __init__(self, *removers: Callable[[], Any]) -> None:
        self._removers = list(removers)

    def add(self, remover: Callable[[], Any]) -> None:
        """Take one more thing to undo."""
        self._removers.append(remover)

    def close(self) -> None:
        """Undo everything, last first."""
        while self._removers:
            self._removers.pop()()

    @contextmanager
    def opening(self) -> Iterator[Hook]:
        """Close the hook where what registers raises within."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Listener(ABC):
    """What every call of every module is reported to, in execution order."""

    @abstractmethod
    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Note that a call begins; a returned ``(args, kwargs)`` is what the module gets instead."""

    @abstractmethod
    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Note that a call ended; a return value that is not None is what the caller gets instead."""

    def fail(self, module: Module) -> None:  # noqa: B027  most need not know
        """Note that the call that began last ended with an exception; told of operations alone."""
