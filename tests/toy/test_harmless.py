"""Judge values that differ inside of models that give the same: no fault, unless zeros or statistics hide one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.judging._notes import new_notes
from padiff.report import Note, Place
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


class Reference(rows.Module):
    def __init__(self, norm: Any = rows.LayerNorm, gate: float = 1.0, damp: float = 1.0) -> None:
        self.damp = damp
        self.stem, self.norm, self.head = rows.Linear(8, 8), norm(8), rows.Linear(8, 8)
        self.inner, self.outer = (rows.parameter(8, scale=0.0, at=gate) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return x + self.outer * self.inner * self.head(F.tanh(self.norm(self.stem(x)))) * self.damp


class Candidate(columns.Layer):
    def __init__(self, norm: Any = columns.LayerNormalization, gate: float = 1.0, **changed: float) -> None:
        self.stem, self.norm, self.head = columns.Dense(8, 8), norm(8), columns.Dense(8, 8)
        self.inner, self.outer = (columns.weight(8, scale=0.0, at=gate) for _ in range(2))
        self.changed = changed

    def forward(self, x: Any) -> Any:
        change = self.changed.get
        h = self.norm(self.stem(x) * change("before", 1.0) + change("shift", 0.0))
        return x + self.outer * self.inner * (
            self.head(F.tanh(h) + change("fault", 0.0)) * change("behind", 1.0)
        ) * change("damp", 1.0)


def test_a_shift_in_front_of_a_norm_is_no_source() -> None:
    report = padiff.diff(Reference(), Candidate(shift=0.3), TOKENS)
    assert report.aligned, str(report)
    (note,) = (one for one in report.notes if one.kind == "harmless")
    assert (note.data["value"], note.candidate.path) == ("input 'x' of norm", ""), str(report)
    assert not report.counts.get("differs"), str(report)


@pytest.mark.parametrize("changed", [{"before": 0.01}, {"fault": 0.3}, {"shift": 0.3, "fault": 0.3}])
def test_what_changes_the_outputs_is_a_source(changed: dict[str, float]) -> None:
    report = padiff.diff(Reference(), Candidate(**changed), TOKENS)
    assert not report.aligned, str(report)


def test_a_shift_that_running_statistics_take_in_is_a_source() -> None:
    reference, candidate = Reference(rows.BatchNorm), Candidate(columns.BatchNormalization, shift=0.3)
    report = padiff.diff(reference, candidate, TOKENS)
    assert [one.what.kind for one in report.sources] == ["input"], str(report)


@pytest.mark.parametrize("changed", [{"shift": 0.3}, {"fault": 0.3}, {"behind": 1.1}])
def test_behind_gates_of_zeros_nothing_is_harmless(changed: dict[str, float]) -> None:
    report = padiff.diff(Reference(gate=0.0), Candidate(gate=0.0, **changed), TOKENS)
    assert not report.aligned, str(report)


def test_without_gradients_nothing_is_proven_harmless() -> None:
    report = padiff.diff(Reference(), Candidate(shift=0.3), TOKENS, phase="forward")
    assert len(report.sources) == 1, str(report)


def test_a_fault_that_is_damped_on_its_way_is_a_source() -> None:
    """A tanh GELU for an exact one, 1.1e-5 apart, moved the outputs of a BERT by less than rounding does."""
    report = padiff.diff(Reference(damp=1e-5), Candidate(damp=1e-5, fault=1e-3), TOKENS)
    assert report.output.rel_l2 < 1e-7
    assert not report.aligned, str(report)


def test_a_value_is_told_once_of_a_packed_layer_and_in_all_steps() -> None:
    """Of queries, keys and values in one layer, each with its own gradient, the same words stood there three times."""

    def note(value: str, rel_l2: float) -> Note:
        return Note("harmless", {"value": value, "rel_l2": rel_l2}, None, Place("layers.0.qkv"))

    weights = [note("gradient of weight", size) for size in (0.03, 0.2, 0.05)]
    bias = note("gradient of bias", 0.1)
    assert new_notes([weights[0], bias, *weights[1:]], []) == [weights[1], bias]
    assert new_notes([weights[0], bias], [weights[2]]) == [bias]
