"""Models and adapters that ask another one: what a model that reads or reports otherwise is built on."""

from __future__ import annotations

from typing import Any

from padiff.adapter._adapter import Adapter
from padiff.adapter._model import Model


def _of_inner(name: str) -> Any:
    """Return a method that asks ``inner``."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    method.__name__ = name
    return method


def inner_property(name: str) -> Any:
    """Return a property that is that of ``inner``."""
    return property(lambda self: getattr(self.inner, name))


class DelegatingModel(Model):
    """A model that is the model ``inner``; subclasses say in what they differ."""

    def __init__(self, inner: Model, adapter: Adapter) -> None:
        super().__init__(inner.native, adapter)
        self.inner = inner

    device = inner_property("device")
    modules, parameters = _of_inner("modules"), _of_inner("parameters")
    attach, intercept_operations = _of_inner("attach"), _of_inner("intercept_operations")
    on_gradient = _of_inner("on_gradient")
    hear_operations = intercept_operations
    run, tape = _of_inner("run"), _of_inner("tape")
    preserved, evaluate, lifted = _of_inner("preserved"), _of_inner("evaluate"), _of_inner("lifted")
    rebuild, ranks = _of_inner("rebuild"), _of_inner("ranks")
    step, loss, optimizer = _of_inner("step"), _of_inner("loss"), _of_inner("optimizer")

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

    own = inner_property("own")
    wrap, rule, as_module = _of_inner("wrap"), _of_inner("rule"), _of_inner("as_module")
    is_tensor, tensor = _of_inner("is_tensor"), _of_inner("tensor")
    from_numpy, placed, convert = _of_inner("from_numpy"), _of_inner("placed"), _of_inner("convert")
    reducer = _of_inner("reducer")
    environment, seeded, random_state = _of_inner("environment"), _of_inner("seeded"), _of_inner("random_state")
    ambient, quiet, narrowing = _of_inner("ambient"), _of_inner("quiet"), _of_inner("narrowing")
    casting, backward_pass = _of_inner("casting"), _of_inner("backward_pass")
    is_optimizer, step, optimizer_settings = (
        _of_inner("is_optimizer"),
        _of_inner("step"),
        _of_inner("optimizer_settings"),
    )
    optimizer_parameters, on_step = _of_inner("optimizer_parameters"), _of_inner("on_step")
    on_any_step = _of_inner("on_any_step")
