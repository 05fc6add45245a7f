"""Pad by hand what the other side's module pads: it cannot be fed, and is right where the code around it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

IMAGES = np.random.default_rng(0).standard_normal((2, 6, 6, 3)).astype(np.float32)


class Gated(rows.Module):
    """One convolution that pads and gives value and gate, and two maps of what comes out."""

    def __init__(self) -> None:
        self.both, self.keep, self.skip = rows.Conv2d(3, 6, 3, padding=1), rows.Conv2d(3, 3, 1), rows.Conv2d(3, 3, 1)

    def forward(self, x: Any) -> Any:
        y = self.both(x)
        y = F.tanh(y[:, :3]) * F.sigmoid(y[:, 3:])
        skip = self.skip(y)
        return x + self.keep(y), skip


class Net(rows.Module):
    """Two such blocks; what they skip is summed."""

    def __init__(self) -> None:
        self.blocks, self.head = rows.ModuleList(Gated(), Gated()), rows.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        x = x.transpose(0, 3, 1, 2)
        x, first = self.blocks[0](x)
        x, second = self.blocks[1](x)
        return self.head(F.relu(first + second)).mean((2, 3))


class Apart(columns.Layer):
    """Pads by hand, has value and gate in a convolution each, and calls the two maps in the other order."""

    def __init__(self, fault: str) -> None:
        self.value, self.gate = columns.Conv(3, 3, 3), columns.Conv(3, 3, 3)
        self.residual, self.skipped, self.fault = columns.Conv(3, 3, 1), columns.Conv(3, 3, 1), fault

    def forward(self, x: Any) -> Any:
        wide = _padded(x, 2 if self.fault == "more padding" else 1)
        value, gate = self.value(wide), self.gate(wide)
        if self.fault == "more padding":
            value, gate = value[:, :6, :6], gate[:, :6, :6]
        if self.fault == "crossed":
            value, gate = gate, value
        y = F.tanh(value) * (F.tanh(gate) if self.fault == "gate" else F.sigmoid(gate))
        return x + self.residual(y), self.skipped(y)


def _padded(x: Any, by: int) -> Any:
    def zeros(*shape: int) -> Any:
        return columns.Tensor(np.zeros(shape, np.float32))

    for axis in (1, 2):
        edge = [*x.shape]
        edge[axis] = by
        x = F.concat([zeros(*edge), x, zeros(*edge)], axis)
    return x


class Port(columns.Layer):
    """The same, channels last."""

    def __init__(self, fault: str = "") -> None:
        self.layers, self.out = columns.Layers(Apart(""), Apart(fault)), columns.Conv(3, 4, 1)

    def forward(self, x: Any) -> Any:
        x, first = self.layers[0](x)
        x, second = self.layers[1](x)
        return self.out(F.relu(first + second)).mean((1, 2))


def test_a_right_port_is_aligned() -> None:
    """Version 0.5 called each convolution wrong for its padding, crossed the maps, or found no place for the gates."""
    report = padiff.diff(Net(), Port(), IMAGES)
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", ["more padding", "gate", "crossed"])
def test_a_fault_behind_it_is_named_there(fault: str) -> None:
    report = padiff.diff(Net(), Port(fault), IMAGES)
    assert {source.candidate.path for source in report.sources} == {"layers.1"}, str(report)


class Padding(rows.Module):
    """A convolution that pads, alone."""

    def __init__(self) -> None:
        self.conv, self.head = rows.Conv2d(3, 3, 3, padding=1), rows.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(F.tanh(self.conv(x.transpose(0, 3, 1, 2)))).mean((2, 3))


class PaddedBefore(columns.Layer):
    """Pads by hand, and once more in the module, or not enough."""

    def __init__(self, padding: int, by: int) -> None:
        self.conv, self.head, self.by = columns.Conv(3, 3, 3, padding=padding), columns.Conv(3, 4, 1), by

    def forward(self, x: Any) -> Any:
        return self.head(F.tanh(self.conv(_padded(x, self.by))[:, :6, :6])).mean((1, 2))


@pytest.mark.parametrize(("padding", "by", "aligned"), [(0, 1, True), (1, 1, False), (0, 2, False)])
def test_padding_that_is_no_padding_of_the_other_side(padding: int, by: int, aligned: bool) -> None:
    """Version 0.5 named the module and its setting, which is right, where the code before it pads too much."""
    report = padiff.diff(Padding(), PaddedBefore(padding, by), IMAGES)
    assert report.aligned == aligned, str(report)
    assert [one.candidate.path for one in report.sources] == [""] * (not aligned), str(report)
    assert all(" as conv(a" in str(one.cause) and ", conv(_), getitem(_" in str(one.cause) for one in report.sources)


class Mixing(rows.Module):
    """A convolution that pads, what another one makes of it, and their product."""

    def __init__(self) -> None:
        self.conv, self.mix, self.head = rows.Conv2d(3, 3, 3, padding=1), rows.Conv2d(3, 3, 1), rows.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.conv(x.transpose(0, 3, 1, 2)))
        return self.head(F.sigmoid(self.mix(y)) * y).mean((2, 3))


class Nested(columns.Layer):
    """The product, in a module of its own."""

    def __init__(self, fault: str) -> None:
        self.mix, self.fault = columns.Conv(3, 3, 1), fault

    def forward(self, y: Any) -> Any:
        gate = F.tanh(self.mix(y)) if self.fault == "behind" else F.sigmoid(self.mix(y))
        return gate * (columns.Tensor(y.data) if self.fault == "detached" else y)


class MixedBehind(columns.Layer):
    """Pads by hand, with one fault before what is compared next, behind it, or in the gradient."""

    def __init__(self, fault: str) -> None:
        self.conv, self.nested, self.head = columns.Conv(3, 3, 3), Nested(fault), columns.Conv(3, 4, 1)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        y = self.conv(_padded(x, 1))
        return self.head(self.nested(F.sigmoid(y) if self.fault == "before" else F.tanh(y))).mean((1, 2))


@pytest.mark.parametrize(
    ("fault", "child", "cause"),
    [("", None, None), ("before", "nested.mix", "tanh"), ("behind", "head", "sigmoid"), ("detached", None, None)],
)
def test_one_fault_behind_padding_by_hand_is_the_source(fault: str, child: str | None, cause: str | None) -> None:
    """All were told of the padding, as a value of another shape, and the gradient of the bias in front of it."""
    report = padiff.diff(Mixing(), MixedBehind(fault), IMAGES)
    assert report.aligned == (not fault), str(report)
    for source in report.sources:
        assert source.candidate.path == ("nested" if fault == "behind" else ""), str(report)
        assert source.phase is (Phase.FORWARD if cause else Phase.BACKWARD), str(report)
        assert cause is None or (source.between or "")[1] == child, str(report)
        assert cause is None or str(source.cause).startswith(f"kind: {cause} "), str(report)


def test_what_is_right_behind_padding_by_hand_shows_that_it_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no operations are seen, too: the mixing layer is given what it should be given."""
    monkeypatch.setattr("padiff.engine._diff.explain_code", lambda *_: None)
    (source,) = padiff.diff(Mixing(), MixedBehind("behind"), IMAGES).sources
    assert source.between == ("mix", "head"), str(source)


