"""Plant a fault in a model for a while, to see whether a comparison names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from padiff.adapter import Adapter, Listener, Module
from padiff.errors import MappingError
from padiff.numerics import Array
from padiff.plugins import adapter_for
from padiff.pytree import map_leaves


class _Fault(Listener):
    """A change of what one module gives."""

    def __init__(self, adapter: Adapter, path: str, change: Callable[[Array], Array]) -> None:
        self.adapter, self.path, self.change = adapter, path, change

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave the arguments as they are."""

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Return other values in the place of the module's floating tensors."""
        return map_leaves(output, self.adapter.is_tensor, self._spoilt) if module.path == self.path else None

    def _spoilt(self, _: str, native: Any) -> Any:
        tensor = self.adapter.tensor(native)
        return tensor.swapped(self.change(tensor.numpy())) if "float" in tensor.dtype else native


@contextmanager
def fault(model: Any, path: str, change: Callable[[Array], Array]) -> Iterator[None]:
    """Let the floating outputs of the module at a path be ``change(output)`` within, on numpy arrays.

    So one sees whether a fault of that size, there, would be named: `padiff.diff` of the model must then give it as
    the source. Gradients pass through unchanged. Raises `MappingError` where the model has no module of that path.
    """
    adapter = adapter_for(model)
    wrapped = adapter.wrap(model)
    if path not in wrapped.modules():
        known = ", ".join(map(repr, wrapped.modules()))
        msg = f"{type(model).__qualname__} has no module {path!r}.\nHint: one of {known}."
        raise MappingError(msg)
    with wrapped.attach(_Fault(adapter, path, change)):
        yield
