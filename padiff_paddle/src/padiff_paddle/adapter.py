"""Know PaddlePaddle: wrap its models, make its tensors, seed its generators."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import paddle
from paddle.base import core

from padiff.adapter import FrameworkAdapter, host_random_state
from padiff_paddle import operations, optim, tensor
from padiff_paddle.kinds import HABITS, TABLE
from padiff_paddle.model import PaddleModel
from padiff_paddle.tensor import PaddleTensor
from padiff_paddle.versions import PADDLE

_TRACKER = "paddle.distributed.fleet.meta_parallel.parallel_layers.random"


def _library() -> tuple[str, ...]:
    """Return the prefixes of Paddle's own files, but not of the models it ships: those are a user's lines."""
    root, vision = PADDLE.files("", "vision")
    entries = [name for name in os.listdir(root) if name != "vision"]
    entries += [f"vision/{name}" for name in os.listdir(vision) if name != "models"]
    paths = PADDLE.files(*sorted(entries))
    return tuple(os.path.join(path, "") if os.path.isdir(path) else path for path in paths)


class PaddleAdapter(FrameworkAdapter):
    """PaddlePaddle in its dynamic (eager) mode, as padiff knows it."""

    name: ClassVar[str] = "paddle"
    model_class = PaddleModel
    tensor_class = PaddleTensor
    native_tensor = paddle.Tensor
    tensors = tensor
    operations = operations
    optimizers = optim
    offers = PADDLE
    capabilities = PADDLE.capabilities()
    table = TABLE
    habits = HABITS
    machinery = PADDLE.files(
        "nn/layer/layers.py",
        "nn/layer/container.py",
        "amp/",
        "autograd/",
        "base/dygraph/",
        "base/framework.py",
        "base/wrapped_decorator.py",
        "distributed/fleet/recompute/",
        "distributed/parallel.py",
        "jit/",
        "utils/decorator_utils.py",
    )
    library = _library()

    def backward_pass(self) -> tuple[int, ...] | None:
        """Return what tells the backward pass that runs."""
        return PADDLE.backward_pass()

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed Paddle's generators (and Python's and numpy's, from which layers draw too); put all back."""
        cpu = core.default_cpu_generator()
        kept = cpu.get_state()
        device = paddle.get_rng_state()
        # Model-parallel dropout draws from generators of its own; they exist only where fleet made them.
        tracker = sys.modules[_TRACKER].get_rng_state_tracker() if _TRACKER in sys.modules else None
        states = tracker.get_states_tracker() if tracker is not None else None
        try:
            paddle.seed(seed)
            with super().seeded(seed):
                yield
        finally:
            paddle.set_rng_state(device)
            cpu.set_state(kept)
            if tracker is not None:
                tracker.set_states_tracker(states)

    def random_state(self) -> Hashable:
        """Return the state of Paddle's generators, and of Python's and numpy's."""
        tracker = sys.modules[_TRACKER].get_rng_state_tracker() if _TRACKER in sys.modules else None
        tracked = tracker.get_states_tracker().values() if tracker is not None else ()
        states = (core.default_cpu_generator().get_state(), *paddle.get_rng_state(), *tracked)
        # The address of the engine, which is another one in each copy, says nothing.
        words = ((word for word in str(state).split() if not word.startswith("0x")) for state in states)
        return host_random_state(), *map(" ".join, words)

    def environment(self) -> Mapping[str, str]:
        """Return Paddle's version, device, CUDA version and threads."""
        threads = paddle.get_flags(["FLAGS_paddle_num_threads"])["FLAGS_paddle_num_threads"]
        return {
            "paddle": paddle.version.full_version,
            "device": paddle.get_device().replace("gpu", "cuda"),
            "cuda": str(paddle.version.cuda()) if paddle.is_compiled_with_cuda() else "none",
            "threads": str(os.environ.get("OMP_NUM_THREADS", threads)),
            **PADDLE.notes(),
        }

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep Paddle's warnings (BatchNorm's at every call in training) down."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"paddle(\..*)?$")
            yield