class Sized(columns.Layer):
    """Pads by hand so that the module gives the right shape, and on one side only."""

    def __init__(self, before: int) -> None:
        self.conv, self.head, self.before = columns.Conv(3, 3, 3), columns.Conv(3, 4, 1), before

    def forward(self, x: Any) -> Any:
        wide = _padded(x, 2)[:, 2 - self.before : 10 - self.before, 1:9]
        return self.head(F.tanh(self.conv(wide))).mean((1, 2))


def test_a_wrong_value_of_the_right_shape_is_the_code_around() -> None:
    assert padiff.diff(Padding(), Sized(1), IMAGES).aligned
    (source,) = padiff.diff(Padding(), Sized(2), IMAGES).sources
    assert (source.candidate.path, source.between, source.cause) == ("", ("start", "conv"), None)


class Cropped(columns.Layer):
    """Pads more in the module than the other side, and crops what that gives."""

    def __init__(self, first: int, act: str) -> None:
        self.conv, self.head = columns.Conv(3, 3, 3, padding=2), columns.Conv(3, 4, 1)
        self.first, self.act = first, act

    def forward(self, x: Any) -> Any:
        y = self.conv(x)[:, self.first : self.first + 6, self.first : self.first + 6]
        return self.head(F.tanh(y) if self.act == "tanh" else F.sigmoid(y)).mean((1, 2))


