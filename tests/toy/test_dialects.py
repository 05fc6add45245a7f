"""Compare models of the two dialects: what a port is, in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.plugins import adapter_for, adapter_of_tensor
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


def randoms(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


class Net(rows.Module):
    """An image to tokens, attention, a head."""

    def __init__(self) -> None:
        self.conv, self.norm, self.act = rows.Conv2d(3, 8, 3, padding=1), rows.BatchNorm(8), rows.ReLU()
        self.body = rows.Sequential(rows.Linear(8, 16), rows.GELU(), rows.LayerNorm(16))
        self.attention, self.head = rows.Attention(16, 4), rows.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        x = self.act(self.norm(self.conv(x)))
        batch, channels, height, width = x.shape
        x = self.body(x.reshape(batch, channels, height * width).transpose(0, 2, 1))
        return self.head(x + self.attention(x))


class Port(columns.Layer):
    """The same with other names, another order of definition, channels last, functions for some modules."""

    def __init__(self) -> None:
        self.out, self.mix = columns.Dense(16, 4), columns.SelfAttention(16, 4)
        self.after, self.dense = columns.LayerNormalization(16), columns.Dense(8, 16)
        self.scale, self.first = columns.BatchNormalization(8), columns.Conv(3, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.scale(self.first(x)))
        batch, height, width, channels = x.shape
        x = self.after(F.gelu(self.dense(x.reshape(batch, height * width, channels))))
        return self.out(x + self.mix(x))


def test_a_dialect_is_found_by_the_part_of_a_package_that_it_claims() -> None:
    assert (adapter_for(Net()).name, adapter_for(Port()).name) == ("toy", "toy_t")
    assert [adapter_of_tensor(cls(1.0)).name for cls in (rows.Tensor, columns.Tensor)] == ["toy", "toy_t"]  # type: ignore[union-attr]


def test_a_port_is_aligned() -> None:
    x = randoms(2, 3, 4, 4)
    report = padiff.diff(Net(), Port(), {"x": x}, candidate_inputs={"x": x.transpose(0, 2, 3, 1)})
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied == 20


def test_gates_in_another_order_are_one_cell() -> None:
    x, state = randoms(2, 3), (randoms(2, 5, seed=1), randoms(2, 5, seed=2))
    assert padiff.diff(rows.LSTMCell(3, 5), columns.Cell(3, 5), (x, state)).aligned
