"""Give the right verdict through the documented interface where PaDiff 0.3 passed what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from padiff import UnusableReference, auto_diff

from .nets import DIRECTIONS, array, linear, mlp, native, network, nn, pair, residual

Frameworks = tuple[str, str]
_EITHER = pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
_STYLES = pytest.mark.parametrize("single_step", [False, True], ids=["whole", "single_step"])


class Said:
    """Run auto_diff and read what it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def fails(self, *given: Any, stage: str, route: str, **keywords: Any) -> str:
        """Require a failure at a place of the base model; return what was printed."""
        assert auto_diff(*given, **keywords) is False
        said = self._capsys.readouterr().out
        assert f"Diff found in `{stage}`" in said, said
        (line,) = (line for line in said.splitlines() if line.startswith("[AutoDiff]     Route: "))
        assert line.partition("(base_model)")[2].removeprefix(".") == route, line
        return said

    def passes(self, *given: Any, **keywords: Any) -> None:
        """Require success."""
        assert auto_diff(*given, **keywords) is True, self._capsys.readouterr().out
        self._capsys.readouterr()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


@_EITHER
@_STYLES
def test_flipped_features(frameworks: Frameworks, single_step: bool, said: Said) -> None:
    library = {"torch": torch, "paddle": paddle}[frameworks[1]]
    models = mlp(frameworks[0]), mlp(frameworks[1], after=lambda y: library.flip(y, [-1]))
    inputs = pair(frameworks)
    said.fails(*models, inputs, single_step=single_step, stage="Forward Stage", route="")
    said.fails(*models, inputs, single_step=single_step, atol=1e-4, rtol=1e-4, stage="Forward Stage", route="")


@_EITHER
@pytest.mark.parametrize("rows", [4, 6], ids=["square", "oblong"])
def test_transposed_shapes(frameworks: Frameworks, rows: int, said: Said) -> None:
    models = mlp(frameworks[0]), mlp(frameworks[1], after=lambda y: y.t())
    for keywords in ({}, {"atol": 1e-4}):
        said.fails(*models, pair(frameworks, array(rows, 8)), stage="Forward Stage", route="", **keywords)


@_EITHER
def test_unrelated_weights_behind_a_layer_norm(frameworks: Frameworks, said: Said) -> None:
    def build(framework: str) -> Any:
        parts = {"fc": linear(framework, 8, 64), "norm": nn[framework].LayerNorm(64)}
        return network(framework, lambda self, x: self.norm(self.fc(x)), **parts)

    models = build(frameworks[0]), build(frameworks[1])
    for keywords in ({}, {"atol": 1e-4}):
        said.fails(*models, pair(frameworks), auto_init=False, stage="Weights before the run", route="fc", **keywords)
    said.passes(*models, pair(frameworks))


@_EITHER
@_STYLES
def test_three_bugs_in_a_row(frameworks: Frameworks, single_step: bool, said: Said) -> None:
    models = residual(frameworks[0]), residual(frameworks[1], {1: 1.5, 2: 1.5, 3: 1.5})
    for keywords in ({}, {"atol": 1e-4}):
        printed = said.fails(
            *models, pair(frameworks), single_step=single_step, stage="Forward Stage", route="blocks.1", **keywords
        )
        assert "sources 1-3 of 3" in printed


@_EITHER
@_STYLES
def test_an_input_gradient_five_times_too_large(frameworks: Frameworks, single_step: bool, said: Said) -> None:
    def forward(self: Any, x: Any) -> Any:
        y = x * 1.0
        if not getattr(y, "stop_gradient", False):
            y.register_hook(lambda gradient: gradient * 5)
        return self.fc2(self.act(self.fc1(y)))

    name = frameworks[1]
    ends = linear(name, 8, 16), linear(name, 16, 4)
    models = mlp(frameworks[0]), network(name, forward, fc1=ends[0], act=nn[name].ReLU(), fc2=ends[1])
    for keywords in ({}, {"atol": 1e-4}):
        said.fails(*models, pair(frameworks), single_step=single_step, stage="Backward Stage", route="", **keywords)


@_EITHER
def test_a_loss_that_is_100_too_large(frameworks: Frameworks, said: Said) -> None:
    losses = [lambda y: (y * y).mean(), lambda y: (y * y).mean() + 100]
    models = mlp(frameworks[0]), mlp(frameworks[1])
    for keywords in ({}, {"atol": 1e-4}):
        said.fails(*models, pair(frameworks), loss_fns=losses, stage="Loss", route="", **keywords)
    said.passes(*models, pair(frameworks), loss_fns=losses[:1] * 2)


@_EITHER
@pytest.mark.parametrize("side", [0, 1], ids=["base_model", "raw_model"])
def test_a_missing_bias(frameworks: Frameworks, side: int, said: Said) -> None:
    models = [mlp(name, bias=index != side) for index, name in enumerate(frameworks)]
    printed = said.fails(*models, pair(frameworks), stage="Weights before the run", route="fc2")
    assert "Assign weight Failed !!! No counterpart for fc2.bias" in printed


