"""Hold architectures over sequences, in the neutral language of the kits: a class is a module, `Model` the whole."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["decoder", "encoder", "experts", "recurrent"]


def decoder(kit: Any) -> Any:
    """Return a decoder with rotary embeddings, grouped queries, root mean square norms and gated feed-forwards."""

    class Norm(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.weight = kit.parameter(kit.normal(width))
            self.eps = 1e-5

        def forward(self, x: Any) -> Any:
            square = kit.mean(x * x, -1, True)
            return x / kit.sqrt(square + self.eps) * self.weight

    class Rotary(kit.Module):
        def forward(self, x: Any) -> Any:
            half = x.shape[-1] // 2
            angles = kit.positions(x)[:, None] * 100.0 ** (-np.arange(half) / half)
            cos = kit.constant(np.cos(angles), x)
            sin = kit.constant(np.sin(angles), x)
            a, b = kit.chunks(x, 2)
            return kit.cat([a * cos - b * sin, b * cos + a * sin], -1)

    class Attention(kit.Module):
        def __init__(self, width: Any, heads: Any, groups: Any) -> None:
            super().__init__()
            self.heads = heads
            self.groups = groups
            self.query = kit.linear(width, width, bias=False)
            self.key = kit.linear(width, width * groups // heads, bias=False)
            self.value = kit.linear(width, width * groups // heads, bias=False)
            self.rotary = Rotary()
            self.out = kit.linear(width, width, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = self.query(x), self.key(x), self.value(x)
            q = self.rotary(kit.heads(q, self.heads))
            k = self.rotary(kit.heads(k, self.groups))
            v = kit.heads(v, self.groups)
            k = kit.repeat(k, self.heads // self.groups, 1)
            v = kit.repeat(v, self.heads // self.groups, 1)
            scores = (q @ kit.turned(k)) * 0.5
            weights = kit.softmax(scores + kit.causal(scores), -1)
            return self.out(kit.merge(weights @ v))

    class Gated(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.gate = kit.linear(width, 2 * width, bias=False)
            self.up = kit.linear(width, 2 * width, bias=False)
            self.act = kit.activation("silu")
            self.down = kit.linear(2 * width, width, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(self.act(self.gate(x)) * self.up(x))

    class Block(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.norm1 = Norm(width)
            self.attn = Attention(width, 4, 2)
            self.norm2 = Norm(width)
            self.mlp = Gated(width)

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = kit.embedding(20, 16)
            self.blocks = kit.modules([Block(16) for _ in range(2)])
            self.norm = Norm(16)
            self.head = kit.linear(16, 20, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = kit.sequence(self.embed(tokens) * 4.0)
            for block in self.blocks:
                x = block(x)
            return kit.sequence(self.head(self.norm(x)))

    return Model()


def encoder(kit: Any) -> Any:
    """Return an encoder with learned positions, norms behind the residuals, and a pooler."""

    class Attention(kit.Module):
        def __init__(self, width: Any, heads: Any) -> None:
            super().__init__()
            self.heads = heads
            self.query = kit.linear(width, width)
            self.key = kit.linear(width, width)
            self.value = kit.linear(width, width)
            self.dense = kit.linear(width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = self.query(x), self.key(x), self.value(x)
            q = kit.heads(q, self.heads)
            k = kit.heads(k, self.heads)
            v = kit.heads(v, self.heads)
            scores = (q @ kit.turned(k)) * 0.5
            return self.dense(kit.merge(kit.softmax(scores, -1) @ v))

    class Layer(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.attention = Attention(width, 3)
            self.norm1 = kit.layer_norm(width, eps=1e-5)
            self.inner = kit.linear(width, 2 * width)
            self.act = kit.activation("gelu")
            self.outer = kit.linear(2 * width, width)
            self.norm2 = kit.layer_norm(width, eps=1e-5)

        def forward(self, x: Any) -> Any:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.outer(self.act(self.inner(x))))

    class Embeddings(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.words = kit.embedding(20, width)
            self.places = kit.embedding(9, width)
            self.norm = kit.layer_norm(width, eps=1e-5)

        def forward(self, tokens: Any, where: Any) -> Any:
            return self.norm(self.words(tokens) + self.places(where))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = Embeddings(12)
            self.layers = kit.modules([Layer(12) for _ in range(2)])
            self.pooler = kit.linear(12, 12)
            self.tanh = kit.activation("tanh")
            self.classifier = kit.linear(12, 3)

        def forward(self, tokens: Any, where: Any) -> Any:
            x = kit.sequence(self.embeddings(tokens, where))
            for layer in self.layers:
                x = layer(x)
            pooled = self.tanh(self.pooler(kit.step(x, 0)))
            return kit.sequence(x), self.classifier(pooled)

    return Model()


def experts(kit: Any) -> Any:
    """Return blocks whose feed-forward is a mixture of experts, of which each token takes two, beside a shared one."""

    class Expert(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.up = kit.linear(width, 12)
            self.down = kit.linear(12, width)

        def forward(self, x: Any) -> Any:
            return self.down(kit.act(self.up(x), "gelu"))

    class Router(kit.Module):
        def __init__(self, width: Any, count: Any) -> None:
            super().__init__()
            self.gate = kit.linear(width, count, bias=False)

        def forward(self, x: Any) -> Any:
            chances = kit.softmax(self.gate(x), -1)
            kept = chances * kit.top(chances, 2)
            return kept / kit.sum(kept, -1, True)

    class Mixture(kit.Module):
        def __init__(self, width: Any, count: Any) -> None:
            super().__init__()
            self.router = Router(width, count)
            self.experts = kit.modules([Expert(width) for _ in range(count)])
            self.shared = Expert(width)

        def forward(self, x: Any) -> Any:
            shares = self.router(x)
            total = self.shared(x)
            for i, expert in enumerate(self.experts):
                total = total + expert(x) * shares[..., i : i + 1]
            return total

    class Block(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.norm = kit.layer_norm(width, eps=1e-5)
            self.mix = kit.linear(width, width)
            self.norm2 = kit.layer_norm(width, eps=1e-5)
            self.moe = Mixture(width, 3)

        def forward(self, x: Any) -> Any:
            x = x + self.mix(self.norm(x))
            return x + self.moe(self.norm2(x))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = kit.linear(6, 8)
            self.blocks = kit.modules([Block(8) for _ in range(2)])
            self.last = kit.linear(8, 4)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.last(x)

    return Model()


def recurrent(kit: Any) -> Any:
    """Return an LSTM, written by hand, in both directions, with attention over time and a head."""

    class Cell(kit.Module):
        def __init__(self, width: Any, hidden: Any) -> None:
            super().__init__()
            self.given = kit.linear(width, 4 * hidden)
            self.kept = kit.linear(hidden, 4 * hidden, bias=False)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            i, f, g, o = kit.chunks(self.given(x) + self.kept(h), 4)
            c = kit.act(f, "sigmoid") * c + kit.act(i, "sigmoid") * kit.act(g, "tanh")
            return kit.act(o, "sigmoid") * kit.act(c, "tanh"), c

    class Lstm(kit.Module):
        def __init__(self, width: Any, hidden: Any, back: Any) -> None:
            super().__init__()
            self.back = back
            self.hidden = hidden
            self.cell = Cell(width, hidden)

        def forward(self, x: Any) -> Any:
            count = x.shape[kit.time]
            h = kit.step(x, 0)[..., : self.hidden] * 0.0
            c = h * 0.0
            steps = []
            for t in range(count):
                h, c = self.cell(kit.step(x, count - 1 - t if self.back else t), h, c)
                steps = [h, *steps] if self.back else [*steps, h]
            return kit.stack(steps)

    class Pool(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.score = kit.linear(width, 1)

        def forward(self, x: Any) -> Any:
            weights = kit.softmax(self.score(x), kit.time)
            return kit.sum(x * weights, kit.time)

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there = Lstm(6, 5, False)
            self.home = Lstm(6, 5, True)
            self.norm = kit.layer_norm(10, eps=1e-5)
            self.pool = Pool(10)
            self.head = kit.linear(10, 3)

        def forward(self, x: Any) -> Any:
            x = kit.sequence(x)
            both = self.norm(kit.cat([self.there(x), self.home(x)], -1))
            return self.head(self.pool(both))

    return Model()
