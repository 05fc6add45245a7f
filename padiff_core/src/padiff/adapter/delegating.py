"""Models and adapters that ask another one: what a model that reads or reports otherwise is built on."""

from __future__ import annotations

from typing import Any

from padiff.adapter._adapter import Adapter
from padiff.adapter._model import Model


def _asked(name: str) -> Any:
    """Return a method that asks ``inner``."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    method.__name__ = name
    return method


class DelegatingModel(Model):
    """A model that is the model ``inner``; subclasses say in what they differ."""

    def __init__(self, inner: Model, adapter: Adapter) -> None:
        super().__init__(inner.native, adapter)
        self.inner = inner

    device = property(lambda self: self.inner.device)
    modules, parameters = _asked("modules"), _asked("parameters")
    attach, intercept_operations = _asked("attach"), _asked("intercept_operations")
    hear_operations = intercept_operations
    run, tape = _asked("run"), _asked("tape")
    preserved, evaluate, lifted = _asked("preserved"), _asked("evaluate"), _asked("lifted")
    rebuild, ranks = _asked("rebuild"), _asked("ranks")
    step, loss, optimizer = _asked("step"), _asked("loss"), _asked("optimizer")

    def __getattr__(self, name: str) -> Any:
        """Be the model itself in all else."""
        return getattr(self.inner, name)


class DelegatingAdapter(Adapter):
    """An adapter that is the adapter ``inner``; subclasses say in what they differ."""

    def __init__(self, inner: Adapter) -> None:
        self.inner = inner
        self.name = inner.name  # type: ignore[misc]
        self.capabilities = inner.capabilities
        self.table = inner.table
        self.habits = inner.habits
        self.machinery = inner.machinery
        self.library = inner.library

    own = property(lambda self: self.inner.own)
    wrap, rule, as_module = _asked("wrap"), _asked("rule"), _asked("as_module")
    is_tensor, tensor = _asked("is_tensor"), _asked("tensor")
    from_numpy, placed, convert = _asked("from_numpy"), _asked("placed"), _asked("convert")
    reducer = _asked("reducer")
    environment, seeded, random_state = _asked("environment"), _asked("seeded"), _asked("random_state")
    ambient, quiet = _asked("ambient"), _asked("quiet")
    is_optimizer, step, optimizer_settings = _asked("is_optimizer"), _asked("step"), _asked("optimizer_settings")
    optimizer_parameters, on_step = _asked("optimizer_parameters"), _asked("on_step")
