"""Compare random ports in which each block takes and gives its values in an order of axes of its own."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

from .generated import Plan, apart, faulty, numbers, plans, written

SEEDS = st.integers(0, 10**6)
SHAPES = {"unlike": (2, 5, 4), "alike": (4, 4, 4)}
SOME = settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def compared(reference: Any, candidate: Any, shape: tuple[int, ...]) -> padiff.Report:
    return padiff.diff(reference, candidate, (numbers(*shape),))


@shapes
@SOME
@given(plans(distinct=True), SEEDS, SEEDS)
def test_a_right_port_is_aligned(shape: tuple[int, ...], plan: Plan, one: int, other: int) -> None:
    reference = written("rows", plan, one, ordered=True)[0]
    candidate = written("columns", plan, other, 1, ordered=True, orders=True)[0]
    report = compared(reference, candidate, shape)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied == len(candidate.parameters())


@shapes
@SOME
@given(plans(distinct=True), SEEDS, SEEDS, SEEDS, SEEDS)
def test_a_fault_is_named_at_its_place(
    shape: tuple[int, ...], plan: Plan, one: int, other: int, where: int, which: int
) -> None:
    """Its module is a source, or the one around it where the other side has no such module."""
    wrong = faulty(plan, where % len(plan.walk()), which)
    reference = written("rows", plan, one, ordered=True)[0]
    candidate, places = written("columns", wrong, other, 1, ordered=True, orders=True)
    report = compared(reference, candidate, shape)
    named = {source.candidate.path for source in report.sources}
    around = {path.rsplit(".", n)[0] for place in places for path in place for n in range(path.count(".") + 1)}
    if report.aligned:
        assert apart(reference, candidate, *shape) < 1e-6, f"a wrong pass:\n{report}"
    else:
        assert named & {*around, *set.union(*places), ""}, f"{places}\n{report}"


def test_behind_a_fault_values_that_are_fed_tell_the_order() -> None:
    """Free runs tell none of axes of one length: the code around a layer without bias was a source, too."""
    plan = Plan("chain", 4, 3, (Plan("linear", 4, 8), Plan("norm", 8, 8), Plan("linear", 8, 3)))
    reference = written("rows", plan, 596, ordered=True)[0]
    candidate = written("columns", faulty(plan, 1, 0), 55917, 1, ordered=True, orders=True)[0]
    report = compared(reference, candidate, SHAPES["alike"])
    assert [source.candidate.path for source in report.sources] == ["b0"], str(report)


@shapes
@SOME
@given(plans(distinct=True), SEEDS, SEEDS, st.integers(0, 5))
def test_a_transposition_that_was_forgotten_is_no_order_of_axes(
    shape: tuple[int, ...], plan: Plan, one: int, other: int, which: int
) -> None:
    reference = written("rows", plan, one, ordered=True)[0]
    candidate, _ = written("columns", plan, other, 1, ordered=True, orders=True, forgotten=which)
    try:
        candidate(columns.Tensor(numbers(*shape)))
    except ValueError:
        return  # a sum of unlike shapes
    report = compared(reference, candidate, shape)
    if report.aligned:
        assert apart(reference, candidate, *shape) < 1e-6, f"a wrong pass:\n{report}"
    else:
        assert report.sources


class TimeFirst(rows.Module):
    """A norm and a layer, between a transposition and its inverse."""

    def __init__(self) -> None:
        self.norm, self.fc = rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(self.norm(x.transpose(1, 0, 2))).transpose(1, 0, 2)


class BatchFirst(columns.Layer):
    def __init__(self, epsilon: float) -> None:
        self.norm, self.fc = columns.LayerNormalization(4, epsilon), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(self.norm(x))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12, 1e-3])
def test_a_norm_that_is_right_in_either_order_is_named_for_its_epsilon(epsilon: float) -> None:
    models = rows.Sequential(TimeFirst(), TimeFirst()), columns.Stack(BatchFirst(epsilon), BatchFirst(epsilon))
    report = compared(*models, (2, 5, 4))
    named = [] if epsilon == 1e-5 else ["0.norm", "1.norm"]
    assert [source.candidate.path for source in report.sources] == named, str(report)
    assert all(source.cause is not None and source.cause.verified for source in report.sources), str(report)


class Recalling(rows.Module):
    """A block that goes on from what it is given as (time, batch, features)."""

    def __init__(self) -> None:
        self.linear, self.out = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any, past: Any) -> Any:
        return self.out(F.concat([past.transpose(1, 0, 2), self.linear(x)], 1))


class Turning(columns.Layer):
    """The same, given it as (batch, time, features)."""

    def __init__(self) -> None:
        self.out, self.linear = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any, past: Any) -> Any:
        return self.out(F.concat([past, self.linear(x)], 1))


class Decoder(rows.Module):
    def __init__(self) -> None:
        self.block = Recalling()

    def forward(self, x: Any, cache: Any) -> Any:
        return self.block(x, cache[0].transpose(1, 0, 2))


class Ported(columns.Layer):
    def __init__(self) -> None:
        self.block = Turning()

    def forward(self, x: Any, cache: Any) -> Any:
        return self.block(x, cache[0])


def test_what_is_read_in_another_order_inside_is_nothing_left_in_a_list_that_was_given() -> None:
    """The tensor in the list, read in the block's order, looked like a new one: an output without counterpart."""
    report = padiff.diff(Decoder(), Ported(), {"x": numbers(2, 5, 4), "cache": [numbers(2, 3, 4)]})
    assert report.aligned, str(report)


