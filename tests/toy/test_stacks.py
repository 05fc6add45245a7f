"""Compare what one model lists with what the other stacks along the first axis of one parameter: experts, layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


class Expert(rows.Module):
    """A gated layer."""

    def __init__(self, hidden: int) -> None:
        self.w1, self.w3 = (rows.Linear(4, hidden, bias=False) for _ in range(2))
        self.w2 = rows.Linear(hidden, 4, bias=False)

    def forward(self, x: Any) -> Any:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Listed(rows.Module):
    """Experts in a list; each is called on the tokens that are its own, and not at all where it has none."""

    def __init__(self, hidden: int, count: int, top: int) -> None:
        self.gate, self.top = rows.Linear(4, count, bias=False), top
        self.experts = rows.ModuleList(*(Expert(hidden) for _ in range(count)))

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.gate(x))
        best = np.argsort(-share.data, -1)[:, : self.top]
        total = x * 0.0
        for n, expert in enumerate(self.experts):
            mine = np.flatnonzero((best == n).any(-1))
            if len(mine):
                back = type(x)(np.eye(len(x.data), dtype=np.float32)[:, mine])
                total = total + back @ (expert(x[mine]) * share[mine, n : n + 1])
        return total


class Stacked(columns.Layer):
    """The same as products of stacks [experts, in, out], gate and up in one."""

    def __init__(self, hidden: int, count: int, top: int, fault: str = "") -> None:
        self.router, self.top, self.fault = columns.Dense(4, count, bias=False), top, fault
        self.gate_up, self.down = columns.weight(count, 4, 2 * hidden), columns.weight(count, hidden, 4)

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.router(x))
        best = np.argsort(-share.data, -1)[:, : self.top]
        chosen = np.zeros(share.shape, np.float32)
        np.put_along_axis(chosen, best, 1, -1)
        both = x.reshape(1, *x.shape) @ self.gate_up
        half = both.shape[-1] // 2
        gate, up = both[..., :half], both[..., half:]
        if self.fault == "one":
            gate = gate * type(x)(np.array([1, 1.01, 1, 1], np.float32)[:, None, None])
        found = ((F.gelu if self.fault == "gelu" else F.silu)(gate) * up) @ self.down
        share = (share * type(x)(chosen)).transpose(1, 0)
        if self.fault == "order":
            share = share[[1, 0, 2, 3]]
        return (found * share.reshape(*share.shape, 1)).sum(0)


def diffed(ours: Any, theirs: Any, *, turned: bool) -> padiff.Report:
    return padiff.diff(theirs, ours, TOKENS) if turned else padiff.diff(ours, theirs, TOKENS)


@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
@pytest.mark.parametrize(("hidden", "count", "top"), [(4, 4, 2), (8, 8, 1)])
def test_experts_are_stacked(hidden: int, count: int, top: int, turned: bool) -> None:
    """Two matrices that may lie either way, and experts without a token; 0.4 found no counterpart for any of them."""
    blocks = [
        stack(*(moe(hidden, count, top) for _ in range(2)))
        for stack, moe in ((rows.Sequential, Listed), (columns.Stack, Stacked))
    ]
    report = diffed(*blocks, turned=turned)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == (2 * (3 * count + 1) if turned else 6)


@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
@pytest.mark.parametrize("fault", ["one", "gelu", "order"])
def test_a_fault_in_stacked_experts_is_named_in_their_block(fault: str, turned: bool) -> None:
    report = diffed(Listed(8, 4, 2), Stacked(8, 4, 2, fault), turned=turned)
    assert {(source.phase, source.candidate.path) for source in report.sources} == {("forward", "")}, str(report)


class Layers(rows.Module):
    """Layers in a list."""

    def __init__(self) -> None:
        self.layers = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(3)))
        self.norms = rows.ModuleList(*(rows.LayerNorm(4) for _ in range(3)))

    def forward(self, x: Any) -> Any:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.tanh(layer(norm(x)))
        return x


class Scanned(columns.Layer):
    """The same layer by layer of stacks [layers, ...]."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2)) -> None:
        self.shift, self.scale = columns.weight(3, 4), columns.weight(3, 4)
        self.matrix, self.bias, self.order = columns.weight(3, 4, 4), columns.weight(3, 4), order

    def forward(self, x: Any) -> Any:
        for n, other in enumerate(self.order):
            y = F.layer_norm(x, self.scale[n], self.shift[n], 1e-5)
            x = x + F.tanh(y @ self.matrix[other] + self.bias[n])
        return x


