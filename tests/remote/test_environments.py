"""Diff real models whose frameworks do not live in one environment: Paddle here, MindSpore in an environment alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import padiff

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype("float32")


@pytest.fixture(scope="module")
def mindspore_python() -> str:
    """Return the interpreter of the environment that has MindSpore, and neither torch nor Paddle."""
    path = Path(os.environ.get("PADIFF_MINDSPORE_PYTHON", ROOT / ".venv-mindspore" / "bin" / "python"))
    assert path.exists(), f"there is no {path}; make test makes it, or PADIFF_MINDSPORE_PYTHON names another"
    asked = "import importlib.util as u; print([n for n in ('mindspore', 'paddle', 'torch') if u.find_spec(n)])"
    answer = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    assert answer == "['mindspore']"
    return str(path)


@pytest.fixture(scope="module")
def sides(mindspore_python: str) -> Iterator[tuple[padiff.Remote, padiff.Remote]]:
    """Return a model in each environment."""
    with (
        padiff.remote("vision_paddle:build") as reference,
        padiff.remote("vision_mindspore:build", python=mindspore_python) as candidate,
    ):
        yield reference, candidate


def test_real_models_agree_across_environments(
    mindspore_python: str, sides: tuple[padiff.Remote, padiff.Remote]
) -> None:
    sides[1].call("vision_mindspore:set_epsilon", 1e-5)
    report = padiff.diff(*sides, (X,))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference, report.transfer
    assert not report.transfer.unmatched_candidate, report.transfer
    assert not any("forward only" in note.text for note in report.notes), [note.text for note in report.notes]
    assert report.environment["mindspore"]["process"].endswith(mindspore_python)


def test_a_fault_is_named_across_environments(sides: tuple[padiff.Remote, padiff.Remote]) -> None:
    sides[1].call("vision_mindspore:set_epsilon", 1e-2)
    report = padiff.diff(*sides, (X,))
    sources = {(found.phase, found.candidate.path) for found in report.sources}
    assert ("forward", "features.8.layers.4") in sources, str(report)
    assert {path for _, path in sources} == {"features.8.layers.4"}, str(report)
    assert "0.01" in (report.sources[0].cause or ""), str(report)
