"""Hold in one parameter what the other side holds in several: weights of mixing and of fusion, tables of positions."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.parameters import Correspondence, HeldUnit, UnitMatch, transfer
from padiff.parameters._joined import _by_columns, with_last
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import Flow, ModuleRecord, ParameterRecord

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


class Mixed(rows.Module):
    """A block that mixes each step with the one before, by a weight for each map; a decay and a bonus."""

    def __init__(self) -> None:
        self.bonus, self.decay = rows.parameter(4), rows.parameter(4)
        self.mix_k, self.mix_v, self.mix_r = (rows.parameter(1, 1, 4) for _ in range(3))
        self.key, self.value, self.gate = rows.Linear(4, 4), rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        before = F.concat([x[:, :1] * 0.0, x[:, :-1]], 1)
        k, v, r = (
            layer(x * mix + before * (mix * -1.0 + 1.0))
            for layer, mix in ((self.key, self.mix_k), (self.value, self.mix_v), (self.gate, self.mix_r))
        )
        return x + F.sigmoid(r) * (F.tanh(k * self.decay) + self.bonus) * v


class MixedAsOne(columns.Layer):
    """The same, with all weights of mixing in one."""

    def __init__(self, fault: str = "") -> None:
        self.w, self.u, self.mix = columns.weight(4), columns.weight(4), columns.weight(3, 4)
        self.r, self.k, self.v = columns.Dense(4, 4), columns.Dense(4, 4), columns.Dense(4, 4)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        before = F.concat([x[:, :1] * 0.0, x[:, :-1]], 1)
        r, k, v = (before + (x - before) * self.mix[i] for i in range(3))
        k, v = self.k(k), self.v(x if self.fault == "unmixed" else v)
        return x + F.sigmoid(self.r(r)) * (F.tanh(k * self.w) + self.u) * v


class HalfMixed(Mixed):
    """The same, with values of the step itself."""

    def __init__(self) -> None:
        super().__init__()
        del self.mix_v

    def forward(self, x: Any) -> Any:
        before = F.concat([x[:, :1] * 0.0, x[:, :-1]], 1)
        k, r = (
            layer(x * mix + before * (mix * -1.0 + 1.0))
            for layer, mix in ((self.key, self.mix_k), (self.gate, self.mix_r))
        )
        return x + F.sigmoid(r) * (F.tanh(k * self.decay) + self.bonus) * self.value(x)


class HalfMixedAsOne(MixedAsOne):
    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.mix = columns.weight(2, 4)

    def forward(self, x: Any) -> Any:
        before = F.concat([x[:, :1] * 0.0, x[:, :-1]], 1)
        r, k = (before + (x - before) * self.mix[i] for i in range(2))
        k = self.k(k)
        return x + F.sigmoid(self.r(r)) * (F.tanh(k * self.w) + self.u) * self.v(x)


class Fused(rows.Module):
    """A sum of two branches by weights of its own."""

    def __init__(self) -> None:
        self.shares, self.out = rows.parameter(2, at=1.0, scale=0.5), rows.Linear(4, 4)

    def forward(self, a: Any, b: Any) -> Any:
        share = self.shares * self.shares
        return self.out((a * share[0] + b * share[1]) / (share[0] + share[1] + 1e-4))


class FusedOfAll(columns.Layer):
    """A sum of two branches by weights that it is given."""

    def __init__(self) -> None:
        self.proj = columns.Dense(4, 4)

    def forward(self, a: Any, b: Any, share: Any) -> Any:
        return self.proj((a * share[0] + b * share[1]) / (share[0] + share[1] + 1e-4))


class Model(rows.Module):
    def __init__(self, part: Any = Mixed) -> None:
        self.first, self.last = rows.Linear(4, 4), rows.Linear(4, 4)
        self.blocks = rows.ModuleList(part(), part())

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class ModelAsOne(columns.Layer):
    def __init__(self, part: Any = MixedAsOne, fault: str = "") -> None:
        self.out, self.upper, self.lower = columns.Dense(4, 4), part(fault), part(fault)
        self.given = columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return self.out(self.upper(self.lower(self.given(x))))


@pytest.mark.parametrize(("ours", "theirs"), [(Mixed, MixedAsOne), (HalfMixed, HalfMixedAsOne)], ids=["three", "two"])
@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
def test_one_parameter_holds_several_of_a_module(ours: Any, theirs: Any, turned: bool) -> None:
    """0.6 found no counterpart of any: with the order of its rows open, and that of two vectors beside it.

    As many as there are blocks was taken for one of each block.
    """
    sides = Model(ours), ModelAsOne(theirs)
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied


def test_a_fault_beside_joined_parameters_stands_at_its_place() -> None:
    report = padiff.diff(Model(), ModelAsOne(fault="unmixed"), (X,))
    places = {(one.candidate.path, one.between) for one in report.sources}
    assert places == {("lower", ("k", "v")), ("upper", ("k", "v"))}, str(report)


class Pyramid(rows.Module):
    def __init__(self) -> None:
        self.a, self.b = rows.Linear(4, 4), rows.Linear(4, 4)
        self.first, self.second = Fused(), Fused()

    def forward(self, x: Any) -> Any:
        a, b = self.a(x), F.tanh(self.b(x))
        up = self.first(a, b)
        return self.second(up, b)


class PyramidAsOne(columns.Layer):
    def __init__(self, fault: float = 1.0) -> None:
        self.shares = columns.weight(4, at=1.0, scale=0.5)
        self.top, self.low = FusedOfAll(), FusedOfAll()
        self.b, self.a, self.fault = columns.Dense(4, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        share = self.shares * self.shares
        a, b = self.a(x), F.tanh(self.b(x))
        return self.top(self.low(a, b, share[:2] * self.fault), b, share[2:])


@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
def test_one_parameter_holds_those_of_several_modules(turned: bool) -> None:
    sides = Pyramid(), PyramidAsOne()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)


class PyramidByColumns(PyramidAsOne):
    """The same, with a column for each fusion."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = columns.weight(2, 2, at=1.0, scale=0.5)

    def forward(self, x: Any) -> Any:
        share = self.shares * self.shares
        a, b = self.a(x), F.tanh(self.b(x))
        return self.top(self.low(a, b, share[:, 0]), b, share[:, 1])


