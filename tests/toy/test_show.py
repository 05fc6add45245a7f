"""Show what a recorded run holds: every value, what is known of it, and where a NaN came up first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.cli import main
from padiff.testing.toy import rows

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
MSPROBE = Path(__file__).parents[1] / "core" / "data" / "msprobe_a"


class Block(rows.Module):
    def __init__(self) -> None:
        self.fc, self.add = rows.Linear(4, 4), 0.0

    def forward(self, x: Any) -> Any:
        return self.fc(x) + self.add


class Net(rows.Module):
    def __init__(self) -> None:
        self.blocks = rows.ModuleList(Block(), Block(), Block())

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def recorded(folder: Path, values: str = "tensors", add: float = 0.0) -> str:
    model = Net()
    for parameter in model.parameters():
        parameter.data[...] = 0.5
    model.blocks[1].add = add
    with padiff.record(model, folder, values=values) as recorder:
        for step in range(2):
            model(rows.Tensor(X * (step + 1))).mean().backward()
            recorder.step(1.25)
    return str(folder)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["show", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("values", ["tensors", "summary", "structure"])
def test_a_tree_with_all_that_is_known(values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, recorded(tmp_path / "run", values))
    assert lines[0].startswith(f"{tmp_path}/run: toy Net, 6 parameters, 2 steps (0 to 1), values: {values}, ")
    assert lines[0].endswith(" kB on disk")
    kept = values != "structure"
    assert lines[3] == ("no NaN or Inf" if kept else "no values were kept: a NaN or Inf would not show")
    (at,) = [index for index, line in enumerate(lines) if line == "  blocks.1  Block"]
    takes, gives, name, inner, _, holds = (line.strip() for line in lines[at + 1 : at + 7])
    assert takes.startswith("takes x  float32[3, 4]")
    assert gives.startswith("gives it  float32[3, 4]")
    assert (name, inner.split("  ")[0]) == ("fc  Linear", "takes x")
    assert holds.startswith("holds weight  float32[4, 4]" + ("  0.5 to 0.5, mean 0.5, std 0" if kept else ""))
    assert all((" |gradient| " in line) == kept for line in (takes, gives, holds))


def test_parameters_are_shown_in_every_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are written once, and again where they changed."""
    lines = shown(capsys, recorded(tmp_path / "run"), "--step", "1", "--module", "blocks.2.fc")
    assert lines[2].startswith("step 1: ")
    assert lines[5] == "blocks.2.fc  Linear"
    assert "    holds bias  float32[4]  0.5 to 0.5, mean 0.5, std 0  |gradient| 0.5" in lines


@pytest.mark.parametrize("values", ["tensors", "summary"])
def test_the_first_nan_is_where_it_came_up(values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not at the model itself, whose output stands first in the tree."""
    lines = shown(capsys, recorded(tmp_path / "run", values, np.nan))
    assert lines[3] == "first NaN: blocks.1 gives it  float32[3, 4]"
    (at,) = [index for index, line in enumerate(lines) if line == "  blocks.1  Block"]
    assert lines[at + 2].startswith("      gives it  float32[3, 4]  12 NaN")
    lines = shown(capsys, recorded(tmp_path / "inf", values, np.inf))
    assert lines[3:5][0].startswith("first ")
    assert "first Inf: blocks.1 gives it  float32[3, 4]" in lines[3:5]


def test_a_nan_in_statistics_that_do_not_count_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """msprobe counts none: its extremes are NaN."""
    folder = tmp_path / "dump"
    shutil.copytree(MSPROBE, folder)
    found = json.loads((folder / "dump.json").read_text())
    name = next(name for name in found["data"] if ".layers.0.mlp.dense_h_to_4h." in name)
    found["data"][name]["output"][0].update(Max="nan", Min="nan", Mean="nan", Norm="nan")
    (folder / "dump.json").write_text(json.dumps(found))
    assert "no NaN or Inf" in shown(capsys, str(MSPROBE))
    lines = shown(capsys, str(folder))
    path = name.removeprefix("Module.").rpartition(".forward")[0].rpartition(".")[0]
    assert f"first NaN: {path} gives [0]  float32[2, 4, 64]" in lines


def test_a_damaged_value_is_named_and_the_rest_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = shown(capsys, folder := recorded(tmp_path / "run"))
    shard = max(Path(folder).glob("*.safetensors"), key=lambda path: path.stat().st_size)
    raw = bytearray(shard.read_bytes())
    raw[-3] ^= 0xFF
    shard.write_bytes(raw)
    assert main(["show", folder]) == 2
    lines = capsys.readouterr().out.splitlines()
    (damaged,) = [line for line in lines if line.startswith("damaged: ")]
    assert shard.name in damaged
    kept = [line for line in lines if line not in (damaged, lines[0])]
    assert len(kept) == len(whole) - 1
    assert len([line for line in kept if line not in whole]) <= 2
