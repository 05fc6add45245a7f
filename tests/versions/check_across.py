"""Compare a corner's version with the everyday one of the other framework, which lives in another environment.

By remote workers, and by recorded runs: old meets new in both ways.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pairs import zoo
from tests.pairs.faults import ROWS

import padiff

from .corners import CORNERS, ROOT

CORNER = next(corner for corner in CORNERS if corner.name == os.environ["PADIFF_CORNER"])
EVERYDAY = os.environ["PADIFF_EVERYDAY"]
HERE = CORNER.tested[-1]
THERE = next(name for name in CORNER.pair if name != HERE)
PAIR, FAULT = ("convnet", "bn_eps") if "mindspore" in CORNER.pair else ("llama", "rms_eps")
PYTHON = {HERE: sys.executable, THERE: EVERYDAY}
TESTS = ROOT / "tests"


def places(framework: str) -> set[str]:
    """Return where the fault is in a framework's model."""
    row = next(row for row in ROWS if row.id == f"{PAIR}-{FAULT}")
    found = row.places[framework]
    return {found} if isinstance(found, str) else set(found)


def worker(framework: str, *faults: str, seed: int = 0) -> padiff.Remote:
    """Return a model in the environment where a framework's version under comparison lives."""
    args = (PAIR, framework, list(faults), seed)
    return padiff.remote("versions.ports:build", python=PYTHON[framework], args=args, path=[TESTS])


@pytest.mark.parametrize(("reference", "candidate", "faults"), [(HERE, THERE, ()), (THERE, HERE, (FAULT,))])
def test_workers_of_two_environments_give_verdict_and_place(
    reference: str, candidate: str, faults: tuple[str, ...]
) -> None:
    with worker(reference) as ours, worker(candidate, *faults, seed=1) as theirs:
        report = padiff.diff(ours, theirs, zoo.inputs(PAIR))
    assert report.aligned is not bool(faults), str(report)
    assert {one.candidate.path for one in report.sources} == (places(candidate) if faults else set()), str(report)
    assert report.environment[HERE][HERE].partition("+")[0] in CORNER.pins.values(), report.environment


def ran(framework: str, jobs: list[dict[str, Any]], folder: Path) -> None:
    """Record runs where a framework lives."""
    sources = [str(ROOT / f"padiff_{name}" / "src") for name in ("core", framework)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sources, str(TESTS)])}
    line = [PYTHON[framework], "-W", "ignore", str(TESTS / "remote" / "ports" / "runs.py"), framework]
    done = subprocess.run(
        line, input=json.dumps(jobs), capture_output=True, text=True, cwd=folder, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_runs_recorded_in_two_environments_give_verdict_and_place(tmp_path: Path) -> None:
    reference, candidate = THERE, HERE
    ran(reference, [{"pair": PAIR, "run": "reference"}], tmp_path)
    models = [{"pair": PAIR, "faults": faults, "weights": "reference"} for faults in ([], [FAULT])]
    ran(candidate, [{**model, "run": name} for model, name in zip(models, ("right", "wrong"), strict=True)], tmp_path)
    assert padiff.compare(tmp_path / "reference", tmp_path / "right").aligned
    report = padiff.compare(tmp_path / "reference", tmp_path / "wrong")
    assert {one.candidate.path for one in report.sources if one.step == 0} == places(candidate), str(report)
