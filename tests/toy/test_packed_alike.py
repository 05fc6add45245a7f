"""Repeated layers pack their projections in one order: another one in one of them is a fault, and no layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.alignment import Pair
from padiff.forcing import Bench
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


class Split(rows.Module):
    """Attention with queries, keys and values apart."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return x + self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class Packed(columns.Layer):
    """The same with all three in one layer, in some order."""

    def __init__(self, order: str) -> None:
        self.qkv, self.result, self.order = columns.Dense(8, 24), columns.Dense(8, 8), order

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        part = {name: y[..., 8 * i : 8 * i + 8] for i, name in enumerate(self.order)}
        return x + self.result(F.attention(part["q"], part["k"], part["v"], 2))


def packed(orders: Sequence[str]) -> Any:
    return columns.Stack(*(Packed(order) for order in orders))


@pytest.mark.parametrize("order", ["qkv", "kqv", "vqk"])
def test_one_order_in_all_layers_is_a_layout(order: str) -> None:
    report = padiff.diff(rows.Sequential(Split(), Split(), Split()), packed([order] * 3), TOKENS)
    assert report.aligned, str(report)


class Named(columns.Layer):
    """Packed layers whose numbers are part of their names."""

    def __init__(self, orders: Sequence[str]) -> None:
        self.block0, self.block1, self.block2 = map(Packed, orders)

    def forward(self, x: Any) -> Any:
        return self.block2(self.block1(self.block0(x)))


@pytest.mark.parametrize("orders", [["kqv"] * 3, ["qkv", "qkv", "kqv"]])
def test_numbers_within_names_tell_repeated_layers_too(orders: Sequence[str]) -> None:
    """Each was taken for a layer of its own, whose order is a layout: one block of which another is read passed."""
    report = padiff.diff(rows.Sequential(Split(), Split(), Split()), Named(orders), TOKENS)
    assert report.aligned is (len({*orders}) == 1), str(report)
    assert {one.candidate.path for one in report.sources} <= {"block2"}, str(report)


