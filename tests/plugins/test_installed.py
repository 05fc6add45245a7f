"""The example plugin, installed with pip into a folder of its own, at work in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import padiff

from .wheels import install, wheel

EXAMPLE = Path(__file__).parents[2] / "examples" / "padiff_extras"

PORT = """
import numpy as np
import torch

class StackedExperts(torch.nn.Module):
    def __init__(self, count=3, width=8):
        super().__init__()
        self.gate = torch.nn.Linear(width, count, bias=False)
        self.weight = torch.nn.Parameter(torch.randn(count, width, width) / width**0.5)
        self.bias = torch.nn.Parameter(torch.randn(count, width))

    def forward(self, x):
        each = torch.einsum("bi,eij->bej", x, self.weight) + self.bias
        return (self.gate(x).softmax(-1).unsqueeze(-1) * each).sum(1)

def reference():
    torch.manual_seed(0)
    return torch.nn.Sequential(StackedExperts(), torch.nn.LayerNorm(8))

def candidate(eps=1e-3):
    import paddle

    class ListedExperts(paddle.nn.Layer):
        def __init__(self, count=3, width=8):
            super().__init__()
            self.gate = paddle.nn.Linear(width, count, bias_attr=False)
            self.experts = paddle.nn.LayerList(paddle.nn.Linear(width, width) for _ in range(count))

        def forward(self, x):
            each = paddle.stack([expert(x) for expert in self.experts], 1)
            return (paddle.nn.functional.softmax(self.gate(x), -1).unsqueeze(-1) * each).sum(1)

    return paddle.nn.Sequential(ListedExperts(), paddle.nn.LayerNorm(8, epsilon=eps))

def right():
    return candidate(1e-5)

def inputs():
    return (np.random.default_rng(0).standard_normal((4, 8), dtype="float32"),)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a port, and beside it the example plugin, installed."""
    folder = tmp_path_factory.mktemp("home")
    install(wheel(EXAMPLE, folder), folder / "site")
    folder.joinpath("port.py").write_text(PORT)
    return folder


def shell(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(home / "site"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300, check=False)


def given(candidate: str, *options: str) -> list[str]:
    return ["diff", "port:reference", f"port:{candidate}", "--inputs", "port:inputs", *options]


SEVERAL = """
import contextlib, io, json, sys
from padiff.cli import main
found = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    found.append((arguments, status, out.getvalue(), err.getvalue()))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def done(home: Path) -> dict[str, Any]:
    """Run the command line several times in one process, where the plugin is installed: it imports both frameworks."""
    lines = {
        "spoilt": given("candidate", "--json", "report.json", "--output", "report.md"),
        "right": given("right", "--json", "-"),
        "chosen": given("candidate", "--metric", "cosine", "--quiet"),
    }
    found = shell(home, "-c", SEVERAL, json.dumps(list(lines.values())))
    assert found.returncode == 0, found.stderr
    runs = json.loads(found.stdout.splitlines()[-1])
    return {name: subprocess.CompletedProcess(*run) for name, run in zip(lines, runs, strict=True)}


def test_all_of_it_is_listed(home: Path) -> None:
    done = shell(home, "-m", "padiff.cli", "plugins", "--json")
    assert done.returncode == 0, done.stderr
    found = [(row["sort"], row["name"]) for row in json.loads(done.stdout) if row["distribution"] == "padiff-extras"]
    assert found == [
        ("metric", "cosine"),
        ("metric", "snr"),
        ("metric", "ulp"),
        ("special transfer", "StackedExperts -> ListedExperts"),
        ("renderer", "markdown"),
    ]


def test_metrics_transfers_and_formats_work_together(home: Path, done: dict[str, Any]) -> None:
    spoilt = done["spoilt"]
    assert spoilt.returncode == 1, spoilt.stderr
    assert "cosine 0.9999" in spoilt.stdout
    assert " dB, ulp " in spoilt.stdout
    report = json.loads(home.joinpath("report.json").read_text())
    (source,) = report["sources"]
    assert (source["reference"]["path"], source["candidate"]["path"]) == ("1", "1")
    measured = {found["name"]: found for found in source["figures"]["metrics"]}
    assert 0.999 < measured["cosine"]["value"] < 1
    assert measured["cosine"]["passes"] is True
    assert 40 < measured["snr"]["value"] < 90
    assert measured["ulp"]["value"] > 100
    assert {found["name"] for found in report["output"]["metrics"]} == {"cosine", "snr", "ulp"}
    assert report["transfer"]["copied"] == 9
    assert report["transfer"]["unverified"] == ["1.weight", "1.bias"]
    assert home.joinpath("report.md").read_text().splitlines()[-1].startswith("forward | 1 | 1 | eps: 1e-05 in the")


def test_a_right_port_is_aligned_forward_and_backward(done: dict[str, Any]) -> None:
    right = done["right"]
    assert right.returncode == 0, right.stderr
    report = json.loads(right.stdout)
    assert (report["transfer"]["copied"], report["transfer"]["verified"]) == (9, 9)
    assert report["notes"] == []


def test_without_the_plugin_the_experts_are_matched_as_a_stack(
    home: Path, done: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which a special transfer overrules, and says so."""
    monkeypatch.syspath_prepend(home)
    port = import_module("port")
    bare = padiff.diff(port.reference(), port.right(), port.inputs())
    assert bare.aligned, str(bare)
    assert "special transfer" in done["right"].stdout
    assert "special transfer" not in str(bare)
    assert not bare.output.metrics


def test_a_metric_is_chosen_as_the_tolerance(done: dict[str, Any]) -> None:
    assert done["chosen"].returncode == 0, done["chosen"].stderr


def test_a_format_is_known_to_the_report_too(home: Path) -> None:
    code = """
        import padiff
        report = padiff.Report((), ())
        print(report.render("markdown"), end="")
        try:
            report.render("pdf")
        except padiff.InputError as error:
            print(error)
    """
    done = shell(home, "-c", textwrap.dedent(code))
    said = "nothing differs\nthere is no format 'pdf'.\nHint: one of 'text', 'json', 'html', 'markdown'"
    assert done.stdout.startswith(said), done.stderr
