"""Wrap DeepSpeed's engine: ``engine.backward`` and ``engine.step`` are its backward pass and its optimizer.

Gradients and values are read and written through DeepSpeed's own accessors, at ZeRO stages 0 to 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from padiff_torch.distributed.pieces import is_partitioned
from padiff_torch.distributed.wrappers import PieceParameter, WrappedModel
from padiff_torch.tensor import TorchTensor, filled, from_array


class EngineParameter(PieceParameter):
    """A parameter that an engine trains."""

    def extent(self) -> Any:
        """Return where the values lie; of what ZeRO-3 holds, nowhere that a run could write to."""
        return None if is_partitioned(self.native) else super().extent()

    def gradient(self) -> Any:
        """Return a copy of the gradient: stages 1 to 3 keep it in their partitions, and the step clips it in place."""
        from deepspeed.utils import safe_get_full_grad

        if not self.native.requires_grad:
            return None
        try:
            found = safe_get_full_grad(self.native)
        except (ValueError, KeyError, AttributeError):  # of a pass that did not run
            return None
        return None if found is None else TorchTensor(found.to(self.native.dtype)).numpy()

    def assign(self, array: Any) -> None:
        """Overwrite the values, and those that the optimizer keeps in a wider type."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

        super().assign(array)
        if is_partitioned(self.native) and not self.native.requires_grad:
            return
        with torch.no_grad():
            if is_partitioned(self.native):
                part = torch.zeros(self.native.ds_tensor.numel())  # the last rank's is filled up
                values = from_array(self.fitting(array)).float().reshape(-1)
                part[: values.numel()] = values
                safe_set_local_fp32_param(self.native, part)
            elif getattr(self.native, "_hp_mapping", None) is not None:
                safe_set_full_fp32_param(self.native, from_array(self.fitting(array)).float())

    def set_gradient(self, array: Any) -> None:
        """Replace the gradient that the next step reads."""
        from deepspeed.utils import safe_set_full_grad

        if not is_partitioned(self.native) and getattr(self.native, "_hp_mapping", None) is None:
            super().set_gradient(array)
        elif array is None:
            safe_set_full_grad(self.native, torch.zeros(self.shape))
        else:
            safe_set_full_grad(self.native, filled(torch.empty(self.shape), array))


class EngineModel(WrappedModel):
    """A module that DeepSpeed's engine trains."""

    parameter = EngineParameter

    def forget(self) -> None:
        """Drop the gradients of earlier passes."""
        super().forget()
        kept = getattr(self.wrapper.optimizer, "averaged_gradients", None)
        if not self.beside and kept is not None:
            self.wrapper.optimizer.zero_grad()
            for group in kept:
                kept[group] = None

    def differentiated(self, starts: Sequence[tuple[Any, Any | None]]) -> None:
        """Let the engine run backward from a loss; from gradients of outputs by way of one with these gradients."""
        if self.beside:
            super().differentiated(starts)
        elif len(starts) == 1 and starts[0][1] is None:
            self.wrapper.backward(starts[0][0])
        else:
            tensors = [tensor for tensor, _ in starts]
            gradients = [torch.ones_like(t) if gradient is None else gradient for t, gradient in starts]
            self.wrapper.backward(_Start.apply(gradients, *tensors))

    def step(self, optimizer: Any) -> None:
        """Take a step with the engine, where it is the optimizer."""
        if optimizer is self.wrapper:
            optimizer.step()
        else:
            super().step(optimizer)


class _Start(torch.autograd.Function):
    """A scalar whose gradient gives tensors theirs."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Any], *tensors: Any) -> Any:
        ctx.gradients = gradients
        return torch.zeros((), dtype=tensors[0].dtype, device=tensors[0].device)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return None, *(gradient * outer[0].to(gradient.dtype) for gradient in ctx.gradients)
