"""Disturb what a loss computes with, which shows how much of it is rounding."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from padiff.adapter import Model, handed_on
from padiff.kinds import computes, is_in_place
from padiff.numerics import disturbed, epsilon_of, is_whole
from padiff.pytree import map_leaves

Differentiate = Callable[[Any], list[tuple[Any, Any | None]]]


def with_noise(model: Model, differentiate: Differentiate, noise: tuple[float, int] | None) -> Differentiate:
    """Return what tells where backward starts, each function of whose loss takes floating values that are a bit off.

    The ``noise`` is by what share of each element at most, and the number of the draw; None for none. Whole numbers
    stay, which every type holds: a mask's. Raises `NotOffered` where a framework's functions cannot be intercepted.
    """
    if noise is None:
        return differentiate
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

    def with_noisy_loss(output: Any) -> list[tuple[Any, Any | None]]:
        with model.intercept_operations(intercept):
            return differentiate(output)

    return with_noisy_loss
