"""Hold architectures over images, in the neutral language of the kits."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["losses", "mixer", "vit", "windows"]


def vit(kit: Any) -> Any:
    """Return a vision transformer: patches, a class token, learned positions, packed attention."""

    class Patches(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.proj = kit.conv(3, width, 2, stride=2)

        def forward(self, x: Any) -> Any:
            y = self.proj(x)
            b, c, h, w = y.shape
            return kit.permute(kit.reshape(y, b, c, h * w), 0, 2, 1)

    class Attention(kit.Module):
        def __init__(self, width: Any, heads: Any) -> None:
            super().__init__()
            self.heads = heads
            self.qkv = kit.linear(width, 3 * width)
            self.proj = kit.linear(width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = kit.chunks(self.qkv(x), 3)
            q, k, v = kit.heads(q, self.heads), kit.heads(k, self.heads), kit.heads(v, self.heads)
            weights = kit.softmax((q @ kit.turned(k)) * 0.5, -1)
            return self.proj(kit.merge(weights @ v))

    class Mlp(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.fc1 = kit.linear(width, 2 * width)
            self.act = kit.activation("gelu")
            self.fc2 = kit.linear(2 * width, width)

        def forward(self, x: Any) -> Any:
            return self.fc2(self.act(self.fc1(x)))

    class Block(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.norm1 = kit.layer_norm(width, eps=1e-6)
            self.attn = Attention(width, 2)
            self.norm2 = kit.layer_norm(width, eps=1e-6)
            self.mlp = Mlp(width)

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = Patches(8)
            self.token = kit.parameter(kit.normal(1, 1, 8))
            self.places = kit.parameter(kit.normal(1, 5, 8))
            self.blocks = kit.modules([Block(8) for _ in range(2)])
            self.norm = kit.layer_norm(8, eps=1e-6)
            self.head = kit.linear(8, 4)

        def forward(self, x: Any) -> Any:
            x = self.patches(x)
            token = kit.cat([self.token] * x.shape[0], 0)
            x = kit.sequence(kit.cat([token, x], 1) + self.places)
            for block in self.blocks:
                x = block(x)
            return self.head(kit.step(self.norm(x), 0))

    return Model()


def windows(kit: Any) -> Any:
    """Return attention inside windows that are shifted in every other block, with biases by place, then merged."""

    class Attention(kit.Module):
        def __init__(self, width: Any, heads: Any) -> None:
            super().__init__()
            self.heads = heads
            self.qkv = kit.linear(width, 3 * width)
            self.table = kit.parameter(kit.normal(heads, 4, 4))
            self.proj = kit.linear(width, width)

        def forward(self, x: Any) -> Any:
            b, t, n = x.shape
            q, k, v = kit.chunks(self.qkv(x), 3)
            q = kit.permute(kit.reshape(q, b, t, self.heads, n // self.heads), 0, 2, 1, 3)
            k = kit.permute(kit.reshape(k, b, t, self.heads, n // self.heads), 0, 2, 1, 3)
            v = kit.permute(kit.reshape(v, b, t, self.heads, n // self.heads), 0, 2, 1, 3)
            scores = (q * 0.5) @ kit.turned(k)
            weights = kit.softmax(scores + self.table, -1)
            return self.proj(kit.reshape(kit.permute(weights @ v, 0, 2, 1, 3), b, t, n))

    class Block(kit.Module):
        def __init__(self, width: Any, shift: Any) -> None:
            super().__init__()
            self.shift = shift
            self.norm1 = kit.layer_norm(width, eps=1e-5)
            self.attn = Attention(width, 2)
            self.norm2 = kit.layer_norm(width, eps=1e-5)
            self.fc1 = kit.linear(width, 2 * width)
            self.fc2 = kit.linear(2 * width, width)

        def forward(self, x: Any) -> Any:
            b, h, w, n = x.shape
            y = self.norm1(x)
            if self.shift:
                y = kit.roll(kit.roll(y, -1, 1), -1, 2)
            y = kit.permute(kit.reshape(y, b, h // 2, 2, w // 2, 2, n), 0, 1, 3, 2, 4, 5)
            y = self.attn(kit.reshape(y, b * h * w // 4, 4, n))
            y = kit.permute(kit.reshape(y, b, h // 2, w // 2, 2, 2, n), 0, 1, 3, 2, 4, 5)
            y = kit.reshape(y, b, h, w, n)
            if self.shift:
                y = kit.roll(kit.roll(y, 1, 1), 1, 2)
            x = x + y
            return x + self.fc2(kit.act(self.fc1(self.norm2(x)), "gelu"))

    class Merge(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.norm = kit.layer_norm(4 * width, eps=1e-5)
            self.reduction = kit.linear(4 * width, 2 * width, bias=False)

        def forward(self, x: Any) -> Any:
            b, h, w, n = x.shape
            y = kit.reshape(x, b, h // 2, 2, w // 2, 2, n)
            parts = [y[:, :, 0, :, 0], y[:, :, 1, :, 0], y[:, :, 0, :, 1], y[:, :, 1, :, 1]]
            return self.reduction(self.norm(kit.cat(parts, -1)))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = kit.linear(3, 8)
            self.blocks = kit.modules([Block(8, 0), Block(8, 1)])
            self.merge = Merge(8)
            self.norm = kit.layer_norm(16, eps=1e-5)
            self.head = kit.linear(16, 4)

        def forward(self, x: Any) -> Any:
            x = self.embed(kit.permute(x, 0, 2, 3, 1))
            for block in self.blocks:
                x = block(x)
            x = self.norm(self.merge(x))
            return self.head(kit.mean(kit.mean(x, 1), 1))

    return Model()


def mixer(kit: Any) -> Any:
    """Return layers that mix the tokens, then the channels."""

    class Mlp(kit.Module):
        def __init__(self, width: Any, inner: Any) -> None:
            super().__init__()
            self.fc1 = kit.linear(width, inner)
            self.act = kit.activation("gelu")
            self.fc2 = kit.linear(inner, width)

        def forward(self, x: Any) -> Any:
            return self.fc2(self.act(self.fc1(x)))

    class Layer(kit.Module):
        def __init__(self, tokens: Any, width: Any) -> None:
            super().__init__()
            self.norm1 = kit.layer_norm(width, eps=1e-5)
            self.tokens = Mlp(tokens, 10)
            self.norm2 = kit.layer_norm(width, eps=1e-5)
            self.channels = Mlp(width, 14)
            self.scale = kit.parameter(kit.normal(width))

        def forward(self, x: Any) -> Any:
            x = x + kit.turned(self.tokens(kit.turned(self.norm1(x))))
            return x + self.channels(self.norm2(x)) * self.scale

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = kit.linear(6, 8)
            self.layers = kit.modules([Layer(5, 8) for _ in range(2)])
            self.norm = kit.layer_norm(8, eps=1e-5)
            self.last = kit.linear(8, 3)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for layer in self.layers:
                x = layer(x)
            return self.last(kit.mean(self.norm(x), 1))

    return Model()


def losses(kit: Any) -> Any:
    """Return two towers that meet in a contrastive loss."""

    class Tower(kit.Module):
        def __init__(self, width: Any, inner: Any) -> None:
            super().__init__()
            self.fc1 = kit.linear(width, inner)
            self.act = kit.activation("relu")
            self.fc2 = kit.linear(inner, 6)

        def forward(self, x: Any) -> Any:
            y = self.fc2(self.act(self.fc1(x)))
            return y / kit.sqrt(kit.sum(y * y, -1, True) + 1e-6)

    class Loss(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = kit.parameter(kit.normal(1))

        def forward(self, one: Any, other: Any) -> Any:
            scores = (one @ kit.turned(other)) * kit.exp(self.temperature)
            rows = kit.log(kit.softmax(scores, -1))
            columns = kit.log(kit.softmax(scores, 0))
            right = kit.constant(np.eye(scores.shape[0]), scores)
            total = kit.sum((rows + columns) * right * -0.5, -1)
            return kit.mean(total, 0, True), scores

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image = Tower(7, 10)
            self.text = Tower(9, 11)
            self.loss = Loss()

        def forward(self, image: Any, text: Any) -> Any:
            loss, scores = self.loss(self.image(image), self.text(text))
            return {"loss": loss, "scores": scores}

    return Model()