@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
def test_one_parameter_holds_others_by_columns(turned: bool) -> None:
    sides = Pyramid(), PyramidByColumns()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)


def test_a_parameter_that_is_missing_is_still_named() -> None:
    report = padiff.diff(Model(), ModelAsOne(HalfMixedAsOne), (X,))
    lacking = {(one.candidate.path, one.what.name[:4]) for one in report.sources if one.what.kind == "parameter"}
    assert lacking == {("lower", "mix_"), ("upper", "mix_")}, str(report)


def test_one_matrix_of_the_same_shape_is_not_taken_for_what_is_joined() -> None:
    def unit(name: str, *shape: int) -> HeldUnit:
        return attrs.evolve(
            HeldUnit.of_one(ModuleRecord("m", "M"), "weight", ParameterRecord(name, (name,), "float32", shape)),
            name=name,
        )

    whole, half, same = unit("whole", 2, 6, 1), [unit(name, 1, 2, 3) for name in "ab"], unit("same", 2, 6)
    found = _by_columns(whole, half, ours=True)
    assert found is not None
    assert len(found.members) == 2
    assert _by_columns(whole, [same], ours=True) is None


def unit(module: str, name: str, *shape: int) -> HeldUnit:
    path = f"{module}.{name}"
    return HeldUnit.of_one(ModuleRecord(module, "M"), name, ParameterRecord(path, (path,), "float32", shape))


