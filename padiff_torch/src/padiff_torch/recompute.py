"""Let activation checkpointing run as any other code, so that hooks see what gradients reach.

Of the reentrant form, the first run is without gradients: no tensor of it gets one. Of the other, what is computed
again in the backward pass is not what was put in. Here the function runs once, with gradients; in the backward pass it
still runs again, for what it does to running statistics and counters: that happens twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils import checkpoint

from padiff.adapter import handed_on, replaced
from padiff_torch.versions import TORCH


@contextmanager
def recorded_at_once() -> Iterator[None]:
    """Let checkpoints record their functions' gradients in the forward pass."""
    with ExitStack() as stack:
        stack.enter_context(replaced(checkpoint.CheckpointFunction, "apply", staticmethod(_apply)))
        if (generator := TORCH.held["checkpoint"]) is not None:
            stack.enter_context(replaced(checkpoint, generator.__name__, _around))
        yield


def _apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    """Run a function on its arguments: without gradients where none of these needs one, as torch does."""
    needed = _again_later(function, args, {}, preserve=preserve)
    with torch.set_grad_enabled(torch.is_grad_enabled() and needed):
        return handed_on(function, args, {})


def _around(*given: Any, **named: Any) -> Iterator[None]:
    """Yield once before torch calls the function itself."""
    function, preserve, args, kwargs = TORCH.checkpointed(given, named)
    _again_later(function, args, kwargs, preserve=preserve)
    yield


def _again_later(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, preserve: bool
) -> bool:
    """Run a function again once a gradient reaches its arguments; return whether one can."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.requires_grad]
    if given and torch.is_grad_enabled():
        random = torch.get_rng_state() if preserve else None
        todo = [lambda: _again(function, args, kwargs, random)]
        given[0].register_hook(lambda _: todo.pop()() if todo else None)
    return bool(given)


def _again(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], random: Any) -> None:
    with torch.random.fork_rng(devices=(), enabled=random is not None), torch.no_grad():
        if random is not None:
            torch.set_rng_state(random)
        handed_on(function, args, kwargs)
