"""Leave a block out of the run: the code that leaves it out is the one source, and the other blocks stay whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

ROWS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


class Block(rows.Module):
    def __init__(self) -> None:
        self.a, self.bn, self.b = rows.Linear(6, 6), rows.BatchNorm(6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.b(F.relu(self.bn(self.a(x)))))


class Net(rows.Module):
    """Three equal blocks in two stages."""

    def __init__(self) -> None:
        self.stem, self.head = rows.Linear(4, 6), rows.Linear(6, 3)
        self.one, self.two = rows.Sequential(Block(), Block()), rows.Sequential(Block())

    def forward(self, x: Any) -> Any:
        return self.head(self.two(self.one(F.relu(self.stem(x)))))


class PortedBlock(columns.Layer):
    def __init__(self) -> None:
        self.c, self.norm, self.d = columns.Dense(6, 6), columns.BatchNormalization(6), columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.d(F.relu(self.norm(self.c(x)))))


class Port(columns.Layer):
    """The same blocks in one list."""

    def __init__(self, without: int | None) -> None:
        self.inner, self.trunk = columns.Dense(4, 6), columns.Layers(*(PortedBlock() for _ in range(3)))
        self.out, self.without = columns.Dense(6, 3), without

    def forward(self, x: Any) -> Any:
        x = F.relu(self.inner(x))
        for i, block in enumerate(self.trunk):
            if i != self.without:
                x = block(x)
        return self.out(x)


@pytest.mark.parametrize(("without", "between"), [(0, ("inner", "trunk.1")), (2, ("trunk.1", "out"))])
def test_a_block_that_is_not_run_is_one_source(without: int, between: tuple[str, str]) -> None:
    """Padiff took the other blocks apart for it: eight sources, six of them gradients and buffers of the model."""
    report = padiff.diff(Net(), Port(without), ROWS)
    (source,) = report.sources
    assert (source.candidate.path, source.between) == ("", between), str(report)


def test_a_block_too_many_is_the_source() -> None:
    report = padiff.diff(Port(1), Net(), ROWS)
    (source,) = report.sources
    assert source.candidate.path == "one.1", str(report)


class Branches(rows.Module):
    """A block of two residual branches."""

    def __init__(self) -> None:
        self.norm1, self.attn = rows.LayerNorm(6), rows.Sequential(rows.Linear(6, 6), rows.Linear(6, 6))
        self.norm2, self.mlp = rows.LayerNorm(6), rows.Sequential(rows.Linear(6, 9), rows.ReLU(), rows.Linear(9, 6))

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TwoBlocks(rows.Module):
    def __init__(self) -> None:
        self.stem, self.head = rows.Linear(4, 6), rows.Linear(6, 3)
        self.blocks = rows.ModuleList(Branches(), Branches())

    def forward(self, x: Any) -> Any:
        x = self.stem(x) + 1.0  # not what the stem gave: the fault is in what nobody was fed
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class PortedBranches(columns.Layer):
    def __init__(self, without: int | None = None) -> None:
        self.n1, self.a = columns.LayerNormalization(6), columns.Stack(columns.Dense(6, 6), columns.Dense(6, 6))
        self.n2, self.without = columns.LayerNormalization(6), without
        self.m = columns.Stack(columns.Dense(6, 9), columns.Rectifier(), columns.Dense(9, 6))

    def forward(self, x: Any) -> Any:
        if self.without != 0:
            x = x + self.a(self.n1(x))
        return x if self.without == 1 else x + self.m(self.n2(x))


class TwoPorted(columns.Layer):
    def __init__(self, without: int) -> None:
        self.inner, self.out = columns.Dense(4, 6), columns.Dense(6, 3)
        self.trunk = columns.Layers(PortedBranches(without), PortedBranches())

    def forward(self, x: Any) -> Any:
        x = self.inner(x) + 1.0
        for block in self.trunk:
            x = block(x)
        return self.out(x)


@pytest.mark.parametrize("without", [0, 1])
def test_a_branch_left_out_is_its_blocks_fault(without: int) -> None:
    """What the block hands to its second branch stays wrong when it is taken apart: that was no wrong match."""
    report = padiff.diff(TwoBlocks(), TwoPorted(without), ROWS)
    assert {source.candidate.path for source in report.sources} == {"trunk.0"}, str(report)


class Detached(rows.Module):
    """A branch that gets no gradient, with a shift or without."""

    def __init__(self, bias: bool) -> None:
        self.a, self.b, self.head = rows.Linear(4, 6), rows.Linear(6, 6, bias=bias), rows.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        x = self.a(x)
        return self.head(x + rows.Tensor(F.tanh(self.b(x)).data))


@pytest.mark.parametrize("bias", [True, False])
def test_a_shift_behind_what_is_detached_is_missed(bias: bool) -> None:
    """It got no gradient, so padiff took it for idle, and named no source at all."""
    report = padiff.diff(Detached(bias), Detached(not bias), ROWS)
    (source,) = report.sources
    assert source.candidate.path == "b", str(report)
    assert str(source.what) == "parameter bias", str(report)


class Styled(rows.Module):
    """A layer by hand that holds a strength of noise, and is given none."""

    def __init__(self) -> None:
        self.weight, self.strength = rows.parameter(6, 5), rows.parameter(1)

    def forward(self, x: Any) -> Any:
        return F.tanh(x @ self.weight)


class Drawn(rows.Module):
    def __init__(self) -> None:
        self.inner, self.style, self.out = rows.Linear(4, 6), Styled(), rows.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.style(self.inner(x)))


class Toned(columns.Layer):
    """The same in a layer of its own, without the strength."""

    def __init__(self, slope: float) -> None:
        self.fc, self.slope = columns.Dense(6, 5, bias=False), slope

    def forward(self, x: Any) -> Any:
        return F.tanh(self.fc(x) * self.slope)


class Painted(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.inner, self.tone, self.out = columns.Dense(4, 6), Toned(slope), columns.Dense(5, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.tone(self.inner(x)))


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_what_nobody_reads_hides_no_fault_beside_it(slope: float, phase: str) -> None:
    """The layer lacks a parameter, which reaches no output: it explained what differs, and no source was left."""
    report = padiff.diff(Drawn(), Painted(slope), ROWS, phase=phase)
    assert [source.candidate.path for source in report.sources] == ["tone"] * (slope != 1), str(report)
    assert report.aligned is (slope == 1), str(report)


@pytest.mark.parametrize("cut", [True, False])
def test_what_nobody_reads_explains_no_gradient(cut: bool) -> None:
    """Where a gradient beside it is wrong it was the source."""

    class Held(rows.Module):
        def __init__(self) -> None:
            self.weight, self.unread = rows.parameter(4, 3), rows.parameter(1)

        def forward(self, x: Any) -> Any:
            return (x @ self.weight) * F.tanh(x @ self.weight)

    class Box(columns.Layer):
        def __init__(self) -> None:
            self.weight = columns.Tensor(np.zeros((4, 3), np.float32), requires_grad=True, role="parameter")

        def forward(self) -> Any:
            return self.weight

    class Cut(columns.Layer):
        def __init__(self) -> None:
            self.box = Box()

        def forward(self, x: Any) -> Any:
            weight = self.box()
            return (x @ weight) * F.tanh(x @ (F.detach(weight) if cut else weight))

    report = padiff.diff(Held(), Cut(), ROWS)
    assert [source.phase for source in report.sources] == [padiff.report.Phase.BACKWARD] * cut, str(report)


class BarePort(columns.Layer):
    """Both blocks, of which the second branch forgets its norm: what it is given, and what it is added to, is one."""

    def __init__(self) -> None:
        self.inner, self.out = columns.Dense(4, 6), columns.Dense(6, 3)
        self.trunk = columns.Layers(BareBranches(), BareBranches())

    def forward(self, x: Any) -> Any:
        x = self.inner(x) + 1.0
        for block in self.trunk:
            x = block(x)
        return self.out(x)


class BareBranches(PortedBranches):
    def forward(self, x: Any) -> Any:
        x = x + self.a(self.n1(x))
        return x + self.m(x)


def test_what_a_norm_was_left_out_before_is_right_where_it_is_added() -> None:
    """The norm's value was written over what the branch is given, and the residual told as another source."""
    report = padiff.diff(TwoBlocks(), BarePort(), ROWS)
    found = {(source.candidate.path, source.between) for source in report.sources}
    assert found == {(f"trunk.{i}", ("a", "m")) for i in range(2)}, str(report)


