"""Layers that one model shares and the other has several times: `[layer] * 3`, or a sharing that is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.judging._parameters import _missing
from padiff.parameters import Correspondence, HeldUnit, UnitMatch
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import ModuleRecord, ParameterRecord

WIDTH = 8
SHARED, APART = (0, 0, 0, 0), (0, 1, 2, 3)
"""Which of its blocks a model calls, one behind the other."""
WORDS = {"x": np.random.default_rng(0).integers(0, 20, (2, 5)), "y": np.random.default_rng(1).integers(0, 20, (2, 4))}


class Block(rows.Module):
    """A norm and a small network, beside a residual connection."""

    def __init__(self) -> None:
        self.norm, self.up, self.down = rows.LayerNorm(WIDTH), rows.Linear(WIDTH, 16), rows.Linear(16, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.relu(self.up(self.norm(x))))


class Blocks(rows.Module):
    """Two tables of words, blocks in an order, and a head."""

    def __init__(self, *order: int) -> None:
        self.words, self.words2 = rows.Embedding(20, WIDTH), rows.Embedding(20, WIDTH)
        self.blocks = rows.ModuleList(*(Block() for _ in {*order}))
        self.head, self.order = rows.Linear(WIDTH, 5), order

    def forward(self, x: Any, y: Any) -> Any:
        x = self.words(x) + self.words2(y).mean(1, keepdims=True)
        for number in self.order:
            x = self.blocks[number](x)
        return self.head(x)


class PortedBlock(columns.Layer):
    """The block."""

    def __init__(self) -> None:
        self.ln, self.a, self.b = columns.LayerNormalization(WIDTH), columns.Dense(WIDTH, 16), columns.Dense(16, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.b(F.relu(self.a(self.ln(x))))


class Ported(columns.Layer):
    """A port, in an order of its own; with ``words`` one table is looked up twice."""

    def __init__(self, *order: int, words: bool = False) -> None:
        self.embed = columns.Embed(20, WIDTH)
        self.other = self.embed if words else columns.Embed(20, WIDTH)
        self.stages = columns.Layers(*(PortedBlock() for _ in {*order}))
        self.last, self.order = columns.Dense(WIDTH, 5), order

    def forward(self, x: Any, y: Any) -> Any:
        x = self.embed(x) + self.other(y).mean(1, keepdims=True)
        for number in self.order:
            x = self.stages[number](x)
        return self.last(x)


@pytest.mark.parametrize("order", [SHARED, APART, (0, 0, 1, 1)])
def test_right_ports_are_aligned(order: tuple[int, ...]) -> None:
    assert padiff.diff(Blocks(*order), Ported(*order), WORDS).aligned


@pytest.mark.parametrize(
    ("reference", "port", "side", "names"),
    [
        pytest.param(Blocks(*SHARED), Ported(*APART), "reference", ["blocks.0.norm", "stages.1.ln"], id="lost"),
        pytest.param(Blocks(*APART), Ported(*SHARED), "candidate", ["blocks.1.norm", "stages.0.ln"], id="times four"),
        pytest.param(Blocks(*APART), Ported(0, 1, 2, 2), "candidate", ["blocks.3.norm", "stages.2.ln"], id="one twice"),
        pytest.param(Blocks(0, 0, 1, 1), Ported(*APART), "reference", ["blocks.0.norm", "stages.1.ln"], id="of groups"),
        pytest.param(Blocks(*APART), Ported(*APART, words=True), "candidate", ["words2", "embed"], id="words"),
    ],
)
def test_what_one_side_alone_shares_is_one_source(reference: Any, port: Any, side: str, names: list[str]) -> None:
    report = padiff.diff(reference, port, WORDS)
    assert str(report).startswith("not aligned: 1 source"), report
    assert {str(one.cause) for one in report.sources} == {
        f"tied in the {side}, not tied in the {'candidate' if side == 'reference' else 'reference'}"
    }
    assert [report.sources[0].reference.path, report.sources[0].candidate.path] == names
    assert "share in the candidate what the reference shares" in str(report)
    # One way round nothing tells before the first update; the other way round values do.
    forward = padiff.diff(reference, port, WORDS, phase="forward")
    assert forward.aligned == (side == "reference")


def test_what_else_is_wrong_is_told_beside_it() -> None:
    port = Ported(*APART)
    port.last.forward = lambda x: columns.Dense.forward(port.last, x) * 1.01
    report = padiff.diff(Blocks(*SHARED), port, WORDS)
    assert str(report).startswith("not aligned: 2 sources"), report
    assert {source.candidate.path for source in report.sources} >= {"last"}


@pytest.mark.parametrize(
    ("orders", "mapped"),
    [
        ((SHARED, APART), {"blocks.0": "stages.1"}),
        ((SHARED, APART), {"blocks.0.up": "stages.2.a"}),
        ((APART, SHARED), {"blocks.1": "stages.0"}),
    ],
    ids=str,
)
def test_any_of_the_twins_may_be_mapped(orders: tuple[tuple[int, ...], ...], mapped: dict[str, str]) -> None:
    """Its call was taken for the first one of what is called for all of them."""
    port = Ported(*orders[1])
    report = padiff.diff(Blocks(*orders[0]), port, WORDS, mapping=mapped)
    assert str(report).startswith("not aligned: 1 source"), report
    assert {source.cause.name for source in report.sources if source.cause} == {"tied"}, report
    assert padiff.diff(Blocks(*orders[0]), port, WORDS, mapping=mapped, phase="forward").aligned == (orders[1] == APART)
    layer = port.stages[int(mapped.get("blocks.0", "0.0")[-1])].b
    layer.forward = lambda x: columns.Dense.forward(layer, x) * 1.01
    wrong = padiff.diff(Blocks(*orders[0]), port, WORDS, mapping=mapped)
    told = any(one.cause is None or one.cause.name != "tied" for one in wrong.sources)
    assert told or orders[1] == SHARED, wrong  # whose weights differ


@pytest.mark.parametrize("orders", [(SHARED, APART), (APART, SHARED)], ids=["lost", "times four"])
def test_recorded_runs_and_optimizers_tell_the_same(orders: tuple[tuple[int, ...], ...], tmp_path: Path) -> None:
    """What the weights' steps differ in follows."""
    models = Blocks(*orders[0]), Ported(*orders[1])
    padiff.transfer(*models, WORDS)
    optimizers = rows.SGD(models[0].parameters(), 0.1), columns.Descent(models[1].parameters(), 0.1)
    for model, name, side, optimizer in zip(models, ("ours", "theirs"), (rows, columns), optimizers, strict=True):
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            out = model(**{name: side.Tensor(value) for name, value in WORDS.items()})
            (out * out).sum().backward()
            optimizer.step()
            recorder.step()
    recorded = padiff.compare(tmp_path / "ours", tmp_path / "theirs")
    live = padiff.diff(*models, WORDS, optimizers=optimizers, steps=2)
    for report in (recorded, live):
        assert str(report).startswith("not aligned: 1 source"), str(report)
        assert {source.cause.name for source in report.sources if source.cause} == {"tied"}, str(report)


