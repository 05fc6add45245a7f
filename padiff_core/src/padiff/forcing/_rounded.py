"""Disturb what functions give by some machine epsilons, which shows how much of a result is rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Listener, Model, handed_on
from padiff.kinds import computes, is_in_place
from padiff.numerics import epsilon_of
from padiff.recording import OwnCode


class Disturbing(OwnCode):
    """What disturbs each floating value that a function gives the model's own code."""

    def __init__(self, listener: Listener, adapter: Adapter, epsilons: float) -> None:
        super().__init__(listener)
        self._adapter, self._epsilons = adapter, epsilons
        self._noise = np.random.default_rng(0)

    @contextmanager
    def disturbed(self, model: Model) -> Iterator[None]:
        """Intercept a model's functions within; raise `LookupError` where its framework's cannot be."""
        if "operations" not in self._adapter.capabilities:
            raise LookupError(self._adapter.name)
        with model.intercept_operations(self._intercept):
            yield

    def _intercept(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not (self.runs and computes(name)) or is_in_place(name):
            return handed_on(function, args, kwargs)
        with self.aside():
            output = handed_on(function, args, kwargs)
            tensor = self._adapter.tensor(output) if self._adapter.is_tensor(output) else None
            by = 0.0 if tensor is None else epsilon_of(tensor.dtype) * self._epsilons
            if tensor is None or not by:
                return output
            values = np.array(tensor.numpy())
            moved = values.astype(np.float64) * (1.0 + self._noise.uniform(-by, by, values.shape))
            return tensor.swapped(moved.astype(values.dtype))
