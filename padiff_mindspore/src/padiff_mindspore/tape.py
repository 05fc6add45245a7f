"""Run backward where a script calls it, which MindSpore itself does for whole functions only."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import mindspore

from padiff.adapter import InputError, Tape
from padiff_mindspore import autograd


class MindSporeTape(Tape):
    """What records from a model's call to the backward pass behind it.

    ``trained`` gives the parameters whose gradients `backward` returns.
    """

    def __init__(self, trained: Callable[[], list[Any]]) -> None:
        self._trained = trained
        self._owner = object()
        weakref.finalize(self, autograd.end, self._owner)

    def begin(self) -> None:
        """Record what is computed from here on."""
        autograd.begin(self._owner)

    def backward(self, loss: Any) -> tuple[Any, ...]:
        """Run backward from a tensor; return what an optimizer takes: a gradient for each trained parameter.

        Gradients add up where MindSpore's autograd puts them, at ``_grad``. One that no gradient reaches gets zeros
        here, as of ``value_and_grad``. Raises `InputError` where the loss is not of what was recorded.
        """
        if not isinstance(loss, mindspore.Tensor):
            msg = f"the loss is a {type(loss).__qualname__}; expected a mindspore.Tensor.\n"
            msg += "Hint: give the tensor that the model's outputs led to."
            raise InputError(msg)
        if not autograd.differentiable(loss):
            msg = "no gradient can reach the loss: it was not computed from what the model gave since its last call.\n"
            msg += "Hint: compute each loss behind the call of the wrapped model, and before a backward()."
            raise InputError(msg)
        try:
            autograd.accumulate(loss)
        finally:
            self.close()
        return tuple(mindspore.ops.zeros_like(one) if one._grad is None else one._grad for one in self._trained())

    def close(self) -> None:
        """Stop recording, unless another tape goes on."""
        autograd.end(self._owner)
