"""Compare step by step (single_step), phase by phase, and over several optimizer steps."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
import torch

from padiff import InputError, auto_diff

from .nets import DIRECTIONS, linear, mlp, network, nn, pair, residual

Frameworks = tuple[str, str]
_EITHER = pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)


def _hooked(framework: str, change: Any = None) -> Any:
    """Return a layer that is used twice beside another one, whose gradient ``change`` may change."""

    def forward(self: Any, x: Any) -> Any:
        first, again, other = self.linear1(x), self.linear1(x), self.linear2(x)
        if change is not None and not getattr(other, "stop_gradient", False):
            other.register_hook(change)
        return first + again + other

    return network(framework, forward, linear1=linear(framework, 8, 8), linear2=linear(framework, 8, 8))


def _split(framework: str, factor: float = 1.0) -> Any:
    """Return a model with a layer of several outputs, nested ones."""

    def split(self: Any, x: Any) -> Any:
        y = self.fc(x)
        return y[:, :4], {"rest": [y[:, 4:] * factor, None]}

    def forward(self: Any, x: Any) -> Any:
        first, more = self.split(x)
        return self.head(more["rest"][0] + first), first

    layer = network(framework, split, name="Split", fc=linear(framework, 8, 8))
    return network(framework, forward, split=layer, head=linear(framework, 4, 3))


@_EITHER
@pytest.mark.parametrize("phase", ["both", "forward", "backward"])
def test_clean_models_pass_in_single_step(frameworks: Frameworks, phase: str) -> None:
    inputs = pair(frameworks)
    for build in (mlp, residual, _hooked, _split):
        models = build(frameworks[0]), build(frameworks[1])
        assert auto_diff(*models, inputs, single_step=True, diff_phase=phase), build
        assert auto_diff(*models, inputs, single_step=True, diff_phase=phase, atol=1e-5), build


@_EITHER
@pytest.mark.parametrize("keywords", [{}, {"atol": 1e-4}], ids=["measured", "classic"])
def test_three_bugs_in_a_row_fail_in_single_step(
    frameworks: Frameworks, keywords: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    models = residual(frameworks[0]), residual(frameworks[1], {1: 1.5, 2: 1.5, 3: 1.5})
    assert auto_diff(*models, pair(frameworks), single_step=True, **keywords) is False
    said = capsys.readouterr().out
    assert "Route: Residual(base_model).blocks.1\n" in said
    assert "sources 1-3 of 3" in said


@_EITHER
@pytest.mark.parametrize("keywords", [{}, {"atol": 1e-4}], ids=["measured", "classic"])
def test_a_fault_of_the_backward_pass_is_one_of_that_phase_alone(
    frameworks: Frameworks, keywords: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    models, inputs = (_hooked(frameworks[0]), _hooked(frameworks[1], lambda g: g + 0.01)), pair(frameworks)
    for single_step in (True, False):
        assert auto_diff(*models, inputs, single_step=single_step, **keywords) is False
        assert "Diff found in `Backward Stage`" in capsys.readouterr().out
        assert auto_diff(*models, inputs, single_step=single_step, diff_phase="forward", **keywords) is True
    assert auto_diff(*models, inputs, single_step=True, diff_phase="backward", **keywords) is False


@_EITHER
def test_a_scaled_value_fails_in_every_phase(frameworks: Frameworks, capsys: pytest.CaptureFixture[str]) -> None:
    models, inputs = (residual(frameworks[0]), residual(frameworks[1], {2: 1.5})), pair(frameworks)
    for phase, stage in (("both", "Forward"), ("forward", "Forward"), ("backward", "Backward")):
        capsys.readouterr()
        assert auto_diff(*models, inputs, single_step=True, diff_phase=phase) is False
        said = capsys.readouterr().out
        assert f"Diff found in `{stage} Stage`" in said
        assert "Route: Residual(base_model).blocks.2\n" in said


@_EITHER
def test_a_layer_of_several_outputs_is_named(frameworks: Frameworks, capsys: pytest.CaptureFixture[str]) -> None:
    models = _split(frameworks[0]), _split(frameworks[1], 1.1)
    assert auto_diff(*models, pair(frameworks), single_step=True) is False
    said = capsys.readouterr().out
    assert ".split\n" in said
    assert "Value: output ['rest'][0]" in said or "rest" in said


def test_backward_alone_is_for_single_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert auto_diff(mlp("torch"), mlp("paddle"), pair(("torch", "paddle")), diff_phase="backward")
    said = capsys.readouterr().out
    assert "diff_phase `backward` is for single_step alone: both phases are compared." in said
    assert "diff_phase: `both`" in said
    assert "forward 4 steps compared." in said


def test_forward_alone_leaves_no_gradient_and_needs_no_optimizer(capsys: pytest.CaptureFixture[str]) -> None:
    module, layer = mlp("torch"), mlp("paddle")
    optimizers = [torch.optim.SGD(module.parameters(), 0.1), paddle.optimizer.SGD(0.1, layer.parameters())]
    inputs = pair(("torch", "paddle"))
    before = module.fc1.weight.detach().clone()
    assert auto_diff(module, layer, inputs, diff_phase="forward", optimizers=optimizers, steps=3)
    said = capsys.readouterr().out
    assert "the optimizers are not used" in said
    assert "steps is set to 1" in said
    assert "weight and weight.grad" not in said
    assert "backward" not in said.split("Start auto_diff")[1].split("aligned")[0]
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(module.fc1.weight, before)


# Optimizers -------------------------------------------------------------------------------------------------


def _adam(framework: str, model: Any, lr: float = 1e-3) -> Any:
    if framework == "torch":
        return torch.optim.Adam(model.parameters(), lr=lr)
    return paddle.optimizer.Adam(learning_rate=lr, parameters=model.parameters())


def _stepping(framework: str, optimizer: Any) -> Any:
    """Return a function that steps and clears, as the documents ask for."""

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()

    return step


@_EITHER
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("plain", [False, True], ids=["optimizers", "lambdas"])
def test_optimizers_step_both_models(frameworks: Frameworks, steps: int, plain: bool) -> None:
    models = mlp(frameworks[0]), mlp(frameworks[1])
    optimizers = [_adam(name, model) for name, model in zip(frameworks, models, strict=True)]
    if plain:
        optimizers = [_stepping(name, one) for name, one in zip(frameworks, optimizers, strict=True)]
    assert auto_diff(*models, pair(frameworks), optimizers=optimizers, steps=steps)
    assert auto_diff(*models, pair(frameworks), optimizers=optimizers, steps=steps, atol=1e-4)


@_EITHER
@pytest.mark.parametrize("plain", [False, True], ids=["optimizers", "lambdas"])
def test_another_learning_rate_fails(frameworks: Frameworks, plain: bool, capsys: pytest.CaptureFixture[str]) -> None:
    models = mlp(frameworks[0]), mlp(frameworks[1])
    optimizers = [_adam(frameworks[0], models[0]), _adam(frameworks[1], models[1], 1e-2)]
    if plain:
        optimizers = [_stepping(name, one) for name, one in zip(frameworks, optimizers, strict=True)]
    assert auto_diff(*models, pair(frameworks), optimizers=optimizers, steps=2) is False
    said = capsys.readouterr().out
    assert "Differences in weight or grad !!!" in said
    assert "Diff found in `Weights after the step` in step: 0" in said


def test_every_step_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    module, layer = mlp("torch"), mlp("paddle")
    optimizers = [
        paddle.optimizer.Momentum(0.1, 0.9, parameters=layer.parameters()),
        torch.optim.SGD(module.parameters(), lr=0.1),  # the first step is the same
    ]
    inputs = pair(("paddle", "torch"))
    assert auto_diff(layer, module, inputs, steps=3, optimizer=optimizers, options={}) is False
    assert "Diff found in `Weights after the step` in step: 1" in capsys.readouterr().out


def test_steps_without_optimizers_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert auto_diff(mlp("paddle"), mlp("torch"), pair(("paddle", "torch")), steps=4, options={"atol": 1e-4})
    assert "steps is set to 1: without optimizers" in capsys.readouterr().out


def test_steps_that_are_no_number_are_an_error() -> None:
    for steps in (0, -1, 1.5, "2"):
        with pytest.raises(InputError, match="steps is"):
            auto_diff(mlp("torch"), mlp("paddle"), pair(("torch", "paddle")), steps=steps)


# Losses -----------------------------------------------------------------------------------------------------


@_EITHER
def test_losses_are_given_in_the_order_of_the_models(
    frameworks: Frameworks, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = [nn[name].MSELoss() for name in frameworks]
    target = pair(frameworks, name="target")
    given = [lambda y, i=i: losses[i](y, target[i]["target"][:, :4]) for i in range(2)]
    models, inputs = (mlp(frameworks[0]), mlp(frameworks[1])), pair(frameworks)
    assert auto_diff(*models, inputs, loss_fns=given)
    assert auto_diff(*models, inputs, loss_fn=given, atol=1e-4)
    capsys.readouterr()
    assert auto_diff(*models, inputs, loss_fns=[given[0], lambda y: given[1](y) + 100]) is False
    assert "Diff found in `Loss` in step: 0" in capsys.readouterr().out
