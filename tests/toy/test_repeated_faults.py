"""Plant one fault in code that several blocks share: each of them is a place of it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.forcing import Bench
from padiff.parameters._graph import graph_of
from padiff.parameters._units import HeldUnit
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import Flow, ModuleRecord, ParameterRecord, joint

X = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)


def twice(base: Any, linear: Any, slope: float) -> Any:
    """Return a model that calls a block on what it is given, and on zeros."""

    class Block(base):
        def __init__(self) -> None:
            self.into, self.out = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.out(F.tanh(self.into(x) - self.into(x * 0.0)) * slope)

    class Model(base):
        def __init__(self) -> None:
            self.block = Block()

        def forward(self, x: Any) -> Any:
            return self.block(x) + self.block(x - x)

    return Model()


def test_a_fault_that_shows_in_another_calls_gradients_alone_is_one_source() -> None:
    """The second call was a source of its own, backward."""
    report = padiff.diff(twice(rows.Module, rows.Linear, 1.0), twice(columns.Layer, columns.Dense, 1.1), X)
    (source,) = report.sources
    assert str(source.cause) == "mul(_, 1.1) in the candidate only", str(report)


class Sampling(rows.Module):
    """A block: a layer, a norm and an activation, and each two points added up."""

    def __init__(self) -> None:
        self.linear, self.norm = rows.Linear(4, 4), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = F.silu(self.norm(self.linear(x)))
        return x[:, 1:] + x[:, :-1]


class Points(rows.Module):
    """Blocks, and the same without sampling before a head."""

    def __init__(self) -> None:
        self.blocks = rows.ModuleList(Sampling(), Sampling())
        self.linear, self.norm, self.head = rows.Linear(4, 4), rows.LayerNorm(4), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(F.silu(self.norm(self.linear(x))))


class Shared(columns.Layer):
    """What all of them do, point by point; or with the norm behind the activation."""

    def __init__(self, behind: bool) -> None:
        self.norm, self.layer, self.behind = columns.LayerNormalization(4), columns.Dense(4, 4), behind

    def forward(self, x: Any) -> Any:
        y = self.layer(x.reshape(-1, 4))
        y = self.norm(F.silu(y)) if self.behind else F.silu(self.norm(y))
        return y.reshape(*x.shape)


class Down(columns.Layer):
    def __init__(self, behind: bool) -> None:
        self.net = Shared(behind)

    def forward(self, x: Any) -> Any:
        x = self.net(x)
        return x[:, 1:] + x[:, :-1]


class Cloud(columns.Layer):
    def __init__(self, behind: bool) -> None:
        self.head, self.down = columns.Dense(4, 2), columns.Layers(Down(behind), Down(behind))
        self.pre = Shared(behind)

    def forward(self, x: Any) -> Any:
        for down in self.down:
            x = down(x)
        return self.head(self.pre(x))


def test_a_fault_in_shared_code_is_placed_in_each_block() -> None:
    """A PointNet's: that the last place is wrong either way was taken for a sign that the blocks end elsewhere."""
    report = padiff.diff(Points(), Cloud(behind=False), (X,))
    assert report.aligned, str(report)
    report = padiff.diff(Points(), Cloud(behind=True), (X,))
    found = {source.candidate.path for source in report.sources}
    assert found == {"down.0", "down.1", "down.0.net", "down.1.net", "pre"}, str(report)
    assert str(report).startswith("not aligned: 3 sources in 6 places"), str(report)  # of one line each, in any call


class Added(rows.Module):
    """Two products, added up, with matrices that no rule speaks of."""

    def __init__(self, taken: int, given: int) -> None:
        self.base, self.weight = rows.parameter(given, taken), rows.parameter(given, taken, 3)

    def forward(self, x: Any) -> Any:
        bent = sum(F.tanh(x * (1.0 + i)) @ self.weight[:, :, i].transpose(1, 0) for i in range(3))
        return F.silu(x) @ self.base.transpose(1, 0) + bent


