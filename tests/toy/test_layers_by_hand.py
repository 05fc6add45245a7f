"""Compare modules with layers that the other side writes by hand: their parameters, and operations on these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

X = np.random.default_rng(0).standard_normal((2, 5, 4), dtype=np.float32)


class ByHand(columns.Layer):
    """A linear layer whose matrix lies the other way round, and whose bias is added apart."""

    def __init__(self, n: int, m: int) -> None:
        rng = np.random.default_rng(n)
        self.w = columns.Tensor(rng.standard_normal((n, m), dtype=np.float32), requires_grad=True, role="parameter")
        self.b = columns.Tensor(rng.standard_normal(m, dtype=np.float32), requires_grad=True, role="parameter")

    def forward(self, x: Any) -> Any:
        return x @ self.w + self.b


def recurrent(base: Any, linear: Any, fault: float = 1.0) -> Any:
    class Net(base):
        def __init__(self) -> None:
            self.given, self.kept = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            state = x[:, 0] * 0.0
            for i in range(5):
                state = functional.tanh(self.given(x[:, i]) + self.kept(state) * fault)
            return state

    return Net()


def test_which_way_a_matrix_lies_does_not_show_in_zeros() -> None:
    """The state of the first call is nothing, and so is its product with either: the first was taken."""
    report = padiff.diff(recurrent(rows.Module, rows.Linear), recurrent(columns.Layer, ByHand), (X,))
    assert report.aligned, report
    report = padiff.diff(recurrent(rows.Module, rows.Linear), recurrent(columns.Layer, ByHand, 1.01), (X,))
    assert {source.candidate.path for source in report.sources} == {""}, report


class Kernel(columns.Layer):
    """A convolution by hand of square images, which may take rows for columns.

    ``axes`` are those of the filters that are rows, columns, inputs, outputs.
    """

    def __init__(self, turned: bool, axes: tuple[int, ...] = (2, 3, 1, 0)) -> None:
        self.filters = columns.weight(*((3, 3, 2, 3)[axes.index(axis)] for axis in range(4)))
        self.shift, self.turned, self.axes = columns.weight(3, 1, 1), turned, axes

    def forward(self, x: Any) -> Any:
        x = x.transpose(0, 1, 3, 2) if self.turned else x
        y = functional.conv2d(x.transpose(0, 2, 3, 1), self.filters.transpose(*self.axes), padding=1)
        y = y.transpose(0, 3, 1, 2)
        return (y.transpose(0, 1, 3, 2) if self.turned else y) + self.shift


@pytest.mark.parametrize("axes", [(2, 3, 1, 0), (0, 1, 2, 3), (1, 2, 3, 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_and_columns_of_a_kernel_are_never_exchanged(turned: bool, axes: tuple[int, ...]) -> None:
    """With its kernel turned a port that turns its images is right: whoever copies it as it is has another model."""
    images = np.random.default_rng(0).standard_normal((2, 2, 6, 6), dtype=np.float32)
    report = padiff.diff(rows.Sequential(rows.Conv2d(2, 3, 3, padding=1)), columns.Stack(Kernel(turned, axes)), images)
    assert report.aligned == (not turned), str(report)


def residual(base: Any, linear: Any, scale: float) -> Any:
    class Block(base):
        def __init__(self) -> None:
            self.query, self.key, self.out = linear(4, 4), linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            scores = functional.softmax(self.query(x) @ self.key(x).transpose(0, 2, 1) * scale, -1)
            return x + self.out(scores @ self.query(x))

    class Net(base):
        def __init__(self) -> None:
            self.first, self.block, self.inner, self.outer = linear(4, 4), Block(), linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            x = self.block(self.first(x))
            return x + self.outer(functional.sigmoid(self.inner(x)))

    return Net()


@pytest.mark.parametrize("scale", [0.5, 0.505], ids=["right", "wrong"])
def test_a_bias_that_is_added_apart_is_no_place_of_its_own_in_the_dataflow(scale: float) -> None:
    """Of layers of one shape, the outputs of two branches were taken for each other."""
    report = padiff.diff(residual(rows.Module, rows.Linear, 0.5), residual(columns.Layer, ByHand, scale), (X,))
    assert [source.candidate.path for source in report.sources] == ["block"] * (scale != 0.5), report


class Scaled(rows.Linear):
    """A linear layer of the framework's whose weight is computed: a direction, and how much of it."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__(n, m)
        self.direction, self.size = self.weight, rows.parameter(m, 1, at=1.0)
        del self.weight

    def forward(self, x: Any) -> Any:
        return functional.linear(x, (self.direction * self.size).transpose(1, 0), self.bias)


