"""Let the measured floor decide, or exactly the documented rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from padiff import auto_diff

from .nets import DIRECTIONS, array, linear, mlp, native, network, nn, pair

Frameworks = tuple[str, str]


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
def test_a_correct_port_passes_without_a_tolerance_and_fails_the_documented_default(frameworks: Frameworks) -> None:
    inputs = pair(frameworks, array(64, 8))
    # Some processors give two frameworks' products the same bits.
    models = mlp(frameworks[0], hidden=512), mlp(frameworks[1], hidden=512, after=lambda y: (y + 4.0) - 4.0)
    assert auto_diff(*models, inputs) is True
    for mode in ("mean", "strict"):
        assert auto_diff(*models, inputs, atol=0, rtol=1e-7, compare_mode=mode) is False
        assert auto_diff(*models, inputs, atol=1e-4, compare_mode=mode) is True
        assert auto_diff(*models, inputs, compare_mode=mode) is True


def _offset(framework: str, amount: float, *, width: int = 4, spike: bool = False) -> Any:
    """Return a linear layer whose output is off, everywhere or in its first element."""

    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x)
        extra = np.zeros(tuple(y.shape), np.float32) if spike else np.full(tuple(y.shape), amount, np.float32)
        extra.flat[0] = amount
        return y + native(framework, extra)

    return network(framework, forward, fc=linear(framework, 8, width))


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
@pytest.mark.parametrize("mode", ["mean", "strict"])
def test_atol_is_the_bound_of_the_error(frameworks: Frameworks, mode: str) -> None:
    inputs = pair(frameworks)
    models = _offset(frameworks[0], 0.0), _offset(frameworks[1], 0.01)
    assert auto_diff(*models, inputs, atol=0.0101, compare_mode=mode) is True
    assert auto_diff(*models, inputs, atol=0.0099, compare_mode=mode) is False


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
def test_rtol_alone_is_relative_to_the_reference(frameworks: Frameworks) -> None:
    inputs = pair(frameworks)
    models = mlp(frameworks[0]), mlp(frameworks[1], after=lambda y: y * 1.01)
    for mode in ("mean", "strict"):
        assert auto_diff(*models, inputs, rtol=0.011, compare_mode=mode) is True
        assert auto_diff(*models, inputs, rtol=0.009, compare_mode=mode) is False


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
def test_mean_is_the_mean_of_the_error(frameworks: Frameworks) -> None:
    inputs = pair(frameworks, array(16, 8))
    spike = _offset(frameworks[0], 0.0, width=8192), _offset(frameworks[1], 5.0, width=8192, spike=True)
    assert auto_diff(*spike, inputs, atol=1e-4, compare_mode="mean") is True  # 5 / 131072
    assert auto_diff(*spike, inputs, atol=1e-5, compare_mode="mean") is False
    assert auto_diff(*spike, inputs, atol=1e-4, compare_mode="strict") is False
    assert auto_diff(*spike, inputs) is False
    # Means that are equal say nothing.
    order = np.array([7, 6, 5, 4, 3, 2, 1, 0])
    flipped = mlp(frameworks[0], out=8), mlp(frameworks[1], out=8, after=lambda y: y[:, native(frameworks[1], order)])
    assert auto_diff(*flipped, inputs, atol=1e-4, compare_mode="mean") is False


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
def test_what_adds_up_counts_unless_in_single_step(frameworks: Frameworks, capsys: pytest.CaptureFixture[str]) -> None:
    def build(framework: str, factor: float) -> Any:
        layers = [network(framework, lambda self, x: x * factor, name="Scale") for _ in range(20)]
        body = nn[framework].Sequential(*layers)
        return network(framework, lambda self, x: self.head(self.body(x)), body=body, head=linear(framework, 8, 8))

    inputs = pair(frameworks)
    models = build(frameworks[0], 1.0), build(frameworks[1], 1.0005)
    assert auto_diff(*models, inputs, rtol=1e-3, single_step=True) is True
    capsys.readouterr()
    assert auto_diff(*models, inputs, rtol=1e-3, single_step=False) is False
    said = capsys.readouterr().out
    assert "Diff found in the models' outputs: each layer is within the tolerance, what adds up is not" in said
    assert auto_diff(*models, inputs, rtol=2e-2, single_step=False) is True
    assert auto_diff(*models, inputs, single_step=True) is False


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
def test_dropout_passes_a_classic_rule_too(frameworks: Frameworks) -> None:
    def build(framework: str) -> Any:
        parts = {"fc": linear(framework, 8, 64), "drop": nn[framework].Dropout(0.5), "head": linear(framework, 64, 3)}
        return network(framework, lambda self, x: self.head(self.drop(self.fc(x))), **parts)

    models, inputs = (build(frameworks[0]), build(frameworks[1])), pair(frameworks)
    for single_step in (False, True):
        assert auto_diff(*models, inputs, atol=1e-4, single_step=single_step) is True


def test_a_tolerance_does_not_leak_into_the_next_call() -> None:
    inputs = pair(("torch", "paddle"))
    models = mlp("torch"), mlp("paddle", after=lambda y: y * 1.01)
    options = {"atol": 1.0, "rtol": 1.0}
    assert auto_diff(*models, inputs) is False
    assert auto_diff(*models, inputs, **options) is True
    assert auto_diff(*models[::-1], inputs[::-1], options=options) is True
    assert auto_diff(*models, inputs) is False
    assert options == {"atol": 1.0, "rtol": 1.0}