class AddedToALayer(columns.Layer):
    """The same, one of the two a layer; or with another function in front of it."""

    def __init__(self, taken: int, given: int, bend: Any) -> None:
        self.weight, self.bend = columns.weight(taken, given, 3), bend
        self.layer = columns.Dense(taken, given, bias=False)

    def forward(self, x: Any) -> Any:
        return self.layer(self.bend(x)) + sum(F.tanh(x * (1.0 + i)) @ self.weight[:, :, i] for i in range(3))


class Chain(rows.Module):
    def __init__(self) -> None:
        self.layers = rows.ModuleList(Added(4, 6), Added(6, 5), Added(5, 2))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class ChainOfLayers(columns.Layer):
    def __init__(self, bend: Any) -> None:
        self.third, self.second, self.first = (AddedToALayer(*sizes, bend) for sizes in ((5, 2), (6, 5), (4, 6)))

    def forward(self, x: Any) -> Any:
        return self.third(self.second(self.first(x)))


def test_faults_one_behind_the_other_are_placed_in_each() -> None:
    """The last one, all that showed with every match taken apart, was believed; those before were matched no more."""
    report = padiff.diff(Chain(), ChainOfLayers(F.silu), (X,))
    assert report.aligned, str(report)
    report = padiff.diff(Chain(), ChainOfLayers(F.relu), (X,))
    assert [source.candidate.path for source in report.sources] == ["first", "second", "third"], str(report)
    assert str(report).startswith("not aligned: 1 source in 3 places"), str(report)  # all that run them


class Scaled(rows.Module):
    def __init__(self) -> None:
        self.layer = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.layer(F.tanh(x) * 0.5)


class ScaledByItsOwn(columns.Layer):
    def __init__(self, factor: float, bias: bool) -> None:
        self.factor, self.layer = factor, columns.Dense(4, 4, bias=bias)

    def forward(self, x: Any) -> Any:
        return x + self.layer(F.tanh(x) * self.factor)


@pytest.mark.parametrize(
    ("factors", "bias", "said"),
    [
        ((0.6, 0.5, 0.6), True, "2 sources ("),
        ((0.6, 0.6, 0.6), True, "1 source in 3 places ("),
        ((0.5, 0.5, 0.5), False, "1 source in 3 places ("),
    ],
    ids=["some", "all", "none-has-a-bias"],
)
def test_lines_that_differ_wherever_they_run_are_one_source(factors: Any, bias: bool, said: str) -> None:
    """A block that runs the same lines and is right shows that it is what the others hold that is wrong."""
    candidate = columns.Stack(*(ScaledByItsOwn(factor, bias) for factor in factors))
    report = padiff.diff(rows.Sequential(*(Scaled() for _ in factors)), candidate, (X,))
    assert str(report).startswith(f"not aligned: {said}"), str(report)


class Lines(rows.Module):
    """A framework's layers, each called by a line of its own."""

    def __init__(self) -> None:
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.one(x))
        return self.two(x)


class ByHand(columns.Layer):
    def __init__(self, cut: bool) -> None:
        self.weight, self.bias, self.cut = columns.weight(4, 4), columns.weight(4), cut

    def forward(self, x: Any) -> Any:
        return x @ self.weight + (F.detach(self.bias) if self.cut else self.bias)


class LinesByHand(columns.Layer):
    def __init__(self, *cut: bool) -> None:
        self.first, self.second = map(ByHand, cut)

    def forward(self, x: Any) -> Any:
        return self.second(F.tanh(self.first(x)))


@pytest.mark.parametrize(
    ("cut", "said"), [((True, True), "1 source in 2 places ("), ((False, True), "1 source (")], ids=["both", "one"]
)
def test_a_layer_by_hand_is_one_source_whichever_lines_call_the_frameworks(cut: Any, said: str) -> None:
    assert padiff.diff(Lines(), LinesByHand(False, False), (X,)).aligned
    report = padiff.diff(Lines(), LinesByHand(*cut), (X,))
    assert str(report).startswith(f"not aligned: {said}"), str(report)