class ScaledByHand(columns.Layer):
    """The same by hand, with other names and in another order."""

    def __init__(self, n: int, m: int) -> None:
        self.shift, self.g, self.v = columns.weight(m), columns.weight(m, 1, at=1.0), columns.weight(m, n)

    def forward(self, x: Any) -> Any:
        return x @ (self.g * self.v).transpose(1, 0) + self.shift


def chain(base: Any, layer: Any, activation: Any = functional.tanh) -> Any:
    class Net(base):
        def __init__(self) -> None:
            self.first, self.second = layer(4, 6), layer(6, 4)

        def forward(self, x: Any) -> Any:
            return self.second(activation(self.first(x)))

    return Net()


def test_a_weight_that_is_computed_belongs_to_what_computes_it() -> None:
    """Weight norm by hand: its direction was in the reference only, and in the candidate only."""
    report = padiff.diff(chain(rows.Module, Scaled), chain(columns.Layer, ScaledByHand), (X,))
    assert report.aligned, report
    report = padiff.diff(chain(rows.Module, Scaled), chain(columns.Layer, ScaledByHand, functional.silu), (X,))
    (source,) = report.sources
    assert (source.candidate.path, source.between) == ("", ("first", "second")), report


def test_what_a_plain_layer_lacks_of_a_computed_weight_is_named() -> None:
    """0.4 named the bias of such a layer as missing."""
    report = padiff.diff(chain(rows.Module, Scaled), chain(columns.Layer, columns.Dense), (X,))
    named = {(source.reference.path, source.what.kind, source.what.name) for source in report.sources}
    assert named == {(path, "parameter", "size") for path in ("first", "second")}, report


def filtered(state: Any, x: Any, mix: Any, size: Any, cut: Any = lambda gain: gain) -> Any:
    """Return the next state of a filter: what is expected, and as much of what was seen as its gain says."""
    expected = functional.tanh(state @ mix + size)
    gain = cut(functional.sigmoid(size * size))
    return expected + gain * (x - expected)


class Filtering(rows.Module):
    """A filter between two layers, of parameters that the model holds itself."""

    def __init__(self) -> None:
        self.encode, self.decode = rows.Linear(4, 4), rows.Linear(4, 3)
        self.mix, self.size = rows.parameter(4, 4), rows.parameter(4)

    def forward(self, x: Any) -> Any:
        x = self.encode(x)
        state = x[:, 0]
        for i in range(5):
            state = filtered(state, x[:, i], self.mix, self.size)
        return self.decode(state)


class Cell(columns.Layer):
    """What holds the parameters, and is never called as a module is."""

    def __init__(self, detached: bool) -> None:
        self.transition, self.noise, self.detached = columns.weight(4, 4), columns.weight(4), detached

    def forward(self, state: Any, x: Any) -> Any:
        cut = (lambda gain: columns.Tensor(gain.data)) if self.detached else (lambda gain: gain)
        return filtered(state, x, self.transition, self.noise, cut)


class Filter(columns.Layer):
    """The filter as a module."""

    def __init__(self, detached: bool) -> None:
        self.cell = Cell(detached)

    def forward(self, x: Any) -> Any:
        state = x[:, 0]
        for i in range(5):
            state = self.cell.forward(state, x[:, i])
        return state


