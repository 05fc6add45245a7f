"""Tell of gradients that a script asks for by ``paddle.grad``: Paddle runs no hook of a leaf then, as torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from padiff_paddle.versions import PADDLE

_EAGER = paddle.base.core.eager
"""Where ``paddle.grad``, under whatever name a script imported it, looks up what computes."""
_Arrived = Callable[[Any], Any]


class _Leaves:
    """The leaves whose gradients are listened to; Paddle's own function is back in its place once none is."""

    def __init__(self) -> None:
        self._arrived: dict[int, list[_Arrived]] = {}
        self._native = PADDLE.held["gradients of leaves"]

    def add(self, native: Any, arrived: _Arrived) -> Callable[[], None]:
        """Call ``arrived`` with each gradient of a leaf, which it may replace; return what ends that."""
        if self._native is None:
            return lambda: None
        if not self._arrived:
            self._native, _EAGER.run_partial_grad = _EAGER.run_partial_grad, self._grad
        self._arrived.setdefault(id(native), []).append(arrived)

        def remove() -> None:
            held = self._arrived[id(native)]  # of no other tensor: this function keeps it alive
            held.remove(arrived)
            if not held:
                del self._arrived[id(native)]
            if not self._arrived:
                _EAGER.run_partial_grad = self._native

        return remove

    def _grad(self, outputs: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        found = self._native(outputs, inputs, *rest, **named)
        return [self._told(native, gradient) for native, gradient in zip(inputs, found, strict=True)]

    def _told(self, native: Any, gradient: Any) -> Any:
        for arrived in self._arrived.get(id(native), ()) if gradient is not None else ():
            instead = arrived(gradient)
            gradient = gradient if instead is None else instead
        return gradient


LEAVES = _Leaves()
