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
