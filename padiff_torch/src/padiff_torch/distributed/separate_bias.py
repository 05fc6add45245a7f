"""Know layers that hand their bias on, beside an output to which it is still to be added: Megatron's parallel ones.

What such a layer gives is another number than what a plain one gives, and means the same. So padiff reads its output
with the bias, and writes it without; the model itself goes on as it does.
"""

from __future__ import annotations

from typing import Any

from padiff.adapter import Array, Reducer, Reduction
from padiff_torch.tensor import TorchTensor, array_of

_NAME = "_padiff_added"
"""Attribute of a native tensor: what is still to be added to it, and which version of it that was said of."""


class BiasedTensor(TorchTensor):
    """An output that is read with the bias that its layer handed on."""

    __slots__ = ()

    @property
    def added(self) -> Any:
        """Return the bias."""
        return getattr(self.native, _NAME)[0]

    def view(self) -> Array:
        """Return the values with the bias."""
        found: Array = super().view() + array_of(self.added)
        return found

    def numpy(self) -> Array:
        """Return the values with the bias: a copy."""
        return self.view()

    def reduce(self, reducer: Reducer, reduction: Reduction, *, steady: bool = False) -> bool:
        """Let few numbers be computed of the values with the bias."""
        return reducer.add(self.native.detach() + self.added.detach(), reduction, steady=True)

    def overwrite(self, array: Array) -> bool:
        """Write values into the memory, without the bias."""
        return super().overwrite(self._bare(array))

    def swapped(self, array: Array) -> Any:
        """Return a tensor of which the bias is handed on as that of this one."""
        found = super().swapped(self._bare(array))
        setattr(found, _NAME, (self.added, TorchTensor(found).version))
        return found

    def _bare(self, array: Array) -> Array:
        bare: Array = array - array_of(self.added)
        return bare


def mark(module: Any, output: Any) -> None:
    """Note that a linear layer's output is still to be given the bias that the layer returns beside it."""
    bias = getattr(module, "bias", None)
    if isinstance(output, tuple) and len(output) > 1 and bias is not None and output[1] is bias:
        setattr(output[0], _NAME, (bias, TorchTensor(output[0]).version))


def tensor_of(native: Any) -> TorchTensor:
    """Return a native tensor, wrapped."""
    known = getattr(native, _NAME, None)
    if known is None or known[1] != TorchTensor(native).version:
        return TorchTensor(native)
    return BiasedTensor(native)