@_EITHER
def test_another_batch_norm_momentum(frameworks: Frameworks, said: Said) -> None:
    def build(framework: str, momentum: float = 0.1) -> Any:
        if framework == "torch":
            norm = torch.nn.BatchNorm1d(16, momentum=momentum)
        else:
            norm = paddle.nn.BatchNorm1D(16, momentum=1 - momentum)
        parts = {"fc1": linear(framework, 8, 16), "norm": norm, "fc2": linear(framework, 16, 4)}
        return network(framework, lambda self, x: self.fc2(self.norm(self.fc1(x))), **parts)

    inputs = pair(frameworks, array(16, 8) * 3 + 1)
    models = build(frameworks[0]), build(frameworks[1], 0.9)
    printed = said.fails(*models, inputs, stage="Buffers after the run", route="norm")
    assert "momentum: 0.1" in printed
    said.passes(build(frameworks[0]), build(frameworks[1]), inputs)


def test_nan_at_other_positions() -> None:
    def with_nan(framework: str, row: int) -> Any:
        nan = np.zeros((4, 4), np.float32)
        nan[row] = np.nan
        return mlp(framework, after=lambda y: y + native(framework, nan))

    with pytest.raises(UnusableReference, match="NaN or Inf"):
        auto_diff(with_nan("torch", 0), with_nan("paddle", 3), pair(("torch", "paddle")))


@_EITHER
def test_nan_of_the_raw_model(frameworks: Frameworks, said: Said) -> None:
    nan = np.zeros((4, 4), np.float32)
    nan[1, 2] = np.nan
    models = mlp(frameworks[0]), mlp(frameworks[1], after=lambda y: y + native(frameworks[1], nan))
    for keywords in ({}, {"atol": 1e3}, {"atol": 1e3, "compare_mode": "strict"}):
        said.fails(*models, pair(frameworks), stage="Forward Stage", route="", **keywords)


@_EITHER
def test_permuted_integers(frameworks: Frameworks, said: Said) -> None:
    models = (
        mlp(frameworks[0], after=lambda y: y.argsort(-1)),
        mlp(frameworks[1], after=lambda y: y.argsort(-1, descending=True)),
    )
    for keywords in ({}, {"atol": 1e-4}):
        said.fails(*models, pair(frameworks), stage="Forward Stage", route="", **keywords)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_two_models_of_one_class(framework: str, said: Said) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc2(self.fc1(x) * self.factor)

    models = [
        network(framework, forward, factor=factor, fc1=linear(framework, 8, 8), fc2=linear(framework, 8, 4))
        for factor in (1.0, 1.01)
    ]
    models[1].__class__ = type(models[0])
    for keywords in ({}, {"atol": 1e-4}):
        said.fails(*models, pair((framework, framework)), stage="Forward Stage", route="", **keywords)


# Alarms that are wrong, and crashes -------------------------------------------------------------------------


@_EITHER
def test_trained_statistics_and_stale_gradients_raise_no_alarm(frameworks: Frameworks, said: Said) -> None:
    def build(framework: str) -> Any:
        norm = torch.nn.BatchNorm1d(16) if framework == "torch" else paddle.nn.BatchNorm1D(16)
        parts = {"fc1": linear(framework, 8, 16), "norm": norm, "fc2": linear(framework, 16, 4)}
        return network(framework, lambda self, x: self.fc2(self.norm(self.fc1(x))), **parts)

    models = build(frameworks[0]), build(frameworks[1])
    for seed in range(3):
        models[0](native(frameworks[0], array(32, 8, seed=seed) * 4 + 2)).sum().backward()
    for model in models:
        model.eval()
    for _ in range(2):
        said.passes(*models, pair(frameworks))
        said.passes(*models, pair(frameworks), atol=1e-4)


@_EITHER
def test_a_wrap_a_function_and_an_identity_do_not_hide_the_place(frameworks: Frameworks, said: Said) -> None:
    def build(framework: str, factor: float, style: str) -> Any:
        def scaled(self: Any, x: Any) -> Any:
            return self.fc(x) * factor

        kit = nn[framework]
        wrong = network(framework, scaled, name="Scaled", fc=linear(framework, 8, 8))
        ends = linear(framework, 8, 8), linear(framework, 8, 3)
        if style == "wrapped":
            body = kit.Sequential(ends[0], kit.ReLU(), kit.Identity(), kit.Sequential(wrong, kit.ReLU()))
            return network(framework, lambda self, x: self.fc3(self.body(x)), body=body, fc3=ends[1])
        relu = kit.functional.relu
        parts = {"fc1": ends[0], "fc2": wrong, "fc3": ends[1]}
        return network(framework, lambda self, x: self.fc3(relu(self.fc2(relu(self.fc1(x))))), **parts)

    inputs = pair(frameworks)
    for first, second, route in (("wrapped", "functional", "body.3.0"), ("functional", "wrapped", "fc2")):
        right = build(frameworks[0], 1.0, first), build(frameworks[1], 1.0, second)
        said.passes(*right, inputs)
        wrong = build(frameworks[0], 1.0, first), build(frameworks[1], 1.1, second)
        said.fails(*wrong, inputs, stage="Forward Stage", route=route)


@_EITHER
def test_layers_of_one_shape_defined_in_another_order_keep_their_weights(frameworks: Frameworks, said: Said) -> None:
    def build(framework: str, order: tuple[str, ...]) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.proj(self.value(x) * nn[framework].functional.sigmoid(self.query(x) - self.key(x)))

        return network(framework, forward, **{name: linear(framework, 8, 8) for name in order})

    names = ("query", "key", "value", "proj")
    said.passes(build(frameworks[0], names), build(frameworks[1], names[::-1]), pair(frameworks))
    said.passes(build(frameworks[0], names), build(frameworks[1], names[::-1]), pair(frameworks), atol=1e-4)
