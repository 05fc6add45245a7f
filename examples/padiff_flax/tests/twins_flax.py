"""Write the twins as one does in Flax NNX, images with their channels last; ``faults`` plants ports' mistakes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


class Attention(nnx.Module):
    def __init__(self, dim: int, heads: int, faults: Collection[str], rngs: nnx.Rngs) -> None:
        self.heads, self.faults = heads, faults
        self.query, self.key, self.value, self.out = (nnx.Linear(dim, dim, rngs=rngs) for _ in range(4))

    def split(self, x: Any) -> Any:
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)

    def __call__(self, x: Any) -> Any:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        width = x.shape[-1] if "scale" in self.faults else query.shape[-1]
        scores = query @ key.swapaxes(-2, -1) * width**-0.5
        merged = (nnx.softmax(scores) @ value).swapaxes(1, 2).reshape(x.shape)
        return self.out(merged)


class Block(nnx.Module):
    def __init__(self, dim: int, heads: int, faults: Collection[str], rngs: nnx.Rngs) -> None:
        self.faults = faults
        # Flax's own default is 1e-6, another than everybody else's.
        self.norm1 = nnx.LayerNorm(dim, **({} if "eps" in faults else {"epsilon": 1e-5}), rngs=rngs)
        self.attention = Attention(dim, heads, faults, rngs)
        self.norm2 = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.up, self.down = nnx.Linear(dim, 2 * dim, rngs=rngs), nnx.Linear(2 * dim, dim, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        kept = jax.lax.stop_gradient(x) if "detached" in self.faults else x
        attended = self.attention(self.norm1(x))
        x = attended if "residual" in self.faults else kept + attended
        # And its gelu is the approximate one, if it is not told.
        wide = nnx.gelu(self.up(self.norm2(x)), **({} if "gelu" in self.faults else {"approximate": False}))
        return x + self.dropout(self.down(wide))


class Encoder(nnx.Module):
    def __init__(self, faults: Collection[str], rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(11, 16, rngs=rngs)
        self.position = nnx.Param(jax.random.normal(rngs.params(), (1, 6, 16)))
        self.blocks = nnx.List([Block(16, 2, (), rngs), Block(16, 2, faults, rngs)])
        self.norm = nnx.LayerNorm(16, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Residual(nnx.Module):
    def __init__(self, width: int, faults: Collection[str], rngs: nnx.Rngs) -> None:
        self.faults = faults
        mode: Any = "REFLECT" if "padding" in faults else 1
        self.conv1 = nnx.Conv(width, width, (3, 3), padding=mode, use_bias=False, rngs=rngs)
        self.norm1 = nnx.BatchNorm(width, momentum=0.99 if "momentum" in faults else 0.9, rngs=rngs)
        self.conv2 = nnx.Conv(width, width, (3, 3), padding=1, feature_group_count=4, rngs=rngs)
        self.norm2 = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        inner = nnx.relu(self.norm1(self.conv1(x)))
        inner = self.norm2(self.conv2(inner))
        return x + inner if "relu" in self.faults else nnx.relu(x + inner)


class Convnet(nnx.Module):
    def __init__(self, faults: Collection[str], rngs: nnx.Rngs) -> None:
        # With "SAME" the same shapes come out, and every image is shifted by one pixel.
        self.stem = nnx.Conv(3, 8, (3, 3), strides=2, padding="SAME" if "same" in faults else 1, rngs=rngs)
        self.body = nnx.Sequential(Residual(8, (), rngs), Residual(8, faults, rngs))
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, image: Any) -> Any:
        x = nnx.max_pool(nnx.relu(self.stem(image)), (2, 2), (2, 2))
        x = self.body(x)
        return self.head(jnp.mean(x, (1, 2)))


def build(name: str, faults: Collection[str], seed: int, train: bool) -> Any:
    model = {"encoder": Encoder, "convnet": Convnet}[name](faults, nnx.Rngs(seed))
    (model.train if train else model.eval)()
    return model