@pytest.mark.parametrize(("first", "act", "aligned"), [(1, "tanh", True), (0, "tanh", False), (1, "sigmoid", False)])
def test_what_a_module_pads_too_much_may_be_cropped(first: int, act: str, aligned: bool) -> None:
    """Version 0.5 called the module wrong for a padding that the code behind it takes away again."""
    report = padiff.diff(Padding(), Cropped(first, act), IMAGES)
    assert report.aligned == aligned, str(report)
    assert [one.candidate.path in ("", "conv") for one in report.sources] == [True] * (not aligned), str(report)


class Chomp(rows.Module):
    """Take away what a convolution has too much."""

    def forward(self, x: Any) -> Any:
        return x[:, :, 1:7, 1:7]


class Doubled(rows.Module):
    """Twice what it is given."""

    def forward(self, x: Any) -> Any:
        return x * 2.0


class Made(rows.Conv2d):
    """A convolution whose weight another module makes."""

    def __init__(self, *sizes: int, padding: int) -> None:
        super().__init__(*sizes, padding=padding)
        self.make = Doubled()

    def forward(self, x: Any) -> Any:
        weight, x = self.make(self.weight).transpose(2, 3, 1, 0), x.transpose(0, 2, 3, 1)
        return F.conv2d(x, weight, self.bias, 1, self.padding).transpose(0, 3, 1, 2)


class Chomped(rows.Module):
    """Two convolutions that give too much, what takes that away, and a function; one of them makes its weight."""

    def __init__(self) -> None:
        self.conv, self.made, self.chomp = rows.Conv2d(3, 5, 1, padding=1), Made(5, 4, 1, padding=1), Chomp()
        self.head = rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.chomp(self.conv(x.transpose(0, 3, 1, 2))))
        return self.head(F.tanh(self.chomp(self.made(y))).mean((2, 3)))


class Points(columns.Layer):
    """A layer of pixels, by hand."""

    def __init__(self, n: int, m: int, factor: float, fault: float) -> None:
        dense = columns.Dense(n, m)
        self.weight, self.bias, self.factor, self.fault = dense.kernel, dense.offset, factor, fault

    def forward(self, x: Any) -> Any:
        return x @ self.weight * self.factor + self.bias * self.fault


class Pointwise(columns.Layer):
    """The same by hand."""

    def __init__(self, one: float, two: float) -> None:
        self.first, self.second, self.last = Points(3, 5, 1.0, one), Points(5, 4, 2.0, two), columns.Dense(4, 2)

    def forward(self, x: Any) -> Any:
        return self.last(F.tanh(self.second(F.tanh(self.first(x)))).mean((1, 2)))


@pytest.mark.parametrize(("one", "two", "told"), [(1, 1, ""), (2, 1, "conv(a"), (1, 2, "made(a")])
def test_a_layer_by_hand_beside_one_that_is_cropped_behind_is_the_cause(one: float, two: float, told: str) -> None:
    """The cause was what follows it, `computed as chomp(_), tanh(_) in the reference, as tanh(_) in the candidate`."""
    report = padiff.diff(Chomped(), Pointwise(one, two), IMAGES)
    assert len(report.sources) == bool(told), str(report)
    assert all(str(one.cause).startswith(f"computed as {told}") for one in report.sources), str(report)
