"""Judge models whose weights are zeros in places, as gates and last layers are before the first step of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def _zeros(layer: Any) -> Any:
    for one in (layer.weight, layer.bias):
        one.data[...] = 0.0
    return layer


class Reference(rows.Module):
    """A block behind a gate that a layer of zeros computes, and a head of zeros, as DiT has them."""

    def __init__(self) -> None:
        self.gates, self.inner, self.head = _zeros(rows.Linear(8, 8)), rows.Linear(8, 8), _zeros(rows.Linear(8, 8))

    def forward(self, x: Any) -> Any:
        return self.head(x + self.gates(x) * F.tanh(self.inner(x)))


class Candidate(columns.Layer):
    def __init__(self, change: float = 1.0) -> None:
        self.gates, self.inner, self.head = (columns.Dense(8, 8) for _ in range(3))
        self.change = change

    def forward(self, x: Any) -> Any:
        if self.change == 0.0 and np.any(self.head.kernel.data):
            msg = "a head of zeros alone is written for"
            raise ValueError(msg)
        return self.head(x + self.change * self.gates(x) * F.tanh(self.inner(x)))


@pytest.mark.parametrize("phase", ["both", "forward"])
def test_a_fault_behind_zeros_is_found_with_other_values_there(phase: str) -> None:
    reference, candidate = Reference(), Candidate(1.1)
    report = padiff.diff(reference, candidate, TOKENS, phase=phase)
    (source,) = report.sources
    assert (source.what.kind, source.between) == ("input", ("inner", "head")), str(report)
    (note,) = (one for one in report.notes if one.kind == "zeros_replaced")
    assert {"gates.weight", "head.weight"} <= set(note.data["paths"])
    assert note.data["differs"]
    weights = reference.gates.weight, reference.head.weight, candidate.gates.kernel, candidate.head.kernel
    assert not any(one.data.any() for one in weights)


def test_a_fault_behind_zeros_is_found_where_steps_leave_them() -> None:
    reference, candidate = Reference(), Candidate(1.1)
    optimizers = rows.SGD(reference.parameters(), 0.0), columns.Descent(candidate.parameters(), 0.0)
    report = padiff.diff(reference, candidate, TOKENS, optimizers=optimizers, steps=2)
    assert not report.aligned, str(report)
    assert any(one.kind == "zeros_replaced" for one in report.notes), str(report)


def test_a_right_port_with_zeros_is_aligned_and_keeps_them() -> None:
    reference, candidate = Reference(), Candidate()
    inner = np.array(reference.inner.weight.data)
    report = padiff.diff(reference, candidate, TOKENS)
    assert report.aligned, str(report)
    assert "compared with other values there, too" in str(report)
    assert np.array_equal(reference.inner.weight.data, inner)
    assert not any(one.data.any() for one in (reference.head.weight, candidate.head.kernel))
    without = padiff.diff(reference, candidate, TOKENS, transfer=False)
    assert without.aligned, str(without)
    assert any(one.kind == "zeros_replaced" for one in without.notes)


def test_where_other_values_do_not_run_a_note_says_so() -> None:
    report = padiff.diff(Reference(), Candidate(0.0), TOKENS, phase="forward")
    assert report.aligned, str(report)
    assert "what these hide is not compared" in str(report)


def test_one_layer_of_zeros_shows_by_its_gradient_what_it_takes() -> None:
    class Head(rows.Module):
        def __init__(self) -> None:
            self.head = _zeros(rows.Linear(8, 8))

        def forward(self, x: Any) -> Any:
            return self.head(x)

    report = padiff.diff(Head(), Head(), TOKENS)
    assert report.aligned, str(report)
    assert not any(one.kind == "zeros_replaced" for one in report.notes)


class Normed(rows.Module):
    def __init__(self) -> None:
        self.norm, self.head = rows.LayerNorm(8), rows.Linear(8, 8)
        self.norm.weight.data[...], self.norm.bias.data[...] = 1.0, 0.0

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(x))


class Unnormed(columns.Layer):
    """Holds a norm's offset, and never adds it: of zeros nobody misses that."""

    def __init__(self) -> None:
        self.norm, self.head = columns.LayerNormalization(8), columns.Dense(8, 8)
        forward = self.norm.forward
        self.norm.forward = lambda x: forward(x) - self.norm.beta

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(x))


def test_forward_only_a_bias_of_zeros_that_is_never_added_is_found() -> None:
    report = padiff.diff(Normed(), Unnormed(), TOKENS, phase="forward")
    assert [one.candidate.path for one in report.sources] == ["norm"], str(report)


