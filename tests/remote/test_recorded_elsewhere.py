"""Record with torch in one process, with Paddle or MindSpore in others, compare where there is no framework at all.

The verdicts and places are those of `padiff.diff`, which runs both models here; over two optimizer steps. Against the
recorded run each model is forced where it lives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.pairs import zoo

import padiff

from .test_environments import mindspore_python

__all__ = ["mindspore_python"]

TESTS = Path(__file__).parents[1]
SCRIPT = Path(__file__).with_name("ports") / "runs.py"
CASES = {
    "mindspore": ("convnet", ["", "bn_eps"]),
    "paddle": ("llama", ["", "rms_eps", "wrong_activation"]),
}
STEPS = 2
NEEDED = ("numpy", "ml_dtypes", "attr", "attrs", "pluggy")
"""What the core is made of."""
FREE = """\
import importlib.util, json, sys
sys.path[:0] = json.loads(sys.argv[1])
found = [name for name in ("torch", "paddle", "mindspore", "jax") if importlib.util.find_spec(name)]
assert not found, found
import padiff
reports = [padiff.compare(*runs) for runs in json.loads(sys.argv[2])]
told = lambda report: [(one.phase.value, one.candidate.path, one.step) for one in report.sources]
print(json.dumps([{"aligned": one.aligned, "sources": told(one), "text": str(one)} for one in reports]))
"""


def _ran(python: str, framework: str, jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Do jobs in a process that has one framework."""
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(TESTS)])
    env = {**os.environ, "PYTHONPATH": path, "MS_DEV_LAUNCH_BLOCKING": "1"}
    command = [python, "-W", "ignore", str(SCRIPT), framework]
    given = json.dumps(jobs)
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=folder, env=env, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory, mindspore_python: str) -> dict[tuple[str, str], Any]:
    """Return what each fault showed where its model was run against what torch recorded; and write runs of each."""
    folder = tmp_path_factory.mktemp("runs")
    pairs = [pair for pair, _ in CASES.values()]
    _ran(sys.executable, "torch", [{"pair": pair, "run": pair} for pair in pairs], folder)
    found: dict[tuple[str, str], Any] = {("", ""): folder}
    for framework, python in (("mindspore", mindspore_python), ("paddle", sys.executable)):
        pair, faults = CASES[framework]
        models = [{"pair": pair, "faults": [fault] if fault else []} for fault in faults]
        jobs = [{**model, "force": pair} for model in models]
        runs = [
            {**model, "weights": pair, "run": f"{framework}-{fault}"}
            for model, fault in zip(models, faults, strict=True)
        ]
        done = _ran(python, framework, [*jobs, *runs], folder)
        found |= {(framework, fault): one for fault, one in zip(faults, done, strict=False)}
    return found


def _mean_square(output: Any) -> Any:
    return (output * output).mean()


def _diffed(framework: str, fault: str) -> padiff.Report:
    pair = CASES[framework][0]
    models = zoo.build(pair, "torch"), zoo.build(pair, framework, [fault] if fault else [], seed=1)
    return padiff.diff(*models, zoo.inputs(pair), loss=_mean_square)


def _places(sources: Iterable[Any], step: int) -> set[tuple[str, str]]:
    return {(phase, path) for phase, path, at in sources if at == step}


@pytest.mark.parametrize("framework", CASES)
def test_verdicts_and_places_are_those_of_diff(forced: dict[tuple[str, str], Any], framework: str) -> None:
    faults = CASES[framework][1]
    free = _compared([[CASES[framework][0], f"{framework}-{fault}"] for fault in faults], forced["", ""])
    for fault, run in zip(faults, free, strict=True):
        here, there = _diffed(framework, fault), forced[framework, fault]
        places = {(one.phase.value, one.candidate.path) for one in here.sources}
        assert here.aligned is there["aligned"] is run["aligned"] is (not fault), (fault, there["text"], run["text"])
        assert [_places(there["sources"], step) for step in range(STEPS)] == [places] * STEPS, there["text"]
        assert _places(run["sources"], 0) == places, run["text"]
        assert there["forward_only"] is None, there["text"]


def _compared(runs: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    """Compare runs in a process that has what the core needs, and nothing else."""
    bare = folder / "bare"
    bare.mkdir(exist_ok=True)
    for name in NEEDED:
        home = Path(import_module(name).__file__ or "").parent
        for one in (home, home.with_name(f"{name}.libs")):
            if one.exists() and not (bare / one.name).exists():
                (bare / one.name).symlink_to(one)
    paths = json.dumps([str(bare), str(Path(padiff.__file__).parents[1])])
    command = [sys.executable, "-I", "-S", "-c", FREE, paths, json.dumps(runs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found
