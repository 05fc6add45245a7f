"""Write down what a model's hooks tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from padiff.adapter import Listener, Module

Enter = Callable[[Module, tuple[Any, ...], dict[str, Any]], tuple[Any, Any] | None]
Leave = Callable[[Module, Any], Any | None]


class Log(Listener):
    """What writes every call down; ``enter`` and ``leave`` may answer it with other values."""

    def __init__(self, enter: Enter | None = None, leave: Leave | None = None) -> None:
        self.events: list[tuple[str, str]] = []
        self.modules: dict[str, Module] = {}
        self.inputs: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        """Path -> the arguments of its last call, as they are after the run."""
        self.outputs: dict[str, Any] = {}
        self._enter, self._leave = enter, leave

    @property
    def calls(self) -> list[str]:
        """Return the paths of the calls in the order in which they began."""
        return [path for event, path in self.events if event == "enter"]

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Write down that a call begins."""
        self.events.append(("enter", module.path))
        self.modules[module.path] = module
        self.inputs[module.path] = args, kwargs
        return self._enter(module, args, kwargs) if self._enter else None

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Write down that a call ended."""
        self.events.append(("leave", module.path))
        self.outputs[module.path] = output
        return self._leave(module, output) if self._leave else None
