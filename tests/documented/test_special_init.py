"""Initialise layers that no table knows by functions of the user's, as add_special_init documents it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff import LayerMap, add_special_init, assign_weight, auto_diff

from .nets import array, linear, network, pair


class TorchGate(torch.nn.Module):
    """Hold two linear maps in one matrix, one above the other."""

    def __init__(self) -> None:
        super().__init__()
        self.both = torch.nn.Parameter(torch.randn(16, 8))

    def forward(self, x: Any) -> Any:
        up, gate = (x @ self.both.t()).chunk(2, -1)
        return up * gate.sigmoid()


class PaddleGate(paddle.nn.Layer):
    """Hold the same as two matrices, one of them negated."""

    def __init__(self, sign: float = -1.0) -> None:
        super().__init__()
        self.sign = sign
        self.u = self.create_parameter([8, 8])
        self.g = self.create_parameter([8, 8])

    def forward(self, x: Any) -> Any:
        return x @ self.u * paddle.nn.functional.sigmoid(x @ self.g * self.sign)


def to_paddle(module: Any, layer: Any) -> None:
    up, gate = module.both.detach().chunk(2, 0)
    layer.u.set_value(paddle.to_tensor(up.t().contiguous().numpy()))
    layer.g.set_value(paddle.to_tensor(-gate.t().contiguous().numpy()))


def to_torch(layer: Any, module: Any) -> None:
    both = np.concatenate([layer.u.numpy().T, -layer.g.numpy().T])
    module.both.data.copy_(torch.from_numpy(both))


def _nets(sign: float = -1.0) -> tuple[Any, Any]:
    def forward(self: Any, x: Any) -> Any:
        return self.head(self.gate(self.stem(x)))

    return (
        network("torch", forward, stem=linear("torch", 8, 8), gate=TorchGate(), head=linear("torch", 8, 3)),
        network("paddle", forward, stem=linear("paddle", 8, 8), gate=PaddleGate(sign), head=linear("paddle", 8, 3)),
    )


X, Y = pair(("torch", "paddle")), pair(("paddle", "torch"))


def test_without_it_the_layers_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    module, layer = _nets()
    assert assign_weight(module, layer) is False
    assert auto_diff(module, layer, X) is False
    assert "Assign weight Failed !!!" in capsys.readouterr().out


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "unmapped"])
def test_five_arguments_say_both_frameworks(mapped: bool) -> None:
    add_special_init("torch", "TorchGate", "paddle", "PaddleGate", to_paddle)
    add_special_init("paddle", "PaddleGate", "torch", "TorchGate", to_torch)
    module, layer = _nets()
    layer_map = {module.gate: layer.gate} if mapped else {}
    assert auto_diff(module, layer, X, atol=1e-4, layer_map=layer_map) is True
    assert auto_diff(module, layer, X, auto_init=False, diff_phase="forward", layer_map=layer_map) is True
    module, layer = _nets()
    before = layer.gate.g.numpy().copy()
    assert auto_diff(layer, module, Y, atol=1e-4, layer_map=layer_map and {module.gate: layer.gate}) is True
    assert np.array_equal(layer.gate.g.numpy(), before)


def test_three_arguments_are_those_of_padiff_0_2() -> None:
    def special(layer: Any, module: Any) -> None:
        to_paddle(module, layer)

    add_special_init(paddle_name="PaddleGate", torch_name="TorchGate", func=special)
    module, layer = _nets()
    layer_map = LayerMap()
    layer_map.map = {layer.gate: module.gate}
    assert assign_weight(layer, module, layer_map) is True
    assert np.array_equal(layer.gate.u.numpy(), module.gate.both.detach().numpy()[:8].T)
    module, layer = _nets()
    layer_map.map = {layer.gate: module.gate}
    assert auto_diff(layer, module, Y, auto_weights=True, layer_map=layer_map, options={"atol": 1e-4}) is True


def test_the_sample_of_the_documents_serves() -> None:
    def init_norm(module: Any, layer: Any) -> None:
        names = {"running_mean": "_mean", "running_var": "_variance"}
        values = {names.get(name, name): paddle.to_tensor(v.numpy()) for name, v in module.state_dict().items()}
        values.pop("num_batches_tracked")
        layer.set_state_dict(values)

    add_special_init("torch", "BatchNorm2d", "paddle", "BatchNorm2D", init_norm)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    layer = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm2D(4))
    for seed in range(3):
        module(torch.from_numpy(array(2, 3, 8, 8, seed=seed) * 2 + 1))
    module.eval()
    layer.eval()
    inputs = pair(("torch", "paddle"), array(2, 3, 8, 8), "input")
    assert auto_diff(module, layer, inputs, layer_map={module[1]: layer[1]}) is True
    assert np.array_equal(layer[1]._variance.numpy(), module[1].running_var.numpy())


def test_a_fault_in_such_a_layer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    add_special_init("torch", "TorchGate", "paddle", "PaddleGate", to_paddle)
    module, layer = _nets(sign=1.0)
    for layer_map in ({}, {module.gate: layer.gate}):
        assert auto_diff(module, layer, X, layer_map=layer_map) is False
        assert "Route: Network(base_model).gate\n" in capsys.readouterr().out


def test_the_last_one_for_two_classes_serves() -> None:
    def wrong(module: Any, layer: Any) -> None:
        raise RuntimeError

    add_special_init("torch", "TorchGate", "paddle", "PaddleGate", wrong)
    with pytest.raises(padiff.PluginError, match="RuntimeError"):
        auto_diff(*_nets(), X)
    add_special_init("torch", "TorchGate", "paddle", "PaddleGate", to_paddle)
    assert auto_diff(*_nets(), X) is True


@pytest.mark.parametrize(
    ("given", "keywords"),
    [
        ((), {}),
        (("torch", "A", "paddle", "B"), {}),
        (("torch", "A", "paddle", "B", "no function"), {}),
        (("A", "B"), {}),
        (("A", "B"), {"function": print}),
        (("torch", "A", "paddle", "B", print, print), {}),
        (("torch", "A", "paddle", "B", print), {"func": print}),
    ],
)
def test_wrong_arguments_are_errors(given: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="add_special_init"):
        add_special_init(*given, **keywords)


def test_an_unknown_framework_is_an_error() -> None:
    with pytest.raises(padiff.InputError, match="framework 'tourch'"):
        add_special_init("tourch", "A", "paddle", "B", print)


def _homes() -> Iterator[Any]:
    import padiff.interfaces
    import padiff.special_init

    yield from (padiff.interfaces, padiff.special_init)


def test_scripts_find_it_where_it_was() -> None:
    assert all(home.add_special_init is add_special_init for home in _homes())
