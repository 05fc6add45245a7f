"""Give values another size by a fault: it is named where that arises, and nothing behind it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


class GateRows(rows.Module):
    """Scale channels by what their means say, as squeeze-and-excitation does."""

    def __init__(self) -> None:
        self.layer = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x * F.sigmoid(self.layer(x.mean((2, 3)))).reshape(len(x.data), 4, 1, 1)


class GateColumns(columns.Layer):
    def __init__(self) -> None:
        self.layer = columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return x * F.sigmoid(self.layer(x.mean((1, 2)))).reshape(len(x.data), 1, 1, 4)


class BlockRows(rows.Module):
    def __init__(self) -> None:
        self.one, self.two, self.gate = rows.Conv2d(4, 4, 1), rows.Conv2d(4, 4, 1), GateRows()

    def forward(self, x: Any) -> Any:
        return self.gate(self.two(F.silu(self.one(x))))


class BlockColumns(columns.Layer):
    def __init__(self, stride: int, scale: float) -> None:
        self.one, self.two, self.gate = columns.Conv(4, 4, 1), columns.Conv(4, 4, 1, stride), GateColumns()
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return self.gate(self.two(F.silu(self.one(x)))) * self.scale


class HeadRows(rows.Module):
    def __init__(self) -> None:
        self.layer = rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x.mean((2, 3)))


class HeadColumns(columns.Layer):
    def __init__(self) -> None:
        self.layer = columns.Dense(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x.mean((1, 2)))


@pytest.mark.parametrize(
    ("faults", "places"), [((1, 1.0), []), ((2, 1.0), ["1.two"]), ((2, 1.1), ["0", "1.two"])], ids=str
)
def test_what_is_given_another_shape_behind_a_stride_is_no_source(faults: tuple[int, float], places: list[str]) -> None:
    """Of ReXNet each gate behind the block that strides was a source, and each norm."""
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    stride, scale = faults
    ours = rows.Sequential(BlockRows(), BlockRows(), BlockRows(), HeadRows())
    theirs = columns.Stack(BlockColumns(1, scale), BlockColumns(stride, 1.0), BlockColumns(1, 1.0), HeadColumns())
    report = padiff.diff(ours, theirs, x, candidate_inputs=x.transpose(0, 2, 3, 1))
    assert [source.candidate.path for source in report.sources] == places, str(report)


class Conved(rows.Module):
    """A convolution and a norm, which holds an activation, or not."""

    def __init__(self, sizes: tuple[int, int], kernel: int, stride: int, held: bool) -> None:
        self.conv, self.held = rows.Conv2d(*sizes, kernel, stride, kernel // 2), held
        self.norm = rows.Sequential(rows.BatchNorm(sizes[1]), rows.ReLU()) if held else rows.BatchNorm(sizes[1])

    def forward(self, x: Any) -> Any:
        x = self.norm(self.conv(x))
        return x if self.held else F.relu(x)


class Inverted(rows.Module):
    """Three such, of which the one in the middle strides, and may be left out; or its output is pooled."""

    def __init__(self, sizes: tuple[int, int], stride: int, held: bool, fault: str) -> None:
        wide = sizes[0] * 2
        self.grow, self.mid = Conved((sizes[0], wide), 1, 1, held), Conved((wide, wide), 3, stride, held)
        self.shrink, self.fault = Conved((wide, sizes[1]), 1, 1, held), fault

    def forward(self, x: Any) -> Any:
        y = self.grow(x)
        y = y if self.fault == "left out" else self.mid(y)
        y = y[:, :, ::2] if self.fault == "thinned" else y
        y = self.shrink(y)
        return x + y if x.shape == y.shape else y


class Mobile(rows.Module):
    def __init__(self, held: bool, faults: Sequence[str] = ("", "", "")) -> None:
        blocks = (Inverted((4, 6), 2, held, faults[0]), *(Inverted((6, 6), 1, held, fault) for fault in faults[1:]))
        self.stem, self.blocks, self.head = Conved((4, 4), 3, 1, held), rows.Sequential(*blocks), rows.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@pytest.mark.parametrize(
    ("faults", "training", "held"),
    [
        (("left out", "", ""), True, True),
        (("left out", "", ""), False, False),
        (("left out",) * 3, True, False),
        (("thinned", "", ""), True, True),
    ],
    ids=str,
)
def test_another_size_is_named_where_it_arises_and_what_it_spoils_is_no_source(
    faults: Sequence[str], training: bool, held: bool
) -> None:
    """Of MobileNetV4 each running statistic behind it was a source, 31 in all, and the code that is wrong was none."""
    images = np.random.default_rng(0).standard_normal((3, 4, 8, 8)).astype(np.float32)
    report = padiff.diff(Mobile(held).train(training), Mobile(False, faults).train(training), images)
    (source,) = report.sources
    if held and faults[0] == "left out":  # the norm on either side of it may be taken for the other one
        assert str(source.candidate.path).startswith("blocks.0"), str(report)
    else:
        assert (source.candidate.path, source.what.kind) == ("blocks.0", "input"), str(report)
        assert source.between == ("grow" if faults[0] == "left out" else "mid", "shrink"), str(report)
        assert "input 'x' of shrink has another shape" in str(report)


class Packed(rows.Module):
    """A layer on all steps in one axis and one more, which the code takes apart again, as of a packed batch."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self.layer, self.next, self.act = rows.Linear(4, 4), rows.Linear(4, 4), act

    def forward(self, x: Any) -> Any:
        steps = x.reshape(10, 4)
        y = self.layer(F.concat([steps, steps[:1]], 0))[:10].reshape(2, 5, 4)
        return F.tanh(self.next(self.act(y))) * y