def test_recorded_runs_tell_what_zeros_hide(tmp_path: Path) -> None:
    reference, candidate = Reference(), Candidate(1.1)
    assert not padiff.diff(reference, candidate, TOKENS).aligned  # which gives the candidate the reference's weights
    for model, home in ((reference, rows), (candidate, columns)):
        with padiff.record(model, tmp_path / home.__name__) as recorder:
            loss = model(home.Tensor(TOKENS)).mean()
            loss.backward()
            recorder.step(loss.data)
    report = padiff.compare(tmp_path / rows.__name__, tmp_path / columns.__name__)
    (note,) = (one for one in report.notes if one.kind == "zeros_hide")
    assert note.data["paths"] == ["gates.weight", "head.weight"], str(report)


class Density(rows.Module):
    """A map, and behind it a ReLU that lets through what is above a threshold."""

    def __init__(self, threshold: float) -> None:
        self.inner, self.density, self.threshold = rows.Linear(8, 8), rows.Linear(8, 1), threshold

    def forward(self, x: Any) -> Any:
        return F.relu(self.density(F.tanh(self.inner(x))) - self.threshold) + 1.0


class DensityPort(columns.Layer):
    """The same on rows that it takes twice, so that no value inside is compared."""

    def __init__(self, threshold: float, change: float = 1.0) -> None:
        self.inner, self.density = columns.Dense(8, 8), columns.Dense(8, 1)
        self.threshold, self.change = threshold, change

    def forward(self, x: Any) -> Any:
        inner = F.tanh(self.change * self.inner(F.concat([x, x], 0)))
        return (F.relu(self.density(inner) - self.threshold) + 1.0)[:6]


def test_a_fault_behind_which_nothing_is_let_through_is_found_with_other_weights() -> None:
    """Version 0.5 called it aligned: the outputs are equal, and all gradients are zeros."""
    reference = Density(0.0)
    inner = F.tanh(reference.inner.forward(rows.Tensor(TOKENS)))
    threshold = float(np.max(reference.density.forward(inner).data)) + 1e-3
    report = padiff.diff(Density(threshold), DensityPort(threshold, 1.5), TOKENS)
    assert [one.candidate.path for one in report.sources] == [""], str(report)
    right = padiff.diff(Density(threshold), DensityPort(threshold), TOKENS)
    assert right.aligned, str(right)
    assert "that no gradient reaches" in str(right)


def test_what_no_gradient_reaches_whatever_the_weights_are_is_noted() -> None:
    report = padiff.diff(Density(99.0), DensityPort(99.0, 1.5), TOKENS)
    assert report.aligned, str(report)
    (note,) = (one for one in report.notes if one.kind == "unreached")
    assert note.data["paths"] == ["density.weight", "inner.weight"]
    assert not any(one.kind == "unreached" for one in padiff.diff(Density(-9.0), DensityPort(-9.0), TOKENS).notes)


def _leaky(x: Any, at_zero: float) -> Any:
    """Return a LeakyReLU that has a given slope at zero."""
    slope = np.where(x.data > 0, 1.0, np.where(x.data < 0, 0.1, at_zero))
    return x * type(x)(slope.astype(np.float32))


class Kinked(rows.Module):
    """Branches that begin with a norm of weight zero, as DarkNet's end, in front of a LeakyReLU."""

    def __init__(self) -> None:
        self.fc, self.norms, self.head = (
            rows.Linear(8, 8),
            rows.ModuleList(*(rows.LayerNorm(8) for _ in range(2))),
            rows.Linear(8, 3),
        )
        for norm in self.norms:
            _zeros(norm)

    def forward(self, x: Any) -> Any:
        x = self.fc(x)
        for norm in self.norms:
            x = x + _leaky(norm(x), 0.1)
        return self.head(x)


class KinkedPort(columns.Layer):
    def __init__(self, at_zero: float, *, detached: bool = False) -> None:
        self.fc, self.head = columns.Dense(8, 8), columns.Dense(8, 3)
        self.norms = columns.Layers(*(columns.LayerNormalization(8) for _ in range(2)))
        self.at_zero, self.detached = at_zero, detached

    def forward(self, x: Any) -> Any:
        x = self.fc(x)
        for norm in self.norms:
            y = _leaky(norm(x), self.at_zero)
            x = x + (type(y)(y.data) if self.detached else y)
        return self.head(x)


@pytest.mark.parametrize(("at_zero", "detached"), [(0.1, False), (1.0, False), (0.1, True)])
def test_slopes_at_a_kink_are_one_cause_and_a_detached_branch_is_none(at_zero: float, detached: bool) -> None:
    """Each norm whose weights begin at zero was a source without a cause."""
    report = padiff.diff(Kinked(), KinkedPort(at_zero, detached=detached), TOKENS)
    assert report.aligned is (at_zero == 0.1 and not detached), str(report)
    causes = {source.cause.name if source.cause else None for source in report.sources}
    assert causes == ({None} if detached else {"kink"} if at_zero == 1.0 else set()), str(report)
    assert at_zero == 0.1 or str(report).startswith("not aligned: 1 source in 2 places"), str(report)