def test_what_is_left_over_of_one_shape_is_matched_where_both_sides_use_as_many() -> None:
    """The decay of a loop had no counterpart where the other side sums all steps: nothing stands around both alike.

    A parameter that one side's code forgets was told as missing on both sides, beside the place where it should be.
    """
    ours = [unit("1.att", "decay", 4), unit("0.att", "decay", 4), unit("0.att", "gain", 3), unit("0", "unused", 2)]
    theirs = [unit("up", "w", 1, 4), unit("low", "w", 1, 4), unit("low", "a", 3), unit("up", "b", 3)]
    theirs.append(unit("low", "u", 2))
    orders = ["0.att.gain", "0.att.decay", "1.att.decay"], ["low.w", "low.a", "low.u", "up.w", "up.b"]
    flows = Flow({path: frozenset() for path in orders[0]}), Flow({path: frozenset() for path in orders[1]})
    found = with_last(Correspondence(ours, theirs, []), flows)
    named = [(link.reference.parameter.path, link.candidate.parameter.path) for _, link in found.links]
    assert named == [("0.att.decay", "low.w"), ("1.att.decay", "up.w"), ("0.unused", "low.u")]


def test_what_one_side_has_is_not_taken_for_what_the_other_calls_so() -> None:
    ours, theirs = ([unit("m", "a", 4), unit("m", "b", 4)] for _ in range(2))
    known = Correspondence(ours, theirs, [UnitMatch.of(ours[0], theirs[1])])
    assert known.left == ({"m.b"}, {"m.a"})


class Scored(rows.Module):
    """Attention between nodes of a graph: each head adds a score of the one to a score of the other."""

    def __init__(self) -> None:
        self.lin = rows.Linear(4, 6, bias=False)
        self.source, self.target = rows.parameter(1, 2, 3), rows.parameter(1, 2, 3)

    def forward(self, x: Any) -> Any:
        z = self.lin(x).reshape(5, 2, 3)
        given, taken = (z * self.source).sum(-1), (z * self.target).sum(-1)
        scores = F.softmax(F.tanh(taken.transpose(1, 0).reshape(2, 5, 1) + given.transpose(1, 0).reshape(2, 1, 5)))
        return (scores @ z.transpose(1, 0, 2)).transpose(1, 0, 2).reshape(5, 6)


class ScoredAsOne(columns.Layer):
    """The same, with one parameter that scores both, head by head."""

    def __init__(self, scale: float = 1.0) -> None:
        self.fc, self.a, self.scale = columns.Dense(4, 6, bias=False), columns.weight(2, 6, 1), scale

    def forward(self, x: Any) -> Any:
        z = self.fc(x).reshape(5, 2, 3).transpose(1, 0, 2)
        given, taken = z @ self.a[:, :3], z @ self.a[:, 3:]
        return (F.softmax(F.tanh(taken * self.scale + given.transpose(0, 2, 1))) @ z).transpose(1, 0, 2).reshape(5, 6)


@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
def test_one_parameter_holds_others_side_by_side_in_each_head(turned: bool) -> None:
    nodes = X[0]
    sides = Scored(), ScoredAsOne()
    report = padiff.diff(*(sides[::-1] if turned else sides), nodes)
    assert report.aligned, str(report)
    assert not padiff.diff(Scored(), ScoredAsOne(scale=1.1), nodes).aligned


class InPairs(rows.Module):
    """A product with complex numbers, whose real and imaginary parts lie side by side."""

    def __init__(self) -> None:
        self.c, self.out = rows.parameter(4, 3, 2), rows.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        real, imaginary = (self.c.reshape(12, 2)[:, i].reshape(4, 3) for i in range(2))
        return self.out(F.tanh(F.linear(x, real)) - F.linear(x, imaginary) * F.linear(x, real))