@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_layers_are_stacked_in_the_order_of_their_numbers(order: tuple[int, ...], turned: bool) -> None:
    report = diffed(Layers(), Scanned(order), turned=turned)
    assert report.aligned is (order == (0, 1, 2)), str(report)
    assert {source.phase for source in report.sources} <= {"forward", "backward"}


class Attention(rows.Module):
    """Grouped queries, as wide together as a layer of the experts."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = rows.Linear(4, 4), rows.Linear(4, 2), rows.Linear(4, 2), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        k, v = self.k(x), self.v(x)
        return self.o(F.attention(self.q(x), F.concat([k, k], -1), F.concat([v, v], -1), 2))


class PackedAttention(columns.Layer):
    """The same in one layer."""

    def __init__(self, slope: float) -> None:
        self.qkv, self.result, self.slope = columns.Dense(4, 8), columns.Dense(4, 4), slope

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        q, k, v = y[..., :4] * self.slope, y[..., 4:6], y[..., 6:]
        return self.result(F.attention(q, F.concat([k, k], -1), F.concat([v, v], -1), 2))


class Sentences(rows.Module):
    """A block of attention and experts, over tokens of one sentence."""

    def __init__(self) -> None:
        self.attention, self.experts = Attention(), Listed(8, 3, 2)
        self.before, self.behind = rows.LayerNorm(4), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x).reshape(1, *x.shape)).reshape(*x.shape)
        return x + self.experts(self.behind(x))


class StackedSentences(columns.Layer):
    """The same with a packed projection and stacked experts."""

    def __init__(self, slope: float = 1.0, fault: str = "") -> None:
        self.attention, self.experts = PackedAttention(slope), Stacked(8, 3, 2, fault)
        self.n1, self.n2 = columns.LayerNormalization(4), columns.LayerNormalization(4)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.n1(x).reshape(1, *x.shape)).reshape(*x.shape)
        return x + self.experts(self.n2(x))


def test_stacked_experts_may_look_like_a_packed_projection_beside_them() -> None:
    """A layer of an expert was taken for the queries, keys and values, and what was left of these is no stack."""
    ours = rows.Sequential(Sentences(), Sentences())
    report = padiff.diff(ours, columns.Stack(StackedSentences(), StackedSentences()), TOKENS)
    assert report.aligned, str(report)
    wrong = columns.Stack(StackedSentences(slope=1.1), StackedSentences(fault="gelu"))
    report = padiff.diff(ours, wrong, TOKENS)
    assert {one.candidate.path for one in report.sources} == {"0.attention", "1.experts"}, str(report)


class LowRank(rows.Module):
    """An expert of three matrices, of which the middle one is square."""

    def __init__(self, rank: int = 2) -> None:
        shapes = ((4, rank), (rank, rank), (rank, 4))
        self.down, self.inner, self.up = (rows.Linear(*shape, bias=False) for shape in shapes)

    def forward(self, x: Any) -> Any:
        return self.up(F.tanh(self.inner(F.tanh(self.down(x)))))


class Crossed(rows.Module):
    """Two such experts, each weighed for itself."""

    def __init__(self) -> None:
        self.gate, self.experts = rows.Linear(4, 2, bias=False), rows.ModuleList(LowRank(), LowRank())

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.gate(x))
        return x + sum(share[:, n : n + 1] * one(x) for n, one in enumerate(self.experts)) * x


class CrossedStacks(columns.Layer):
    """The same as products of stacks."""

    def __init__(self, slope: float = 1.0) -> None:
        self.router, self.slope = columns.Dense(4, 2, bias=False), slope
        self.into, self.within, self.back = (columns.weight(2, *shape) for shape in ((4, 2), (2, 2), (2, 4)))

    def forward(self, x: Any) -> Any:
        y = F.tanh(F.tanh(x.reshape(1, *x.shape) @ self.into) @ self.within) * self.slope
        share = F.softmax(self.router(x)).transpose(1, 0)
        return x + ((y @ self.back) * share.reshape(*share.shape, 1)).sum(0) * x


@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_a_stack_of_squares_may_look_like_one_layer(slope: float, turned: bool) -> None:
    """DCN-v2's low rank experts: as tall together as the layer is wide, and that one was left out of its list."""
    blocks = rows.Sequential(Crossed(), Crossed()), columns.Stack(CrossedStacks(), CrossedStacks(slope))
    report = diffed(*blocks, turned=turned)
    assert [one.candidate.path for one in report.sources] == ["1"] * (slope != 1), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference


