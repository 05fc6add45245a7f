"""Compare recorded runs of ports that are written otherwise: the axes, the wrappers, a frozen table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

SIZE = 8
"""The extent of all axes: of what is larger than a sample, figures alone tell that do not depend on the order."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    np.random.seed(0)


class Net(rows.Module):
    """Images with the channels second."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = rows.Conv2d(3, SIZE, 3, 1, 1), rows.BatchNorm(SIZE)
        self.body, self.last = rows.Conv2d(SIZE, SIZE, 3, 1, 1), rows.Linear(SIZE, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.body(functional.relu(self.norm(self.stem(x)))).mean(3, False).mean(2, False))


class Port(columns.Layer):
    """Images with the channels last; ``turned``: height and width exchanged behind the norm, ``eps`` its own."""

    def __init__(self, *, turned: bool = False, eps: float = 1e-5) -> None:
        super().__init__()
        self.stem, self.norm = columns.Conv(3, SIZE, 3, 1, 1), columns.BatchNormalization(SIZE, eps, 0.9)
        self.body, self.last = columns.Conv(SIZE, SIZE, 3, 1, 1), columns.Dense(SIZE, 2)
        self.turned = turned

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.norm(self.stem(x.transpose(0, 2, 3, 1))))
        x = self.body(x.transpose(0, 2, 1, 3) if self.turned else x)
        return self.last(x.mean(1, False).mean(1, False))


def compared(
    folder: Path, models: tuple[Any, Any], given: np.ndarray, values: str = "tensors", *, learned: bool = False
) -> padiff.Report:
    padiff.transfer(*models, given)
    for model, name in zip(models, "ab", strict=True):
        side = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / name, values=values) as recorder:
            out = model(side.Tensor(given.copy(), requires_grad=learned))
            outs = out if isinstance(out, tuple) else (out,)
            sum((one * one).sum() * np.float32(n + 1) for n, one in enumerate(outs)).backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


def images() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((SIZE, 3, SIZE, SIZE)).astype(np.float32)


@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
def test_a_right_port_is_aligned_and_read_in_the_references_order(tmp_path: Path, values: str) -> None:
    report = compared(tmp_path, (Net(), Port()), images(), values)
    assert report.aligned, str(report)
    notes = " ".join(note.text for note in report.notes)
    assert "channels last on one side" in notes
    assert notes.count("[i, k, l, j]") + notes.count("[i, l, j, k]") == 1, notes  # one order, for all of them


@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
@pytest.mark.parametrize(("fault", "place"), [({"turned": True}, "body"), ({"eps": 0.1}, "norm")])
def test_a_fault_there_is_named(tmp_path: Path, values: str, fault: dict[str, Any], place: str) -> None:
    report = compared(tmp_path, (Net(), Port(**fault)), images(), values)
    (source,) = report.sources
    assert source.candidate.path == place or place in source.between, str(report)


class Skipped(rows.Module):
    """Blocks that add to images with the channels last what a layer makes that takes them second."""

    def __init__(self) -> None:
        self.convs = rows.Sequential(*(rows.Conv2d(SIZE, SIZE, 3, 1, 1) for _ in range(2)))
        self.last = rows.Linear(SIZE, 2)

    def forward(self, x: Any) -> Any:
        for conv in self.convs:
            x = x + conv(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1) * 0.01
        return self.last(functional.relu(x))


class SkippedToo(columns.Layer):
    """The layers take what they are added to; ``shift``: of what the last layer takes."""

    def __init__(self, shift: float) -> None:
        self.convs = columns.Stack(*(columns.Conv(SIZE, SIZE, 3, 1, 1) for _ in range(2)))
        self.last, self.shift = columns.Dense(SIZE, 2), shift

    def forward(self, x: Any) -> Any:
        for conv in self.convs:
            x = x + conv(x) * 0.01
        return self.last(functional.relu(x + self.shift))


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_what_a_layer_sends_alone_is_no_measure_of_what_is_used_beside_it_too(tmp_path: Path, shift: float) -> None:
    """The gradient of a view is the layer's alone. Read in that order, the other side's seemed to be that, too."""
    given = images().transpose(0, 2, 3, 1).repeat(3, 3)[..., :SIZE]
    report = compared(tmp_path, (Skipped(), SkippedToo(shift)), given, learned=True)
    assert report.aligned is not bool(shift), str(report)
    assert [(one.phase, one.candidate.path) for one in report.sources] == [("forward", "")] * bool(shift), str(report)


class Wrapped(columns.Layer):
    """A layer for images with the channels second: no shape tells it from what it holds."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


