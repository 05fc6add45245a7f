"""Weights from a model, or from a recorded run, to a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows

from .gpt import DOCUMENT, left, right, tokens
from .kits import toy_kits

Write = Callable[[str], str]
LEFT, RIGHT = toy_kits()


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str, Any], Any]:
    """Return what gives a model itself, or a directory with its run."""

    def made(kind: str, model: Any) -> Any:
        if kind == "model":
            return model
        with padiff.record(model, tmp_path / "run") as recorder:
            model(**tokens())
            recorder.step()
        return tmp_path / "run"

    return made


def output(model: Any) -> Any:
    return model(**tokens()).data


@pytest.mark.parametrize("kind", ["model", "run"])
def test_with_inputs_what_is_copied_is_verified(source: Any, kind: str) -> None:
    ours, theirs = left(LEFT), right(RIGHT)
    done = padiff.transfer(source(kind, ours), theirs, tokens())
    assert np.array_equal(output(ours), output(theirs))
    assert (done.copied, done.verified, done.unverified) == (27, 27, ())
    assert done.unmatched_reference == done.unmatched_candidate == ()


@pytest.mark.parametrize("kind", ["model", "run"])
def test_behind_a_fault_too(source: Any, kind: str) -> None:
    """Each module is fed what the reference's got: the fault is in the code around them."""
    assert padiff.transfer(source(kind, left(LEFT)), right(RIGHT, lambda x: x * 1.5), tokens()).verified == 27


@pytest.mark.parametrize("kind", ["model", "run"])
def test_without_inputs_nothing_is_verified(source: Any, kind: str, write: Write) -> None:
    ours, theirs = left(LEFT), right(RIGHT)
    done = padiff.transfer(source(kind, ours), theirs, mapping=write(DOCUMENT))
    assert np.array_equal(output(ours), output(theirs))
    assert (done.copied, done.verified, len(done.unverified)) == (27, 0, 27)


@pytest.mark.parametrize("given", [True, False], ids=["inputs", "no inputs"])
def test_what_has_no_counterpart_is_told(given: bool) -> None:
    class Ours(rows.Module):
        def __init__(self) -> None:
            self.fc, self.norm = rows.Linear(4, 3), rows.BatchNorm(3)
            self.norm.running_mean.data[:] = [1, 2, 3]

        def forward(self, x: Any) -> Any:
            return self.norm(self.fc(x))

    class Theirs(columns.Layer):
        def __init__(self) -> None:
            self.fc, self.norm = columns.Dense(4, 3, bias=False), columns.BatchNormalization(3)

        def forward(self, x: Any) -> Any:
            return self.norm(self.fc(x))

    theirs = Theirs()
    inputs = (np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32),) if given else None
    done = padiff.transfer(Ours(), theirs, inputs)
    assert done.unmatched_reference == ("fc.bias",)
    assert done.unmatched_candidate == ()
    assert (done.copied, done.buffers) == (5, 2)
    found = [value.data.tolist() for value in vars(theirs.norm).values() if getattr(value, "role", "") == "buffer"]
    assert [1, 2, 3] in found


def test_a_run_without_values_cannot_be_copied_from(tmp_path: Path) -> None:
    model = left(LEFT)
    with padiff.record(model, tmp_path / "run", values="summary") as recorder:
        model(**tokens())
        recorder.step()
    with pytest.raises(padiff.InputError, match=r"not hold the value of .*\nHint: record it with values='tensors'"):
        padiff.transfer(tmp_path / "run", right(RIGHT))
    with pytest.raises(padiff.InputError, match="holds no recorded run"):
        padiff.transfer(tmp_path, right(RIGHT))
