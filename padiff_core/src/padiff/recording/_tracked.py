"""Track, while a model runs, in which of its modules it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from padiff.adapter import Adapter, Hook, Listener, Model, Module
from padiff.adapter.delegating import DelegatingAdapter, DelegatingModel

Entered = Callable[[str], None]


class TrackedAdapter(DelegatingAdapter):
    """An adapter whose models call ``entered`` with the path of the module that begins, or goes on, to run."""

    def __init__(self, inner: Adapter, entered: Entered) -> None:
        super().__init__(inner)
        self.entered = entered

    def wrap(self, model: Any) -> Model:
        """Wrap a native model."""
        return _TrackedModel(self.inner.wrap(model), self)


class _TrackedModel(DelegatingModel):
    adapter: TrackedAdapter

    def attach(self, listener: Listener) -> Hook:
        return self.inner.attach(_Tracker(listener, self.adapter.entered))

    def run(self, *args: Any) -> Any:
        """Run the model; where it calls ``sys.exit()``, that is an error of the model's as any other."""
        try:
            return self.inner.run(*args)
        except SystemExit as error:
            raise type("SystemExit", (Exception,), {})(*error.args).with_traceback(error.__traceback__) from None


class _Tracker(Listener):
    def __init__(self, listener: Listener, entered: Entered) -> None:
        self._listener = listener
        self._entered = entered
        self._open: list[str] = []

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        self._open.append(module.path)
        self._entered(module.path)
        return self._listener.enter(module, args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        while self._open and self._open.pop() != module.path:
            pass  # a model that catches an exception leaves calls open that never return
        self._entered(self._open[-1] if self._open else "")
        return self._listener.leave(module, args, kwargs, output)

    def fail(self, module: Module) -> None:
        self._open.pop()
        self._entered(self._open[-1] if self._open else "")
        self._listener.fail(module)