def turning(base: Any, linear: Any, stack: Any, axes: tuple[int, ...]) -> Any:
    """Return a model of blocks of which one leaves out a line that the others run."""

    class Block(base):
        def __init__(self, turned: bool) -> None:
            self.layer, self.turned = linear(4, 4), turned

        def forward(self, x: Any) -> Any:
            y = F.tanh(x)
            return x + self.layer(y.transpose(*axes).reshape(2, 6, 4) if self.turned else y)

    return stack(Block(True), Block(False), Block(True))


def test_arguments_in_another_order_are_the_line_s_own() -> None:
    """No block holds them: each place was a source where one block does not come to the line."""
    right = turning(rows.Module, rows.Linear, rows.Sequential, (0, 2, 1))
    report = padiff.diff(right, turning(columns.Layer, columns.Dense, columns.Stack, (1, 2, 0)), X)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)
    assert padiff.diff(right, turning(columns.Layer, columns.Dense, columns.Stack, (0, 2, 1)), X).aligned


def stepping(base: Any, linear: Any, steps: int, names: str, slip: float = 1.0) -> Any:
    """Return a model of one residual block, called many times, whose own code may be a little off."""

    class Block(base):  # type: ignore[misc]
        def __init__(self) -> None:
            for name in sorted(names):
                setattr(self, name, linear(4, 4))

        def forward(self, x: Any) -> Any:
            up, gate = (getattr(self, name)(x) for name in names)
            return x * 0.9 + F.tanh(up) * F.sigmoid(gate) * slip

    class Loop(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.block, self.head = Block(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            for _ in range(steps):
                x = self.block(x)
            return self.head(x)

    return Loop()


def test_the_block_of_a_loop_is_one_source() -> None:
    ours, theirs = stepping(rows.Module, rows.Linear, 40, "ab"), stepping(columns.Layer, columns.Dense, 40, "dc", 1.1)
    (source,) = padiff.diff(ours, theirs, X).sources
    assert source.candidate.path == "block"


def test_the_first_calls_of_a_loop_tell_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step was asked whether its match is wrong, by a run of the whole loop, and for another order of its layers.

    A loop of 80 steps took more than twice as long per step as one of 20.
    """
    tried = Bench.tried
    counts = []
    for steps in (8, 24):
        seen: list[Any] = []
        monkeypatch.setattr(Bench, "tried", lambda *a, seen=seen, **k: (seen.append(a[1]), tried(*a, **k))[1])
        ours = stepping(rows.Module, rows.Linear, steps, "ab")
        theirs = stepping(columns.Layer, columns.Dense, steps, "dc", 1.1)
        assert len(padiff.diff(ours, theirs, X).sources) == 1
        counts.append(len(seen))
    assert counts[0] == counts[1], counts


def recurrent(base: Any, linear: Any, names: str, slip: float = 1.0) -> Any:
    """Return a model of a cell with two states, one of them made of two layers that nothing but their use tells apart.

    Of a state of zeros that makes nothing, and the other state may be a little off.
    """

    class Cell(base):  # type: ignore[misc]
        def __init__(self) -> None:
            for name in sorted(names):
                setattr(self, name, linear(4, 4))

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            up, gate = (getattr(self, name)(x) for name in names)
            return x * 0.5 + h * F.tanh(up) * F.sigmoid(gate), (c + x) * slip

    class Loop(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.cell, self.head = Cell(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            h = c = x * 0.0
            for _ in range(4):
                h, c = self.cell(x, h, c)
            return self.head(h + c)

    return Loop()


def test_a_first_call_that_is_given_zeros_does_not_tell_alone() -> None:
    right = recurrent(rows.Module, rows.Linear, "ab")
    assert padiff.diff(right, recurrent(columns.Layer, columns.Dense, "dc"), X).aligned
    report = padiff.diff(right, recurrent(columns.Layer, columns.Dense, "dc", 1.1), X)
    assert str(report).startswith("not aligned: 1 source"), str(report)
    assert report.sources[0].candidate.path == "cell", str(report)
    assert {one.reference: one.candidate for one in report.mapping.modules}["cell.a"] == "cell.d", str(report.mapping)


def stepped(base: Any, linear: Any, sequential: Any, late: int = 0, start: float = 0.0) -> Any:
    """Return a model that goes over a sequence, and forgets; it may take what is ``late``, or begin otherwise."""

    class Cell(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.into = linear(4, 4)

        def forward(self, x: Any, h: Any) -> Any:
            return h * 0.3 + F.tanh(self.into(x))

    class Steps(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.first, self.cell, self.out = linear(4, 4), Cell(), sequential(linear(4, 4), linear(4, 3))

        def forward(self, x: Any) -> Any:
            seen = self.first(x)
            h = x[:, 0] * 0.0 + start
            outs = []
            for step in range(x.shape[1]):
                h = self.cell(seen[:, max(step - late, 0)], h)
                outs.append(self.out(h))
            return F.concat(outs, -1)

    return Steps()


@pytest.mark.parametrize(("late", "start"), [(1, 0.0), (2, 0.0), (0, 0.5)])
def test_steps_of_a_loop_that_goes_on_late_are_its_own(late: int, start: float) -> None:
    """Behind such a fault a step gives nearly what the one before gives in the reference, and was taken for that."""
    long = np.random.default_rng(1).standard_normal((2, 16, 4)).astype(np.float32)
    right = stepped(rows.Module, rows.Linear, rows.Sequential)
    assert padiff.diff(right, stepped(columns.Layer, columns.Dense, columns.Stack), long).aligned
    report = padiff.diff(right, stepped(columns.Layer, columns.Dense, columns.Stack, late, start), long)
    assert str(report).startswith("not aligned: 1 source"), str(report)
    (source,) = report.sources[:1]
    assert (source.candidate.path, source.what.name) == ("", "x" if late else "h"), str(report)
    both = [call for call in report.calls if call.reference is not None and call.candidate is not None]
    assert all(call.reference.call == call.candidate.call for call in both)


def test_a_module_that_is_called_in_another_order_is_so_beside_a_fault() -> None:
    def twins(base: Any, linear: Any, *, turned: bool) -> Any:
        class Twins(base):
            def __init__(self) -> None:
                self.encoder, self.head = linear(4, 4), linear(4, 3)

            def forward(self, x: Any, y: Any) -> Any:
                seen = [self.encoder(one) for one in ((y, x) if turned else (x, y))]
                ours, theirs = reversed(seen) if turned else seen
                return self.head(F.tanh(ours - theirs * 0.5) * (1.1 if turned else 1.0))

        return Twins()

    right, other = twins(rows.Module, rows.Linear, turned=False), twins(columns.Layer, columns.Dense, turned=True)
    report = padiff.diff(right, other, (X, X[::-1] * 2))
    assert str(report).startswith("not aligned: 1 source ("), str(report)
    calls = {call.candidate.call: call.reference.call for call in report.calls if call.candidate.path == "encoder"}
    assert calls == {0: 1, 1: 0}


def test_a_loop_is_followed_however_long_it_is() -> None:
    """What a step adds to is made of the step before: the first layer was followed back step by step, and failed."""
    none, last = frozenset[str](), 2 * sys.getrecursionlimit()
    takes = {"m.a": frozenset({("", none), (joint("add", last), none)})}
    takes |= {joint("add", n): frozenset({(joint("add", n - 1) if n > 1 else "", none)}) for n in range(1, last + 1)}
    unit = HeldUnit.of_one(ModuleRecord("m", "M"), "a", ParameterRecord("m.a", ("m.a",), "float32", (4,)))
    assert graph_of([unit], Flow(takes, frozenset({("m.a", none)}))).is_met(0)


class Halving(rows.Module):
    def __init__(self) -> None:
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + F.tanh(self.two(F.silu(self.one(x))))


class Stages(rows.Module):
    """Blocks in two lists."""

    def __init__(self) -> None:
        self.stage1, self.stage2 = rows.Sequential(Halving(), Halving()), rows.Sequential(Halving(), Halving())

    def forward(self, x: Any) -> Any:
        return self.stage2(self.stage1(x))


class Ported(columns.Layer):
    def __init__(self, activation: Any) -> None:
        self.first, self.second, self.activation = columns.Dense(4, 4), columns.Dense(4, 4), activation

    def forward(self, x: Any) -> Any:
        return F.tanh(self.second(self.activation(self.first(x)))) + x


def test_blocks_in_lists_of_other_names_are_one_source() -> None:
    report = padiff.diff(Stages(), columns.Stack(*(Ported(F.gelu) for _ in range(4))), X)
    assert str(report).startswith("not aligned: 1 source in 4 places"), str(report)


def summed(base: Any, linear: Any, norm: Any, fault: str = "") -> Any:
    """Return a model of two rounds, each of a norm and two layers with what is added to them."""

    class Round(base):
        def __init__(self) -> None:
            self.norm, self.mix, self.feed = norm(4), linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            x = (y if fault == "normed" else x) + (F.relu if fault == "relu" else F.tanh)(self.mix(y))
            return x + F.tanh(self.feed(x))

    class Model(base):
        def __init__(self) -> None:
            self.first, self.one, self.two = linear(4, 4), Round(), Round()

        def forward(self, x: Any) -> Any:
            return self.two(self.one(self.first(x)))

    return Model()


def flat(fault: str) -> Any:
    class Model(columns.Layer):
        def __init__(self) -> None:
            self.first = columns.Dense(4, 4)
            self.norms = columns.Layers(*(columns.LayerNormalization(4) for _ in range(2)))
            self.mixes, self.feeds = (columns.Layers(columns.Dense(4, 4), columns.Dense(4, 4)) for _ in range(2))

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for norm, mix, feed in zip(self.norms, self.mixes, self.feeds, strict=True):
                y = norm(x)
                x = (y if fault else x) + F.tanh(mix(y))
                x = x + F.tanh(feed(x))
            return x

    return Model()


@pytest.mark.parametrize("fault", ["", "normed"])
def test_a_line_is_one_source_whatever_the_cause_is_called_in_each_round(fault: str) -> None:
    """A round adds to a norm's output instead of what this was given: what a layer gives, or a sum."""
    report = padiff.diff(summed(rows.Module, rows.Linear, rows.LayerNorm), flat(fault), X)
    assert report.aligned == (not fault), str(report)
    assert not fault or "1 source in 2 places" in str(report), str(report)
    assert {one.cause.name for one in report.sources} == ({"taken"} if fault else set()), str(report)
    assert len({str(one.cause) for one in report.sources}) == (2 if fault else 0), str(report)


def pooled(base: Any, linear: Any, function: str) -> Any:
    """Return a model of two blocks that add the mean, or the sum, of values of another size; points first, or not."""

    class Block(base):
        def __init__(self, n: int, m: int) -> None:
            self.layer = linear(n, m)

        def forward(self, x: Any) -> Any:
            return x + getattr(self.layer(x), function)(-1, keepdims=True)

    class Model(base):
        def __init__(self) -> None:
            self.one, self.middle, self.two = Block(4, 4), linear(4, 5), Block(5, 5)

        def forward(self, x: Any) -> Any:
            axes = (1, 0, 2) if function == "sum" else (0, 1, 2)
            return self.two(self.middle(self.one(x.transpose(*axes)))).transpose(*axes)

    return Model()


def test_a_line_is_one_source_whatever_shapes_it_is_given() -> None:
    report = padiff.diff(pooled(rows.Module, rows.Linear, "mean"), pooled(columns.Layer, columns.Dense, "sum"), X)
    assert "1 source in 2 places" in str(report), str(report)


def conditioned(base: Any, linear: Any, slope: float, *, once: bool) -> Any:
    """Return a model whose rounds each make scales and shifts of a condition, or take those that are made once."""

    class First(base):
        def __init__(self) -> None:
            self.layer = linear(4, 4)

        def forward(self, x: Any) -> Any:
            return F.tanh(self.layer(x) * slope)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.step, self.make = First(), linear(4, 4), linear(4, 4)
            if once:
                self.scale, self.shift = linear(4, 4), linear(4, 4)
            else:
                self.both = linear(4, 8)

        def made(self, c: Any) -> Any:
            hidden = F.relu(self.make(c))
            if once:
                return self.scale(hidden), self.shift(hidden)
            both = self.both(hidden)
            return both[..., :4], both[..., 4:]

        def forward(self, x: Any, c: Any) -> Any:
            x, found = self.first(x), 0.0
            ready = self.made(c) if once else None
            for _ in range(3):
                x = x + F.tanh(self.step(x))
                scale, shift = ready or self.made(c)
                found = found + F.tanh(x * scale + shift)
            return found

    return Model()


@pytest.mark.parametrize("slope", [1.0, 1.5])
def test_what_is_made_once_for_all_rounds_gets_all_of_their_gradients(slope: float) -> None:
    """Beside a fault elsewhere the code behind the layer was a source, backward."""
    ours = conditioned(rows.Module, rows.Linear, 1.0, once=False)
    report = padiff.diff(ours, conditioned(columns.Layer, columns.Dense, slope, once=True), (X, X * 0.5))
    assert report.aligned == (slope == 1), str(report)
    assert all(source.phase.value == "forward" for source in report.sources), str(report)


def sharing(base: Any, linear: Any, before: Any) -> Any:
    """Return a model of two kinds of blocks that call one function, each for other layers."""

    class Mix(base):
        def __init__(self) -> None:
            self.k, self.v, self.out = linear(4, 4), linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            return x + self.out(F.sigmoid(self.k(before(x))) * self.v(before(x)))

    class Feed(base):
        def __init__(self) -> None:
            self.up, self.down = linear(4, 8), linear(8, 4)

        def forward(self, x: Any) -> Any:
            return x + self.down(F.tanh(self.up(before(x))))

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two, self.three = Mix(), Feed(), Mix()

        def forward(self, x: Any) -> Any:
            return self.three(self.two(self.one(x)))

    return Model()


@pytest.mark.parametrize(
    "slip",
    [
        lambda x: F.concat([x[:, :1], x[:, :-1]], 1),  # told with a number of the reference's
        lambda x: F.concat([x[:, :1] * 0.5, x[:, :-1]], 1),
    ],
)
def test_a_function_that_several_blocks_call_is_one_source(slip: Any) -> None:
    """It was one for each class that calls it where a number is told of its line."""
    right = sharing(rows.Module, rows.Linear, lambda x: F.concat([x[:, :1] * 0.0, x[:, :-1]], 1))
    report = padiff.diff(right, sharing(columns.Layer, columns.Dense, slip), X)
    assert str(report).startswith("not aligned: 1 source in "), str(report)


def attending(base: Any, linear: Any, scale: float) -> Any:
    """Return a model that calls a function of its own twice, with one setting that is the same, and one that is not."""

    def attended(x: Any, heads: int) -> Any:
        return F.attention(x, x, x, heads, scale)

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two, self.three = (linear(4, 4) for _ in range(3))

        def forward(self, x: Any) -> Any:
            return self.three(attended(self.two(attended(self.one(x), 2)), 1))

    return Model()


def test_an_argument_of_a_function_is_one_source_whatever_else_it_is_given() -> None:
    """It was one for each call."""
    report = padiff.diff(attending(rows.Module, rows.Linear, 1.5), attending(columns.Layer, columns.Dense, 1.0), X)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)


def residual(base: Any, linear: Any, norm: Any, *, cut: bool) -> Any:
    """Return a model whose block hands on what it activates to a layer, over time, and beside that."""

    class Model(base):
        def __init__(self) -> None:
            self.first, self.over, self.last = linear(4, 4), linear(6, 6), norm(4)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            x = x if cut else F.tanh(x)
            return self.last(x + self.over(x.transpose(0, 2, 1)).transpose(0, 2, 1))

    return Model()


def test_an_operation_that_is_left_out_is_one_source_whatever_is_done_with_what_it_gives() -> None:
    """A layer was given `tanh, transpose` in the reference only, and the residual beside it `tanh`: two sources."""
    ours = residual(rows.Module, rows.Linear, rows.LayerNorm, cut=False)
    theirs = residual(columns.Layer, columns.Dense, columns.LayerNormalization, cut=True)
    report = padiff.diff(ours, theirs, X)
    assert {str(source.cause) for source in report.sources} == {
        "tanh(_), transpose(_, 0, 2, 1) in the reference only",
        "tanh(_) in the reference only",
    }, str(report)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)


