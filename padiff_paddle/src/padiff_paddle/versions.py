"""Know what the installed Paddle offers: the one room of this adapter that knows that versions differ.

What differs is looked for, never concluded from a version's number. Of Paddle's private interfaces those stand here
that not every version has, each with its reason, and with what padiff does where it is gone.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

import paddle

from padiff.adapter import AdapterError, Offer, Offers

OFFERS: Mapping[str, Offer] = {
    "register_forward_pre_hook": Offer("nn.Layer.register_forward_pre_hook", parameter="with_kwargs"),
    "register_forward_post_hook": Offer(
        "nn.Layer.register_forward_post_hook",
        "keyword arguments of layers are read from Paddle's own call, which runs no hooks under to_static",
        parameter="with_kwargs",
    ),
    "dense tensor": Offer("base.core.DenseTensor"),
    "gradients of leaves": Offer(
        "base.core.eager.run_partial_grad", "what a script asks for of a leaf by paddle.grad is not recorded"
    ),
}
"""What versions differ in, by the name under which the rest asks for it."""

NEEDED: Mapping[str, str | None] = {
    "base.core.eager": None,
    "Tensor.data_ptr": None,
    "Tensor.strides": None,
    "nn.Layer._dygraph_call_func": "kwargs",
}
"""Something below ``paddle`` -> what it must take, if anything: without it padiff cannot work at all."""
OLDEST = "2.6"

PRIVATE: Mapping[str, str] = {
    "_sub_layers": "named_children() tells a layer that hangs under two names once",
    "_parameters": "named_parameters() leaves out what it told under another name",
    "_buffers": "as _parameters",
    "_dtype": "to() sets the dtype in which a layer makes tensors, and nothing public sets it alone",
    "_layers": "what DataParallel and fleet's wrappers train has no public name",
    "_is_initialized": "whether a tensor has values at all has no public name",
    "_local_value": "what this rank holds of a distributed tensor, without asking others, has no public name",
    "_share_data_with": "set_value() copies into memory that others may share; this puts other memory under a tensor",
    "_recompute_without_reentrant": "users import the public function by name, where no other can be put in its place",
}
"""Names that the adapter reads wherever it meets a layer or a tensor -> why; all versions have them.

The settings of layers and of optimizers, which are private in Paddle, stand in the tables of `kinds` and `optim`.
"""


class Paddle(Offers):
    """What one version of Paddle offers, as the rest of the adapter asks for it."""

    def __init__(self, home: Any = paddle) -> None:
        super().__init__("paddle", home, OFFERS, NEEDED, OLDEST)
        entries = (home.Tensor.backward, home.autograd.backward, home.grad)
        self._backward = {inspect.unwrap(entry).__code__ for entry in entries}
        self._named = {code.co_name for code in self._backward}

    def in_backward(self, run: CodeType | None = None) -> bool:
        """Return whether one of Paddle's functions that run backward is running below, above the code of ``run``.

        Paddle itself says that none is, once what is recomputed has run a backward pass of its own.
        """
        return self._running(run) is not None

    def backward_pass(self) -> tuple[int, ...] | None:
        """Return what tells the backward pass that runs: where it was called, by whom; None where none runs."""
        frame, found = self._running(), list[int]()
        while frame is not None:
            found += [id(frame), frame.f_lasti]
            frame = frame.f_back
        return tuple(found) or None

    def _running(self, run: CodeType | None = None) -> FrameType | None:
        """Return the frame of one of Paddle's functions that run backward, above the code of ``run``."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and (code := frame.f_code) is not run:
            if code.co_name in self._named and code in self._backward:  # the hash of code takes long
                return frame
            frame = frame.f_back
        return None

    def handle(self, native: Any) -> Any:
        """Return a second handle on what holds a tensor's values; its class had another name before Paddle 3."""
        handle = (self.held["dense tensor"] or self.home.base.core.LoDTensor)()
        handle._share_data_with(native.get_tensor())
        return handle

    def register(self, layer: Any, name: str, end: Callable[..., Any]) -> Callable[[], Any]:
        """Register a hook that gets keyword arguments too; return what removes it.

        Where Paddle's hooks get none, they are those of the call that runs the hook: a dict of that call's own, which
        stands in its frame, and with which Paddle calls ``forward`` once all hooks have run.
        """
        if self.held[name] is not None:
            return getattr(layer, name)(end, with_kwargs=True).remove

        def around(layer: Any, args: Any, *output: Any) -> Any:
            kwargs = self._keywords(sys._getframe(1))
            given = end(layer, args, dict(kwargs), *output)
            if output or given is None:
                return given
            args, replaced = given
            kwargs.clear()
            kwargs.update(replaced)
            return tuple(args)

        return getattr(layer, name)(around).remove

    def _keywords(self, frame: FrameType) -> dict[str, Any]:
        """Return the keyword arguments of the call that runs a hook."""
        code: CodeType = self.home.nn.Layer._dygraph_call_func.__code__
        if frame.f_code is not code:
            msg = f"Paddle {self.version} ran a hook outside of Layer._dygraph_call_func: in {frame.f_code.co_name}.\n"
            msg += "Hint: leave out to_static, or use Paddle 3.3 or newer, whose hooks get keyword arguments."
            raise AdapterError(msg)
        kwargs: dict[str, Any] = frame.f_locals["kwargs"]
        return kwargs

    def viewed(self, native: Any) -> Any:
        """Return a tensor of the same values that gradients pass and hooks work on: before Paddle 3 a copy.

        Views have no gradients there, and of a reshape to the same shape Paddle drops what hooks return.
        """
        return self.home.assign(native) if self.version.startswith("2.") else native.view(native.shape)


PADDLE = Paddle()
"""The one that is installed."""
