"""Let recomputation run as any other code, so that hooks see what gradients reach.

Of the reentrant form, the first run is without gradients: no tensor of it gets one. Of the other, what is computed
again in the backward pass is not what was put in. Here the function runs once, with gradients; in the backward pass it
still runs again, for what it does to running statistics and counters: that happens twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import paddle
from paddle.distributed.fleet.recompute.recompute import RecomputeFunction

from padiff.adapter import replaced
from padiff_paddle.versions import PADDLE

_MODULE = sys.modules[RecomputeFunction.__module__]
"""By name: the package gives a function of the same name in its place."""
_PLAIN = _MODULE._recompute_without_reentrant


@contextmanager
def recorded_at_once() -> Iterator[None]:
    """Let recomputation record its functions' gradients in the forward pass."""
    with ExitStack() as stack:
        stack.enter_context(replaced(RecomputeFunction, "apply", staticmethod(_reentrant)))
        stack.enter_context(replaced(_MODULE, _PLAIN.__name__, _plainly))
        yield


def _reentrant(*given: Any, **named: Any) -> Any:
    """Run a function on its arguments: without gradients where none of these needs one, as Paddle does."""
    function, preserve, args, kwargs = PADDLE.recomputed(RecomputeFunction.forward, (None, *given), named)
    needed = _again_later(function, args, kwargs, preserve=preserve)
    with paddle.set_grad_enabled(paddle.is_grad_enabled() and needed):
        return function(*args, **kwargs)


def _plainly(*given: Any, **named: Any) -> Any:
    """Run a function on its arguments."""
    function, preserve, args, kwargs = PADDLE.recomputed(_PLAIN, given, named)
    _again_later(function, args, kwargs, preserve=preserve)
    return function(*args, **kwargs)


def _again_later(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, preserve: bool
) -> bool:
    """Run a function again once a gradient reaches its arguments; return whether one can."""
    values = [item for value in (*args, *kwargs.values()) for item in (value if type(value) is tuple else (value,))]
    given = [value for value in values if isinstance(value, paddle.Tensor) and not value.stop_gradient]
    if given and paddle.is_grad_enabled():
        random = paddle.get_rng_state() if preserve else None
        todo = [lambda: _again(function, args, kwargs, random)]
        given[0].register_hook(lambda _: todo.pop()() if todo else None)
    return bool(given)


def _again(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], random: Any) -> None:
    before = paddle.get_rng_state()
    try:
        if random is not None:
            paddle.set_rng_state(random)
        with paddle.no_grad():
            function(*args, **kwargs)
    finally:
        if random is not None:
            paddle.set_rng_state(before)
