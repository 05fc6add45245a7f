"""Know PyTorch: wrap its models and tensors, seed it, describe it."""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from padiff.adapter import (
    AnyStepListener,
    Array,
    FrameworkAdapter,
    Hook,
    Model,
    Rule,
    host_random_state,
)
from padiff_torch import operations, optim, tensor
from padiff_torch.distributed import trained
from padiff_torch.distributed.separate_bias import tensor_of
from padiff_torch.kinds import HABITS, TABLE
from padiff_torch.model import TorchModel
from padiff_torch.reduced import TorchReducer
from padiff_torch.tensor import TorchTensor
from padiff_torch.versions import TORCH


class TorchAdapter(FrameworkAdapter):
    """PyTorch, as padiff knows it."""

    name: ClassVar[str] = "torch"
    model_class = TorchModel
    tensor_class = TorchTensor
    native_tensor = torch.Tensor
    tensors = tensor
    operations = operations
    optimizers = optim
    offers = TORCH
    capabilities = TORCH.capabilities()
    table: Mapping[str, Rule] = TABLE
    habits = HABITS
    machinery = TORCH.files(
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
    library = TORCH.files("")

    def __init__(self) -> None:
        super().__init__()
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        """Modules that a wrapper trains."""
        self._flat: weakref.WeakSet[Any] = weakref.WeakSet()
        """Models whose parameters are parts of flat ones, which optimizers are given."""

    def wrap(self, model: Any) -> Model:
        """Wrap a module; one that something trains on several ranks is run through that."""
        if isinstance(model, torch.nn.Module) and model in self._trained:
            from padiff_torch.distributed.detached import DetachedModel

            return DetachedModel(model, self)
        found = trained(model, self)
        if found is None:
            return super().wrap(model)
        self._trained.update(module for module in found.native.modules() if module is not found.wrapper)
        if hasattr(found, "stepped"):
            self._flat.add(found)
        return found

    def optimizer_parameters(self, optimizer: Any) -> Iterable[tuple[Any, Mapping[str, Any]]]:
        """Yield each parameter that is stepped, with its settings; of a flat one, those that are parts of it."""
        parts = self._parts()
        for native, settings in super().optimizer_parameters(optimizer):
            yield from ((one, settings) for one in parts.get(id(native), (native,)))

    def on_any_step(self, called: AnyStepListener) -> Hook:
        """Call a function before each step of any optimizer; gradients of flat parameters are those of their parts."""

        def about_to_step(optimizer: Any, gradients: Iterable[tuple[Any, Any]]) -> None:
            parts = self._parts()
            known = [(parts.get(id(native)), native, gradient) for native, gradient in gradients]
            plain = [(native, gradient) for held, native, gradient in known if held is None]
            found = [(part, part.share(gradient)) for held, _, gradient in known for part in held or ()]
            called(optimizer, plain + [(part, gradient) for part, gradient in found if gradient.numel()])

        return super().on_any_step(about_to_step)

    def _parts(self) -> dict[int, Any]:
        return {key: parts for model in self._flat for key, parts in model.stepped().items()}

    def tensor(self, native: Any) -> TorchTensor:
        """Wrap a tensor; one that lacks its layer's bias is read with it."""
        return tensor_of(native)

    def placed(self, array: Array, place: Any, *, differentiable: bool = False) -> Any:
        """Return a tensor on a device, with its axes in memory as they were."""
        device, order = (place, None) if isinstance(place, str) else place
        if order is None or len(order) != array.ndim:
            return self.from_numpy(array, device=device, differentiable=differentiable)
        laid_out = self.from_numpy(np.ascontiguousarray(array.transpose(order)), device=device)
        return self.leaf(laid_out.permute(*np.argsort(order).tolist()), differentiable)

    def backward_pass(self) -> int | None:
        """Return the number of the backward pass that runs."""
        return TORCH.backward_pass()

    def reducer(self) -> TorchReducer:
        """Return what computes few numbers of tensors on their devices."""
        return TorchReducer()

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed torch on every device, and the global generators of numpy and Python: models use them too."""
        cpu, initial, host_only = torch.get_rng_state(), torch.initial_seed(), TORCH.is_host_only()
        used = [(write, read()) for read, write in TORCH.generators()]
        try:
            (torch.default_generator if host_only else torch).manual_seed(seed)
            with super().seeded(seed):
                yield
        finally:
            if not host_only and not torch.cuda.is_initialized():
                torch.cuda.manual_seed_all(initial)  # lazily: what it would have started from
            for write, state in used:
                write(state)
            torch.set_rng_state(cpu)

    def random_state(self) -> Hashable:
        """Return the state of torch's generators, and of Python's and numpy's."""
        states = [torch.get_rng_state()]
        for read, _ in TORCH.generators():
            found = read()
            states += [found] if isinstance(found, torch.Tensor) else found
        return host_random_state(), *(state.cpu().numpy().tobytes() for state in states)

    def ambient(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what enters the automatic casts that are on now again."""
        on = TORCH.casts()
        return partial(_casting, on) if on else nullcontext

    def environment(self) -> Mapping[str, str]:
        """Return versions, devices, threads, and the switches that change a float."""
        found = {
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "threads": str(torch.get_num_threads()),
            "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        }
        with suppress(RuntimeError):  # where switches of each backend are used
            found["matmul precision"] = torch.get_float32_matmul_precision()
        found |= TORCH.notes()
        kind = TORCH.accelerator()
        if kind is not None:
            found["device"] = kind
        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
            found["device"] = ", ".join(names)
            found["cuda"] = str(torch.version.cuda)
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["cudnn benchmark"] = str(torch.backends.cudnn.benchmark)
            narrow = [name for name, precision in TORCH.products().items() if precision == "tf32"]
            if narrow:
                found["tf32"] = ", ".join(narrow)
        return found


@contextmanager
def _casting(kinds: Sequence[tuple[str, Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for kind, dtype in kinds:
            stack.enter_context(torch.autocast(kind, dtype))
        yield
