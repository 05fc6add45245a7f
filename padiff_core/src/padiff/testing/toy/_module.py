"""Hold modules and parameters, and hooks around every call: what both dialects derive from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from padiff.testing.toy._tape import Tensor

Before = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Any] | None]
After = Callable[[tuple[Any, ...], dict[str, Any], Any], Any]


class Module:
    """What holds tensors and other modules as attributes, and computes in ``forward``."""

    hooks: list[tuple[Before, After]]
    training: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        module = super().__new__(cls)
        module.hooks = []
        module.training = True
        return module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for before, _ in list(self.hooks):
            args, kwargs = before(args, kwargs) or (args, kwargs)
        output = self.forward(*args, **kwargs)  # type: ignore[attr-defined]  # what users write
        for _, after in list(self.hooks):
            answer = after(args, kwargs, output)
            output = output if answer is None else answer
        return output

    def children(self) -> dict[str, Module]:
        """Return the modules right below, by attribute."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    def tensors(self) -> dict[str, Tensor]:
        """Return the module's own parameters and buffers, by attribute."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor) and value.role}

    def walk(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Yield every module with every path under which it hangs, parents first."""
        yield path, self
        for name, child in self.children().items():
            yield from child.walk(f"{path}.{name}" if path else name)

    def parameters(self) -> list[Tensor]:
        """Return every parameter below, once."""
        found = (tensor for _, module in self.walk() for tensor in module.tensors().values())
        return list(dict.fromkeys(tensor for tensor in found if tensor.role == "parameter"))

    def train(self, training: bool = True) -> Any:
        """Put this module and all below it into training or evaluation."""
        for _, module in self.walk():
            module.training = training
        return self

    def to(self, dtype: str) -> Any:
        """Hold all floating tensors below in a dtype."""
        for _, module in self.walk():
            for tensor in module.tensors().values():
                tensor.data = tensor.data.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
        return self


class ModuleList(Module):
    """Modules under the names 0, 1, 2."""

    def __init__(self, *modules: Any) -> None:
        for index, module in enumerate(modules):
            setattr(self, str(index), module)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.children().values())

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]

    def __len__(self) -> int:
        return len(self.children())

    def forward(self, x: Any) -> Any:
        """Refuse: a list computes nothing."""
        msg = "a list of modules was called.\nHint: call the modules in it."
        raise NotImplementedError(msg)


class Sequential(ModuleList):
    """Modules called one after another."""

    def forward(self, x: Any) -> Any:
        """Call each on what the one before gave."""
        for module in self:
            x = module(x)
        return x
