"""Pack queries with keys and values that are also of a memory, and take the queries of the last steps alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X, MEMORY = (np.random.default_rng(0).standard_normal((2, steps, 4)).astype(np.float32) for steps in (3, 5))


def attended(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ k.transpose(0, 2, 1) * 0.5) @ v


class OfAll(rows.Module):
    """Projects the memory and what is new at once, as Transformer-XL does."""

    def __init__(self) -> None:
        self.qkv, self.out, self.norm = rows.Linear(4, 12, bias=False), rows.Linear(4, 4), rows.LayerNorm(4)

    def forward(self, x: Any, memory: Any) -> Any:
        packed = self.qkv(F.concat([memory, x], 1))
        q, k, v = packed[:, -x.shape[1] :, :4], packed[..., 4:8], packed[..., 8:]
        return self.norm(x + self.out(attended(q, k, v)))


class OfNew(columns.Layer):
    """Projects the queries of what is new alone."""

    def __init__(self, fault: str) -> None:
        self.wq, self.wkv = columns.Dense(4, 4, bias=False), columns.Dense(4, 8, bias=False)
        self.wo, self.scale, self.fault = columns.Dense(4, 4), columns.LayerNormalization(4), fault

    def forward(self, x: Any, memory: Any) -> Any:
        q, kv = self.wq(x), self.wkv(F.concat([memory, x], 1))
        return self.scale(x + self.wo(attended(q * (2.0 if self.fault else 1.0), kv[..., :4], kv[..., 4:])))


class Decoder(rows.Module):
    def __init__(self) -> None:
        self.first, self.second = OfAll(), OfAll()

    def forward(self, x: Any, memory: Any) -> Any:
        return self.second(self.first(x, memory), memory)


class DecoderOfNew(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.layers = columns.Layers(OfNew(""), OfNew(fault))

    def forward(self, x: Any, memory: Any) -> Any:
        return self.layers[1](self.layers[0](x, memory), memory)


@pytest.mark.parametrize("turned", [False, True], ids=["all", "new"])
def test_queries_may_be_of_the_last_steps_alone(turned: bool) -> None:
    sides = Decoder(), DecoderOfNew()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X, MEMORY))
    assert report.aligned, str(report)


def test_a_fault_among_them_stands_at_its_place() -> None:
    report = padiff.diff(Decoder(), DecoderOfNew("scale"), (X, MEMORY))
    (source,) = report.sources
    assert (source.candidate.path, source.between[-1]) == ("layers.1", "wo"), str(report)