class CrossedLayers(rows.Module):
    """Layers of such experts, in lists of lists."""

    def __init__(self) -> None:
        self.layers = rows.ModuleList(*(rows.ModuleList(*(LowRank(3) for _ in range(2))) for _ in range(3)))
        self.shifts = rows.ModuleList(*(rows.LayerNorm(4) for _ in range(3)))

    def forward(self, x: Any) -> Any:
        y = x
        for layer, shift in zip(self.layers, self.shifts, strict=True):
            y = shift(y) + sum(one(y) for one in layer) * x
        return y


class CrossedGrid(columns.Layer):
    """The same as products of stacks [layers, experts, in, out]; the first projections may lie as (out, in)."""

    def __init__(self, fault: str = "", *, turned: bool = False) -> None:
        self.back, self.within, self.into = (
            columns.weight(3, 2, *shape) for shape in ((3, 4), (3, 3), (3, 4) if turned else (4, 3))
        )
        self.scales, self.shifts = columns.weight(3, 4), columns.weight(3, 4)
        self.fault, self.turned = fault, turned

    def forward(self, x: Any) -> Any:
        y = x
        for n in range(3):
            total = 0
            for k in range(2):
                first = self.into[n, k]
                z = F.tanh(F.tanh(y @ (first.transpose(1, 0) if self.turned else first)) @ self.within[n, k])
                total = total + z @ self.back[(n, 1 - k) if self.fault == "expert" and n else (n, k)]
            total = total * 1.1 if self.fault == "scale" else total
            y = F.layer_norm(y, self.scales[n], self.shifts[n], 1e-5) + total * x
        return y


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "stacked"])
@pytest.mark.parametrize("fault", ["", "scale", "expert"])
def test_lists_of_lists_are_stacked_along_two_axes(fault: str, listed: bool) -> None:
    """DCN-v2's experts of each layer: only a first axis was looked at, and both sides were left without counterparts.

    Where both sides stack them, rows and columns of what is stacked may be exchanged.
    """
    ours = CrossedLayers() if listed else CrossedGrid(turned=True)
    report = padiff.diff(ours, CrossedGrid(fault), TOKENS)
    assert report.aligned is not bool(fault), str(report)
    assert {(one.phase, one.candidate.path) for one in report.sources} == ({("forward", "")} if fault else set())
    assert report.transfer is not None
    assert report.transfer.verified == (0 if fault else 5)


class Critic(rows.Module):
    def __init__(self) -> None:
        self.hidden, self.value = rows.Linear(4, 8), rows.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        return self.value(F.relu(self.hidden(x)))


class Critics(rows.Module):
    def __init__(self) -> None:
        self.critics = rows.ModuleList(Critic(), Critic())

    def forward(self, x: Any) -> Any:
        return [critic(x) for critic in self.critics]