class Rooted(rows.Module):
    """A layer over the features, and what it is of them."""

    def __init__(self) -> None:
        self.inner, self.outer = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.outer(F.tanh(self.inner(x)) * 2.0)


class Named(rows.Module):
    def __init__(self) -> None:
        self.first, self.layer, self.second, self.head = Rooted(), rows.Linear(4, 4), Rooted(), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.second(F.tanh(self.layer(self.first(x)) * 4.0)))


class Turned(columns.Layer):
    """The same over (features, time), as many of each."""

    def __init__(self, slope: float) -> None:
        self.inner, self.outer, self.slope = columns.Dense(4, 4), Late(), slope

    def forward(self, x: Any) -> Any:
        return x + self.outer((F.tanh(self.inner(x)) * self.slope).transpose(0, 2, 1)).transpose(0, 2, 1)


class Late(columns.Layer):
    """A layer that takes its features in the last axis but one."""

    def __init__(self) -> None:
        self.kernel, self.bias = columns.weight(4, 4), columns.weight(4)

    def forward(self, x: Any) -> Any:
        return (x.transpose(0, 2, 1) @ self.kernel + self.bias).transpose(0, 2, 1)


class Placed(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.down, self.middle, self.up = Turned(slope), columns.Dense(4, 4), Turned(slope)
        self.head = columns.Dense(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.up(F.tanh(self.middle(self.down(x)) * 4.0)))


@pytest.mark.parametrize("slope", [2.0, 2.1])
def test_an_order_is_that_of_the_same_call_in_a_module_of_the_same_class(slope: float) -> None:
    """Behind the first fault the values of the second block tell none, and its path is no other's."""
    np.random.seed(0)
    x = np.random.default_rng(0).standard_normal((2, 4, 4), dtype=np.float32)
    report = padiff.diff(Named(), Placed(slope), (x,))
    places = [(one.candidate.path, one.what.taker) for one in report.sources]
    assert places == ([] if slope == 2 else [("down", "outer"), ("up", "outer")]), str(report)


def pointwise(
    base: Any, layer: Any, norm: Any, order: Any = (0, 1, 2, 3), eps: float = 1e-5, *, first: bool = False
) -> Any:
    """Two layers, each with a norm, of points with neighbours: their channels ``first``, or last and all in one row."""

    class Net(base):
        def __init__(self) -> None:
            self.one, self.two = (layer(4, 4, 1), layer(4, 6, 1)) if first else (layer(4, 4), layer(4, 6))
            self.norm, self.last = norm(4), norm(6, eps)

        def forward(self, x: Any) -> Any:
            x = x.transpose(0, 3, 2, 1) if first else x
            for one, two in ((self.one, self.norm), (self.two, self.last)):
                y = one(F.tanh(x if first else x[..., list(order)]))
                x = two(y) if first else two(y.reshape(-1, y.shape[-1])).reshape(*y.shape)
            return x.transpose(0, 3, 2, 1) if first else x

    return Net()


@pytest.mark.parametrize(
    ("order", "eps", "places"),
    [((0, 1, 2, 3), 1e-5, []), ((2, 3, 1, 0), 1e-5, ["", ""]), ((0, 1, 2, 3), 1e-1, ["last"])],
)
def test_an_order_is_that_of_what_a_call_gives_and_rows_may_lie_in_another(
    order: Any, eps: float, places: list[str]
) -> None:
    """As many neighbours as channels: behind a fault a layer was read in a wrong order, and a source; no norm was."""
    reference = pointwise(rows.Module, rows.Conv2d, rows.BatchNorm, first=True)
    candidate = pointwise(columns.Layer, columns.Dense, columns.BatchNormalization, order, eps)
    report = compared(reference, candidate, (2, 3, 4, 4))
    assert [source.candidate.path for source in report.sources] == places, str(report)
    assert places or report.coverage.share == 1, str(report)


class Pointwise(rows.Conv2d):
    """A convolution of width 1 along the last axis."""

    def forward(self, x: Any) -> Any:
        batch, channels, length = x.shape
        return super().forward(x.reshape(batch, channels, length, 1)).reshape(batch, -1, length)


class ChannelsFirst(rows.Module):
    def __init__(self) -> None:
        self.first, middle, last = Pointwise(4, 6, 1), Pointwise(6, 6, 1), Pointwise(6, 3, 1)
        self.last = rows.Sequential(rows.ReLU(), middle, rows.ReLU(), last)

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x) * 2.0)


