"""Call a norm without weights several times: it holds nothing, and what is behind one call is not behind another."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


class Plain(columns.LayerNormalization):
    """A norm without weights."""

    def __init__(self) -> None:
        self.epsilon = 1e-5

    def forward(self, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / ((centred * centred).mean(-1, keepdims=True) + self.epsilon).sqrt()


class PlainRows(rows.LayerNorm):
    """The same."""

    def __init__(self) -> None:
        self.eps = 1e-5

    def forward(self, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / ((centred * centred).mean(-1, keepdims=True) + self.eps).sqrt()


class TwoStreams(rows.Module):
    """Two streams that attend to both, each with norms and layers of its own."""

    def __init__(self) -> None:
        self.qkv_a, self.qkv_b = rows.Linear(4, 12), rows.Linear(4, 12)
        self.out_a, self.out_b, self.up_a, self.up_b = (rows.Linear(4, 4) for _ in range(4))
        self.norm_a, self.norm_b, self.last_a, self.last_b = (PlainRows() for _ in range(4))

    def forward(self, a: Any, b: Any) -> Any:
        first, second = self.qkv_a(self.norm_a(a)), self.qkv_b(self.norm_b(b))
        q, k, v = (F.concat([s[..., i : i + 4] for s in (first, second)], 1) for i in (0, 4, 8))
        made = F.attention(q, k, v, 2)
        a, b = a + self.out_a(made[:, :3]), b + self.out_b(made[:, 3:])
        return a + F.tanh(self.up_a(self.last_a(a))), b + F.tanh(self.up_b(self.last_b(b)))


class Stream(columns.Layer):
    def __init__(self) -> None:
        self.q, self.k, self.v, self.proj, self.fc = (columns.Dense(4, 4) for _ in range(5))
        self.norm = Plain()

    def forward(self, x: Any) -> Any:
        return self.norm(x)


class StreamsOfLayers(columns.Layer):
    """The same; each stream has one norm, which it calls twice."""

    def __init__(self) -> None:
        self.a, self.b = Stream(), Stream()

    def forward(self, a: Any, b: Any) -> Any:
        both = [(one, one(x)) for one, x in ((self.b, b), (self.a, a))]
        q, k, v = (F.concat([getattr(one, name)(x) for one, x in both], 1) for name in "qkv")
        made = F.attention(q, k, v, 2)
        n = b.shape[1]
        a, b = a + self.a.proj(made[:, n:]), b + self.b.proj(made[:, :n])
        return tuple(x + F.tanh(s.fc(s(x))) for s, x in ((self.a, a), (self.b, b)))


class Twice(rows.Module):
    def __init__(self) -> None:
        self.in_a, self.in_b, self.one, self.two = rows.Linear(4, 4), rows.Linear(3, 4), TwoStreams(), TwoStreams()

    def forward(self, a: Any, b: Any) -> Any:
        return self.two(*self.one(self.in_a(a), self.in_b(b)))


class TwiceOfLayers(columns.Layer):
    def __init__(self) -> None:
        self.first, self.second = columns.Dense(4, 4), columns.Dense(3, 4)
        self.one, self.two = StreamsOfLayers(), StreamsOfLayers()

    def forward(self, a: Any, b: Any) -> Any:
        return self.two(*self.one(self.first(a), self.second(b)))


def test_a_norm_without_weights_that_is_called_twice_ties_nothing() -> None:
    """What was behind one call of it seemed to be behind the other: packed layers went with those of other blocks."""
    draw = np.random.default_rng(0).standard_normal
    inputs = tuple(draw(shape).astype(np.float32) for shape in ((2, 3, 4), (2, 2, 3)))
    report = padiff.diff(Twice(), TwiceOfLayers(), inputs)
    assert report.aligned, str(report)
