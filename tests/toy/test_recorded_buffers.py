"""Compare recorded runs of models that keep buffers of their own: a queue, and how far it is filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows

SIZE, ROWS = 6, 4


def queued(home: Any, linear: Any, names: tuple[str, str] = ("queue", "filled")) -> type:
    class Queued(home):
        """A layer whose outputs are kept, in one place of a queue after the other; the first step reads none of it."""

        def __init__(self, *, stuck: bool = False) -> None:
            self.first, self.stuck = linear(SIZE, SIZE), stuck
            for name, values in zip(names, (np.zeros((3 * ROWS, SIZE)), np.zeros(1)), strict=True):
                setattr(self, name, rows.buffer(values) if home is rows.Module else columns.statistic(values))

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            queue, filled = (getattr(self, name) for name in names)
            at = int(filled.data[0])
            queue.data[at : at + ROWS] = y.data
            if not self.stuck:
                filled.data[0] = at + ROWS
            return y

    return Queued


Queued = queued(rows.Module, rows.Linear)
Port = queued(columns.Layer, columns.Dense, ("memory", "count"))


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
@pytest.mark.parametrize("port", [Queued, Port])
@pytest.mark.parametrize("stuck", [False, True])
def test_buffers_of_no_catalogue_are_compared_whatever_is_kept(
    tmp_path: Path, values: Any, port: type, stuck: bool
) -> None:
    """Of sketches and summaries none was matched: a count that stays was told where the queue is read, or never."""
    np.random.seed(0)
    models = Queued(), port(stuck=stuck)
    padiff.transfer(*models)
    for model, name, home in zip(models, "ab", (rows, rows if port is Queued else columns), strict=True):
        rng = np.random.default_rng(1)
        with padiff.record(model, tmp_path / name, values=values) as recorder:
            for _ in range(2):
                y = model(home.Tensor(rng.standard_normal((ROWS, SIZE), dtype=np.float32)))
                (y * y).mean().backward()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is not stuck, str(report)
    counts = {"filled", "count"}
    assert {(one.phase, one.step, one.what.name in counts) for one in report.sources} == (
        {(Phase.BUFFER, 0, True)} if stuck else set()
    ), str(report)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("side", [0, 1])
def test_a_call_of_one_side_that_updates_buffers_is_one_source(tmp_path: Path, side: int, inner: bool) -> None:
    """Each buffer was a source, without a cause: an evaluation in training mode, of all of a model or of a part."""
    np.random.seed(0)
    models = (rows.Sequential(Queued()), columns.Stack(Port())) if inner else (Queued(), Port())
    padiff.transfer(*models)
    for number, (model, home) in enumerate(zip(models, (rows, columns), strict=True)):
        model.train()
        model.training = not inner
        with padiff.record(model, tmp_path / "ab"[number]) as recorder:
            y = model(home.Tensor(np.ones((ROWS, SIZE), np.float32)))
            (y * y).mean().backward()
            if number == side:
                model(home.Tensor(np.full((ROWS, SIZE), 2, np.float32)))
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path) == (Phase.BUFFER, "0" if inner else "")
    assert source.cause.parameters == {"name": "", "reference": 2 - side, "candidate": 1 + side}


@pytest.mark.parametrize("share", [0.9, 0.8])
def test_buffers_of_other_names_are_compared_in_sketches_of_several_blocks(tmp_path: Path, share: float) -> None:
    """Several of its shape might be the counterpart of each: none was compared, and a fault was aligned."""

    def block(home: Any, linear: Any, buffer: Any, name: str, share: float) -> Any:
        class Block(home):
            def __init__(self) -> None:
                self.inner = linear(SIZE, SIZE)
                setattr(self, name, buffer(np.zeros(SIZE, np.float32)))

            def forward(self, x: Any) -> Any:
                y, kept = self.inner(x), getattr(self, name)
                kept.data[...] = share * kept.data + (1 - share) * y.data.mean(0)
                return y

        return Block()

    models = (
        rows.Sequential(*(block(rows.Module, rows.Linear, rows.buffer, "mean", 0.9) for _ in range(2))),
        columns.Stack(*(block(columns.Layer, columns.Dense, columns.statistic, "average", share) for _ in range(2))),
    )
    padiff.transfer(*models)
    for model, home, name in zip(models, (rows, columns), "ab", strict=True):
        with padiff.record(model, tmp_path / name, values="sketch") as recorder:
            y = model(home.Tensor(np.random.default_rng(0).standard_normal((ROWS, SIZE)).astype(np.float32)))
            (y * y).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert {(one.phase, one.candidate.path) for one in report.sources} == (
        set() if share == 0.9 else {(Phase.BUFFER, "0"), (Phase.BUFFER, "1")}
    ), str(report)


class Tabled(rows.Module):
    """A layer, and a table of which as many rows are read as there are words."""

    def __init__(self, rest: float) -> None:
        self.layer = rows.Linear(SIZE, SIZE)
        self.table = rows.buffer(np.full((3 * ROWS, SIZE), 0.1, np.float32))
        self.table.data[ROWS:] = rest

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.table.data[:ROWS]


@pytest.mark.parametrize("rest", [0.1, 5.0])
def test_what_no_call_reads_of_a_buffer_is_noted(tmp_path: Path, rest: float) -> None:
    np.random.seed(0)
    models = Tabled(0.1), Tabled(rest)
    models[1].layer = models[0].layer
    for model, name in zip(models, "ab", strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(np.random.default_rng(1).standard_normal((ROWS, SIZE), dtype=np.float32)))
            (y * y).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert [note.data["paths"] for note in report.notes if note.kind == "buffers_differ"] == [["table"]] * (rest > 1)


class Summed(rows.Module):
    """A table, and the sums that it is made of in each step: both begin as the same."""

    def __init__(self, table: str, sums: str, keep: float = 0.9) -> None:
        self.layer, self.names, self.keep = rows.Linear(SIZE, SIZE), (table, sums), np.float32(keep)
        for name in sorted(self.names):
            setattr(self, name, rows.buffer(np.arange(SIZE, dtype=np.float32) + 1))

    def forward(self, x: Any) -> Any:
        table, sums = (getattr(self, name) for name in self.names)
        y = self.layer(x) * table.data.copy()
        sums.data[...] = sums.data * self.keep + y.data.mean(0) * np.float32(0.1)
        table.data[...] = sums.data / np.float32(SIZE)
        return y


@pytest.mark.parametrize(("keep", "sources"), [(0.9, 0), (0.8, 1)])
def test_buffers_that_begin_as_one_are_told_by_what_a_step_leaves(tmp_path: Path, keep: float, sources: int) -> None:
    """In the order of their names each was matched with the other one, and differed."""
    np.random.seed(0)
    models = Summed("embed", "sums"), Summed("table", "all", keep)
    padiff.transfer(models[0].layer, models[1].layer)
    for model, name in zip(models, "ab", strict=True):
        rng = np.random.default_rng(1)
        with padiff.record(model, tmp_path / name) as recorder:
            for _ in range(2):
                (model(rows.Tensor(rng.standard_normal((4, SIZE), dtype=np.float32))) * 2).mean().backward()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert len({(one.step, one.phase) for one in report.sources}) == sources, str(report)
    assert report.aligned is not bool(sources)


class Bank(rows.Module):
    """A layer that a script calls, a queue of what that gave, and numbers that nobody uses."""

    def __init__(self, idle: float = 0.0) -> None:
        self.encoder = rows.Linear(SIZE, SIZE)
        self.queue = rows.buffer(np.ones((2 * ROWS, SIZE), np.float32))
        self.idle = rows.buffer(np.full(3, idle, np.float32))

    def forward(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("fault", "phase", "step"),
    [(None, None, 0), ("stuck", Phase.BUFFER, 0), ("scaled", Phase.LOSS, 0), ("moved", Phase.FORWARD, 1)],
)
def test_a_queue_that_a_script_fills_is_compared(tmp_path: Path, fault: Any, phase: Any, step: int) -> None:
    """It was told a step later, where the loss is made of it; what was made wrongly for both is the loss's.

    Behind a call that gives something else it was a second source.
    """
    np.random.seed(0)
    models = Bank(), Bank(idle=1.0)
    padiff.transfer(models[0].encoder, models[1].encoder)
    for number, (model, name) in enumerate(zip(models, "ab", strict=True)):
        wrong, rng = fault if number else None, np.random.default_rng(1)
        with padiff.record(model, tmp_path / name) as recorder:
            for turn in range(2):
                if wrong == "moved" and turn:
                    model.encoder.weight.data[...] *= np.float32(1.1)
                y = model.encoder(rows.Tensor(rng.standard_normal((ROWS, SIZE), dtype=np.float32)))
                y = y * np.float32(2) if wrong == "scaled" else y
                loss = (y * model.queue.data[:ROWS].copy() * y).mean()
                loss.backward()
                if wrong != "stuck":
                    model.queue.data[turn * ROWS : (turn + 1) * ROWS] = y.data
                recorder.step(float(loss.data))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.step) for one in report.sources] == ([(phase, step)] if phase else []), str(report)
