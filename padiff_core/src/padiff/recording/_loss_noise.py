"""Disturb what a loss computes with, which shows how much of it is rounding."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from padiff.adapter import Model, handed_on
from padiff.kinds import computes, is_in_place
from padiff.numerics import disturbed, epsilon_of, is_whole
from padiff.pytree import map_leaves

Loss = Callable[[Any], Any]


def with_noise(model: Model, loss: Loss, noise: tuple[float, int]) -> Loss:
    """Return a loss of which each function takes floating values that are a bit off.

    The ``noise`` is by what share of each element at most, and the number of the draw. Whole numbers stay, which every
    type holds: a mask's. Raises `NotOffered` where a framework's functions cannot be intercepted.
    """
    (share, draw), taken, busy = noise, count(), [False]

    def moved(_: str, native: Any) -> Any:
        tensor = model.adapter.tensor(native)
        if not epsilon_of(tensor.dtype) or tensor.dtype[0] == "c":
            return native
        values = tensor.view()
        return native if is_whole(values) else tensor.swapped(disturbed(values, share, (draw, next(taken))))

    def intercept(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not busy[0] and computes(name) and not is_in_place(name):
            busy[0] = True
            try:
                args, kwargs = map_leaves((args, kwargs), model.adapter.is_tensor, moved)
            finally:
                busy[0] = False
        return handed_on(function, args, kwargs)

    def noisy(output: Any) -> Any:
        with model.intercept_operations(intercept):
            return loss(output)

    return noisy