class Product(rows.Module):
    """Weigh what a layer gives by the product of what two others do."""

    def __init__(self) -> None:
        self.q, self.k, self.v = (rows.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return F.softmax(self.q(x) * self.k(x)) * self.v(x)


class PackedProduct(columns.Layer):
    def __init__(self) -> None:
        self.qkv = columns.Dense(8, 24)

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        return F.sigmoid(F.tanh(y[..., :8]) * y[..., 8:16]) + y[..., 16:] * 0.5


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_where_no_order_is_right_the_likeliest_is_taken(seed: int) -> None:
    """One is always a little nearer: rows of two layers stood in the place of one, and no cause was found."""
    ours, theirs = Product(), PackedProduct()
    draw = np.random.default_rng(seed)
    for layer in (ours.q, ours.k, ours.v):
        layer.weight.data[...] = draw.standard_normal((8, 8))
    assert not padiff.diff(ours, theirs, TOKENS).aligned
    held = np.concatenate([layer.weight.data for layer in (ours.q, ours.k, ours.v)])
    assert np.array_equal(theirs.qkv.kernel.data.T, held)


class Unweighed(columns.Layer):
    """The product of all three, without the softmax: many times as large."""

    def __init__(self) -> None:
        self.qkv = columns.Dense(8, 24)

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        return y[..., :8] * y[..., 8:16] * y[..., 16:]


@pytest.mark.parametrize("seed", [0, 1, 6])
def test_what_is_further_off_than_zeros_is_near_to_no_order(seed: int) -> None:
    """Of orders that gave many times too much some other one gave a little less, and all of the code was the cause."""
    ours, theirs = Product(), Unweighed()
    draw = np.random.default_rng(seed)
    for layer in (ours.q, ours.k, ours.v):
        layer.weight.data[...] = draw.standard_normal((8, 8))
    report = padiff.diff(ours, theirs, TOKENS)
    assert [str(one.cause) for one in report.sources] == ["softmax(_) in the reference only"], str(report)
    held = np.concatenate([layer.weight.data for layer in (ours.q, ours.k, ours.v)])
    assert np.array_equal(theirs.qkv.kernel.data.T, held)


class Normalized(rows.Module):
    """Attention and a layer, each on what is normalized without weights."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o, self.up = (rows.Linear(8, 8) for _ in range(5))

    def forward(self, x: Any) -> Any:
        y = F.layer_norm(x, 1.0, 0.0, 1e-6)
        x = x + self.o(F.attention(self.q(y), self.k(y), self.v(y), 2))
        return x + self.up(F.layer_norm(x, 1.0, 0.0, 1e-6))


class NormalizedAsOne(columns.Layer):
    def __init__(self, epsilon: float) -> None:
        self.qkv, self.result, self.wide = columns.Dense(8, 24), columns.Dense(8, 8), columns.Dense(8, 8)
        self.epsilon = epsilon

    def forward(self, x: Any) -> Any:
        v, k, q = (self.qkv(F.layer_norm(x, 1.0, 0.0, self.epsilon))[..., 8 * i : 8 * i + 8] for i in range(3))
        x = x + self.result(F.attention(q, k, v, 2))
        return x + self.wide(F.layer_norm(x, 1.0, 0.0, self.epsilon))


def test_a_fault_that_float64_alone_shows_in_several_values_spoils_no_order() -> None:
    """The right order, wrong in two values in float64, was outdone by one that was far off in one value natively."""
    right = padiff.diff(Normalized(), NormalizedAsOne(1e-6), TOKENS)
    assert right.aligned, str(right)
    report = padiff.diff(Normalized(), NormalizedAsOne(1e-5), TOKENS)
    assert all(source.figures is not None and source.figures.rel_l2 < 1e-4 for source in report.sources), str(report)
    assert not report.aligned


@pytest.mark.parametrize("orders", [("qkv", "kqv", "qkv"), ("kqv", "kqv", "qkv"), ("kqv", "qkv")])
def test_another_order_in_one_layer_is_named_there(orders: Sequence[str]) -> None:
    """A checkpoint is converted in one way: 0.4 took the order that made each layer right, and both were aligned."""
    report = padiff.diff(rows.Sequential(*(Split() for _ in orders)), packed(orders), TOKENS)
    (source,) = report.sources
    usual = max(("qkv", "kqv"), key=orders.count)
    assert source.candidate.path == str(next(i for i, order in enumerate(orders) if order != usual)), str(report)


class Unscaled(Packed):
    """The same without the scale."""

    def forward(self, x: Any) -> Any:
        q, k, v = (self.qkv(x)[..., 8 * i : 8 * i + 8] for i in range(3))
        return x + self.result(F.attention(q * 2**0.5, k * 2**0.5, v, 2))


def test_a_fault_that_all_layers_share_is_not_asked_for_their_order_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of twelve layers of an encoder each was replayed 128 times, for minutes: no order made any of them right."""
    seen: list[str] = []
    run = Bench.run

    def counted(bench: Bench, pair: Pair, *rest: Any, **condition: Any) -> Any:
        seen.append(pair.candidate.path)
        return run(bench, pair, *rest, **condition)

    monkeypatch.setattr(Bench, "run", counted)
    report = padiff.diff(
        rows.Sequential(*(Split() for _ in range(5))), columns.Stack(*(Unscaled("qkv") for _ in range(5))), TOKENS
    )
    assert [source.candidate.path for source in report.sources] == list("01234"), str(report)
    assert seen.count("4") < seen.count("0") / 2, Counter(seen)


class Bent(rows.Module):
    """A gated layer."""

    def __init__(self) -> None:
        self.f, self.g, self.o = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return x + self.o(F.tanh(self.f(x)) * F.sigmoid(self.g(x)))


class BentTogether(columns.Layer):
    """The same in one layer, and what it is given the other way round."""

    def __init__(self) -> None:
        self.both, self.out = columns.Dense(8, 16), columns.Dense(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.both(x[..., ::-1])
        return x + self.out(F.tanh(y[..., :8]) * F.sigmoid(y[..., 8:]))


def test_a_fault_in_each_layer_leaves_one_order_in_all() -> None:
    """None is right then, in whatever order; each took the one that was nearest, and two causes were told."""
    report = padiff.diff(
        rows.Sequential(*(Bent() for _ in range(5))), columns.Stack(*(BentTogether() for _ in range(5))), TOKENS
    )
    assert str(report).startswith("not aligned: 1 source in 5 places"), str(report)


class Gated(rows.Module):
    """Attention with a gate, four layers that take the same."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.g = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 16), rows.Linear(8, 16)
        self.o = rows.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        mixed = F.softmax(self.q(x) @ self.k(x).transpose(0, 2, 1), -1) @ self.v(x)
        return x + self.o(F.silu(self.g(x)) * mixed)


class Paired(columns.Layer):
    """The same, queries packed with keys, and the gate with the values."""

    def __init__(self, slope: float) -> None:
        self.gv, self.qk, self.result = columns.Dense(8, 32), columns.Dense(8, 16), columns.Dense(16, 8)
        self.slope = slope

    def forward(self, x: Any) -> Any:
        qk, gv = self.qk(x), self.gv(x)
        mixed = F.softmax(qk[..., :8] @ qk[..., 8:].transpose(0, 2, 1) * self.slope, -1) @ gv[..., 16:]
        return x + self.result(F.silu(gv[..., :16]) * mixed)


class KeyValue(columns.Layer):
    """Attention with queries apart, and keys packed with values."""

    def __init__(self, slope: float) -> None:
        self.query, self.kv, self.result, self.slope = (
            columns.Dense(8, 8),
            columns.Dense(8, 16),
            columns.Dense(8, 8),
            slope,
        )

    def forward(self, x: Any) -> Any:
        kv = self.kv(x)
        return x + self.result(F.attention(self.query(x) * self.slope, kv[..., :8], kv[..., 8:], 2))


@pytest.mark.parametrize(("ours", "theirs"), [(Gated, Paired), (Split, KeyValue)])
def test_several_layers_may_pack_together_what_takes_the_same(ours: Any, theirs: Any) -> None:
    """RetNet's and Perceiver's: no layer is as wide as all of the others, and 0.4 found no counterpart for any."""
    report = padiff.diff(rows.Sequential(ours(), ours()), columns.Stack(theirs(1.0), theirs(1.0)), TOKENS)
    assert report.aligned, str(report)
    report = padiff.diff(rows.Sequential(ours(), ours()), columns.Stack(theirs(1.0), theirs(1.1)), TOKENS)
    assert {source.candidate.path for source in report.sources} == {"1"}, str(report)


class Crossed(rows.Module):
    """A block that looks at itself, and one that looks at what this gave, as it was before."""

    def __init__(self) -> None:
        self.own = rows.ModuleList(*(rows.Linear(8, 8) for _ in range(4)))
        self.norm = rows.LayerNorm(8)
        self.cross = rows.ModuleList(*(rows.Linear(8, 8) for _ in range(4)))

    def forward(self, x: Any) -> Any:
        q, k, v, o = self.own
        seen = self.norm(x + o(F.attention(q(x), k(x), v(x), 2)))
        q, k, v, o = self.cross
        return x + o(F.attention(q(x), k(seen), v(seen), 2))


class CrossedPacked(columns.Layer):
    """The same, keys packed with values in both."""

    def __init__(self, slope: float) -> None:
        self.own = columns.Layers(*(columns.Dense(8, width) for width in (8, 16, 8)))
        self.cross = columns.Layers(*(columns.Dense(8, width) for width in (8, 16, 8)))
        self.norm, self.slope = columns.LayerNormalization(8), slope

    def forward(self, x: Any) -> Any:
        def attend(layers: Any, x: Any, seen: Any, slope: float) -> Any:
            q, kv, o = layers
            both = kv(seen)
            return o(F.attention(q(x) * slope, both[..., :8], both[..., 8:], 2))

        seen = self.norm(x + attend(self.own, x, x, 1.0))
        return x + attend(self.cross, x, seen, self.slope)


def test_what_packs_keys_and_values_takes_what_these_take() -> None:
    """The first that was as wide took those of the cross attention, an encoder's of an Autoformer.

    A fault in one of both changes nothing in how the other one packs, and hides nothing of it.
    """
    report = padiff.diff(Crossed(), CrossedPacked(1.0), TOKENS)
    assert report.aligned, str(report)
    np.random.seed(1)
    report = padiff.diff(Crossed(), CrossedPacked(1.1), TOKENS)
    (source,) = report.sources
    assert source.what == "input 'x' of cross.2", str(source)
    assert report.transfer is not None
    assert report.transfer.settled.keys() == {"own.1"}


class Apart(rows.Module):
    """Attention to what it is given, with keys and values apart."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any, seen: Any) -> Any:
        return self.o(F.attention(self.q(x), self.k(seen), self.v(seen), 2))


class Decoding(rows.Module):
    """A block that looks at itself, then at what it is to decode, with a norm behind each."""

    def __init__(self) -> None:
        self.own, self.cross, self.first, self.second = Apart(), Apart(), rows.LayerNorm(8), rows.LayerNorm(8)

    def forward(self, x: Any, seen: Any) -> Any:
        x = self.first(x + self.own(x, x))
        return self.second(x + self.cross(x, seen))


class Together(columns.Layer):
    """The attention with keys packed with values."""

    def __init__(self) -> None:
        self.q, self.kv, self.out = columns.Dense(8, 8), columns.Dense(8, 16), columns.Dense(8, 8)

    def forward(self, x: Any, seen: Any) -> Any:
        both = self.kv(seen)
        return self.out(F.attention(self.q(x), both[..., :8], both[..., 8:], 2))


class DecodingTogether(columns.Layer):
    """The same block; or with the first norm before its attention, run for queries and for keys with values."""

    def __init__(self, *, before: bool) -> None:
        self.own, self.cross, self.before = Together(), Together(), before
        self.n1, self.n2 = columns.LayerNormalization(8), columns.LayerNormalization(8)

    def forward(self, x: Any, seen: Any) -> Any:
        x = x + self.own(self.n1(x), self.n1(x)) if self.before else self.n1(x + self.own(x, x))
        return self.n2(x + self.cross(x, seen))


def test_who_packs_keys_with_values_is_told_by_what_these_give_to() -> None:
    """Both blocks take what the model is given: the first took the other one's keys and values, and nothing was right.

    With the norm before, as in a DETR, these found what packs them only once the block's own had been packed.
    """
    inputs = TOKENS, np.random.default_rng(1).standard_normal((2, 7, 8)).astype(np.float32)
    report = padiff.diff(Decoding(), DecodingTogether(before=False), inputs)
    assert report.aligned, str(report)
    report = padiff.diff(Decoding(), DecodingTogether(before=True), inputs)
    places = {str(source.what) for source in report.sources}
    assert places == {"input 'x' of n1", "input 'x' of own", "input 'x' of cross"}, str(report)


class Experts(rows.Module):
    """Experts of a layer and an activation each, and a gate that weighs them."""

    def __init__(self) -> None:
        self.experts = rows.ModuleList(*(rows.Sequential(rows.Linear(8, 6), rows.Tanh()) for _ in range(3)))
        self.gate, self.head = rows.Linear(8, 3), rows.Linear(6, 8)

    def forward(self, x: Any) -> Any:
        gate = F.softmax(self.gate(x))
        return self.head(sum(gate[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts)))


class ExpertsInOne(columns.Layer):
    """The same, all experts in one layer."""

    def __init__(self, slope: float) -> None:
        self.head, self.all, self.gate = columns.Dense(6, 8), columns.Dense(8, 18), columns.Dense(8, 3)
        self.slope = slope

    def forward(self, x: Any) -> Any:
        gate, given = F.softmax(self.gate(x) * self.slope), F.tanh(self.all(x))
        return self.head(sum(gate[..., i : i + 1] * given[..., 6 * i : 6 * i + 6] for i in range(3)))


def test_what_is_packed_may_lie_in_modules_of_its_own() -> None:
    """The experts of a multi-gate mixture: only layers of one parent were looked at, and two found no counterpart."""
    report = padiff.diff(Experts(), ExpertsInOne(1.0), TOKENS)
    assert report.aligned, str(report)
    (source,) = padiff.diff(Experts(), ExpertsInOne(1.1), TOKENS).sources
    assert source.what.name == "x", str(source)


class Decoder(rows.Module):
    """Grouped queries, and a feed-forward block whose layers are as wide as all three together."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = rows.Linear(8, 8), rows.Linear(8, 4), rows.Linear(8, 4), rows.Linear(8, 8)
        self.gate, self.up, self.down = rows.Linear(8, 16), rows.Linear(8, 16), rows.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        x = x + self.o(F.attention(self.q(x), *(F.concat([y, y]) for y in (self.k(x), self.v(x))), 2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Fused(columns.Layer):
    """The same with two packed layers."""

    def __init__(self, slope: float) -> None:
        self.down, self.gate_up = columns.Dense(16, 8), columns.Dense(8, 32)
        self.out, self.qkv, self.slope = columns.Dense(8, 8), columns.Dense(8, 16), slope

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        q, k, v = y[..., :8], y[..., 8:12], y[..., 12:]
        x = x + self.out(F.attention(q * self.slope, F.concat([k, k]), F.concat([v, v]), 2))
        y = self.gate_up(x)
        return x + self.down(F.silu(y[..., :16]) * y[..., 16:])


def test_a_packed_layer_may_look_like_another_one() -> None:
    """A gate of 16 was taken for the queries, keys and values of 8 + 4 + 4, and these found no counterpart."""
    blocks = rows.Sequential(Decoder(), Decoder())
    report = padiff.diff(blocks, columns.Stack(Fused(1.0), Fused(1.0)), TOKENS)
    assert report.aligned, str(report)
    report = padiff.diff(blocks, columns.Stack(Fused(1.0), Fused(1.1)), TOKENS)
    assert {source.candidate.path for source in report.sources} == {"1"}, str(report)


class Halves(columns.Layer):
    """A packed block that is run on each half of the batch by itself, as guidance without a label is."""

    def __init__(self, order: str, slope: float = 1.0) -> None:
        self.block, self.slope = Packed(order), slope

    def forward(self, x: Any) -> Any:
        return F.concat([self.block(x[:1] * self.slope), self.block(x[1:])], 0)


class Doubled(rows.Module):
    def __init__(self) -> None:
        self.block = Split()

    def forward(self, x: Any) -> Any:
        return self.block(x)


@pytest.mark.parametrize("order", ["qkv", "kqv", "vqk"])
def test_a_call_of_which_nothing_is_compared_tells_no_layout(order: str) -> None:
    """The first order was right at once, of a call that could not be fed; what the model gives tells."""
    report = padiff.diff(Doubled(), Halves(order), TOKENS)
    assert report.aligned, str(report)
    (source,) = padiff.diff(Doubled(), Halves(order, 1.1), TOKENS).sources
    assert (source.candidate.path, str(source.what)) == ("", "input 'x' of block"), str(source)


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
def test_what_both_sides_pack_alike_is_compared_by_figures_too(tmp_path: Path, values: Any) -> None:
    """Sketches and summaries said nothing of it: a step of these weights alone was aligned, whatever it was."""
    for name in ("one", "right", "wrong"):
        np.random.seed(0)
        model = rows.Attention(8, 2)
        with padiff.record(model, tmp_path / name, values=values) as recorder:
            y = model(rows.Tensor(TOKENS))
            (y * y).mean().backward()
            rows.SGD(model.parameters(), 0.1).step()
            if name == "wrong":
                model.packed.data[...] += 0.1 * model.packed.grad
            recorder.step()
    right, wrong = (padiff.compare(tmp_path / "one", tmp_path / name) for name in ("right", "wrong"))
    assert right.aligned, str(right)
    assert {(one.phase.value, one.what.kind) for one in wrong.sources} == {("update", "updated_parameter")}, str(wrong)


class Remembering(rows.Module):
    """A block whose attention is given its own input, or what the first layer made of that of the model."""

    def __init__(self, takes: str) -> None:
        self.attention, self.norm, self.takes = rows.Attention(8, 2), rows.LayerNorm(8), takes

    def forward(self, x: Any, memory: Any) -> Any:
        return self.norm(x + self.attention(memory if self.takes == "m" else x))


class Recalling(columns.Layer):
    """The same with keys and values in one layer, where a port may give queries, or these, something else."""

    def __init__(self, takes: str) -> None:
        self.q, self.kv, self.o = columns.Dense(8, 8), columns.Dense(8, 16), columns.Dense(8, 8)
        self.norm, self.takes = columns.LayerNormalization(8), takes

    def forward(self, x: Any, memory: Any) -> Any:
        given = {"x": x, "m": memory, "n": self.norm(x)}
        queries, kv = self.q(given[self.takes[0]]), self.kv(given[self.takes[1]])
        return self.norm(x + self.o(F.attention(queries, kv[..., :8], kv[..., 8:], 2)))


class RememberingDecoder(rows.Module):
    def __init__(self, blocks: Sequence[str]) -> None:
        self.first, self.blocks = rows.Linear(8, 8), rows.ModuleList(*map(Remembering, blocks))

    def forward(self, x: Any) -> Any:
        memory = self.first(x)
        for block in self.blocks:
            x = block(x, memory)
        return x


class RecallingDecoder(columns.Layer):
    def __init__(self, blocks: Sequence[str]) -> None:
        self.first, self.blocks = columns.Dense(8, 8), columns.Layers(*map(Recalling, blocks))

    def forward(self, x: Any) -> Any:
        memory = self.first(x)
        for block in self.blocks:
            x = block(x, memory)
        return x


@pytest.mark.parametrize(
    ("blocks", "ported", "at"),
    [
        ("mx", ["mm", "xx"], None),
        ("mx", ["nm", "mm"], "blocks.0"),
        ("mxx", ["nx", "nm", "mm"], "blocks.0"),
        ("mxx", ["nx", "mm", "mn"], "blocks.0"),
        ("xxm", ["nn", "nx"], "blocks.0"),
        ("xxm", ["mn", "mn", "mm"], "blocks.0"),
    ],
)
def test_a_unit_is_in_one_packing_only(blocks: str, ported: Sequence[str], at: str | None) -> None:
    """Wrong as these ports are, all of them ended in an error: two packings held one layer, or none filled it."""
    report = padiff.diff(RememberingDecoder(blocks), RecallingDecoder(ported), TOKENS)
    assert report.aligned == (at is None), str(report)
    if at is not None:
        places = {place for one in report.sources for place in (one.candidate.path, str(one.what))}
        assert any(at in place for place in places), str(report)