def scored(base: Any, linear: Any, *, cut: bool) -> Any:
    """Return a model of two blocks, of which the first one alone calls a layer for its scores."""

    class Block(base):
        def __init__(self, first: bool) -> None:
            self.into, self.out = linear(4, 4), linear(4, 4)
            self.bias = linear(4, 4) if first else None

        def forward(self, x: Any, scores: Any) -> Any:
            y = self.into(x)
            if self.bias is not None:
                scores = self.bias(x)
            weights = F.softmax(y * scores)
            y = (weights * y).reshape(-1, 4)
            if not cut:
                y = self.out(y)
            return y, scores

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two, self.last = Block(first=True), Block(first=False), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y, scores = self.one(x.reshape(-1, 4), None)
            return self.last(self.two(F.tanh(y), scores)[0])

    return Model()


def test_a_layer_that_code_leaves_out_is_one_source_whatever_its_calls_did_before() -> None:
    """It was placed at the last layer that the candidate called, another one in each block: two sources."""
    ours, theirs = scored(rows.Module, rows.Linear, cut=False), scored(columns.Layer, columns.Dense, cut=True)
    report = padiff.diff(ours, theirs, X)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)
    (line,) = {source.candidate.location.rpartition(":")[2] for source in report.sources}
    text = Path(__file__).read_text("utf-8").splitlines()[int(line) - 1]
    assert text.strip() == "y = (weights * y).reshape(-1, 4)", str(report)


