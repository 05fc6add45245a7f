"""Disturb what functions give by some machine epsilons, which shows how much of a result is rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Model, handed_on
from padiff.kinds import computes, is_in_place
from padiff.numerics import epsilon_of


@contextmanager
def disturbed_functions(adapter: Adapter, model: Model, epsilons: float) -> Iterator[None]:
    """Disturb each floating value that a function gives within, where the framework's functions can be intercepted.

    Raises `LookupError` where they cannot.
    """
    if "operations" not in adapter.capabilities:
        raise LookupError(adapter.name)
    noise = np.random.default_rng(0)
    inside = False

    def disturbed(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal inside
        if inside or not computes(name) or is_in_place(name):
            return handed_on(function, args, kwargs)
        inside = True
        try:
            output = handed_on(function, args, kwargs)
            tensor = adapter.tensor(output) if adapter.is_tensor(output) else None
            by = 0.0 if tensor is None else epsilon_of(tensor.dtype) * epsilons
            if tensor is None or not by:
                return output
            values = np.array(tensor.numpy())
            moved = values.astype(np.float64) * (1.0 + noise.uniform(-by, by, values.shape))
            return tensor.swapped(moved.astype(values.dtype))
        finally:
            inside = False

    with model.intercept_operations(disturbed):
        yield