class ByParts(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.imaginary, self.real = columns.weight(4, 3), columns.weight(4, 3)
        self.last, self.fault = columns.Dense(3, 2), fault

    def forward(self, x: Any) -> Any:
        real, imaginary = F.linear(x, self.real), F.linear(x, self.imaginary)
        return self.last(F.tanh(real) + imaginary * real * (1.0 if self.fault else -1.0))


@pytest.mark.parametrize(("turned", "fault"), [(False, ""), (True, ""), (False, "conjugate")])
def test_real_and_imaginary_parts_side_by_side_are_matched_with_each(turned: bool, fault: str) -> None:
    """Both matrices were told as missing: only rows, and a matrix's columns, were looked at."""
    sides = InPairs(), ByParts(fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert {(one.candidate.path, str(one.what)) for one in report.sources} == (
        {("", "input 'x' of last")} if fault else set()
    ), str(report)
    assert report.aligned == (not fault)


class Attending(rows.Module):
    """Attention with one matrix for queries, keys and values, and a layer for what it gives."""

    def __init__(self) -> None:
        self.packed, self.out = rows.parameter(12, 4, scale=0.5), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        packed = x @ self.packed.transpose(1, 0)
        q, k, v = (packed[..., 4 * n : 4 * n + 4] for n in range(3))
        return self.out(F.attention(q, k, v, 2))


class AttendingByMatrices(columns.Layer):
    """The same with four matrices that look all alike."""

    def __init__(self, fault: str = "") -> None:
        self.q, self.k, self.v, self.o = (columns.weight(4, 4, scale=0.5) for _ in range(4))
        self.shift, self.fault = columns.weight(4), fault

    def forward(self, x: Any) -> Any:
        q, k, v = (x @ one for one in (self.q, self.k, self.v.transpose(1, 0) if self.fault == "turn" else self.v))
        return F.attention(q, -k if self.fault == "sign" else k, v, 2) @ self.o + self.shift


@pytest.mark.parametrize(("fault", "turned"), [("", False), ("", True), ("turn", False), ("sign", False)])
def test_matrices_that_look_like_a_layer_are_not_joined_first(fault: str, turned: bool) -> None:
    """A matrix of queries was taken for the layer behind, and the others were joined: nothing was left over so."""
    below = rows.Sequential(Attending(), Attending()), columns.Stack(AttendingByMatrices(), AttendingByMatrices(fault))
    report = padiff.diff(*(below[::-1] if turned else below), (X,))
    assert {one.candidate.path for one in report.sources} == ({"1"} if fault else set()), str(report)
    assert report.aligned is not bool(fault), str(report)


class Tokens(rows.Module):
    """Tokens for the whole, and for each number, by one weight; others are given. One bias for all but the first."""

    def __init__(self, given: int = 2) -> None:
        self.weight, self.bias, self.out = rows.parameter(4, 4), rows.parameter(3 + given, 4), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        tokens = F.concat([x[:, :1, :1] * 0.0 + 1.0, x[:, :3, :1]], 1) * self.weight
        return self.out(F.tanh(F.concat([tokens[:, :1], F.concat([tokens[:, 1:], x[:, 3:]], 1) + self.bias], 1)))


class TokensApart(columns.Layer):
    """The same, with a parameter for each group of tokens."""

    def __init__(self, scale: float = 1.0, given: int = 2) -> None:
        self.whole, self.given, self.scale = columns.weight(1, 1, 4), columns.weight(given, 4), scale
        self.gains, self.shifts, self.last = columns.weight(3, 4), columns.weight(3, 4), columns.Dense(4, 3)

    def forward(self, x: Any) -> Any:
        numbers = x[:, :3, :1] * self.gains + self.shifts * self.scale
        return self.last(F.tanh(F.concat([x[:, :1, :1] * 0.0 + self.whole, numbers, x[:, 3:] + self.given], 1)))


@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
def test_parameters_are_joined_that_do_not_lie_side_by_side_in_the_run(turned: bool) -> None:
    """Only the first that are met were looked at: two were left over on one side, and four on the other."""
    sides = Tokens(), TokensApart()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)
    assert len(padiff.diff(Tokens(), TokensApart(1.1), (X,)).sources) == 1


@pytest.mark.parametrize(("turned", "scale"), [(False, 1.0), (True, 1.0), (False, 1.1)])
def test_what_is_of_one_shape_may_hold_others_all_the_same(turned: bool, scale: float) -> None:
    """The weights of all were taken for the bias of those that are given, and nothing was left over to show it."""
    sides = Tokens(4), TokensApart(scale, 4)
    x = np.random.default_rng(0).standard_normal((2, 7, 4)).astype(np.float32)
    report = padiff.diff(*(sides[::-1] if turned else sides), (x,))
    assert len(report.sources) == (scale != 1.0), str(report)
    assert report.aligned == (scale == 1.0), str(report)


class Seeded(rows.Module):
    """A child adds what it holds for the first steps; what is for the others hangs at the model itself."""

    def __init__(self) -> None:
        self.rest, self.child, self.out = rows.parameter(3, 4), Adding(), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.out(F.tanh(F.concat([self.child(x[:, :2]), x[:, 2:] + self.rest], 1)))


class Adding(rows.Module):
    def __init__(self) -> None:
        self.seeds, self.mix = rows.parameter(1, 2, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.mix(x + self.seeds)


class SeededAsOne(columns.Layer):
    """The same, with one parameter for all steps, which hangs at the model under two names."""

    def __init__(self, rows_of: tuple[int, ...], scale: float = 1.0) -> None:
        self.all = self.alias = columns.weight(*rows_of)
        self.mix, self.out, self.scale = columns.Dense(4, 4), columns.Dense(4, 3), scale

    def forward(self, x: Any) -> Any:
        x = x + self.all * self.scale
        return self.out(F.tanh(F.concat([self.mix(x[:, :2]), x[:, 2:]], 1)))


@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
@pytest.mark.parametrize("shape", [(5, 4), (1, 5, 4)], ids=["rows", "steps"])
def test_parameters_of_several_rows_are_joined_beside_axes_of_one(shape: tuple[int, ...], turned: bool) -> None:
    """A parameter `[1, rows, width]` was never found in one that holds it with others, on either side."""
    sides = Seeded(), SeededAsOne(shape)
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)
    assert not padiff.diff(Seeded(), SeededAsOne(shape, 1.1), (X,)).aligned


class FusedUnderTwoNames(columns.Layer):
    """A sum of two branches by a weight for each, which hangs at the layer under two names."""

    def __init__(self) -> None:
        self.a = self.first = columns.weight(1, at=1.0, scale=0.5)
        self.b = self.second = columns.weight(1, at=1.0, scale=0.5)
        self.out = columns.Dense(4, 4)

    def forward(self, a: Any, b: Any) -> Any:
        first, second = self.first * self.first, self.second * self.second
        return self.out((a * first + b * second) / (first + second + 1e-4))


@pytest.mark.parametrize("turned", [False, True], ids=["several", "one"])
def test_a_parameter_under_two_names_is_joined_once(turned: bool) -> None:
    """It was taken for two: the other one had no counterpart."""
    sides = Fused(), FusedUnderTwoNames()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X, X[::-1] * 2))
    assert report.aligned, str(report)