class Heads(rows.Module):
    """A layer for each of the last places in a sequence."""

    def __init__(self, first: int) -> None:
        self.layers, self.first = rows.Sequential(*(rows.Linear(4, 2) for _ in range(3))), first

    def forward(self, x: Any) -> Any:
        made = []
        for number, layer in enumerate(self.layers):
            made.append(layer(x[:, self.first + number]))
        return F.concat(made, -1)


def test_a_line_of_a_loop_is_one_source_whatever_it_says_in_each_round() -> None:
    """Each round says another place: of a decoder's mask tokens each was a source of its own."""
    assert padiff.diff(Heads(2), Heads(2), X).aligned
    report = padiff.diff(Heads(2), Heads(1), X)
    assert str(report).startswith("not aligned: 1 source "), str(report)
    assert {source.candidate.path for source in report.sources} == {""}, str(report)


class Handing(rows.Module):
    """An identity."""

    def forward(self, x: Any) -> Any:
        return x


class Skipping(rows.Module):
    """A block that adds up what it is given and what it makes; or its shortcut makes another size of that."""

    def __init__(self, sizes: tuple[int, int], *, ported: bool) -> None:
        self.layer, self.ported = rows.Linear(*sizes), ported
        same = None if ported else Handing()
        self.skip = same if sizes[0] == sizes[1] else rows.Linear(*sizes)

    def forward(self, x: Any) -> Any:
        y = self.layer(F.tanh(x))
        if self.skip is not None:
            x = self.skip(x)
        return y if self.ported else x + y


