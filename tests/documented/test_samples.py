"""Run every sample of documents 000 to 003 about auto_diff, LayerMap and assign_weight as it is printed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import padiff
from padiff import LayerMap, auto_diff

from .nets import linear, network, pair
from .scripts import SAMPLES, fitted, run

_RESULTS = {
    "000_attention": [True],
    "000_nop_layer": [True],
    "001_auto_diff": [True],
    "001_assign_weight": [True],
    "002_auto_diff": [True],
    "002_assign_weight": [True],
    "003_case1": [True],
    "003_case2": [True],
    "003_case3": [True, True],
    "003_layer_mapping": [False],  # auto_weights=False, and the two were initialised at random
}
_FRAGMENTS = {"000_map", "000_ignore", "000_ignore_recursivly", "000_ignore_class"}
"""Samples that only fill a layer map."""
_DUMPS = {
    "001_create_model": [],
    "001_backward": [],
    "001_try_dump": ["dumped/params.json", "dumped/report.json"],
    "001_dumps": [f"dumped/{name}.json" for name in ("grads", "params", "report", "weights")],
    "001_lists": [],
    "001_layer_map": [],
    "001_inner_model": [],
}
"""Samples of wrapped models, with the files that they leave."""


def test_every_sample_is_run() -> None:
    mine = {path.stem for path in SAMPLES.glob("*.txt")} - _FRAGMENTS
    assert mine == {*_RESULTS, *_DUMPS}


@pytest.mark.parametrize("name", _DUMPS)
def test_a_sample_dumps_what_it_says(name: str, tmp_path: Path) -> None:
    ran = run(fitted(name), tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")) == _DUMPS[name], ran.printed
    for model in (value for value in ran.names.values() if isinstance(value, padiff.ProxyModel)):
        assert len(model.report.items) == (6 if name == "001_backward" else 0)
    if name == "001_lists":
        assert ran.names["model"].listed.recorded() == {"", "linear2"}
    if name == "001_layer_map":
        assert [ran.names[one].listed.layer_map for one in ("model0", "model1")] == [["linear1", "linear2"]] * 2


@pytest.mark.parametrize("name", _RESULTS)
def test_a_sample_gives_the_right_verdict(name: str, tmp_path: Path) -> None:
    ran = run(fitted(name), tmp_path)
    assert ran.results == _RESULTS[name], ran.printed
    if "assign" not in name:
        assert ran.printed.count("[AutoDiff] SUCCESS !!!") == sum(ran.results)
        assert ran.printed.count("[AutoDiff] FAILED !!!") == len(ran.results) - sum(ran.results)


_FAULTS = [
    # sample, change, stage, the reference's route, the candidate's, a line of the script that is shown
    (
        "000_attention",
        (
            "x = self.attn(q, k, v)\n      return x\n\nclass SimpleModule",
            "x = self.attn(k, q, v)\n      return x\n\nclass SimpleModule",
        ),
        "Backward Stage",  # all three are the same tensor: forward nothing shows
        "SimpleModule(module)",
        "SimpleLayer(layer)",
        "def forward(self, q, k, v):",
    ),
    (
        "000_attention",
        ("MultiheadAttention(16, 1,", "MultiheadAttention(16, 2,"),
        "Forward Stage",
        "SimpleModule(module).attn",
        "SimpleLayer(layer).attn",
        "x, _ = self.attn(q, k, v)",
    ),
    (
        "000_nop_layer",
        (
            "x = self.linear(x)\n      return x\n\nclass SimpleModule4",
            "x = self.linear(x) * 1.001\n      return x\n\nclass SimpleModule4",
        ),
        "Forward Stage",
        "SimpleModule4(module)",
        "SimpleLayer4(layer)",
        "x = self.linear(x) * 1.001",
    ),
    (
        "001_auto_diff",
        ("x = self.linear1(x)\n      return x\n\nmodule =", "x = self.linear1(x * 1.01)\n      return x\n\nmodule ="),
        "Forward Stage",
        "SimpleModule(base_model)",
        "SimpleLayer(raw_model)",
        "x = self.linear1(x * 1.01)",
    ),
    (
        "002_auto_diff",
        ("self.linear1 = paddle.nn.Linear(100, 100)", "self.linear1 = paddle.nn.Linear(100, 100, bias_attr=False)"),
        "Weights before the run",
        "SimpleModule(module).linear1",
        "SimpleLayer(layer).linear1",
        "return self.linear2(self.linear1(x))",
    ),
    (
        "003_case1",
        ("self.act = paddle.nn.ReLU()", "self.act = paddle.nn.GELU()"),
        "Forward Stage",
        "SimpleModule(module).act",
        "SimpleLayer(layer).act",
        "x = self.act(x)",
    ),
    (
        "003_case2",
        ("paddle.nn.MultiHeadAttention(16, 1)", "paddle.nn.MultiHeadAttention(16, 1, dropout=0.5)"),
        "Forward Stage",
        "SimpleModule(module).attn",
        "SimpleLayer(layer).attn",
        "x = self.attn(q, k, v)",
    ),
]


@pytest.mark.parametrize(
    ("name", "change", "stage", "reference", "candidate", "line"),
    _FAULTS,
    ids=[f"{row[0]}-{row[1][1][:20]}" for row in _FAULTS],
)
def test_a_fault_in_a_sample_is_named(
    name: str, change: tuple[str, str], stage: str, reference: str, candidate: str, line: str, tmp_path: Path
) -> None:
    ran = run(fitted(name), tmp_path, [change])
    assert ran.results == [False], ran.printed
    said = ran.printed
    assert f"[AutoDiff]     Diff found in `{stage}` in step: 0" in said
    assert f"[AutoDiff]     Route: {reference}\n[AutoDiff]            {candidate}\n" in said
    assert f"              {line}\n" in said
    assert said.count("<---  *** HERE ***") == 2
    assert (tmp_path / "diff_log" / "report.txt").exists() or (tmp_path / "padiff_log" / "report.txt").exists()


# Layer maps -------------------------------------------------------------------------------------------------


def _nested(framework: str, inner: float, outer: float) -> Any:
    """Return a model with a layer in a layer, each with a factor of its own."""

    def scaled(self: Any, x: Any) -> Any:
        return self.inner(x) * outer

    def plain(self: Any, x: Any) -> Any:
        return self.fc(x) * inner

    def forward(self: Any, x: Any) -> Any:
        return self.head(self.nop_layer(x))

    inside = network(framework, plain, name="Inside", fc=linear(framework, 8, 8))
    nop_layer = network(framework, scaled, name="LayerClass", inner=inside)
    return network(framework, forward, nop_layer=nop_layer, head=linear(framework, 8, 3))


def _filled(name: str, folder: Path, **given: Any) -> LayerMap:
    layer_map = run(fitted(name), folder, **given).names["layer_map"]
    assert isinstance(layer_map, LayerMap)
    return layer_map


@pytest.mark.parametrize(
    ("name", "inner", "outer", "expected"),
    [
        ("000_ignore", 1.0, 1.1, True),
        ("000_ignore", 1.1, 1.0, False),
        ("000_ignore_recursivly", 1.0, 1.1, True),
        ("000_ignore_recursivly", 1.1, 1.1, True),
        ("000_ignore_class", 1.0, 1.1, True),
        ("000_ignore_class", 1.1, 1.0, False),
    ],
)
@pytest.mark.parametrize("options", [{}, {"atol": 1e-4}], ids=["measured", "classic"])
def test_what_is_ignored_is_not_compared(
    name: str, inner: float, outer: float, expected: bool, options: dict[str, Any], tmp_path: Path
) -> None:
    layer, module = _nested("paddle", inner, outer), _nested("torch", 1.0, 1.0)
    inputs = pair(("paddle", "torch"))
    assert auto_diff(layer, module, inputs, options=options) is False
    layer_map = _filled(name, tmp_path, layer=layer, LayerClass=type(layer.nop_layer))
    assert auto_diff(layer, module, inputs, options=options, layer_map=layer_map) is expected


@pytest.mark.parametrize("options", [{}, {"atol": 1e-4}], ids=["measured", "classic"])
def test_what_is_mapped_is_compared_as_a_whole(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, module = _nested("paddle", 1.1, 1 / 1.1), _nested("torch", 1.0, 1.0)  # inside it differs, as a whole not
    layer.sublayer1, module.submodule1 = layer.nop_layer, module.nop_layer
    inputs = pair(("paddle", "torch"))
    layer_map = _filled("000_map", tmp_path, layer=layer, module=module)
    assert auto_diff(layer, module, inputs, options=options, layer_map=layer_map) is True
    layer = _nested("paddle", 1.1, 1.0)
    layer.sublayer1 = layer.nop_layer
    layer_map = _filled("000_map", tmp_path, layer=layer, module=module)
    capsys.readouterr()
    assert auto_diff(layer, module, inputs, options=options, layer_map=layer_map) is False
    said = capsys.readouterr().out
    assert "Diff found in `Forward Stage`" in said
    assert "Route: Network(module).nop_layer\n[AutoDiff]            Network(layer).nop_layer\n" in said
