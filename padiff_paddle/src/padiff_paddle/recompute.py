"""Put what runs as any other code in the place of Paddle's recomputation."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.distributed.fleet.recompute.recompute import RecomputeFunction

from padiff.adapter import Recomputation, at_once, given_to, handed_on

_MODULE = sys.modules[RecomputeFunction.__module__]
"""By name: the package gives a function of the same name in its place."""
_PLAIN = _MODULE._recompute_without_reentrant


@contextmanager
def recorded_at_once() -> Iterator[None]:
    """Let recomputation record its functions' gradients in the forward pass."""
    places = (RecomputeFunction, "apply", staticmethod(_reentrant)), (_MODULE, _PLAIN.__name__, _plainly)
    with at_once(*places):
        yield


def _differentiable(values: tuple[Any, ...]) -> list[Any]:
    """Return what a gradient can reach, in tuples too."""
    items = [item for value in values for item in (value if type(value) is tuple else (value,))]
    return [item for item in items if isinstance(item, paddle.Tensor) and not item.stop_gradient]


_RECOMPUTATION = Recomputation(paddle, _differentiable)


def _reentrant(*given: Any, **named: Any) -> Any:
    return _RECOMPUTATION.reentrant(*given_to(inspect.signature(RecomputeFunction.forward), (None, *given), named))


def _plainly(*given: Any, **named: Any) -> Any:
    """Run a function on its arguments, as Paddle does in the first place."""
    function, preserve, args, kwargs = given_to(inspect.signature(_PLAIN), given, named)
    _RECOMPUTATION.again_later(function, preserve, args, kwargs)
    return handed_on(function, args, kwargs)
