"""A packed bias has a part that the port's layers lack, or the port's has one too many: nothing compared that part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
EACH_WAY = pytest.mark.parametrize("packs", ["reference", "candidate"])


class Packed(rows.Module):
    """Attention with queries, keys and values in one layer."""

    def __init__(self, drawn: bool) -> None:
        self.qkv, self.o = rows.Linear(8, 24), rows.Linear(8, 8)
        self.qkv.bias.data[:] = np.random.default_rng(1).standard_normal(24) if drawn else 0

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        return x + self.o(F.attention(y[..., :8], y[..., 8:16], y[..., 16:], 2))


class Split(columns.Layer):
    """The same with three layers, one of them without a bias; and what a fault does to the scores."""

    def __init__(self, lacking: str, scale: float | None, drawn: bool) -> None:
        for name in "qkv":
            setattr(self, name, columns.Dense(8, 8, bias=name not in lacking))
            layer = getattr(self, name)
            if layer.offset is not None:
                layer.offset.data[:] = np.random.default_rng(2).standard_normal(8) if drawn else 0
        self.out, self.scale = columns.Dense(8, 8), scale

    def forward(self, x: Any) -> Any:
        return x + self.out(F.attention(self.q(x), self.k(x), self.v(x), 2, self.scale))


def models(packs: str, lacking: str, *, scale: float | None = None, drawn: bool = True) -> tuple[Any, Any]:
    packed = rows.Sequential(Packed(drawn), Packed(drawn), rows.Linear(8, 3))
    split = columns.Stack(*(Split(lacking, scale, drawn) for _ in range(2)), columns.Dense(8, 3))
    return (packed, split) if packs == "reference" else (split, packed)


def places(report: padiff.Report, packs: str) -> list[str]:
    """Return where the split layers lie that sources name, all of them for a bias that they lack."""
    for one in report.sources:
        assert one.phase == "parameter", str(report)
        assert (one.reference if packs == "reference" else one.candidate).path.endswith(".qkv"), str(report)
        assert str(one.cause).startswith(f"bias: present in the {packs}, absent"), str(report)
    return [(one.candidate if packs == "reference" else one.reference).path for one in report.sources]


@EACH_WAY
@pytest.mark.parametrize(
    ("lacking", "phase", "drawn"),
    [("v", "both", False), ("v", "forward", False), ("q", "forward", True), ("qv", "both", True)],
)
def test_a_part_that_changes_something_is_the_source(lacking: str, phase: str, drawn: bool, packs: str) -> None:
    """0.4 called them aligned where the biases start at zero: the gradient that comes to one side alone says more."""
    report = padiff.diff(*models(packs, lacking, drawn=drawn), TOKENS, phase=phase)
    assert sorted(places(report, packs)) == [f"{i}.{name}" for i in (0, 1) for name in lacking], str(report)


@EACH_WAY
def test_no_bias_at_all_is_one_source_for_each_packed_layer(packs: str) -> None:
    report = padiff.diff(*models(packs, "qkv"), TOKENS)
    assert places(report, packs) == ["0.q", "1.q"], str(report)


@EACH_WAY
@pytest.mark.parametrize("phase", ["both", "forward"])
def test_keys_are_all_moved_alike(phase: str, packs: str) -> None:
    """What is added to every key changes no attention, and no gradient comes to it: a note tells of it."""
    report = padiff.diff(*models(packs, "k"), TOKENS, phase=phase)
    assert report.aligned, str(report)
    assert sum("nothing shows that it changes anything" in note.text for note in report.notes) == 2, [
        note.text for note in report.notes
    ]


@pytest.mark.parametrize("phase", ["both", "forward"])
def test_it_is_blamed_for_nothing_else(phase: str) -> None:
    report = padiff.diff(*models("reference", "k", scale=0.4), TOKENS, phase=phase)
    assert [(one.phase.value, one.candidate.path) for one in report.sources] == [("forward", "0"), ("forward", "1")]


class Flat(rows.Module):
    """Two blocks whose code is the model's own, with other factors in its second attention, or without a bias."""

    def __init__(self, packs: bool, scale: float | None = None) -> None:
        for i in "ab":
            for name in ("qkv",) if packs else "qkv":
                setattr(self, name + i, rows.Linear(8, 8 * len(name), bias=packs or name != "v" or i != "a"))
            setattr(self, f"o{i}", rows.Linear(8, 8))
        self.packs, self.scale = packs, scale

    def forward(self, x: Any) -> Any:
        for i, scale in (("a", None), ("b", self.scale)):
            if self.packs:
                y = getattr(self, f"qkv{i}")(x)
                parts = y[..., :8], y[..., 8:16], y[..., 16:]
            else:
                parts = tuple(getattr(self, name + i)(x) for name in "qkv")
            x = x + getattr(self, f"o{i}")(F.attention(*parts, 2, scale))
        return x


def test_in_one_models_own_code_it_explains_what_is_made_of_it() -> None:
    report = padiff.diff(Flat(True), Flat(False, 0.4), TOKENS)
    found = [(one.phase.value, one.candidate.path, one.between) for one in report.sources]
    assert found == [("parameter", "va", None), ("forward", "", ("oa", "ob"))], str(report)


@EACH_WAY
@pytest.mark.parametrize("lacking", ["k", "v"])
def test_two_recorded_runs_are_told_the_same(lacking: str, packs: str, tmp_path: Path) -> None:
    both = models(packs, lacking, drawn=False)
    padiff.transfer(*both, TOKENS)
    for model, name in zip(both, ("reference", "candidate"), strict=True):
        side = rows if name == packs else columns
        with padiff.record(model, tmp_path / name) as recorder:
            out = model(side.Tensor(TOKENS.copy()))
            (out * out).sum().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "reference", tmp_path / "candidate")
    assert sorted(places(report, packs)) == ([] if lacking == "k" else ["0.v", "1.v"]), str(report)
    assert report.aligned is (lacking == "k")


class Simple(rows.Module):
    """A simple recurrent unit by hand: one matrix for three layers, of which two have a bias, in one vector."""

    def __init__(self) -> None:
        self.weight, self.bias, self.last = rows.parameter(8, 24), rows.parameter(16), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        u = x @ self.weight
        forget, reset = F.sigmoid(u[..., 8:16] + self.bias[:8]), F.sigmoid(u[..., 16:] + self.bias[8:])
        return self.last(reset * F.tanh(forget * u[..., :8]) + x)


class SimpleLayers(columns.Layer):
    """The same with three layers, and what a fault multiplies with."""

    def __init__(self, slope: float) -> None:
        self.line, self.forget, self.reset = (columns.Dense(8, 8, bias=bias) for bias in (False, True, True))
        self.out, self.slope = columns.Dense(8, 8), slope

    def forward(self, x: Any) -> Any:
        forget, reset = F.sigmoid(self.forget(x)), F.sigmoid(self.reset(x))
        return self.out(reset * F.tanh(forget * self.line(x) * self.slope) + x)


@EACH_WAY
@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_one_vector_may_hold_the_biases_of_some_of_the_layers_that_a_matrix_packs(slope: float, packs: str) -> None:
    """They had no counterpart, and a right port was three sources."""
    both = Simple(), SimpleLayers(slope)
    report = padiff.diff(*both[:: 1 if packs == "reference" else -1], TOKENS)
    assert len(report.sources) == (slope != 1.0), str(report)
    assert report.aligned is (slope == 1.0), str(report)
    assert report.transfer is not None
    assert report.transfer.unmatched_reference == report.transfer.unmatched_candidate == (), str(report)