class Inside(columns.Layer):
    def __init__(self) -> None:
        self.norm, self.act = Wrapped(columns.BatchNormalization(SIZE)), columns.Rectifier()
        self.conv = Wrapped(columns.Conv(SIZE, SIZE, 3, 1, 1))

    def forward(self, x: Any) -> Any:
        return self.conv(self.act(self.norm(x)))


class InSequence(rows.Module):
    """The activation in one container with the norm; ``negated``: behind what that gives."""

    def __init__(self, *, negated: bool = False) -> None:
        self.act = rows.Sequential(rows.BatchNorm(SIZE), rows.ReLU())
        self.conv, self.negated = rows.Conv2d(SIZE, SIZE, 3, 1, 1), negated

    def forward(self, x: Any) -> Any:
        x = self.act(x)
        return self.conv(-x if self.negated else x)


class Around(rows.Module):
    def __init__(self, block: Any) -> None:
        self.stem, self.block = rows.Conv2d(3, SIZE, 3, 1, 1), block

    def forward(self, x: Any) -> Any:
        return self.block(self.stem(x))


class AroundToo(columns.Layer):
    def __init__(self, block: Any) -> None:
        self.stem, self.block = Wrapped(columns.Conv(3, SIZE, 3, 1, 1)), block

    def forward(self, x: Any) -> Any:
        return self.block(self.stem(x))


@pytest.mark.parametrize("values", ["tensors", "summary"])
def test_a_wrapper_that_ends_behind_the_activation_is_no_fault(tmp_path: Path, values: str) -> None:
    report = compared(tmp_path / "right", (AroundToo(Inside()), Around(InSequence())), images(), values)
    assert report.aligned, str(report)
    models = AroundToo(Inside()), Around(InSequence(negated=True))
    report = compared(tmp_path / "wrong", models, images(), values)
    assert report.sources[0].candidate.path in ("block", "block.act"), str(report)


class Positioned(rows.Module):
    """Features with a table of positions: a frozen embedding whose weight is used, or a constant."""

    def __init__(self, *, held: bool, base: float = 3.0) -> None:
        self.head, self.held = rows.Linear(8, 8), held
        self.values = np.cos(np.arange(9)[:, None] / base ** np.arange(8)).astype(np.float32)
        if held:
            self.table = rows.Embedding(9, 8)
            self.table.weight = rows.Tensor(self.values, role="parameter")

    def forward(self, x: Any) -> Any:
        return self.head(x + (self.table.weight if self.held else rows.Tensor(self.values)))


@pytest.mark.parametrize("held", [False, True])
def test_a_frozen_table_of_one_side_is_a_note_where_nothing_differs(tmp_path: Path, held: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 9, 8)).astype(np.float32)
    report = compared(tmp_path / "right", (Positioned(held=held), Positioned(held=not held)), x)
    assert report.aligned, str(report)
    assert "frozen_on_one_side" in {note.kind for note in report.notes}
    report = compared(tmp_path / "wrong", (Positioned(held=held), Positioned(held=not held, base=2.9)), x)
    assert [source.candidate.path for source in report.sources] == [""], str(report)


