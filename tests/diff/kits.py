"""Name what tiny models need of a framework, and what the tests do to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["Kit"]


_BETAS = (0.9, 0.999)
_EPS = 1e-16
"""So small that it does not matter: frameworks add it in other places."""


class Kit(ABC):
    """Name what a tiny model needs of one framework; ``nn`` and ``native`` are the framework's own."""

    name: str
    module_class: str
    means = ("running_mean", "running_var")
    """What a batch norm calls its statistics."""
    has_float64 = True
    """Whether the lift of any module to float64 is exact."""

    def __init__(self) -> None:
        self.native = import_module(self.name)
        self.nn = import_module(f"{self.name}.nn")
        self.module = getattr(self.nn, self.module_class)

    # Tensors

    @abstractmethod
    def tensor(self, values: Any) -> Any:
        """Return a tensor with these values."""

    @abstractmethod
    def parameter(self, values: Any) -> Any:
        """Return a trainable parameter with these values."""

    def numpy(self, tensor: Any) -> np.ndarray:
        """Return a copy of a tensor's values."""
        return np.array(tensor.detach().numpy(), copy=True)

    @abstractmethod
    def assign(self, tensor: Any, values: Any) -> None:
        """Overwrite a parameter's or buffer's values."""

    def detach(self, tensor: Any) -> Any:
        """Cut a tensor off the graph."""
        return tensor.detach()

    @abstractmethod
    def cast(self, tensor: Any, dtype: str) -> Any:
        """Return the tensor in another dtype."""

    @abstractmethod
    def concat(self, parts: Any, axis: int) -> Any:
        """Join tensors."""

    @abstractmethod
    def permute(self, tensor: Any, *axes: int) -> Any:
        """Return the tensor with its axes in this order."""

    def flip(self, tensor: Any) -> Any:
        """Reverse the last axis."""
        return self.native.flip(tensor, [-1])

    def softmax(self, tensor: Any) -> Any:
        """Return the softmax over the last axis."""
        return self.functional.softmax(tensor, -1)

    def rand(self, size: int) -> Any:
        """Draw uniform numbers from the framework's generator."""
        return self.native.rand([size])

    @property
    def functional(self) -> Any:
        """Return the namespace that holds relu, sigmoid, mse_loss."""
        return self.nn.functional

    # Modules

    @abstractmethod
    def linear(self, inputs: int, outputs: int, *, bias: bool = True) -> Any:
        """Return a linear layer."""

    def linear_weight(self, layer: Any) -> np.ndarray:
        """Return a linear layer's weight as (out, in)."""
        return self.numpy(layer.weight)

    @abstractmethod
    def batch_norm(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
        """Return a one-dimensional batch norm; ``momentum`` in torch's convention everywhere."""

    def layer_norm(self, features: int, eps: float = 1e-5) -> Any:
        """Return a layer norm."""
        return self.nn.LayerNorm(features, eps)

    def dropout(self, p: float) -> Any:
        """Return a dropout."""
        return self.nn.Dropout(p)

    def gelu(self) -> Any:
        """Return the exact GELU."""
        return self.nn.GELU()

    def softplus(self) -> Any:
        """Return a smooth activation."""
        return self.nn.Softplus()

    def table(self, embedding: Any) -> Any:
        """Return the parameter of an embedding."""
        return embedding.weight

    def tie(self, module: Any, embedding: Any) -> None:
        """Let a module's ``weight`` be the embedding's."""
        module.weight = self.table(embedding)

    @abstractmethod
    def attention(self, width: int, heads: int) -> Any:
        """Return a multi-head attention on (batch, time, features); call it with `attend`."""

    @staticmethod
    def attend(attention: Any, x: Any) -> Any:
        """Return the output of self-attention, without weights."""
        y = attention(x, x, x)
        return y[0] if isinstance(y, tuple) else y

    @abstractmethod
    def lstm(self, inputs: int, hidden: int) -> Any:
        """Return an LSTM on (batch, time, features)."""

    def sequential(self, *layers: Any) -> Any:
        """Return a Sequential."""
        return self.nn.Sequential(*layers)

    @abstractmethod
    def modules(self, layers: Iterable[Any]) -> Any:
        """Return a list of modules."""

    def cross_entropy(self, logits: Any, labels: np.ndarray) -> Any:
        """Return the loss of class labels."""
        return self.nn.CrossEntropyLoss()(logits, self.tensor(labels))

    # State

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed the framework's generator."""

    def train(self, module: Any) -> None:
        """Put a module into train mode."""
        module.train()

    def eval(self, module: Any) -> None:
        """Put a module into evaluation mode."""
        module.eval()

    def parameters(self, model: Any) -> dict[str, Any]:
        """Return the trainable parameters by path."""
        return dict(model.named_parameters())

    @abstractmethod
    def freeze(self, parameter: Any) -> None:
        """Ask for no gradient of a parameter."""

    @abstractmethod
    def frozen(self, tensor: Any) -> bool:
        """Return whether no gradient is asked for."""

    def backward(self, model: Any, x: Any, loss: Callable[[Any], Any]) -> dict[str, np.ndarray]:
        """Run a model forward and backward, leave behind what that leaves behind, return the gradients by path."""
        loss(model(x)).backward()
        return {name: self.numpy(p.grad) for name, p in self.parameters(model).items() if p.grad is not None}

    def gradient(self, parameter: Any) -> np.ndarray:
        """Return the gradient that a step reads at a parameter."""
        return self.numpy(parameter.grad)

    @abstractmethod
    def no_grad(self) -> AbstractContextManager[Any]:
        """Switch gradients off."""

    # Optimizers

    @abstractmethod
    def sgd(
        self, model: Any, lr: float = 0.1, *, weight_decay: float = 0.0, momentum: float = 0.0, without: str = ""
    ) -> Any:
        """Return stochastic gradient descent of all parameters but one."""

    @abstractmethod
    def adam(
        self, model: Any, lr: float = 1e-3, *, betas: Any = _BETAS, weight_decay: float = 0.0, eps: float = _EPS
    ) -> Any:
        """Return Adam; the weight decay is coupled."""

    @abstractmethod
    def adamw(self, model: Any, lr: float = 1e-3, *, weight_decay: float = 0.01) -> Any:
        """Return AdamW."""

    @abstractmethod
    def set_lr(self, optimizer: Any, lr: float) -> None:
        """Change an optimizer's learning rate."""

    def step(self, optimizer: Any, gradients: Any = None) -> None:
        """Take one step with the gradients that are there, and clear them."""
        optimizer.step()
        (getattr(optimizer, "clear_grad", None) or optimizer.zero_grad)()

    def _chosen(self, model: Any, without: str) -> list[Any]:
        return [p for name, p in self.parameters(model).items() if name != without]
