"""Draw two recorded runs side by side: which call is which, and what is known of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.cli import main
from padiff.testing.toy import columns, rows

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


class MLP(rows.Module):
    def __init__(self) -> None:
        self.up, self.act, self.down = rows.Linear(4, 8), rows.GELU(), rows.Linear(8, 4)
        self.slip = 1.0

    def forward(self, x: Any) -> Any:
        return self.down(self.act(self.up(x))) * self.slip


class Block(columns.Layer):
    def __init__(self) -> None:
        self.fc1, self.fc2, self.extra = columns.Dense(4, 8), columns.Dense(8, 4), columns.Tangent()
        self.gelu = columns.Gelu()

    def forward(self, x: Any) -> Any:
        return self.extra(self.fc2(self.gelu(self.fc1(x))))


class Net(rows.Module):
    def __init__(self) -> None:
        self.layers = rows.ModuleList(*(MLP() for _ in range(3)))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Other(columns.Layer):
    def __init__(self) -> None:
        self.blocks = columns.Layers(*(Block() for _ in range(3)))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def recorded(folder: Path, values: str = "tensors", steps: int = 1) -> tuple[str, str]:
    """Record both models; return where."""
    found = []
    for name, model, dialect in (("a", Net(), rows), ("b", Other(), columns)):
        found.append(str(folder / name))
        with padiff.record(model, found[-1], values=values) as recorder:
            for _ in range(steps):
                model(dialect.Tensor(X))
                recorder.step()
    return found[0], found[1]


def data(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', page, re.S)
    return dict(json.loads(found))


def joined(found: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the paths of what was matched."""
    sides = [side["nodes"] for side in found["sides"]]
    return {(sides[0][a]["path"], sides[1][b]["path"]) for a, b in (link["nodes"] for link in found["links"])}


LAYERS = {(f"layers.{n}", f"blocks.{n}") for n in range(3)}
INSIDE = {
    (f"layers.{n}.{ours}", f"blocks.{n}.{theirs}")
    for n in range(3)
    for ours, theirs in (("up", "fc1"), ("act", "gelu"), ("down", "fc2"))
}


@pytest.mark.parametrize("values", ["tensors", "summary", "structure"])
def test_calls_are_matched_by_what_holds_parameters(tmp_path: Path, values: str) -> None:
    found = data(padiff.graph(*recorded(tmp_path, values)))
    assert joined(found) == {("", ""), *LAYERS, *INSIDE}
    up = next(node for node in found["sides"][0]["nodes"] if node["path"] == "layers.1.up")
    assert up["inputs"][0]["dtype"] == "float32"
    assert up["inputs"][0]["shape"] == [3, 4]
    assert {value["name"] for value in up["parameters"]} == {"weight", "bias"}
    known = up["inputs"][0].get("statistics", {})
    assert known.keys() == (set() if values == "structure" else {"mean", "std", "min", "max", "norm"})
    assert ("no values were compared" in found["headline"]) == (values == "structure")


def test_steps_are_drawn_below_each_other(tmp_path: Path) -> None:
    runs = recorded(tmp_path, steps=2)
    found = data(padiff.graph(*runs))
    assert [node["label"] for node in found["sides"][0]["nodes"] if node["path"] is None] == ["step 0", "step 1"]
    assert len(data(padiff.graph(*runs, step=1))["sides"][0]["nodes"]) == 13


@pytest.mark.parametrize("values", ["tensors", "summary"])
def test_verdicts_colour_the_calls_of_two_runs(tmp_path: Path, values: str) -> None:
    """What `compare` tells, on the page: the same words, the same places, every verdict."""
    for name, slip in (("a", 1.0), ("b", 1.01)):
        model = Net()
        for index, parameter in enumerate(model.parameters()):
            parameter.data[...] = np.random.default_rng(index).normal(size=parameter.data.shape)
        model.layers[1].slip = slip
        with padiff.record(model, tmp_path / name, values=values) as recorder:
            for step in range(2):
                model(rows.Tensor(X + step))
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    found = data(padiff.graph(tmp_path / "a", tmp_path / "b"))
    assert found["headline"].splitlines()[0] == str(report).splitlines()[0]
    assert found["sources"] == "1 source"
    nodes = found["sides"][1]["nodes"]
    seen = [(nodes[link["nodes"][1]], link["verdict"]) for link in found["links"]]
    verdicts = {(node["path"], node["step"]): verdict for node, verdict in seen}
    agreeing = {"equal", "rounding"}
    for step in (0, 1):
        assert verdicts[None, step] is None
        assert verdicts["layers.0", step] in agreeing
        assert verdicts["layers.1", step] == verdicts["layers.2", step] == "differs"
        assert verdicts["layers.1.down", step] in agreeing
    (source,) = [one for one in found["findings"] if one["source"]]
    assert nodes[source["nodes"][1]]["path"] == "layers.1"
    (only,) = data(padiff.graph(tmp_path / "a", tmp_path / "b", step=1))["sides"][0]["nodes"][:1]
    assert (only["path"], only["step"]) == ("", 1)


def test_a_call_with_nan_is_marked(tmp_path: Path) -> None:
    for name, wrong in (("a", 0.0), ("b", np.nan)):
        model = Net()
        model.layers[1].slip = 1 + wrong
        with padiff.record(model, tmp_path / name) as recorder:
            model(rows.Tensor(X))
            recorder.step()
    sides = data(padiff.graph(tmp_path / "a", tmp_path / "b"))["sides"]
    marked = [[node["path"] for node in side["nodes"] if node.get("wrong") == "NaN"] for side in sides]
    assert marked[0] == []
    assert marked[1][:3] == ["", "layers.1", "layers.2"]
    assert sides[0]["wrong"] == {}
    assert sides[1]["nodes"][sides[1]["wrong"]["NaN"]]["path"] == "layers.1"  # where it came up, inside of the model


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = recorded(tmp_path, "structure")
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("TopLayer:\n  layers: blocks\nMLP:\n  act: extra\n")
    page = tmp_path / "page.html"
    assert main(["graph", a, b, "-o", str(page), "-lm", str(mapping)]) == 0
    assert capsys.readouterr().out == (
        f"{page}: 13 calls matched, 0 only on the left, 3 only on the right; no values were compared\n"
    )
    found = data(page.read_text())
    assert found["rules"] == {"TopLayer": {"layers": "blocks"}, "MLP": {"act": "extra"}}
    assert ("layers.2.act", "blocks.2.extra") in joined(found)


def test_document_004s_own_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, "structure")
    named = tmp_path / "compare.json"
    named.write_text(json.dumps({"npu_path": "a", "bench_path": "b", "is_print_compare_log": True}))
    output = tmp_path / "output"
    assert main(["graph", "-f", "pytorch", "-i", str(named), "-o", str(output)]) == 0
    assert capsys.readouterr().out.startswith(f"{output / 'graph.html'}: 13 calls matched")
    found = data((output / "graph.html").read_text())
    assert [side["label"] for side in found["sides"]] == ["npu_path", "bench_path"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a"], "two runs are needed"),
        (["a", "b", "-i", "c"], "two runs beside --input"),
        (["-i", "missing.json"], "cannot read missing.json: No such file or directory"),
        (["-i", "list.json"], "list.json names no two dumps"),
        (["missing", "b"], "missing is no directory"),
    ],
)
def test_trouble_is_told(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.json").write_text("[1]")
    assert main(["graph", *words, "-o", "graph.html"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("graph.html").exists()
