"""Handle the functions that a model's own code calls: disturb what they give, or note in which types they compute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Listener, Model, handed_on
from padiff.kinds import computes, is_in_place, short_name
from padiff.numerics import epsilon_of
from padiff.pytree import leaves
from padiff.recording import OwnCode


class OwnFunctions(OwnCode):
    """What is told of each function that computes, and that the model's own code calls."""

    def __init__(self, listener: Listener, adapter: Adapter) -> None:
        super().__init__(listener)
        self._adapter = adapter

    @contextmanager
    def within(self, model: Model) -> Iterator[None]:
        """Intercept a model's functions within; raise `LookupError` where its framework's cannot be."""
        if "operations" not in self._adapter.capabilities:
            raise LookupError(self._adapter.name)
        with model.intercept_operations(self._intercept):
            yield

    def _intercept(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not (self.runs and computes(name)):
            return handed_on(function, args, kwargs)
        with self.aside():
            return self._made(name, args, kwargs, handed_on(function, args, kwargs))

    @abstractmethod
    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Return what the code is to go on with where a function gave an output."""


class Disturbing(OwnFunctions):
    """What disturbs each floating value by some machine epsilons, which shows how much of a result is rounding."""

    def __init__(self, listener: Listener, adapter: Adapter, epsilons: float) -> None:
        super().__init__(listener, adapter)
        self._epsilons = epsilons
        self._noise = np.random.default_rng(0)

    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        tensor = self._adapter.tensor(output) if self._adapter.is_tensor(output) else None
        by = 0.0 if tensor is None or is_in_place(name) else epsilon_of(tensor.dtype) * self._epsilons
        if tensor is None or not by:
            return output
        values = np.array(tensor.numpy())
        moved = values.astype(np.float64) * (1.0 + self._noise.uniform(-by, by, values.shape))
        return tensor.swapped(moved.astype(values.dtype))


class Typing(OwnFunctions):
    """What notes the floating types in which the functions compute that the outermost call's own code calls."""

    def __init__(self, listener: Listener, adapter: Adapter) -> None:
        super().__init__(listener, adapter)
        self.found: dict[str, list[str]] = {}

    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        given, made = self._floating((args, kwargs)), self._floating(output)
        # A cast gives another type than it is given: it computes in neither.
        if made and given == made and len(self.opened) == 1:
            names = self.found.setdefault(made.pop(), [])
            if short_name(name) not in names:
                names.append(short_name(name))
        return output

    def _floating(self, value: Any) -> set[str]:
        types = (self._adapter.tensor(native).dtype for _, native in leaves(value, self._adapter.is_tensor))
        return {dtype for dtype in types if epsilon_of(dtype)}
