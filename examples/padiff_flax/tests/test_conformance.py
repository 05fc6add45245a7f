"""Run padiff's suite over the adapter: what an adapter owes is what these tests say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import optax
from flax import nnx

from padiff.testing import AdapterTests

RNGS = nnx.Rngs(0)


class TestFlax(AdapterTests):
    """The adapter for Flax NNX, as any other adapter."""

    name = "flax"
    dtypes = (
        *["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"],
        *["float16", "float32", "float64", "complex64", "complex128", "bfloat16"],
        *["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"],
        *["float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"],
    )

    def linear(self, n_in: int, n_out: int) -> Any:
        return nnx.Linear(n_in, n_out, bias_init=nnx.initializers.normal(), rngs=RNGS)

    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        made = type("Made", (nnx.Module,), {"__call__": forward})()
        for name, child in children.items():
            setattr(made, name, child)
        return made

    def examples(self) -> Iterable[Any]:
        convs = [cls(4, 2, (3,) * n, rngs=RNGS) for n in (1, 2, 3) for cls in (nnx.Conv, nnx.ConvTranspose)]
        cells = [cls(3, 4, rngs=RNGS) for cls in (nnx.OptimizedLSTMCell, nnx.GRUCell, nnx.SimpleCell)]
        both = nnx.Bidirectional(nnx.RNN(nnx.GRUCell(3, 4, rngs=RNGS)), nnx.RNN(nnx.GRUCell(3, 4, rngs=RNGS)))
        return [
            self.linear(2, 3),
            nnx.LinearGeneral((2, 3), (4, 5), axis=(-2, -1), rngs=RNGS),
            nnx.ConvTranspose(4, 2, (3, 3), transpose_kernel=True, padding="VALID", rngs=RNGS),
            nnx.Embed(5, 3, rngs=RNGS),
            self.batch_norm(4),
            nnx.LayerNorm(4, rngs=RNGS),
            nnx.RMSNorm(4, rngs=RNGS),
            nnx.GroupNorm(4, num_groups=2, rngs=RNGS),
            nnx.InstanceNorm(4, rngs=RNGS),
            nnx.MultiHeadAttention(2, 4, decode=False, rngs=RNGS),
            nnx.PReLU(),
            self.dropout(0.5),
            nnx.Sequential(jnp.tanh),
            *convs,
            *cells,
            *(nnx.RNN(cell) for cell in cells),
            both,
        ]

    def batch_norm(self, features: int) -> Any:
        return nnx.BatchNorm(features, rngs=RNGS)

    def set_training(self, module: Any, training: bool) -> None:
        # NNX keeps the mode where it matters, in dropouts and batch norms. Others hold it as users' modules do.
        (module.train if training else module.eval)()
        for _, one in nnx.iter_modules(module):
            one.training = training

    def dropout(self, p: float) -> Any:
        return nnx.Dropout(p, rngs=RNGS)

    def sgd(self, model: Any, lr: float) -> Any:
        return nnx.Optimizer(model, optax.inject_hyperparams(optax.sgd)(lr), wrt=nnx.Param)

    def compiled(self, model: Any) -> Any:
        return nnx.jit(model)