class Holding:
    """What hands out its own memory, as sides do."""

    def __init__(self, **held: Any) -> None:
        self.held = {f"m.{name}": np.asarray(value, np.float32) for name, value in held.items()}

    def value(self, path: str) -> Any:
        return self.held[path]

    def assign(self, arrays: Any) -> None:
        for path, array in arrays.items():
            self.held[path][...] = array


def test_a_part_that_is_copied_over_a_whole_leaves_the_reference_as_it_is() -> None:
    """What waited to be copied was the reference's own memory, and the part was written into that."""

    def piece(one: HeldUnit, *rows: tuple[int, int]) -> HeldUnit:
        (held,) = one.roles.values()
        return attrs.evolve(one, roles={"weight": held.lying(rows=rows or None)})

    whole, part, target = unit("m", "whole", 4, 2), unit("m", "part", 1, 2), unit("m", "target", 4, 2)
    both = UnitMatch.of(piece(whole), piece(target)), UnitMatch.of(piece(part), piece(target, (1, 2)))
    ours, theirs = Holding(whole=np.ones((4, 2)), part=np.full((1, 2), 5.0)), Holding(target=np.zeros((4, 2)))
    transfer(both, ours, theirs)
    assert np.array_equal(ours.held["m.whole"], np.ones((4, 2)))
    assert theirs.held["m.target"][:, 0].tolist() == [1.0, 5.0, 1.0, 1.0]