class InModules(columns.Layer):
    def __init__(self, detached: bool) -> None:
        self.head, self.first, self.inner = columns.Dense(4, 3), columns.Dense(4, 4), Filter(detached)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(self.first(x)))


@pytest.mark.parametrize("detached", [False, True], ids=["right", "detached"])
def test_gradients_of_parameters_are_placed_where_these_are_held(detached: bool) -> None:
    """A Kalman filter's gain that is detached: the gradients were wrong in the whole model's code, it was said."""
    report = padiff.diff(Filtering(), InModules(detached), (X,))
    assert report.aligned != detached, report
    assert {source.candidate.path for source in report.sources} <= {"inner.cell"}, report


class Spline(rows.Module):
    """A product with a matrix, and one with three that are scaled by another of the same shape."""

    def __init__(self, taken: int, given: int) -> None:
        self.scale, self.base = rows.parameter(given, taken, at=1.0), rows.Linear(taken, given, bias=False)
        self.weight = rows.parameter(given, taken, 3)

    def forward(self, x: Any) -> Any:
        bent = (functional.tanh(x * (1.0 + i)) for i in range(3))
        bent = (
            functional.linear(one, (self.weight[:, :, i] * self.scale).transpose(1, 0)) for i, one in enumerate(bent)
        )
        return sum(bent) + self.base(functional.silu(x))


class SplineByHand(columns.Layer):
    """The same with no layer: what is around the two matrices of one shape tells which is which."""

    def __init__(self, taken: int, given: int) -> None:
        self.matrix, self.splines = columns.weight(taken, given), columns.weight(taken, given, 3)
        self.factor = columns.weight(taken, given)

    def forward(self, x: Any) -> Any:
        scaled = self.splines * self.factor.reshape(*self.factor.shape, 1)
        return functional.silu(x) @ self.matrix + sum(
            functional.tanh(x * (1.0 + i)) @ scaled[:, :, i] for i in range(3)
        )


def two_of(base: Any, part: Any) -> Any:
    class Two(base):
        def __init__(self) -> None:
            self.first, self.second = part(4, 6), part(6, 3)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    return Two()


@pytest.mark.parametrize("to_layers", [False, True])
def test_replays_tell_which_of_two_matrices_is_a_layers(to_layers: bool) -> None:
    """Their order told, which is another on the other side; in the second layer one matrix has two equal axes, too."""
    sides = two_of(rows.Module, Spline), two_of(columns.Layer, SplineByHand)
    report = padiff.diff(*sides[:: -1 if to_layers else 1], X)
    assert report.aligned, str(report)


class Swapped(rows.Module):
    """Two matrices of one shape, told by their names alone."""

    def __init__(self, swapped: bool = False) -> None:
        self.base, self.scale, self.swapped = rows.parameter(4, 4), rows.parameter(4, 4), swapped

    def forward(self, x: Any) -> Any:
        base, scale = (self.scale, self.base) if self.swapped else (self.base, self.scale)
        return functional.linear(functional.tanh(functional.linear(x, base)), scale)


def test_parameters_matched_against_their_names_are_told() -> None:
    """What a matrix is used for tells which it is; whoever loads weights by name meets the fault."""
    report = padiff.diff(Swapped(), Swapped(swapped=True), X)
    (note,) = (note for note in report.notes if note.kind == "against_names")
    assert note.data["matches"] == [("base", "scale", "base"), ("scale", "base", "scale")], str(report)


