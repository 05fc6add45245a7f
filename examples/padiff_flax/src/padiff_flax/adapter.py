"""Know Flax NNX: wrap its models and JAX's arrays, seed it, describe it."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import flax
import jax
import jaxlib
import numpy as np

from padiff.adapter import FrameworkAdapter, Rule
from padiff_flax import optim, tensor
from padiff_flax.kinds import TABLE, rule_of
from padiff_flax.model import FlaxModel
from padiff_flax.state import Seeding
from padiff_flax.tensor import FlaxTensor, is_array

_FLAX, _JAX = (os.path.dirname(one.__file__) + os.sep for one in (flax, jax))


class FlaxAdapter(FrameworkAdapter):
    """Flax NNX, as padiff knows it."""

    name: ClassVar[str] = "flax"
    model_class = FlaxModel
    tensor_class = FlaxTensor
    tensors = tensor
    optimizers = optim
    capabilities = frozenset(
        {"gradients", "float64", "buffers", "modes", "randomness", "optimizers", "compilation", "devices"}
    )
    table: Mapping[str, Rule] = TABLE
    machinery = (_JAX, os.path.join(_FLAX, "nnx", "helpers.py"), os.path.join(_FLAX, "nnx", "transforms"))
    library = (_FLAX, _JAX)

    def __init__(self) -> None:
        self.seeding: Seeding | None = None
        """What the generators of models draw from in runs; None outside `seeded`."""

    def rule(self, module: Any) -> Rule | None:
        """Return the rule of a class; of a class that means what it holds, the rule of that."""
        return rule_of(module) or super().rule(module)

    def is_tensor(self, value: Any) -> bool:
        """Return whether the value is a JAX array of numbers."""
        return is_array(value)

    def convert(self, value: Any, *, device: str, differentiable: bool = False) -> Any:
        """Return a leaf of the inputs as users of JAX would pass it: with 64 bits only where they allow them."""
        if isinstance(value, np.ndarray | np.generic):
            value = np.asarray(value)
            value = value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)
        return super().convert(value, device=device, differentiable=differentiable)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed Python and numpy, and, in runs, the generators that NNX keeps in each model."""
        before = self.seeding
        with super().seeded(seed):
            self.seeding = Seeding(seed)
            try:
                yield
            finally:
                self.seeding = before

    def environment(self) -> Mapping[str, str]:
        """Return versions, devices, and the switches that change a float."""
        return {
            "flax": flax.__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "python": platform.python_version(),
            "devices": ", ".join(str(one) for one in jax.devices()),
            "x64": str(jax.config.jax_enable_x64),
            "matmul precision": str(jax.config.jax_default_matmul_precision or "default"),
        }

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep JAX from warning that it computes in 32 bits what another framework gave in 64."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            yield
