"""Give values another size by a fault: it is named where that arises, and nothing behind it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    source, *more = report.sources
    wrong = [f"blocks.{place}" for place, fault in enumerate(faults) if fault]
    assert [str(one.candidate.path) for one in more] == wrong[1:], str(report)
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


class Strict(Bordered):
    """The same, which takes images of one size alone."""

    def __init__(self, size: int) -> None:
        super().__init__(1)
        self.size = size

    def forward(self, x: Any) -> Any:
        if x.shape[2] != self.size:
            raise ValueError(x.shape)
        return super().forward(x)


def test_a_setting_that_nothing_compared_is_not_called_without_effect() -> None:
    """Who pads, the code or the layer, decides nothing; behind another size that code insists on nothing shows it."""
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    for first, size, places, kind in ((1, 6, [], "setting"), (0, 4, ["0.0"], "setting_unfit")):
        layers = rows.Sequential(Bordered(first), Strict(size), Bordered(0, padding=1))
        report = padiff.diff(bordered(), rows.Sequential(layers, HeadRows()), x)
        assert [source.candidate.path for source in report.sources] == places, str(report)
        told = {note.kind for note in report.notes if note.candidate is not None and note.candidate.path == "0.2.conv"}
        assert kind in told, str(report)


class Halving(rows.ReLU):
    """The same, of which half the gradient comes to what it is given."""

    def forward(self, x: Any) -> Any:
        return super().forward(x * 0.5 + F.detach(x) * 0.5)


class Narrowing(rows.Module):
    """Convolutions, of which some pad or stride otherwise; a norm behind each, and code that is another one at last."""

    def __init__(
        self, faults: Mapping[int, tuple[int, int]], eps: float = 1e-5, scale: float = 1.0, halved: int = -1
    ) -> None:
        layers = []
        for place, right in enumerate(((2, 1), (1, 1), (2, 1), (1, 1))):
            conv = rows.Conv2d(4, 4, 3, *faults.get(place, right))
            layers.append(rows.Sequential(conv, rows.BatchNorm(4), Halving() if place == halved else rows.ReLU()))
        self.convs = rows.Sequential(*layers)
        self.norm, self.head, self.scale = rows.LayerNorm(4, eps), rows.Conv2d(4, 2, 1), scale

    def forward(self, x: Any) -> Any:
        x = self.norm(self.convs(x).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        return self.head(F.silu(x) * self.scale)


class Pooled(Narrowing):
    def forward(self, x: Any) -> Any:
        return super().forward(x).mean((2, 3))


@pytest.mark.parametrize("kind", [Narrowing, Pooled])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("faults", "others", "places"),
    [
        ({}, {}, []),
        ({1: (1, 0)}, {}, ["convs.1.0"]),
        ({0: (2, 0), 1: (1, 0), 2: (1, 1), 3: (1, 0)}, {}, ["convs.0.0", "convs.1.0", "convs.2.0", "convs.3.0"]),
        ({0: (1, 1), 2: (2, 0)}, {"eps": 0.1}, ["convs.0.0", "convs.2.0", "norm"]),
        ({0: (2, 0), 3: (1, 0)}, {"scale": 1.1}, ["convs.0.0", "convs.3.0", ""]),
    ],
    ids=str,
)
def test_each_place_where_a_size_changes_is_told_and_what_is_wrong_behind(
    kind: type[Narrowing],
    training: bool,
    faults: Mapping[int, tuple[int, int]],
    others: Mapping[str, float],
    places: list[str],
) -> None:
    """Of five paddings that differ the first was told, and the code around each mean behind."""
    x = np.random.default_rng(0).standard_normal((2, 4, 17, 17)).astype(np.float32)
    report = padiff.diff(kind({}).train(training), kind(faults, **others).train(training), x)
    assert [source.candidate.path for source in report.sources] == places, str(report)
    for source in report.sources:
        if str(source.candidate.path).startswith("convs"):
            assert source.cause is not None, str(report)
            assert list(source.cause.parameters) in (["padding"], ["stride"]), str(report)


def test_gradients_are_compared_in_front_of_another_size_and_behind_it() -> None:
    """What is put in its place hands no gradient on: in front of that the reference's are handed on all the same."""
    x = np.random.default_rng(0).standard_normal((2, 4, 17, 17)).astype(np.float32)
    for place in (0, 3):
        report = padiff.diff(Narrowing({}), Narrowing({2: (2, 0)}, halved=place), x)
        assert [one.candidate.path for one in report.sources][:1] == ["convs.2.0"], str(report)
        assert any(str(one.candidate.path).startswith(f"convs.{place}") for one in report.sources), str(report)


class Stemmed(rows.Module):
    """A layer, an activation in the code, and a block."""

    def __init__(self, padding: int, block: Any) -> None:
        self.stem, self.block = rows.Conv2d(4, 4, 3, 2, padding), block

    def forward(self, x: Any) -> Any:
        return self.block(F.relu(self.stem(x)))


@pytest.mark.parametrize("kind", [Narrowing, Pooled])
def test_a_layer_in_front_of_a_block_is_told_for_the_size_that_it_gives(kind: type[Narrowing]) -> None:
    """Since the block is fed by its layers it was taken for code that cuts the size right, and the model was told."""
    x = np.random.default_rng(0).standard_normal((2, 4, 16, 16)).astype(np.float32)
    (source,) = padiff.diff(Stemmed(1, kind({})), Stemmed(0, kind({})), x).sources
    assert (source.candidate.path, source.what.kind) == ("stem", "output"), source


class Striding(rows.Module):
    """Three layers, of which the one in the middle strides, or its code leaves pixels out; and a norm."""

    def __init__(self, padding: int = 1, eps: float = 1e-5, *, ported: bool = False) -> None:
        self.stem, self.mid = rows.Conv2d(4, 4, 3, 2, padding), rows.Conv2d(4, 6, 1, 1 if ported else 2)
        self.last, self.norm, self.ported = rows.Conv2d(6, 4, 3, 1, padding), rows.LayerNorm(4, eps), ported

    def forward(self, x: Any) -> Any:
        x = F.relu(self.mid(F.relu(self.stem(x))))
        x = x[:, :, ::2, ::2] if self.ported else x
        return self.norm(F.relu(self.last(x)).transpose(0, 2, 3, 1)).mean((1, 2))


@pytest.mark.parametrize(
    ("padding", "eps", "places"), [(1, 1e-5, []), (0, 1e-5, ["stem", "last"]), (0, 0.1, ["stem", "last", "norm"])]
)
def test_a_size_that_is_made_otherwise_behind_another_one_is_no_source(
    padding: int, eps: float, places: list[str]
) -> None:
    """A layer that strides where the port leaves pixels out was a source as soon as it was given another size."""
    x = np.random.default_rng(0).standard_normal((2, 4, 26, 26)).astype(np.float32)
    report = padiff.diff(Striding(), Striding(padding, eps, ported=True), x)
    assert [source.candidate.path for source in report.sources] == places, str(report)
