"""Run MindSpore's models through the documented interface."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch

from padiff import LayerMap, add_special_init, assign_weight, auto_diff

from .nets import array, mlp

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