class Activated(columns.Dense):
    """A layer that holds its activation."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)
        self.activation = columns.Rectifier()

    def forward(self, x: Any) -> Any:
        return self.activation(super().forward(x))


class ChannelsLast(columns.Layer):
    def __init__(self) -> None:
        self.first, self.middle, self.last = columns.Dense(4, 6), Activated(6, 6), columns.Dense(6, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.middle(F.relu(self.first(x.transpose(0, 2, 1)) * 2.0))).transpose(0, 2, 1)


def test_an_order_is_not_refuted_where_nothing_is_compared_without_it() -> None:
    """A layer that holds an activation is wrong at first; without any order nothing is, and no layer was compared."""
    report = compared(ChannelsFirst(), ChannelsLast(), (2, 4, 5))
    assert report.aligned, str(report)
    (note,) = (note.text for note in report.notes if note.kind == "axis_order")
    assert "[i, k, j] for [i, j, k] at 'first', 'last'" in note


class Heads(rows.Module):
    """A model that gives keys and values of each block, for its next call; or what is no such ``pair``."""

    def __init__(self, *, pair: bool = True) -> None:
        self.blocks, self.pair = rows.Sequential(rows.Linear(4, 8), rows.Linear(8, 8)), pair

    def forward(self, x: Any) -> Any:
        held = []
        for block in self.blocks:
            x = block(x)
            heads = x.reshape(2, 5, 2, 4).transpose(0, 2, 1, 3)
            held.append((heads * 1.0, heads * 2.0 if self.pair else x))
        return {"out": x, "past": held}


class HeadsLast(columns.Layer):
    """The same with the heads behind the time, as other kernels take them."""

    def __init__(self, scale: float, *, pair: bool = True) -> None:
        self.first, self.second, self.scale = columns.Dense(4, 8), columns.Dense(8, 8), np.float32(scale)
        self.pair = pair

    def forward(self, x: Any) -> Any:
        first = self.first(x)
        second = self.second(first)
        heads = [(y, y.reshape(2, 5, 2, 4)) for y in (first, second)]
        return {"out": second, "past": [(h * self.scale, h * 2.0 if self.pair else y) for y, h in heads]}


@pytest.mark.parametrize(("scale", "pair"), [(1.0, True), (1.1, True), (1.0, False)])
def test_a_cache_may_be_given_in_an_order_of_its_own(scale: float, pair: bool) -> None:
    """Containers of one form held it in both, so that a right port had outputs in another shape."""
    report = compared(Heads(pair=pair), HeadsLast(scale, pair=pair), (2, 5, 4))
    assert {one.candidate.path for one in report.sources} == ({""} if scale > 1 or not pair else set()), str(report)
    notes = [note.text for note in report.notes if note.kind == "axis_order"]
    assert ["[i, k, j, l] for [i, j, k, l] at the model itself" in note for note in notes] == [True] * pair


class Points(rows.Module):
    """A gate between convolutions of one element, beside what it is added to."""

    def __init__(self) -> None:
        self.enter, self.leave, self.skip = (rows.Conv2d(4, size, 1) for size in (8, 4, 4))

    def forward(self, x: Any) -> Any:
        both = self.enter(x)
        gated = F.tanh(both[:, :4]) * F.sigmoid(both[:, 4:])
        return self.leave(gated) + x, self.skip(gated)


class PointsPort(columns.Layer):
    """The same with linear layers, to which channels come last; it hands the one on as it was, and the other so."""

    def __init__(self, wrong: bool) -> None:
        self.skip, self.leave, self.enter = (columns.Dense(4, size) for size in (4, 4, 8))
        self.wrong = wrong

    def forward(self, x: Any) -> Any:
        both = self.enter(x.transpose(0, 2, 3, 1))
        one, other = (both[..., 4:], both[..., :4]) if self.wrong else (both[..., :4], both[..., 4:])
        gated = F.tanh(one) * F.sigmoid(other)
        return self.leave(gated).transpose(0, 3, 1, 2) + x, self.skip(gated)


class Chain(rows.Module):
    """Two of them."""

    def __init__(self) -> None:
        self.first, self.second = Points(), Points()

    def forward(self, x: Any) -> Any:
        x, one = self.first(x)
        x, other = self.second(x)
        return x, one + other


class ChainPort(columns.Layer):
    """The same."""

    def __init__(self, wrong: bool) -> None:
        self.first, self.second = PointsPort(wrong), PointsPort(wrong)

    def forward(self, x: Any) -> Any:
        x, one = self.first(x)
        x, other = self.second(x)
        return x, (one + other).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 4, 4), (4, 4, 4, 4), (2, 4, 5, 3)])
def test_a_linear_layer_has_its_channels_last_where_a_convolution_has_them_first(
    shape: tuple[int, ...], wrong: bool
) -> None:
    """Behind a fault values tell no order of axes of one length: the layers, right ones, were sources, too."""
    report = compared(Chain(), ChainPort(wrong), shape)
    assert report.aligned is not wrong, str(report)
    found = {source.candidate.path for source in report.sources}
    assert found == ({"first", "second"} if wrong else set()), str(report)
