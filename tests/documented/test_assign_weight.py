"""Copy weights in either documented form, and stand where scripts look for PaDiff's modules."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff import LayerMap, MappingError, assign_weight, auto_diff

from .nets import DIRECTIONS, array, linear, mlp, native, network, pair


def _weight(model: Any) -> np.ndarray:
    values = model.fc1.weight.detach().numpy()
    return values if isinstance(model, torch.nn.Module) else values.T


@pytest.mark.parametrize("frameworks", [*DIRECTIONS, ("torch", "torch"), ("paddle", "paddle")], ids="-".join)
def test_the_base_model_gives(frameworks: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    base, raw = mlp(frameworks[0]), mlp(frameworks[1])
    before = _weight(base).copy()
    assert assign_weight(base, raw) is True
    assert capsys.readouterr().out == "[AutoDiff] Assign weight success !!!\n"
    assert np.array_equal(_weight(base), before)
    assert np.array_equal(_weight(raw), before)
    assert auto_diff(base, raw, pair(frameworks), auto_init=False)


@pytest.mark.parametrize("given", ["map", "dict", "names"])
def test_the_module_gives_where_a_layer_map_is_given(given: str) -> None:
    layer, module = mlp("paddle"), mlp("torch")
    before = _weight(module).copy()
    if given == "names":
        assert assign_weight(layer=layer, module=module) is True
    else:
        assert assign_weight(layer, module, LayerMap() if given == "map" else {layer.fc1: module.fc1}) is True
    assert np.array_equal(_weight(layer), before)


def test_a_torch_model_first_gives_with_a_layer_map_too() -> None:
    module, layer = mlp("torch"), mlp("paddle")
    before = _weight(module).copy()
    assert assign_weight(module, layer, LayerMap()) is True
    assert np.array_equal(_weight(layer), before)


def test_what_does_not_fit_is_told_and_false(capsys: pytest.CaptureFixture[str]) -> None:
    module, layer = mlp("torch", hidden=16), mlp("paddle", hidden=24)
    assert assign_weight(module, layer) is False
    said = capsys.readouterr().out
    assert said.startswith("[AutoDiff] Assign weight Failed !!!\n")
    assert "fc1.weight: [16, 8] in the reference, [8, 24] in the candidate; in one layout [16, 8] and [24, 8]" in said


def test_an_ignored_layer_need_not_fit() -> None:
    module, layer = mlp("torch", hidden=16, out=4), mlp("paddle", hidden=16, out=6)
    layer_map = LayerMap()
    layer_map.ignore(layer.fc2)
    layer_map.ignore(module.fc2)
    assert assign_weight(layer, module, layer_map) is True
    assert np.array_equal(_weight(layer), _weight(module))


def test_what_a_run_must_verify_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    values = array(8, 8)
    module = network("torch", lambda self, x: x @ self.mix, mix=torch.nn.Parameter(native("torch", values)))
    mix = paddle.create_parameter([8, 8], "float32")
    layer = network("paddle", lambda self, x: x @ self.mix, name="Port", mix=mix)
    assert assign_weight(module, layer) is True
    assert "copied as it lies, where names and shapes leave two layouts: mix" in capsys.readouterr().out
    assert np.array_equal(layer.mix.numpy(), values)


def test_wrong_calls_are_errors() -> None:
    layer, module = mlp("paddle"), mlp("torch")
    for given, keywords in (((layer,), {}), ((), {"layer": layer}), ((layer,), {"module": module}), ((), {})):
        with pytest.raises(TypeError, match="takes two models"):
            assign_weight(*given, **keywords)
    with pytest.raises(MappingError, match="neither model"):
        assign_weight(layer, module, {layer.fc1: linear("torch", 8, 16)})


# Layers whose parameters lie otherwise in each framework ----------------------------------------------------


def _attention(framework: str) -> Any:
    if framework == "torch":
        attn = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        return network("torch", lambda self, x: self.attn(x, x, x)[0], attn=attn)
    return network("paddle", lambda self, x: self.attn(x, x, x), attn=paddle.nn.MultiHeadAttention(16, 4))


def _lstm(framework: str) -> Any:
    if framework == "torch":
        lstm = torch.nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
    else:
        lstm = paddle.nn.LSTM(16, 8, 2, direction="bidirect")
    return network(framework, lambda self, x: self.lstm(x)[0], lstm=lstm)


def _batch_norm(framework: str) -> Any:
    norm = torch.nn.BatchNorm1d(5) if framework == "torch" else paddle.nn.BatchNorm1D(5)
    return network(framework, lambda self, x: self.norm(x), norm=norm)


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
@pytest.mark.parametrize("build", [_attention, _lstm, _batch_norm])
def test_special_layers_need_no_special_init(build: Any, frameworks: tuple[str, str]) -> None:
    inputs = pair(frameworks, array(2, 5, 16))
    base, raw = build(frameworks[0]), build(frameworks[1])
    if build is _batch_norm:
        for seed in range(3):
            base(native(frameworks[0], array(8, 5, 16, seed=seed) * 3 + 1))
    assert assign_weight(base, raw)
    assert auto_diff(base, raw, inputs, auto_init=False)
    base, raw = build(frameworks[0]), build(frameworks[1])
    assert auto_diff(base, raw, inputs)
    assert auto_diff(base, raw, inputs, atol=1e-4, single_step=True)


# Names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("home", "names"),
    [
        ("padiff", ("auto_diff", "assign_weight", "LayerMap")),
        ("padiff.interfaces", ("auto_diff", "assign_weight")),
        ("padiff.interfaces.diff_utils", ("default_loss",)),
        ("padiff.layer_map", ("LayerMap",)),
        ("padiff.utils", ("LayerMap", "log")),
    ],
)
def test_scripts_find_what_they_import(home: str, names: tuple[str, ...]) -> None:
    module = import_module(home)
    everything: dict[str, Any] = {}
    exec(f"from {home} import *", everything)
    for name in names:
        assert everything[name] is getattr(module, name)
    if "LayerMap" in names:
        assert module.LayerMap is padiff.LayerMap


def test_a_script_may_import_everything_before_or_behind_its_framework() -> None:
    everything: dict[str, Any] = {}
    exec("from torch import *\nfrom torch.nn import *\nfrom padiff import *", everything)
    assert everything["Module"] is torch.nn.Module
    assert everything["Parameter"] is torch.nn.Parameter
    assert everything["auto_diff"] is auto_diff


def test_log_marks_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    from padiff.utils import log

    log("one", 2)
    assert capsys.readouterr().out == "[AutoDiff] one 2\n"


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_the_default_loss_is_the_mean_of_the_means(framework: str) -> None:
    from padiff.interfaces.diff_utils import default_loss

    one, other = native(framework, array(4, 8)), native(framework, array(3, seed=1))
    assert float(default_loss(one, framework)) == pytest.approx(array(4, 8).mean(), abs=1e-6)
    nested = {"a": one, "b": [other, None], "ids": native(framework, np.arange(3))}
    expected = (array(4, 8).mean() + array(3, seed=1).mean()) / 2
    assert float(default_loss(nested)) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(padiff.InputError, match="no floating tensor"):
        default_loss({"ids": native(framework, np.arange(3))})


def test_a_layer_map_takes_several_modules_and_classes() -> None:
    layer, module = mlp("paddle", after=lambda y: y), mlp("torch")
    inputs = pair(("paddle", "torch"))
    layer.fc2 = linear("paddle", 16, 4)
    for fill in (
        lambda m: m.ignore([layer.fc1, layer.act]),
        lambda m: m.ignore_recursivly([layer.fc1, layer.fc2]),
        lambda m: m.ignore_recursively((layer.fc1,)),
        lambda m: m.ignore_class(layer, (paddle.nn.Linear, paddle.nn.ReLU)),
    ):
        layer_map = LayerMap()
        fill(layer_map)
        assert layer_map.auto(layer, module) is True
        assert auto_diff(layer, module, inputs, layer_map=layer_map)
