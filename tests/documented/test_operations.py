"""Compare operations as PaDiff does where ``PADIFF_API_CHECK=ON``: in auto_diff, in reports and in dumps."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import mindspore
import paddle
import pytest
import torch

from padiff import assign_weight, auto_diff, check_report, create_model

from .nets import array

FRAMEWORKS = ("torch", "paddle", "mindspore")
_BASES: dict[str, Any] = {"torch": torch.nn.Module, "paddle": paddle.nn.Layer, "mindspore": mindspore.nn.Cell}
_LINEAR: dict[str, Any] = {"torch": torch.nn.Linear, "paddle": paddle.nn.Linear, "mindspore": mindspore.nn.Dense}
_RELU = {
    "torch": torch.nn.functional.relu,
    "paddle": paddle.nn.functional.relu,
    "mindspore": mindspore.ops.relu,
}
_TENSOR: dict[str, Any] = {"torch": torch.from_numpy, "paddle": paddle.to_tensor, "mindspore": mindspore.Tensor}


def scaled(framework: str, factor: float = 2.0) -> Any:
    """Return PaDiff's own example: a linear layer, a relu that the layer keeps, a product, a sum."""
    base = _BASES[framework]

    class Scaled(base):
        def __init__(self) -> None:
            super().__init__()
            self.linear1 = _LINEAR[framework](8, 8)
            self.relu = _RELU[framework]

        def forward(self, x: Any) -> Any:
            x = self.linear1(x)
            x = self.relu(x)
            x = x * factor
            return x + 1

        construct = forward

    return Scaled()


def _inputs(*frameworks: str) -> tuple[dict[str, Any], ...]:
    return tuple({"x": _TENSOR[framework](array())} for framework in frameworks)


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADIFF_API_CHECK", "ON")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_report_has_an_item_for_each_operation(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = create_model(scaled(framework))
    model(_inputs(framework)[0]["x"])
    names = [item.net_str.lower() for item in model.report.items]
    assert len(names) == 10
    assert [name.strip("_") for name in names[:5]] == [
        "scaled",
        _LINEAR[framework].__name__.lower(),
        "relu",
        "mul",
        "add",
    ]
    monkeypatch.setenv("PADIFF_API_CHECK", "OFF")
    plain = create_model(scaled(framework))
    plain(_inputs(framework)[0]["x"])
    assert len(plain.report.items) == 4


@pytest.mark.parametrize("frameworks", permutations(FRAMEWORKS, 2), ids="-".join)
def test_auto_diff_names_the_operation(frameworks: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    models = scaled(frameworks[0]), scaled(frameworks[1])
    assert auto_diff(*models, _inputs(*frameworks)) is True
    capsys.readouterr()
    assert auto_diff(scaled(frameworks[0]), scaled(frameworks[1], 2.5), _inputs(*frameworks)) is False
    said = capsys.readouterr().out
    assert "Diff found in `Forward Stage`" in said
    assert "called as mul(_, 2.0) in the reference, as mul(_, 2.5) in the candidate" in said
    assert "x = x * factor" in said


@pytest.mark.parametrize("frameworks", [("torch", "paddle"), ("paddle", "torch")], ids="-".join)
def test_operations_are_dumped_and_compared_offline(
    frameworks: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def dumped(name: str, factor: float) -> Path:
        models = create_model(scaled(frameworks[0]), f"{name}_base"), create_model(scaled(frameworks[1], factor), name)
        assert assign_weight(*models) is True
        for model, given in zip(models, _inputs(*frameworks), strict=True):
            model.backward(model(given["x"]).mean())
            model.try_dump()
        return Path("padiff_dump")

    root = dumped("right", 2.0)
    assert check_report(root / "right_base", root / "right") is True
    dumped("wrong", 2.5)
    capsys.readouterr()
    assert check_report(root / "wrong_base", root / "wrong") is False
    said = capsys.readouterr().out
    assert "Route: wrong_base.mul" in said
    assert "wrong.mul" in said