@pytest.mark.parametrize("orders", [(SHARED, APART), (APART, SHARED)], ids=["lost", "times four"])
def test_copies_that_are_ignored_explain_nothing(orders: tuple[tuple[int, ...], ...]) -> None:
    """The port's further blocks, or the reference's: what follows from these is told as it was."""
    name = "stages" if orders[1] == APART else "blocks"
    ignored = padiff.LayerMap()
    for number in range(1, 4):
        ignored.ignore_recursively(f"{name}.{number}")
    report = padiff.diff(Blocks(*orders[0]), Ported(*orders[1]), WORDS, mapping=ignored)
    assert not any(source.cause is not None and source.cause.name == "tied" for source in report.sources), str(report)
    assert report.aligned == (name == "blocks"), str(report)
    assert report.aligned or report.sources, str(report)


def test_a_layer_that_is_missing_is_no_shared_one_in_two_slices(tmp_path: Path) -> None:
    """The whole model is called twice: no layer of it is called for another one."""
    models = Chain(True), Chain(False)
    padiff.transfer(*models, (np.ones((4, WIDTH), np.float32),))
    for model, name, count in zip(models, ("ours", "theirs"), (1, 2), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            for part in np.split(np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32), count):
                out = model(rows.Tensor(part))
                ((out * out).mean() * np.float32(1 / count)).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "ours", tmp_path / "theirs")
    causes = {str(source.cause) for source in report.sources if source.cause is not None}
    assert not any(cause.startswith("tied") for cause in causes), str(report)
    assert "second (linear) is in the reference only" in causes, str(report)


class Chain(rows.Module):
    """Three layers, of which one may be left out; its property is read by nobody."""

    def __init__(self, second: bool) -> None:
        self.first, self.third = rows.Linear(WIDTH, WIDTH), rows.Linear(WIDTH, WIDTH)
        self.second = rows.Linear(WIDTH, WIDTH) if second else None

    @property
    def hooked(self) -> Any:
        """Raise: the model was not prepared."""
        msg = "no hooks yet"
        raise ValueError(msg)

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.first(x))
        return self.third(x if self.second is None else F.tanh(self.second(x)))


class Steps(rows.Module):
    """A layer on steps that are nearly the same, as those of a decoder before it is trained."""

    def __init__(self, *steps: float) -> None:
        self.layer, self.steps = rows.Linear(4, 4), steps

    def forward(self, x: Any) -> Any:
        total = x * 0.0
        for step in self.steps:
            total = total + F.tanh(self.layer(x * step))
        return total


def test_steps_that_are_nearly_the_same_stay_in_their_order() -> None:
    """One that a fault brings nearer to the step behind it was taken for that."""
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (source,) = padiff.diff(Steps(1.0, 1.0015, 1.003), Steps(1.0, 1.0028, 1.0043), x).sources
    assert source.what.kind == "input"
    assert source.figures.rel_l2 == pytest.approx(0.0013, rel=0.01)


def test_a_layer_that_shares_nothing_with_its_counterpart_is_in_one_model_only() -> None:
    """Where the other model scores words by its table, a head's weight and bias were a source each."""

    def held(path: str, *shape: int) -> HeldUnit:
        module, _, name = path.rpartition(".")
        return HeldUnit.of_one(ModuleRecord(module, "M"), name, ParameterRecord(path, (path,), "float32", shape))

    roles = {name: held(f"head.{name}", *shape).roles[name] for name, shape in (("weight", (7, 4)), ("bias", (7,)))}
    bias, head = held("bias", 7), HeldUnit(ModuleRecord("head", "Dense"), "", "linear", roles)
    known = Correspondence([bias], [head], [UnitMatch(bias, head, [])])
    causes = [one.cause for one in _missing(known, (frozenset(), frozenset()), False)]
    assert [cause and cause.name for cause in causes] == ["missing_module"] * 3
    alike = attrs.evolve(head, module=ModuleRecord("head", "Linear"))
    both = Correspondence([alike], [head], [UnitMatch(alike, head, [])])
    assert [one.what.name for one in _missing(both, (frozenset(), frozenset()), False)] == ["weight", "bias"]