def test_a_shortcut_that_is_left_out_is_one_source_whatever_it_makes() -> None:
    """Of a U-Net the blocks whose shortcut is an identity were a source, `skip(_), add(_, _)`, and others another."""
    sizes = (4, 4), (4, 6), (6, 6), (6, 4)
    ours, theirs = (rows.Sequential(*(Skipping(one, ported=ported) for one in sizes)) for ported in (False, True))
    report = padiff.diff(ours, theirs, X)
    assert str(report).startswith("not aligned: 1 source in 4 places"), str(report)
    assert "cause      add(_, _) in the reference only" in str(report), str(report)


class Weighed(rows.Module):
    """A block that weighs what it makes by a number of its own, or does not."""

    def __init__(self, weight: float | None) -> None:
        self.layer, self.weight = rows.Linear(4, 4), weight

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.layer(x))
        if self.weight is not None:
            y = y * self.weight
        return x + y


def weighed(*weights: float | None) -> Any:
    return rows.Sequential(*map(Weighed, weights))


def test_what_all_blocks_leave_out_is_one_source_whatever_number_the_reference_has() -> None:
    """A number that the candidate's block holds is its own fault; one that its code does not know is none."""
    report = padiff.diff(weighed(0.3, 0.5, 0.7), weighed(None, None, None), X)
    assert str(report).startswith("not aligned: 1 source in 3 places"), str(report)
    report = padiff.diff(weighed(0.3, 0.5, 0.7), weighed(0.4, 0.5, 0.6), X)
    assert str(report).startswith("not aligned: 2 sources"), str(report)