def test_a_residual_that_is_wrong_beside_a_norm_that_is_left_out_is_a_source() -> None:
    class Doubled(BareBranches):
        def forward(self, x: Any) -> Any:
            x = x + self.a(self.n1(x))
            return x * 2.0 + self.m(x)

    port = BarePort()
    port.trunk = columns.Layers(Doubled(), BareBranches())
    report = padiff.diff(TwoBlocks(), port, ROWS)
    found = {(source.candidate.path, source.between) for source in report.sources}
    assert ("trunk.0", ("m", "end")) in found, str(report)
    assert len(found) == 3, str(report)


class Fused(rows.Module):
    """Attention in one layer, and a norm behind the residual."""

    def __init__(self) -> None:
        self.attention, self.last = rows.Attention(4, 2), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        return self.last(x + self.attention(x))


class Apart(columns.Layer):
    """The same in a layer for each projection, with a norm in front of them that the reference has not."""

    def __init__(self) -> None:
        self.extra = columns.LayerNormalization(4)
        self.query, self.key, self.value, self.out = (columns.Dense(4, 4) for _ in range(4))
        self.last = columns.LayerNormalization(4)

    def forward(self, x: Any) -> Any:
        y = self.extra(x)
        return self.last(x + self.out(F.attention(self.query(y), self.key(y), self.value(y), 2)))


