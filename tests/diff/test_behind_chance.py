"""Transfer the weights of code that draws random numbers: their order and layouts are told in evaluation mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff.adapter import Model
from padiff.plugins import adapter_for
from padiff.refinement import _exchanges, _search

WIDTH = 8
X = np.random.default_rng(0).standard_normal((4, 6, WIDTH), dtype=np.float32)


class TorchAttention(torch.nn.Module):
    """Attend; ``scale`` is of the scores, ``always`` keeps the dropout on in evaluation mode too."""

    def __init__(self, scale: float = 1.0, *, always: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.three = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.last = torch.nn.Linear(WIDTH, 3)
        self.scale, self.always = scale, always

    def forward(self, x: Any) -> Any:
        q, k, v = self.one(x), self.two(x), self.three(x)
        scores = torch.softmax(q @ k.transpose(1, 2) * self.scale, -1)
        return self.last(torch.nn.functional.dropout(scores, 0.3, self.training or self.always) @ v)


class PaddleAttention(paddle.nn.Layer):
    """Attend, under names that tell nothing and in another order; or under those of the other side."""

    def __init__(self, *, always: bool = False, named: bool = False) -> None:
        super().__init__()
        self.names = ("one", "two", "three") if named else ("b", "c", "a")
        for name in self.names:
            setattr(self, name, paddle.nn.Linear(WIDTH, WIDTH))
        self.last = paddle.nn.Linear(WIDTH, 3)
        self.always = always

    def forward(self, x: Any) -> Any:
        of_q, of_k, of_v = (getattr(self, name) for name in self.names)
        v, q, k = of_v(x), of_q(x), of_k(x)
        scores = paddle.nn.functional.softmax(q @ k.transpose([0, 2, 1]), -1)
        return self.last(paddle.nn.functional.dropout(scores, 0.3, training=self.training or self.always) @ v)


UNTOLD = {f"{name}.{role}" for name in "abc" for role in ("weight", "bias")}


def _assert_in_place(ours: Any, theirs: Any) -> None:
    for left, right in zip(("one", "two", "three"), theirs.names, strict=True):
        expected = getattr(ours, left).weight.detach().numpy().T
        np.testing.assert_array_equal(getattr(theirs, right).weight.numpy(), expected)


def test_an_order_that_no_name_tells_is_told_in_evaluation_mode() -> None:
    sides = TorchAttention(), PaddleAttention()
    report = padiff.diff(*sides, (X,))
    assert report.aligned, report
    assert report.counts["stochastic"] == 1, report
    assert report.transfer is not None
    assert not report.transfer.unverified, report.transfer
    _assert_in_place(*sides)
    assert sides[0].training
    assert all(layer.training for layer in sides[1].sublayers(include_self=True))


def test_what_draws_in_every_mode_is_not_called_verified() -> None:
    report = padiff.diff(TorchAttention(always=True), PaddleAttention(always=True), (X,))
    assert report.aligned, report
    assert report.transfer is not None
    assert set(report.transfer.unverified) == UNTOLD, report.transfer
    assert report.transfer.verified == report.transfer.copied - len(UNTOLD), report.transfer
    assert "chance hides" in str(report)


def test_without_modes_what_chance_hides_is_not_called_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Identity()
    monkeypatch.setattr(type(adapter_for(model).wrap(model)), "evaluate", Model.evaluate)
    report = padiff.diff(TorchAttention(), PaddleAttention(), (X,))
    assert report.transfer is not None
    assert set(report.transfer.unverified) == UNTOLD, report.transfer


def test_a_fault_behind_chance_is_named_and_nothing_unproven_called_verified() -> None:
    report = padiff.diff(TorchAttention(scale=0.5), PaddleAttention(), (X,))
    assert [found.between and found.between[1] for found in report.sources] == ["last"], report
    assert "evaluation mode" in " ".join(report.sources[0].evidence), report
    assert report.transfer is not None
    assert set(report.transfer.unverified) >= UNTOLD, report.transfer


def test_nothing_is_run_in_evaluation_mode_where_names_tell_or_nothing_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unwanted(*_: Any) -> None:
        pytest.fail("a trial in evaluation mode")

    monkeypatch.setattr(_exchanges, "trial_without_randomness", unwanted)
    monkeypatch.setattr(_search, "trial_without_randomness", unwanted)
    sides = TorchAttention(), PaddleAttention(named=True)
    assert padiff.diff(*sides, (X,)).aligned
    _assert_in_place(*sides)
    assert padiff.diff(TorchTable().eval(), PaddleTable().eval(), (X,)).aligned


class TorchTable(torch.nn.Module):
    """Multiply with a square table, and drop some."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(x @ self.table, 0.3, self.training)


class PaddleTable(paddle.nn.Layer):
    """Hold the table transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.create_parameter([WIDTH, WIDTH])

    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.dropout(x @ self.table.T, 0.3, training=self.training)


def test_a_layout_is_told_in_evaluation_mode() -> None:
    sides = TorchTable(), PaddleTable()
    report = padiff.diff(*sides, (X,))
    assert report.aligned, report
    assert report.transfer is not None
    assert report.transfer.settled == {"table": "transposed"}, report.transfer
    assert not report.transfer.unverified, report.transfer
    np.testing.assert_array_equal(sides[1].table.numpy(), sides[0].table.detach().numpy().T)


class TorchPacked(torch.nn.Module):
    """Hold query, key and value in one layer, key first."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.last = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, 3)

    def forward(self, x: Any) -> Any:
        k, q, v = self.qkv(x).chunk(3, -1)
        scores = torch.nn.functional.dropout(torch.softmax(q @ k.transpose(1, 2), -1), 0.3, self.training)
        return self.last(scores @ v)


def test_how_a_layer_packs_others_is_told_in_evaluation_mode() -> None:
    sides = TorchPacked(), PaddleAttention(named=True)
    report = padiff.diff(*sides, (X,))
    assert report.aligned, report
    assert report.transfer is not None
    assert not report.transfer.unverified, report.transfer
    k, q, v = sides[0].qkv.weight.detach().numpy().reshape(3, WIDTH, WIDTH)
    for name, expected in (("one", q), ("two", k), ("three", v)):
        np.testing.assert_array_equal(getattr(sides[1], name).weight.numpy().T, expected)