def blended(x: Any, y: Any, gate: Any) -> Any:
    return gate * x + (gate * -1.0 + 1.0) * y


def blended_at_once(x: Any, y: Any, gate: Any, *, crossed: bool) -> Any:
    x, y = (y, x) if crossed else (x, y)
    return y + gate * (x - y)


def settling(base: Any, linear: Any, blend: Any, rounds: int) -> Any:
    """Return a model that blends two values, in front of many operations and in a block of its own."""

    class Block(base):
        def __init__(self) -> None:
            self.out = linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.out(blend(x, F.tanh(x), F.sigmoid(x)))

    class Model(base):
        def __init__(self) -> None:
            self.first, self.second, self.block = linear(4, 4), linear(4, 4), Block()

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            x = blend(x, F.tanh(x), F.sigmoid(x))
            for _ in range(rounds):
                x = F.tanh(x * 1.1) + x * 0.1
            return self.block(self.second(x))

    return Model()


@pytest.mark.parametrize("crossed", [False, True])
def test_what_is_found_in_one_call_tells_where_to_look_in_those_before(crossed: bool) -> None:
    """The first one was looked into before, found no cause among so many operations, and was a source of its own."""
    ours = settling(rows.Module, rows.Linear, blended, 12)
    theirs = settling(columns.Layer, columns.Dense, partial(blended_at_once, crossed=crossed), 12)
    report = padiff.diff(ours, theirs, X)
    assert report.aligned is not crossed, str(report)
    if crossed:
        assert repr(report) == "<Report: not aligned: 1 source in 2 places>", str(report)
        assert len({str(one.cause) for one in report.sources}) == 1, str(report)
        assert report.sources[0].cause is not None, str(report)


