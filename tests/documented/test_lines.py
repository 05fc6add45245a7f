"""Print what the documents show, and keep every report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from padiff import auto_diff

from .nets import DIRECTIONS, linear, mlp, network, nn, pair, residual

_NAMES = {"torch": "Torch  Stacks:", "paddle": "Paddle Stacks:"}


def _said(capsys: pytest.CaptureFixture[str], *given: Any, **keywords: Any) -> tuple[bool, list[str]]:
    result = auto_diff(*given, **keywords)
    return result, capsys.readouterr().out.splitlines()


def test_success_is_told_as_documented(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result, lines = _said(capsys, mlp("torch"), mlp("paddle"), pair(("torch", "paddle")), atol=1e-4)
    assert result is True
    start = lines.index("[AutoDiff] Start auto_diff, may need a while to generate reports...")
    assert lines[:start] == [
        "[AutoDiff] Your options:",
        "{",
        "  atol: `0.0001`",
        "  rtol: `1e-07`",
        "  compare_mode: `mean`",
        "  auto_init: `True`",
        "  single_step: `False`",
        "  diff_phase: `both`",
        "  steps: `1`",
        "  use_loss: `False`",
        "  use_opt: `False`",
        "}",
    ]
    assert lines[start + 1] == "[AutoDiff] Assign weight success !!!"
    head, _, worst = lines[start + 2].rpartition(" ")
    assert head == "[AutoDiff] Max output diff is"
    assert 0 <= float(worst) < 1e-5
    assert lines[start + 3 : start + 9] == [
        "",
        "[AutoDiff] weight and weight.grad is compared.",
        "[AutoDiff] forward 4 steps compared.",
        "[AutoDiff] backward 4 steps compared.",
        "[AutoDiff] SUCCESS !!!",
        "",
    ]
    assert lines[start + 9].startswith("aligned (")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
def test_failure_names_stage_types_route_stacks_and_trees(
    frameworks: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def build(framework: str, factor: float) -> Any:
        def inner(self: Any, x: Any) -> Any:
            return self.proj(x) * factor

        def forward(self: Any, x: Any) -> Any:
            return self.head(self.neck(x))

        neck = network(framework, inner, name="Neck", proj=linear(framework, 8, 8))
        return network(framework, forward, name="Net", neck=neck, head=linear(framework, 8, 3))

    models = build(frameworks[0], 1.0), build(frameworks[1], 1.5)
    result, lines = _said(capsys, *models, pair(frameworks))
    assert result is False
    said = "\n".join(lines)
    classes = [f"<class '{type(model.neck).__module__}.Neck'>" for model in models]
    assert f"[AutoDiff] Check reports at `{tmp_path / 'padiff_log'}`\n\n[AutoDiff] FAILED !!!\n" in said
    assert "[AutoDiff]     Diff found in `Forward Stage` in step: 0, net_id is 1 vs 1\n" in said
    assert f"[AutoDiff]     Type of layer is  : {classes[0]} vs {classes[1]}\n" in said
    assert "[AutoDiff]     Route: Net(base_model).neck\n[AutoDiff]            Net(raw_model).neck\n" in said
    stacks = [lines.index(_NAMES[framework]) for framework in frameworks]
    assert stacks == sorted(stacks)
    for start in stacks:
        end = lines.index("", start)
        shown = "\n".join(lines[start:end])
        assert shown.count(f"       File {__file__}: ") >= 1
        assert "    inner\n              return self.proj(x) * factor" in shown
        assert "    forward\n              return self.head(self.neck(x))" in shown
    for role in ("base_model", "raw_model"):
        start = lines.index(f"Net({role})")
        assert lines[start + 1 : start + 6] == [
            "=" * 40,
            "    Net",
            "     |--- Neck (neck)    <---  *** HERE ***",
            "     |     +--- Linear (proj)",
            "     +--- Linear (head)",
        ]
    assert "\nnot aligned: 1 source" in said


def test_a_backward_failure_says_that_forward_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def build(framework: str, factor: float) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = self.fc1(x)
            if factor != 1 and not getattr(y, "stop_gradient", False):
                y.register_hook(lambda gradient: gradient * factor)
            return self.fc2(y)

        ends = linear(framework, 8, 8), linear(framework, 8, 3)
        return network(framework, forward, name="Net", fc1=ends[0], fc2=ends[1])

    layer, module = build("paddle", 2.0), build("torch", 1.0)
    result, lines = _said(capsys, layer, module, pair(("paddle", "torch")), auto_weights=True)
    assert result is False
    assert "[AutoDiff] forward 3 steps compared." in lines
    assert any(line.startswith("[AutoDiff]     Diff found in `Backward Stage` in step: 0") for line in lines)
    assert not any("backward 3 steps" in line for line in lines)


def test_wrong_weights_and_gradients_have_logs_of_their_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    layer, module = mlp("paddle"), mlp("torch")
    result, lines = _said(capsys, layer, module, pair(("paddle", "torch")), auto_weights=False)
    assert result is False
    assert "[AutoDiff] Differences in weight or grad !!!" in lines
    log = (tmp_path / "diff_log" / "weight_diff.log").read_text()
    for name in ("fc1", "fc2"):
        assert f"    {name}  torch.nn.modules.linear.Linear\n    {name}  paddle.nn.layer.common.Linear" in log
    assert "max absolute difference: " in log


def test_a_failed_initialisation_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    models = mlp("torch", hidden=16), mlp("paddle", hidden=24)
    result, lines = _said(capsys, *models, pair(("torch", "paddle")))
    assert result is False
    (line,) = (line for line in lines if "Assign weight" in line)
    assert line.startswith("[AutoDiff] Assign weight Failed !!! No counterpart for ")
    assert "fc1.weight" in line


@pytest.mark.parametrize(("keywords", "folder"), [({"options": {}}, "diff_log"), ({"atol": 1e-4}, "padiff_log")])
def test_no_report_is_destroyed(keywords: dict[str, Any], folder: str, tmp_path: Path) -> None:
    there = tmp_path / folder
    there.mkdir()
    (there / "notes.txt").write_text("mine")
    (there / "report.txt").write_text("mine too")
    layer, module, inputs = mlp("paddle", after=lambda y: y * 1.5), mlp("torch"), pair(("paddle", "torch"))
    reports = []
    for _ in range(3):
        assert not auto_diff(layer, module, inputs, **keywords)
        reports.append((there / "report.json").read_text())
    assert (there / "notes.txt").read_text() == "mine"
    assert (there / "previous-1" / "report.txt").read_text() == "mine too"
    assert [(there / f"previous-{number}" / "report.json").read_text() for number in (2, 3)] == reports[:2]
    assert json.loads(reports[2])["aligned"] is False
    assert (there / "report.txt").read_text().startswith("not aligned: ")
    assert auto_diff(layer, mlp("torch", after=lambda y: y * 1.5), inputs, **keywords)
    assert (there / "report.json").read_text() == reports[2]


def test_a_folder_that_cannot_be_made_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "padiff_log").write_text("a file of the user's")
    models = mlp("torch"), mlp("paddle", after=lambda y: y * 2)
    result, lines = _said(capsys, *models, pair(("torch", "paddle")))
    assert result is False
    assert any(line.startswith("[AutoDiff] Reports could not be written to ") for line in lines)
    assert not any("Check reports at" in line for line in lines)
    assert (tmp_path / "padiff_log").read_text() == "a file of the user's"


def test_a_large_tree_is_cut_on_the_screen_and_whole_in_the_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    models = residual("torch", depth=24), residual("paddle", {20: 1.5}, depth=24)
    result, lines = _said(capsys, *models, pair(("torch", "paddle")))
    assert result is False
    start = lines.index("Residual(raw_model)")
    tree = lines[start : lines.index("", start)]
    assert any(line.endswith("Block (20)    <---  *** HERE ***") for line in tree)
    assert any("+--- ... (1 more)" in line for line in tree)
    assert len(tree) == 4 + 24 + 3 + 1
    log = (tmp_path / "padiff_log" / "model_struct_raw_model.log").read_text().splitlines()
    assert sum("LayerNorm" in line for line in log) == 24
    assert sum("HERE" in line for line in log) == 1


def test_two_models_of_one_framework_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    models = mlp("paddle"), mlp("paddle", after=lambda y: y + 1)
    result, lines = _said(capsys, *models, pair(("paddle", "paddle")), atol=1e-4)
    assert result is False
    assert "[AutoDiff]     Route: Mlp(base_model)" in lines
    assert "[AutoDiff]            Mlp(raw_model)" in lines
    assert lines.count("Paddle Stacks:") == 2


def test_a_layer_that_only_one_side_has_is_no_failure() -> None:
    def build(framework: str) -> Any:
        body = nn[framework].Sequential(linear(framework, 8, 8), nn[framework].Identity(), linear(framework, 8, 3))
        return network(framework, lambda self, x: self.body(x), body=body)

    def plain(framework: str) -> Any:
        ends = linear(framework, 8, 8), linear(framework, 8, 3)
        return network(framework, lambda self, x: self.b(self.a(x)), a=ends[0], b=ends[1])

    assert auto_diff(build("torch"), plain("paddle"), pair(("torch", "paddle")))