class Padded(columns.Layer):
    def __init__(self, act: Callable[[Any], Any], scale: float) -> None:
        self.layer, self.next, self.act, self.scale = columns.Dense(4, 4), columns.Dense(4, 4), act, scale

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return F.tanh(self.next(self.act(y))) * y * self.scale


@pytest.mark.parametrize("act", [lambda y: y, F.tanh], ids=["handed on", "made of it"])
def test_another_size_that_was_meant_is_no_source_of_what_is_wrong_behind_it(
    act: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no operation was found, the layer that takes a packed batch was told in its place."""
    monkeypatch.setattr("padiff.judging._forced._slips.Search.slips", ([], False))
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    assert padiff.diff(Packed(act), Padded(act, 1.0), x).aligned
    (source,) = padiff.diff(Packed(act), Padded(act, 1.1), x).sources
    assert (source.what.kind, source.between) == ("output", ("next", "end")), source


class Bordered(rows.Module):
    """A layer whose code pads what a convolution takes, by zeros, or leaves that out; a norm behind it."""

    def __init__(self, border: int, eps: float = 1e-5, padding: int = 0) -> None:
        self.conv, self.norm = rows.Conv2d(4, 4, 3, padding=padding), rows.LayerNorm(4, eps)
        self.border = border

    def forward(self, x: Any) -> Any:
        for axis in (2, 3):
            shape = [*x.shape]
            shape[axis] = self.border
            zeros = type(x)(np.zeros(shape, np.float32))
            x = F.concat([zeros, x, zeros], axis) if self.border else x
        y = self.conv(x).transpose(0, 2, 3, 1)
        return F.relu(self.norm(y)).transpose(0, 3, 1, 2)


def bordered(*faults: str) -> Any:
    layers = [
        Bordered(0 if f"size{place}" in faults else 1, 0.1 if f"eps{place}" in faults else 1e-5) for place in range(3)
    ]
    return rows.Sequential(rows.Sequential(*layers), HeadRows())


@pytest.mark.parametrize(
    ("faults", "places"),
    [
        ((), []),
        (("size0",), ["0.0"]),
        (("size0", "eps2"), ["0.0", "0.2.norm"]),
        (("size1", "eps0", "eps2"), ["0.0.norm", "0.1", "0.2.norm"]),
        (("size2", "eps2"), ["0.2", "0.2.norm"]),
    ],
    ids=str,
)
def test_layers_behind_another_size_are_judged_by_themselves(faults: Sequence[str], places: list[str]) -> None:
    """Where the code around was to pad, an eps behind it had `no effect here`: nothing had compared what it does."""
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    report = padiff.diff(bordered(), bordered(*faults), x)
    assert [source.candidate.path for source in report.sources] == places, str(report)
    causes = [str(source.cause) for source in report.sources if (source.candidate.path or "").endswith("norm")]
    assert causes == ["eps: 1e-05 in the reference, 0.1 in the candidate"] * len(causes), str(report)
    assert not any("no effect" in note.text for note in report.notes), str(report)


def test_a_setting_that_nothing_compared_is_not_called_without_effect() -> None:
    """Who pads, the code or the layer, decides nothing; behind another size nothing shows that it is right."""
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    for first, places, kind in ((1, [], "setting"), (0, ["0.0"], "setting_unfit")):
        layers = rows.Sequential(Bordered(first), Bordered(1), Bordered(0, padding=1))
        report = padiff.diff(bordered(), rows.Sequential(layers, HeadRows()), x)
        assert [source.candidate.path for source in report.sources] == places, str(report)
        told = {note.kind for note in report.notes if note.candidate is not None and note.candidate.path == "0.2.conv"}
        assert kind in told, str(report)