class Normed(rows.Module):
    """Two layers with a norm each, whose statistics moved."""

    def __init__(self) -> None:
        self.one, self.first, self.two, self.second = (
            rows.Linear(4, 6), rows.BatchNorm(6), rows.Linear(6, 6), rows.BatchNorm(6)
        )  # fmt: skip
        for norm in (self.first, self.second):
            norm.running_mean.data[:], norm.running_var.data[:] = np.random.normal(0, 1, 6), np.random.uniform(1, 2, 6)

    def forward(self, x: Any) -> Any:
        return self.second(self.two(functional.tanh(self.first(self.one(x)))))


class NormedInOne(columns.Layer):
    """The same with all that the norms hold in the model itself."""

    def __init__(self, *, training: bool, fault: str = "") -> None:
        self.up, self.down = columns.Dense(4, 6), columns.Dense(6, 6)
        for n in range(2):
            setattr(self, f"var{n}", columns.statistic(np.ones(6)))
            setattr(self, f"mean{n}", columns.statistic(np.zeros(6)))
            setattr(self, f"g{n}", columns.weight(6, scale=0.3, at=1.0))
            setattr(self, f"b{n}", columns.weight(6))
        self.own, self.fault = training, fault

    def norm(self, x: Any, n: int) -> Any:
        kept = 0 if self.fault == "statistics" else n
        names = [f"g{n}", f"b{n}", f"mean{kept}", f"var{n}"]
        held = [getattr(self, name) for name in names]
        eps, momentum = 1e-2 if n and self.fault == "eps" else 1e-5, 0.2 if n and self.fault == "momentum" else 0.1
        return functional.batch_norm(x, *held, eps=eps, momentum=momentum, training=self.own, axis=-1)

    def forward(self, x: Any) -> Any:
        return self.norm(self.down(functional.tanh(self.norm(self.up(x), 0))), 1)


@pytest.mark.parametrize("turned", [False, True], ids=["norms", "in one"])
@pytest.mark.parametrize(
    ("training", "fault"), [(True, ""), (False, ""), (True, "momentum"), (False, "eps"), (False, "statistics")]
)
def test_a_norm_may_keep_its_statistics_in_the_model_itself(training: bool, fault: str, turned: bool) -> None:
    """These had no counterpart in a norm that a rule speaks of."""
    sides = Normed(), NormedInOne(training=training, fault=fault)
    for one in (sides[0], sides[0].first, sides[0].second):
        one.training = training
    report = padiff.diff(*(sides[::-1] if turned else sides), (X[0],))
    assert report.aligned is not bool(fault), str(report)
    missing = [one for one in report.sources if one.what.kind in ("parameter", "buffer")]
    assert not missing or fault == "statistics", str(report)


@pytest.mark.parametrize(("exchanged", "turned"), [(False, False), (True, False), (True, True)])
def test_statistics_that_are_used_for_each_other_are_a_fault(exchanged: bool, turned: bool) -> None:
    """Forcing shows them right the other way round; who loads them by their names meets the fault."""

    class Plain(rows.Module):
        def __init__(self) -> None:
            self.norm, self.out, self.training = rows.BatchNorm(4), rows.Linear(4, 2), False
            self.norm.running_mean.data[:], self.norm.running_var.data[:] = np.random.uniform(1, 2, (2, 4))
            self.norm.training = False

        def forward(self, x: Any) -> Any:
            return self.out(self.norm(x))

    class ByHand(columns.Layer):
        def __init__(self) -> None:
            self.gain, self.offset, self.last = columns.weight(4, at=1.0), columns.weight(4), columns.Dense(4, 2)
            self.moving_mean, self.moving_variance = (columns.statistic(np.random.uniform(1, 2, 4)) for _ in range(2))

        def forward(self, x: Any) -> Any:
            mean, variance = (self.moving_mean, self.moving_variance)[:: -1 if exchanged else 1]
            return self.last((x - mean) / (variance + 1e-5).sqrt() * self.gain + self.offset)

    report = padiff.diff(*((Plain(), ByHand())[:: -1 if turned else 1]), (X[0],))
    assert report.aligned is not exchanged, str(report)
    assert len(report.sources) == exchanged, str(report)