class Decayed(rows.Module):
    """What decays each element by a parameter of its own."""

    def __init__(self) -> None:
        self.decay, self.weight = rows.parameter(4), rows.parameter(4, 3)

    def forward(self, x: Any) -> Any:
        return F.tanh(x * F.sigmoid(self.decay)) @ (self.weight @ self.weight.transpose(1, 0))


class Scaled(rows.Module):
    """A block that scales what it is given, beside what a module inside of it makes of that."""

    def __init__(self) -> None:
        self.skip, self.kernel, self.layer = rows.parameter(4), Decayed(), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(self.kernel(x) + x * self.skip)


class ScaledOtherwise(columns.Layer):
    """The same in one module; or it forgets to scale."""

    def __init__(self, unread: bool) -> None:
        self.layer, self.by, self.rate = columns.Dense(4, 4), columns.weight(1, 4), columns.weight(4)
        self.inner, self.unread = columns.weight(4, 3), unread

    def forward(self, x: Any) -> Any:
        y = F.tanh(x * F.sigmoid(self.rate)) @ (self.inner @ self.inner.transpose(1, 0))
        return self.layer(y if self.unread else y + x * self.by)


@pytest.mark.parametrize("phase", ["both", "forward"])
def test_parameters_that_one_side_reads_nowhere_are_those_that_the_other_has_alone(phase: Any) -> None:
    """Each block was two sources: what the reference has alone, and what the candidate has."""
    ours = rows.Sequential(Scaled(), Scaled())
    right, wrong = (columns.Stack(ScaledOtherwise(unread), ScaledOtherwise(unread)) for unread in (False, True))
    assert padiff.diff(ours, right, X, phase=phase).aligned
    report = padiff.diff(ours, wrong, X, phase=phase)
    assert "1 source in 2 places" in str(report), str(report)
    assert [(one.phase.value, one.candidate.path) for one in report.sources] == [("forward", "0"), ("forward", "1")]


class Chained(rows.Module):
    """Scores of states behind a layer: what a first one, a last one and a change cost."""

    def __init__(self) -> None:
        self.look, self.rate = rows.Linear(4, 4), rows.Linear(4, 3)
        self.first, self.last, self.change = rows.parameter(3), rows.parameter(3), rows.parameter(3, 3)

    def forward(self, x: Any) -> Any:
        rated = self.rate(F.tanh(self.look(x)))
        cost = rated[:, 0] + self.first
        for t in range(1, x.shape[1]):
            cost = F.tanh(cost @ self.change) + rated[:, t]
        return cost + self.last, rated


class ChainedAsOne(columns.Layer):
    """The same, with all costs in one; the first layer is called for each step."""

    def __init__(self, fault: str) -> None:
        self.costs = columns.weight(5, 3)
        self.rate, self.look, self.fault = columns.Dense(4, 3), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        seen = F.concat([self.look(x[:, t]).reshape(x.shape[0], 1, 4) for t in range(x.shape[1])], 1)
        rated = self.rate(F.sigmoid(seen) if self.fault == "gate" else F.tanh(seen))
        cost = rated[:, 0] + self.costs[3]
        for t in range(1, x.shape[1]):
            cost = F.tanh(cost @ self.costs[:3]) + rated[:, t]
        return cost + self.costs[3 if self.fault == "last" else 4], (rated * 2.0 if self.fault == "twice" else rated)


@pytest.mark.parametrize("fault", ["", "gate", "last", "twice"])
def test_calls_of_another_shape_hide_no_order_of_what_is_joined(fault: str) -> None:
    """Beside a fault, and a layer that is called for each step on one side, no order seemed right: two sources."""
    report = padiff.diff(Chained(), ChainedAsOne(fault), (X,))
    assert report.aligned is not bool(fault), str(report)
    places = {"": [], "gate": ["input"], "last": ["output"], "twice": ["output"]}
    assert [source.what.kind for source in report.sources] == places[fault], str(report)