def normed_by_hand(x: Any, weight: Any, eps: float) -> Any:
    mean = x.mean(-1, True)
    return (x - mean) / (((x - mean) * (x - mean)).mean(-1, True) + eps).sqrt() * weight


def norming(base: Any, linear: Any, parameter: Any, norm: Any) -> Any:
    """Return a model that norms large values in its own code, and small ones in a block's."""

    class Block(base):
        def __init__(self) -> None:
            self.out, self.weight = linear(4, 4), parameter(4)

        def forward(self, x: Any) -> Any:
            return self.out(norm(x * 0.1, self.weight))

    class Model(base):
        def __init__(self) -> None:
            self.first, self.second, self.weight, self.block = linear(4, 4), linear(4, 4), parameter(4), Block()

        def forward(self, x: Any) -> Any:
            return self.block(self.second(norm(self.first(x) * 3.0, self.weight)))

    return Model()


@pytest.mark.parametrize("eps", [1e-7, 1e-3])
def test_a_number_of_a_line_is_one_source_whatever_else_is_told_beside_it(eps: float) -> None:
    """Large values are right without it, small ones only with the reference's: each was a source of its own."""
    report = padiff.diff(
        norming(rows.Module, rows.Linear, rows.parameter, lambda x, weight: F.layer_norm(x, weight, 0.0, 1e-7)),
        norming(columns.Layer, columns.Dense, columns.weight, partial(normed_by_hand, eps=eps)),
        X,
    )
    assert report.aligned is (eps == 1e-7), str(report)
    if not report.aligned:
        assert repr(report) == "<Report: not aligned: 1 source in 2 places>", str(report)
        assert len({str(one.cause) for one in report.sources}) == 2, str(report)