def test_a_norm_that_is_one_more_is_one_source_in_front_of_layers_that_the_other_side_packs() -> None:
    """What these take is code: it was a second source, behind the layer of the attention."""
    x = np.random.default_rng(0).standard_normal((2, 5, 4), dtype=np.float32)
    report = padiff.diff(Fused(), Apart(), (x,))
    causes = {source.cause.name for source in report.sources if source.cause is not None}
    assert causes == {"missing_module"}, str(report)
    assert str(report).startswith("not aligned: 1 source"), str(report)


class Scaled(rows.Module):
    """A norm's stand-in, written by hand."""

    def __init__(self) -> None:
        self.weight = rows.parameter(4)

    def forward(self, x: Any) -> Any:
        return F.tanh(x) * self.weight


class ScaledOtherwise(columns.Layer):
    """The same in other words."""

    def __init__(self) -> None:
        self.scale = columns.weight(4)

    def forward(self, x: Any) -> Any:
        return (F.sigmoid(x * 2.0) * 2.0 - 1.0) * self.scale


class Sandwich(rows.Module):
    """A block with norms in front of its layers and behind them."""

    def __init__(self) -> None:
        self.first, self.up, self.gate = rows.Linear(4, 4), rows.Linear(4, 6), rows.Linear(4, 6)
        self.down = rows.Linear(6, 4)
        self.before, self.behind, self.next, self.last = (Scaled() for _ in range(4))

    def forward(self, x: Any) -> Any:
        x = x + self.behind(self.first(self.before(x)))
        y = self.next(x)
        return x + self.last(self.down(F.gelu(self.gate(y)) * self.up(y)))


class PortedSandwich(columns.Layer):
    """The same, which may leave out the norm behind its first layer."""

    def __init__(self, fault: str) -> None:
        self.one, self.both, self.down = columns.Dense(4, 4), columns.Dense(4, 12), columns.Dense(6, 4)
        self.d, self.c, self.b, self.a = (ScaledOtherwise() for _ in range(4))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        y = self.one(self.a(x))
        x = x + (y if self.fault else self.b(y))
        y = self.both(self.c(x))
        return x + self.d(self.down(F.gelu(y[..., :6]) * y[..., 6:]))


@pytest.mark.parametrize("faults", [("",), ("left out",), ("left out", "left out"), ("", "left out", "")])
def test_which_of_several_norms_is_left_out_is_for_the_dataflow_to_say(faults: tuple[str, ...]) -> None:
    """The next norm was taken for it, and what is left over for the next: three sources."""
    ours = rows.Sequential(*(Sandwich() for _ in faults))
    report = padiff.diff(ours, columns.Stack(*map(PortedSandwich, faults)), (ROWS,))
    told = [str(place) for place, fault in enumerate(faults) if fault]
    assert [source.candidate.path for source in report.sources] == told, str(report)
    assert {str(source.cause) for source in report.sources} <= {"tanh(_), mul(_, _) in the reference only"}
    assert {source.what.taker for source in report.sources} <= {"c"}
    kept = padiff.diff(ours, columns.Stack(*map(PortedSandwich, faults)), (ROWS,), mapping={"0.behind": "0.c"})
    assert ("0.behind.weight", "0.c.scale") in {(*one.reference, one.candidate) for one in kept.mapping.parameters}


class Tied(rows.Module):
    """Words, two blocks, and the table of the words again."""

    def __init__(self) -> None:
        self.words, self.first, self.second = rows.Embedding(11, 4), Sandwich(), Sandwich()

    def forward(self, ids: Any) -> Any:
        return self.second(self.first(self.words(ids))) @ self.words.weight.transpose(1, 0)


class PortedTied(columns.Layer):
    """The same, with a norm left out in the first block."""

    def __init__(self) -> None:
        self.words, self.one, self.two = columns.Embed(11, 4), PortedSandwich("left out"), PortedSandwich("")

    def forward(self, ids: Any) -> Any:
        return self.two(self.one(self.words(ids))) @ self.words.table.transpose(1, 0)


def test_a_table_that_is_used_at_both_ends_calls_no_layer_once_more() -> None:
    report = padiff.diff(Tied(), PortedTied(), (np.arange(10).reshape(2, 5) % 7,))
    assert [source.candidate.path for source in report.sources] == ["one"], str(report)