class StackedCritics(columns.Layer):
    """The same with biases that are broadcast, the last of one number."""

    def __init__(self, kept: float = 1.0) -> None:
        self.w1, self.b1 = columns.weight(2, 4, 8), columns.weight(2, 1, 8)
        self.w2, self.b2, self.kept = columns.weight(2, 8, 1), columns.weight(2, 1, 1), kept

    def forward(self, x: Any) -> Any:
        hidden = F.relu(x.reshape(1, *x.shape) @ self.w1 + self.b1)
        values = hidden @ self.w2 + self.b2 * self.kept
        return [values[0], values[1]]


def test_a_stack_of_layers_with_one_output_has_biases_of_one_number() -> None:
    """Their last bias was not taken for one of these layers, and had no counterpart."""
    report = padiff.diff(Critics(), StackedCritics(), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.copied == 4
    assert len(padiff.diff(Critics(), StackedCritics(0.5), TOKENS).sources) == 1


class GateFirst(rows.Module):
    """A gate and what it gates at two places of one parameter: Gemma's, of JAX."""

    def __init__(self) -> None:
        self.w, self.b, self.norm = rows.parameter(2, 4, 6), rows.parameter(2, 1, 6), rows.LayerNorm(4)
        self.down = rows.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        both = x.reshape(1, *x.shape) @ self.w + self.b
        return self.down(F.silu(both[0]) * both[1])


class GatedApart(columns.Layer):
    def __init__(self, turned: bool, act: Any) -> None:
        self.one, self.two = columns.Dense(4, 6), columns.Dense(4, 6)
        self.norm, self.down, self.turned, self.act = columns.LayerNormalization(4), columns.Dense(6, 4), turned, act

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        up, gate = (self.one(x), self.two(x))[:: 1 if self.turned else -1]
        return self.down(up * self.act(gate))


class GatedTwice(columns.Layer):
    def __init__(self, turned: bool, act: Any) -> None:
        self.first, self.second = GatedApart(turned, act), GatedApart(turned, act)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("listed", [False, True], ids=["stacked", "listed"])
def test_layers_of_one_module_may_be_stacked_in_any_order(turned: bool, listed: bool) -> None:
    """No number says which is first: both sides were left without counterparts."""

    def report(act: Any) -> padiff.Report:
        return diffed(rows.Sequential(GateFirst(), GateFirst()), GatedTwice(turned, act), turned=listed)

    assert report(F.silu).aligned
    wrong = report(F.gelu)
    assert str(wrong).startswith("not aligned: 1 source in 2 places"), str(wrong)
    assert all(one.between == ("norm", "down") and "gelu" in str(one.cause) for one in wrong.sources), str(wrong)


class Blocks(rows.Module):
    """The matrices in a list of layers, their biases in one parameter of the model."""

    def __init__(self, fault: str = "") -> None:
        self.layers = rows.ModuleList(*(rows.Linear(4, 4, bias=False) for _ in range(3)))
        self.norms = rows.ModuleList(*(rows.LayerNorm(4) for _ in range(3)))
        self.biases, self.fault = rows.Linear(4, 3).weight, fault

    def forward(self, x: Any) -> Any:
        for n, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            bias = self.biases[0 if self.fault == "shared" else n]
            x = x + F.tanh(layer(norm(x)) + (bias * 1.01 if (self.fault, n) == ("scaled", 1) else bias))
        return x


@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
@pytest.mark.parametrize("fault", ["", "shared", "scaled"])
def test_a_stack_may_have_a_counterpart_as_a_whole(fault: str, turned: bool) -> None:
    """Biases that both sides stack, beside matrices that one lists, had none: each layer was said to lack its own."""
    report = diffed(Scanned(), Blocks(fault), turned=turned)
    assert report.aligned == (not fault), str(report)
    assert len(report.sources) == bool(fault), str(report)


class Mixture(rows.Module):
    """Experts along the last axis of one parameter, as mixtures for several tasks hold them, behind a shift."""

    def __init__(self) -> None:
        self.experts, self.biases, self.shift = rows.parameter(4, 5, 3), rows.parameter(5, 3), rows.parameter(1)
        self.gate = rows.Linear(4, 3, bias=False)

    def forward(self, x: Any) -> Any:
        x = x + self.shift
        found = F.relu((x @ self.experts.reshape(4, 15)).reshape(len(x.data), 5, 3) + self.biases)
        return (found * F.softmax(self.gate(x)).reshape(len(x.data), 1, 3)).sum(-1)


class ListedMixture(columns.Layer):
    """The same with layers in a list."""

    def __init__(self, fault: str) -> None:
        self.shift, self.fault, self.gate = columns.weight(1), fault, columns.Dense(4, 3, bias=False)
        self.experts = columns.Layers(*(columns.Dense(4, 5) for _ in range(3)))

    def forward(self, x: Any) -> Any:
        x = x + self.shift
        share, act = F.softmax(self.gate(x)), F.gelu if self.fault == "gelu" else F.relu
        order = (1, 0, 2) if self.fault == "order" else (0, 1, 2)
        return sum(act(self.experts[n](x)) * share[:, k : k + 1] for n, k in enumerate(order))


@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
@pytest.mark.parametrize("fault", ["", "gelu", "order"])
def test_experts_are_stacked_along_the_last_axis(fault: str, turned: bool) -> None:
    """They had no counterpart; and beside a parameter of one number the diff raised an IndexError."""
    report = diffed(Mixture(), ListedMixture(fault), turned=turned)
    assert report.aligned == (not fault), str(report)
    assert [(one.phase, one.candidate.path) for one in report.sources] == [("forward", "")] * bool(fault), str(report)


class Numbered(rows.Module):
    """Parameters of one shape under numbers, as a list of them has."""

    def __init__(self, count: int, *shape: int) -> None:
        for i in range(count):
            setattr(self, str(i), rows.parameter(*shape))

    def forward(self) -> None:
        """Nobody calls it."""


class Quantized(rows.Module):
    """Adds up what each codebook makes of what the ones before leave over."""

    def __init__(self) -> None:
        self.enter, self.books, self.leave = rows.Linear(4, 4), Numbered(3, 6, 4), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        rest, found = self.enter(x), 0.0
        for i in range(3):
            book = getattr(self.books, str(i))
            near = F.softmax(rest @ book.transpose(1, 0)) @ book
            rest, found = rest - near, near + found
        return self.leave(found)


class QuantizedPort(columns.Layer):
    """The same with all codebooks in one; a ``wrong`` one takes the first twice."""

    def __init__(self, wrong: bool) -> None:
        self.leave, self.books, self.enter = columns.Dense(4, 3), columns.weight(3, 6, 4), columns.Dense(4, 4)
        self.wrong = wrong

    def forward(self, x: Any) -> Any:
        rest, found = self.enter(x), 0.0
        for i in (0, 0, 2) if self.wrong else range(3):
            near = F.softmax(rest @ self.books[i].transpose(1, 0)) @ self.books[i]
            rest, found = rest - near, near + found
        return self.leave(found)


@pytest.mark.parametrize(("wrong", "turned"), [(False, False), (False, True), (True, False)])
def test_a_list_of_parameters_is_what_the_other_side_stacks(wrong: bool, turned: bool) -> None:
    """Those of a list of modules were; what a list calls by its place alone had no counterpart."""
    x = np.random.default_rng(0).standard_normal((7, 4), dtype="float32")
    sides = (QuantizedPort(False), Quantized()) if turned else (Quantized(), QuantizedPort(wrong))
    report = padiff.diff(*sides, (x,))
    assert report.aligned is not wrong, str(report)
    assert [source.candidate.path for source in report.sources] == [""] * wrong, str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate
