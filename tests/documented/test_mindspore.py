"""Run MindSpore's models through the documented interface."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch

from padiff import (
    InputError,
    LayerMap,
    add_special_init,
    assign_weight,
    auto_diff,
    check_grads,
    check_params,
    check_report,
    check_weights,
    create_model,
)
from padiff_mindspore import autograd

from .nets import array, linear, mlp, network

_OTHERS = {"torch": torch.from_numpy, "paddle": paddle.to_tensor}


class Mlp(mindspore.nn.Cell):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.fc1 = mindspore.nn.Dense(8, 16)
        self.act = mindspore.nn.ReLU()
        self.fc2 = mindspore.nn.Dense(16, 4)
        self.factor = factor

    def construct(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)) * self.factor)


class Two(mindspore.nn.Cell):
    """Give the sum of two layers; ``cut`` lets no gradient pass from the second to the first."""

    def __init__(self, *, cut: bool = False) -> None:
        super().__init__()
        self.fc1 = mindspore.nn.Dense(8, 8)
        self.fc2 = mindspore.nn.Dense(8, 8)
        self.cut = cut

    def construct(self, x: Any) -> Any:
        hidden = self.fc1(x)
        return self.fc2(mindspore.ops.stop_gradient(hidden) if self.cut else hidden) + hidden


def two(framework: str) -> Any:
    def forward(self: Any, x: Any) -> Any:
        hidden = self.fc1(x)
        return self.fc2(hidden) + hidden

    return network(framework, forward, name="Two", fc1=linear(framework, 8, 8), fc2=linear(framework, 8, 8))


def _inputs(*frameworks: str) -> tuple[dict[str, Any], ...]:
    values = array()
    made = {"mindspore": mindspore.Tensor, **_OTHERS}
    return tuple({"x": made[name](values)} for name in frameworks)


@pytest.mark.parametrize("other", _OTHERS)
@pytest.mark.parametrize("keywords", [{}, {"atol": 1e-4}, {"single_step": True}], ids=lambda given: "+".join(given))
def test_either_is_the_base(other: str, keywords: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for order in (("mindspore", other), (other, "mindspore")):
        models = [Mlp() if name == "mindspore" else mlp(name) for name in order]
        assert auto_diff(*models, _inputs(*order), **keywords) is True
        wrong = [Mlp(1.1) if name == "mindspore" else mlp(name) for name in order]
        capsys.readouterr()
        assert auto_diff(*wrong, _inputs(*order), **keywords) is False
        said = capsys.readouterr().out
        assert "Diff found in `Forward Stage`" in said
        assert "MindSpore Stacks:" in said
        assert "return self.fc2(self.act(self.fc1(x)) * self.factor)" in said


def test_the_older_form_takes_the_weights_of_the_second() -> None:
    cell, module = Mlp(), mlp("torch")
    before = module.fc1.weight.detach().numpy().copy()
    layer_map = LayerMap()
    layer_map.map = {cell.fc1: module.fc1}
    inputs = _inputs("mindspore", "torch")
    assert auto_diff(cell, module, inputs, auto_weights=True, layer_map=layer_map, options={"atol": 1e-4}) is True
    assert np.array_equal(cell.fc1.weight.asnumpy(), before)


def test_losses_and_optimizers() -> None:
    cell, module = Mlp(), mlp("torch")
    optimizers = [
        mindspore.nn.SGD(cell.trainable_params(), learning_rate=0.1),
        torch.optim.SGD(module.parameters(), lr=0.1),
    ]
    losses = [lambda y: (y * y).mean(), lambda y: (y * y).mean()]
    inputs = _inputs("mindspore", "torch")
    assert auto_diff(cell, module, inputs, loss_fns=losses, optimizers=optimizers, steps=2) is True
    optimizers[1].param_groups[0]["lr"] = 0.2
    assert auto_diff(cell, module, inputs, loss_fns=losses, optimizers=optimizers, steps=2) is False


def test_weights_are_assigned_and_specially_too() -> None:
    module, cell = mlp("torch"), Mlp()
    assert assign_weight(module, cell) is True
    assert np.array_equal(cell.fc2.weight.asnumpy(), module.fc2.weight.detach().numpy())

    def half(base: Any, raw: Any) -> None:
        raw.weight.set_data(mindspore.Tensor(base.weight.detach().numpy() / 2))
        raw.bias.set_data(mindspore.Tensor(base.bias.detach().numpy()))

    add_special_init("torch", "Linear", "mindspore", "Dense", half)
    assert assign_weight(module, cell) is True
    assert np.array_equal(cell.fc2.weight.asnumpy(), module.fc2.weight.detach().numpy() / 2)


# Dumps of a script's own runs


_TENSORS = {"mindspore": mindspore.Tensor, **_OTHERS}


def _loss(model: Any, values: Any) -> Any:
    output = model(_TENSORS[model.framework](values))
    return (output * output).mean()


def _train(model: Any, *, steps: int = 1, optimizer: Any = None) -> None:
    """Run forward, backward and try_dump, as the documents show it."""
    for step in range(steps):
        gradients = model.backward(_loss(model, array(seed=step)))
        if model.framework == "mindspore":
            optimizer(gradients) if optimizer else None
        elif optimizer is not None:
            optimizer.step()
        model.try_dump()
        if optimizer is not None and model.framework != "mindspore":
            optimizer.zero_grad()


def _twins(module: Any, cell: Any) -> tuple[Any, Any]:
    """Return a wrapped model of another framework and a wrapped cell of the same weights."""
    models = create_model(module, "first"), create_model(cell, "second")
    assert assign_weight(*models) is True
    return models


@pytest.mark.parametrize("other", _OTHERS)
def test_dumps_of_a_step_are_compared_with_another_frameworks(other: str) -> None:
    first, second = _twins(mlp(other), Mlp())
    for model in (first, second):
        _train(model)
    backward = [item for item in second.report.items if item.type == "backward"]
    assert backward == []  # try_dump forgets
    for check in (check_report, check_params, check_weights, check_grads):
        assert check(first.dump_path, second.dump_path) is True, check
    folder = Path(second.dump_path, "step_0", "rank_0")
    (root,) = json.loads((folder / "report.json").read_text())["tree"]
    assert [child["route"] for child in root["children"]] == ["fc1", "act", "fc2"]
    assert [len(child["bwd_grads"]) for child in root["children"]] == [0, 1, 1]
    fc2 = json.loads((folder / "params.json").read_text())["tree"]["children"][2]
    (inputs,) = (leaf for leaf in root["children"][2]["bwd_grads"])
    ours, theirs = (np.load(folder / path) for path in (fc2["grads"]["weight"], inputs["path"]))
    assert ours.shape == (4, 16)
    assert np.abs(ours).max() > 1e-3
    assert theirs.shape == (4, 16)


def test_steps_of_an_optimizer_are_dumped() -> None:
    cell, module = Mlp(), mlp("torch")
    first, second = _twins(module, cell)
    _train(first, steps=3, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    before = cell.fc1.weight.asnumpy().copy()
    _train(second, steps=3, optimizer=mindspore.nn.SGD(cell.trainable_params(), 0.1))
    assert np.abs(cell.fc1.weight.asnumpy() - before).max() > 1e-3
    assert check_report(first.dump_path, second.dump_path) is True
    assert check_params(first.dump_path, second.dump_path) is True


def test_gradients_of_one_step_add_up() -> None:
    first, second = _twins(mlp("torch"), Mlp())
    for model in (first, second):
        for seed in range(2):
            model.backward(_loss(model, array(seed=seed)))
        model.try_dump()
    assert check_grads(first.dump_path, second.dump_path) is True
    once = second.backward(_loss(second, array(seed=0)))
    second.clear_report()
    again = second.backward(_loss(second, array(seed=0)))
    for ours, theirs in zip(once, again, strict=True):
        assert np.array_equal(ours.asnumpy(), theirs.asnumpy())


def test_a_fault_of_the_forward_pass_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for model in _twins(mlp("torch"), Mlp(1.1)):
        _train(model)
    assert check_report("padiff_dump/first", "padiff_dump/second") is False
    printed = capsys.readouterr().out
    assert "Diff found in `Forward Stage`" in printed
    assert "second.fc2\n" in printed
    assert check_weights("padiff_dump/first", "padiff_dump/second") is True


def test_a_fault_of_the_backward_pass_alone_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = _twins(two("torch"), Two(cut=True))
    for model in (first, second):
        _train(model)
    assert check_report(first.dump_path, second.dump_path, diff_phase="forward") is True
    assert check_report(first.dump_path, second.dump_path) is False
    assert "Diff found in `Backward Stage`" in capsys.readouterr().out
    assert check_grads(first.dump_path, second.dump_path) is False
    log = Path("padiff_log/grad_diff.log").read_text()
    assert "fc1.weight vs fc1.weight" in log
    assert "fc2" not in log


def _flags() -> tuple[bool, bool]:
    return autograd.executor.grad_flag(), autograd.executor.enable_grad()


def test_nothing_is_recorded_any_more_behind_a_step() -> None:
    before = _flags()
    first, second = create_model(Mlp(), "first"), create_model(Mlp(), "second")
    losses = [_loss(model, array()) for model in (first, second)]
    assert _flags() == (True, before[1])
    first.backward(losses[0])
    assert _flags() == (True, before[1])  # the second one's step goes on
    second.backward(losses[1])
    assert _flags() == before
    first(mindspore.Tensor(array()))
    first.try_dump()
    assert _flags() == before
    with pytest.raises(ValueError, match="x"):
        first(mindspore.Tensor(array(4, 7)))
    assert _flags() == before
    second(mindspore.Tensor(array()))
    del second, losses
    gc.collect()
    assert _flags() == before


def test_a_function_is_differentiated_as_ever_between_call_and_backward() -> None:
    cell = Mlp()
    x, trained = mindspore.Tensor(array()), cell.trainable_params()
    differentiate = mindspore.grad(lambda x: (cell(x) * cell(x)).mean(), None, trained)
    expected = [gradient.asnumpy() for gradient in differentiate(x)]
    model = create_model(cell)
    loss = _loss(model, array())
    for found in (differentiate(x), model.backward(loss), differentiate(x)):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.asnumpy(), theirs, rtol=1e-5, atol=1e-8)


def test_a_loss_that_no_gradient_reaches_is_refused() -> None:
    model = create_model(Mlp())
    losses = [_loss(model, array()), _loss(model, array(seed=1))]
    for loss in losses:
        assert len(model.backward(loss)) == 4
    output = model(mindspore.Tensor(array()))
    model.backward(output.mean())
    with pytest.raises(InputError, match=r"no gradient can reach the loss.*\nHint: "):
        model.backward(output.sum())
    with pytest.raises(InputError, match=r"the loss is a float; expected a mindspore\.Tensor"):
        model.backward(0.5)


def test_a_weight_that_is_not_reached_gets_zeros_for_its_optimizer() -> None:
    cell = Two()
    cell.idle = mindspore.nn.Dense(2, 2)
    model = create_model(cell)
    gradients = dict(zip(cell.parameters_dict(), model.backward(_loss(model, array())), strict=True))
    assert not gradients["idle.weight"].asnumpy().any()
    assert gradients["fc1.weight"].asnumpy().any()
