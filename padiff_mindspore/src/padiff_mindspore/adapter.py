"""Know MindSpore: wrap its models, make its tensors, seed its generators."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import mindspore

from padiff.adapter import FrameworkAdapter, Rule, host_random_state, switched
from padiff_mindspore import autograd, operations, optim, state, tensor
from padiff_mindspore.kinds import HABITS, TABLE
from padiff_mindspore.model import MindSporeModel
from padiff_mindspore.tensor import MindSporeTensor, device_name
from padiff_mindspore.versions import MINDSPORE

# By the attribute of that name mindspore.common means a function.
_seeds: Any = sys.modules["mindspore.common.seed"]


class MindSporeAdapter(FrameworkAdapter):
    """MindSpore in PyNative mode, as padiff knows it."""

    name: ClassVar[str] = "mindspore"
    model_class = MindSporeModel
    tensor_class = MindSporeTensor
    native_tensor = mindspore.Tensor
    tensors = tensor
    operations = operations
    optimizers = optim
    offers = MINDSPORE
    capabilities = MINDSPORE.capabilities()
    table: Mapping[str, Rule] = TABLE
    habits = HABITS
    machinery = MINDSPORE.files(
        "nn/cell.py",
        "nn/layer/container.py",
        "common/_grad_function.py",
        "common/hook_handle.py",
        "common/recompute.py",
        "graph/",
        "ops/composite/",
        "ops/function/grad/",
    )
    library = MINDSPORE.files("")

    def backward_pass(self) -> int | None:
        """Return the number of the backward pass that runs."""
        return autograd.backward_pass()

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed MindSpore's generators (and Python's and numpy's, from which cells draw too); put all back.

        A dropout cell seeds its kernel when it is built, and after that nothing can.
        """
        given, kernels = _seeds._GLOBAL_SEED, dict(_seeds._KERNEL_SEED)
        generator = mindspore.get_rng_state()
        try:
            _seeds._GLOBAL_SEED = seed
            _seeds._reset_op_seed()
            mindspore.manual_seed(seed)
            with super().seeded(seed):
                yield
        finally:
            mindspore.set_rng_state(generator)
            _seeds._GLOBAL_SEED = given
            _seeds._KERNEL_SEED.clear()
            _seeds._KERNEL_SEED.update(kernels)

    def random_state(self) -> Hashable:
        """Return the state of MindSpore's generator, and of Python's and numpy's, and how often primitives drew."""
        return host_random_state(), state.drawn()

    def ambient(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what enters the automatic casts that are on now again."""
        on = MINDSPORE.casts()
        if on is None:
            return nullcontext
        lists = on.get_white_list(), on.get_black_list()
        return partial(mindspore.train.amp.AmpDecorator, on.get_amp_level(), on.get_amp_dtype(), *lists)

    def casting(self) -> str | None:
        """Return the type of the automatic casts that are on now: `nn.Dense` adds its bias in float32."""
        on = MINDSPORE.casts()
        off = on is None or on.get_amp_level() == mindspore.train.amp.AmpLevel.AmpO0
        return None if off else str(on.get_amp_dtype()).lower()

    def environment(self) -> Mapping[str, str]:
        """Return MindSpore's version, device, threads, and whether its kernels are deterministic."""
        return {
            "mindspore": mindspore.__version__,
            "device": device_name(),
            "threads": os.environ.get("OMP_NUM_THREADS", str(mindspore.get_context("runtime_num_threads"))),
            "deterministic": str(mindspore.get_context("deterministic")),
            **MINDSPORE.notes(),
        }

    def narrowing(self) -> AbstractContextManager[None]:
        """Let primitives without a float64 kernel compute in float32 within."""
        return state.narrowing()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the warnings of MindSpore's Python side down; its C++ side only reads GLOG_v as it starts."""
        logger = mindspore.log._get_logger()
        with switched(lambda: logger.level, logger.setLevel, logging.ERROR):
            yield