class Normed(rows.Module):
    """A block that holds the norm in front of it; what it gives is added around it."""

    def __init__(self) -> None:
        self.norm = rows.LayerNorm(SIZE)
        self.up, self.down = rows.Linear(SIZE, 2 * SIZE), rows.Linear(2 * SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        return self.down(functional.tanh(self.up(self.norm(x))))


class Residual(columns.Layer):
    """The same with the norm outside, and the residual connection inside; ``scale`` is what comes of the block."""

    def __init__(self, scale: float = 1.0) -> None:
        self.up, self.down, self.scale = columns.Dense(SIZE, 2 * SIZE), columns.Dense(2 * SIZE, SIZE), scale

    def forward(self, x: Any, normed: Any) -> Any:
        return x + self.down(functional.tanh(self.up(normed))) * np.float32(self.scale)


class Stack(rows.Module):
    """Blocks whose outputs are added to what they take; scores of all pairs of rows, and these transposed."""

    def __init__(self) -> None:
        self.first, self.blocks = rows.Linear(SIZE, SIZE), rows.ModuleList(Normed(), Normed(), Normed())

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        scores = x @ x.transpose(1, 0)
        return scores, scores.transpose(1, 0)


class Ported(columns.Layer):
    """The same, written otherwise; the scores are computed twice."""

    def __init__(self, scale: float = 1.0) -> None:
        self.first = columns.Dense(SIZE, SIZE)
        self.norms = columns.Layers(*(columns.LayerNormalization(SIZE) for _ in range(3)))
        self.layers = columns.Layers(Residual(), Residual(scale), Residual())

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = layer(x, norm(x))
        return x @ x.transpose(1, 0), x @ x.transpose(1, 0)


@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
def test_blocks_may_begin_and_end_elsewhere(tmp_path: Path, values: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    report = compared(tmp_path / "right", (Stack(), Ported()), x, values)
    assert report.aligned, str(report)
    assert "harmless" in {note.kind for note in report.notes}, str(report)
    report = compared(tmp_path / "wrong", (Stack(), Ported(1.1)), x, values)
    assert report.sources[0].between == ("layers.1.down", "norms.2"), str(report)


class Mixed(rows.Module):
    """Take what comes in by a layer, and as it is."""

    def __init__(self) -> None:
        self.layer = rows.Linear(SIZE, SIZE)

    def forward(self, x: Any, squashed: Any) -> Any:
        return self.layer(squashed) * x


class Squashed(rows.Module):
    def __init__(self, detached: str = "") -> None:
        self.mixed, self.detached = Mixed(), detached

    def forward(self, x: Any) -> Any:
        x = type(x)(x.data) if self.detached == "all" else x
        squashed = functional.tanh(x)
        return self.mixed(x, x * (type(x)(squashed.data) if self.detached == "path" else squashed))


@pytest.mark.parametrize("detached", ["", "path", "all"])
def test_the_gradient_of_an_input_is_what_the_model_gives(tmp_path: Path, detached: str) -> None:
    """It was told at a call inside that takes the input, too, and said to be computed in another way; or not at all."""
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    report = compared(tmp_path, (Squashed(), Squashed(detached)), x, learned=True)
    assert report.aligned is not bool(detached), str(report)
    assert {one.phase.value for one in report.sources} == ({"backward"} if detached else set()), str(report)


class Three(rows.Module):
    def __init__(self) -> None:
        self.layer = rows.Linear(SIZE, SIZE)

    def forward(self, x: Any, y: Any, z: Any) -> Any:
        return self.layer(x) * y + z


class Handing(rows.Module):
    """Give a call three values, of which the last is used before."""

    def __init__(self, *, detached: bool = False) -> None:
        self.three, self.last, self.detached = Three(), rows.Linear(SIZE, SIZE), detached

    def forward(self, x: Any) -> Any:
        z = functional.tanh(x)
        twice = z + (type(x)(z.data) if self.detached else z)
        y = x + twice
        return self.last(self.three(y * y, y, z)), twice


def test_a_gradient_of_what_a_call_inside_is_given_may_be_wrong(tmp_path: Path) -> None:
    """Its number among the inputs of that call was taken for one among the model's: it has a single input."""
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    report = compared(tmp_path, (Handing(), Handing(detached=True)), x, learned=True)
    assert {one.phase.value for one in report.sources} == {"backward"}, str(report)
