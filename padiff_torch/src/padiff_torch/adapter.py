"""Know PyTorch: wrap its models and tensors, seed it, describe it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from padiff.adapter import CAPABILITIES, Adapter, Model, Rule, Tensor
from padiff_torch import optim
from padiff_torch.kinds import HABITS, TABLE
from padiff_torch.model import TorchModel
from padiff_torch.operations import Calling
from padiff_torch.tensor import TorchTensor, from_array

__all__ = ["TorchAdapter"]

Array = NDArray[Any]

_HERE = os.path.dirname(torch.__file__)
_MACHINERY = (
    "nn/modules/module.py",
    "nn/modules/container.py",
    "nn/parallel/",
    "utils/checkpoint.py",
    "utils/_contextlib.py",
    "autograd/",
    "_dynamo/",
    "_compile.py",
    "fx/",
)


class TorchAdapter(Adapter):
    """Know PyTorch."""

    name: ClassVar[str] = "torch"
    capabilities = frozenset(CAPABILITIES)
    table: Mapping[str, Rule] = TABLE
    habits = HABITS
    machinery = tuple(os.path.join(_HERE, *path.split("/")) for path in _MACHINERY)
    library = (_HERE + os.sep,)

    def wrap(self, model: Any) -> Model:
        """Wrap a `torch.nn.Module`; raises `UnwatchableModel` where it is compiled or scripted."""
        return TorchModel(model, self)

    def is_tensor(self, value: Any) -> bool:
        """Return whether the value is a `torch.Tensor`, a parameter among them."""
        return isinstance(value, torch.Tensor)

    def tensor(self, native: Any) -> Tensor:
        """Wrap a `torch.Tensor`."""
        return TorchTensor(native)

    def from_numpy(self, array: Array, *, device: str = "cpu", differentiable: bool = False) -> Any:
        """Return a tensor with a copy of the array; integers are never differentiable."""
        with torch.inference_mode(False):
            return _leaf(from_array(np.asarray(array)).to(device), differentiable)

    def as_module(self, function: Callable[..., Any]) -> Any:
        """Return a module that calls a function."""
        return Calling(function)

    def convert(self, value: Any, *, device: str, differentiable: bool = False) -> Any:
        """Return a leaf of the inputs as a tensor of its own on the device, where it is array-like."""
        if isinstance(value, torch.Tensor):
            with torch.inference_mode(False):
                return _leaf(value.detach().to(device, copy=True), differentiable)
        return super().convert(value, device=device, differentiable=differentiable)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed torch on every device, and the global generators of numpy and Python: models use them too."""
        cpu, initial = torch.get_rng_state(), torch.initial_seed()
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        try:
            torch.manual_seed(seed)
            with super().seeded(seed):
                yield
        finally:
            if cuda is None:
                torch.cuda.manual_seed_all(initial)  # lazily: what it would have started from
            else:
                torch.cuda.set_rng_state_all(cuda)
            torch.set_rng_state(cpu)

    def environment(self) -> Mapping[str, str]:
        """Return versions, devices, threads, and the switches that change a float."""
        found = {
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "threads": str(torch.get_num_threads()),
            "deterministic": str(torch.are_deterministic_algorithms_enabled()),
            "matmul precision": torch.get_float32_matmul_precision(),
        }
        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
            found["device"] = ", ".join(names)
            found["cuda"] = str(torch.version.cuda)
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["cudnn benchmark"] = str(torch.backends.cudnn.benchmark)
            found["cudnn tf32"] = str(torch.backends.cudnn.allow_tf32)
        return found

    def is_optimizer(self, value: Any) -> bool:
        """Return whether the value is a `torch.optim.Optimizer`."""
        return optim.is_optimizer(value)

    def step(self, optimizer: Any) -> None:
        """Let an optimizer take one step and clear its gradients."""
        optim.step(optimizer)

    def optimizer_settings(self, optimizer: Any) -> Mapping[str, Any]:
        """Return the hyper-parameters of a `torch.optim` optimizer; of further groups as ``group1.lr``."""
        return optim.settings_of(optimizer)


def _leaf(native: Any, differentiable: bool) -> Any:
    return native.requires_grad_(differentiable and (native.is_floating_point() or native.is_complex()))
