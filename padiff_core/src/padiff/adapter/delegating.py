"""Models and adapters that ask another one: what a model that reads or reports otherwise is built on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from numpy.typing import NDArray

from padiff.adapter._adapter import Adapter
from padiff.adapter._listening import Hook, Listener
from padiff.adapter._model import Model, Tape
from padiff.adapter._module import Module, Parameter
from padiff.adapter._tensor import Tensor
from padiff.kinds import Rule

__all__ = ["DelegatingAdapter", "DelegatingModel"]

Array = NDArray[Any]


class DelegatingModel(Model):
    """A model that is the model ``inner``; subclasses say in what they differ."""

    def __init__(self, inner: Model, adapter: Adapter) -> None:
        super().__init__(inner.native, adapter)
        self.inner = inner

    def modules(self) -> Mapping[str, Module]:
        """Return the model's modules."""
        return self.inner.modules()

    def parameters(self) -> Mapping[str, Parameter]:
        """Return the model's parameters."""
        return self.inner.parameters()

    @property
    def device(self) -> str:
        """Return where the parameters lie."""
        return self.inner.device

    def attach(self, listener: Listener) -> Hook:
        """Report calls."""
        return self.inner.attach(listener)

    def intercept_operations(self, intercept: Callable[..., Any]) -> Hook:
        """Intercept the framework's functions."""
        return self.inner.intercept_operations(intercept)

    hear_operations = intercept_operations

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Run the model: arguments, output and gradients are native."""
        return self.inner.run(args, kwargs, differentiate)

    def tape(self) -> Tape:
        """Return what lets the user's own script run backward."""
        return self.inner.tape()

    def preserved(self) -> AbstractContextManager[None]:
        """Put back what a run changes."""
        return self.inner.preserved()

    def evaluate(self) -> None:
        """Put every module into evaluation mode."""
        self.inner.evaluate()

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold the model in a wider type."""
        return self.inner.lifted(dtype)

    def step(self, optimizer: Any) -> None:
        """Let an optimizer take one step."""
        self.inner.step(optimizer)

    def loss(self, given: Any, side: int) -> Any:
        """Return the loss that a user gave."""
        return self.inner.loss(given, side)

    def optimizer(self, given: Any, side: int) -> Any:
        """Return the optimizer that a user gave."""
        return self.inner.optimizer(given, side)

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

    @property
    def own(self) -> tuple[str, ...]:
        return self.inner.own

    def wrap(self, model: Any) -> Model:
        return self.inner.wrap(model)

    def is_tensor(self, value: Any) -> bool:
        return self.inner.is_tensor(value)

    def tensor(self, native: Any) -> Tensor:
        return self.inner.tensor(native)

    def from_numpy(self, array: Array, *, device: str = "cpu", differentiable: bool = False) -> Any:
        return self.inner.from_numpy(array, device=device, differentiable=differentiable)

    def environment(self) -> Mapping[str, str]:
        return self.inner.environment()

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        with self.inner.seeded(seed):
            yield

    def is_optimizer(self, value: Any) -> bool:
        return self.inner.is_optimizer(value)

    def step(self, optimizer: Any) -> None:
        self.inner.step(optimizer)

    def optimizer_settings(self, optimizer: Any) -> Mapping[str, Any]:
        return self.inner.optimizer_settings(optimizer)

    def rule(self, module: Any) -> Rule | None:
        return self.inner.rule(module)

    def as_module(self, function: Callable[..., Any]) -> Any:
        return self.inner.as_module(function)

    def convert(self, value: Any, *, device: str, differentiable: bool = False) -> Any:
        return self.inner.convert(value, device=device, differentiable=differentiable)

    def ambient(self) -> Callable[[], AbstractContextManager[None]]:
        return self.inner.ambient()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        with self.inner.quiet():
            yield
