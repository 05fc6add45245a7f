"""Run the first example of the README, and its command line, with the versions that are installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .corners import ROOT

FRAMEWORKS = os.environ["PADIFF_REQUIRE"].split(",")
EPSILON = "eps: 1e-05 in the reference, 1e-12 in the candidate"
SCALE = f"called as div(_, {8**0.5}) in the reference, as div(_, {32**0.5}) in the candidate"
PLACES = {
    (f"layers.{layer}.{ours}", f"blocks.{layer}.{theirs}"): cause
    for layer in (0, 1)
    for ours, theirs, cause in (("norm1", "ln_1", EPSILON), ("attn", "attention", SCALE), ("norm2", "ln_2", EPSILON))
}
IN_MINDSPORE = """\
import mindspore
import numpy as np
import torch

import padiff

nn, mnn = torch.nn, mindspore.nn
reference = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4))
candidate = mnn.SequentialCell(mnn.Dense(16, 32), mnn.LayerNorm((32,), epsilon=1e-12), mnn.Dense(32, 4))
inputs = (np.random.default_rng(0).standard_normal((8, 16), dtype="float32"),)

report = padiff.diff(reference, candidate, inputs)
print(report)
"""


def blocks(text: str) -> list[str]:
    """Return the Python of a page, block by block."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def done(words: Sequence[str], folder: Path, status: int) -> str:
    """Run Python on what is given, and return what it printed."""
    found = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == status, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize("framework", sorted({"paddle", "mindspore"} & set(FRAMEWORKS)))
def test_the_first_example_gives_the_same_verdict_place_and_cause(tmp_path: Path, framework: str) -> None:
    example, reading = blocks((ROOT / "README.md").read_text(encoding="utf-8"))[:2]
    printed = done(["-c", (example if framework == "paddle" else IN_MINDSPORE) + reading], tmp_path, 0)
    assert printed.startswith("not aligned: 1 source ("), printed
    assert printed.splitlines()[-2:] == ["False", f"forward | 1 | 1 | {EPSILON}"], printed


@pytest.mark.skipif("paddle" not in FRAMEWORKS, reason="the port of the README's command line is in Paddle")
def test_the_command_line_gives_the_same_verdict_places_and_causes(tmp_path: Path) -> None:
    given = ["my_port:build_torch", "my_port:build_paddle", "--inputs", "my_port:inputs"]
    told = tmp_path / "report.json"
    printed = done(["-m", "padiff", "diff", *given, "--json", str(told)], ROOT / "examples", 1)
    assert printed.startswith("not aligned: 2 sources in 6 places ("), printed
    found = json.loads(told.read_text(encoding="utf-8"))["sources"]
    causes = {(one["reference"]["path"], one["candidate"]["path"]): one["cause"]["text"] for one in found}
    assert causes == PLACES, printed
