"""Forget to call a module whose parameters are there: it is named where its output should be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Plain(rows.Module):
    """A norm of its own between two parts."""

    def __init__(self) -> None:
        self.encode, self.ln_post, self.decode = rows.Linear(4, 4), rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.decode(self.ln_post(self.encode(x)))


class Encoder(columns.Layer):
    def __init__(self, called: bool) -> None:
        self.norm, self.proj, self.called = columns.LayerNormalization(4), columns.Dense(4, 4), called

    def forward(self, x: Any) -> Any:
        x = self.proj(x)
        return self.norm(x) if self.called else x


class Decoder(columns.Layer):
    def __init__(self) -> None:
        self.proj = columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return self.proj(x)


class Composed(columns.Layer):
    """The same in two composites, of which the first may leave out its norm."""

    def __init__(self, called: bool) -> None:
        self.encoder, self.decoder = Encoder(called), Decoder()

    def forward(self, x: Any) -> Any:
        return self.decoder(self.encoder(x))


@pytest.mark.parametrize("called", [True, False], ids=["right", "forgotten"])
def test_a_module_that_is_never_called_is_named(called: bool) -> None:
    """The value was named where it is taken, in the decoder, and nothing spoke of the norm."""
    report = padiff.diff(Plain(), Composed(called), (X,))
    assert report.aligned == called, str(report)
    told = [one.figures for source in report.sources for one in source.evidence if one.kind == "uncalled"]
    assert told == [] if called else [{"reference": "ln_post", "candidate": "encoder.norm"}], str(report)


class Shared(rows.Module):
    """One table for words on both ends."""

    def __init__(self) -> None:
        self.shared, self.decode = rows.Embedding(20, 4), rows.Linear(4, 4)
        self.encode, self.head = rows.Linear(4, 4), rows.Linear(4, 5)

    def forward(self, x: Any, y: Any) -> Any:
        y = self.decode(self.shared(y))
        return self.head(y + self.encode(self.shared(x)).mean(1, keepdims=True))


class Tied(columns.Layer):
    """A table for either end, of one weight; the one that they have it of is never called."""

    def __init__(self, factor: float) -> None:
        self.shared, self.enc, self.dec = (columns.Embed(20, 4) for _ in range(3))
        self.enc.table = self.dec.table
        self.encode, self.decode, self.head = columns.Dense(4, 4), columns.Dense(4, 4), columns.Dense(4, 5)
        self.factor = factor

    def forward(self, x: Any, y: Any) -> Any:
        memory = self.encode(self.enc(x)).mean(1, keepdims=True) * self.factor
        return self.head(self.decode(self.dec(y)) + memory)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_namesake_that_is_never_called_takes_no_place(factor: float) -> None:
    """It took the place of the tables that were, and these were told to have no counterpart."""
    numbers = np.random.default_rng(0)
    words = {name: numbers.integers(0, 20, (2, length)) for name, length in (("x", 5), ("y", 3))}
    report = padiff.diff(Shared(), Tied(factor), words)
    assert [source.between for source in report.sources] == ([] if factor == 1 else [("decode", "head")]), str(report)
    assert report.transfer is not None
    assert report.transfer.unmatched_candidate == ("shared.table",)


class Attention(rows.Module):
    """Three layers of one shape; ``order`` says which is called for what."""

    def __init__(self, *order: int) -> None:
        self.layers, self.order = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(3))), order

    def forward(self, x: Any, y: Any) -> Any:
        one, two, three, four = (self.layers[number] for number in self.order)
        return one(x) * two(y * 2.0) + (three(x - 1.0) * four(y)).mean(-1, keepdims=True)


@pytest.mark.parametrize("due", [0, 1])
def test_a_layer_that_is_called_for_another_is_one_source(due: int) -> None:
    """The gradients of both layers differ, too: they follow from it."""
    right, wrong = Attention(0, due, 1, 2), Attention(0, 2, 1, 2)
    report = padiff.diff(right, wrong, {"x": X, "y": X * 0.5})
    assert str(report).startswith("not aligned: 1 source ("), str(report)
    (source,) = report.sources
    assert [source.reference.path, source.candidate.path] == [f"layers.{due}", "layers.2"], str(report)
    said = [one.figures for one in source.evidence if one.kind == "another_layer"]
    assert said == [{"called": "layers.2", "due": [f"layers.{due}"]}], str(report)


class Feeding(rows.Module):
    """A layer, and a norm beside two layers."""

    def __init__(self) -> None:
        self.mix, self.up, self.down = rows.Linear(4, 4), rows.Linear(4, 6), rows.Linear(6, 4)
        self.norm = rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = x + functional.tanh(self.mix(x))
        return x + self.down(functional.tanh(self.up(self.norm(x))))


class InStacks(columns.Layer):
    """Blocks that hold their norm; one of them is called in all rounds, or each in its own."""

    def __init__(self, *, first: bool) -> None:
        layers = (
            (columns.LayerNormalization(4), columns.Dense(4, 6), columns.Tangent(), columns.Dense(6, 4))
            for _ in range(2)
        )
        self.stacks, self.first = columns.Layers(*(columns.Stack(*some) for some in layers)), first
        self.mixes = columns.Layers(columns.Dense(4, 4), columns.Dense(4, 4))

    def forward(self, x: Any) -> Any:
        for i in range(2):
            x = x + functional.tanh(self.mixes[i](x))
            x = x + self.stacks[0 if self.first else i](x)
        return x


@pytest.mark.parametrize("first", [False, True])
def test_a_block_without_counterpart_that_is_called_for_another_is_one_source(first: bool) -> None:
    """Each layer was one, and the gradients of its norm another."""
    report = padiff.diff(rows.Sequential(Feeding(), Feeding()), InStacks(first=first), X)
    assert len(report.sources) == first, str(report)
    said = [x.figures for one in report.sources for x in one.evidence if x.kind == "another_layer"]
    assert said == [{"called": "stacks.0", "due": ["stacks.1"]}] * first, str(report)


def normed(base: Any, linear: Any, norm: Any, *, again: bool) -> Any:
    """Return a model of two norms, which have the same weights yet; or one of them is used twice."""

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two, self.first, self.second = linear(4, 4), linear(4, 4), norm(4), norm(4)

        def forward(self, x: Any) -> Any:
            x = self.one(self.first(x)) + x
            return self.two((self.first if again else self.second)(x))

    return Model()


def test_a_module_that_another_stands_in_for_is_named_where_gradients_alone_tell() -> None:
    """Outputs are equal as long as both norms have the weights that they begin with."""
    ours = normed(rows.Module, rows.Linear, rows.LayerNorm, again=False)
    for norm in (ours.first, ours.second):
        norm.weight.data[...], norm.bias.data[...] = 1, 0
    report = padiff.diff(ours, normed(columns.Layer, columns.Dense, columns.LayerNormalization, again=True), X)
    assert not report.aligned, str(report)
    assert "the reference calls second; the candidate has second, and never calls it" in str(report), str(report)


class OwnNorm(rows.Module):
    """A norm that the user wrote by hand."""

    def __init__(self, features: int) -> None:
        like = rows.LayerNorm(features)
        self.weight, self.bias = like.weight, like.bias

    def forward(self, x: Any) -> Any:
        return functional.layer_norm(x, self.weight, self.bias, 1e-5)


class PaddedNorm(columns.Layer):
    """The same by the framework's, on one row more."""

    def __init__(self, features: int) -> None:
        self.ln = columns.LayerNormalization(features)

    def forward(self, x: Any) -> Any:
        return self.ln(functional.concat([x, x[:1]], 0))[:-1]


class Block(rows.Module):
    """Two norms and two layers; ``norms`` says which norm is called for which."""

    def __init__(self, norm: Any) -> None:
        self.n1, self.n2, self.mix, self.gate, self.up = (
            *(norm(4) for _ in range(2)),
            *(rows.Linear(4, 4) for _ in range(3)),
        )

    def forward(self, x: Any) -> Any:
        x = x + self.mix(self.n1(x))
        h = self.n2(x)
        return x + functional.silu(self.gate(h)) * self.up(h)


class Blocks(rows.Module):
    def __init__(self, norm: Any = rows.LayerNorm) -> None:
        self.blocks, self.head = rows.ModuleList(*(Block(norm) for _ in range(3))), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Ported(columns.Layer):
    """A block, of which ``calls`` says which layer is called for which."""

    def __init__(self, calls: dict[str, str], norm: Any) -> None:
        self.norm2, self.norm1, self.w1, self.w3, self.att = (
            *(norm(4) for _ in range(2)),
            *(columns.Dense(4, 4) for _ in range(3)),
        )
        self.calls = calls

    def of(self, name: str) -> Any:
        return getattr(self, self.calls.get(name, name))

    def forward(self, x: Any) -> Any:
        x = self.of("att")(self.of("norm1")(x)) + x
        h = self.of("norm2")(x)
        return functional.silu(self.of("w1")(h)) * self.of("w3")(h) + x


class PortedBlocks(columns.Layer):
    def __init__(self, calls: dict[str, str], numbers: Sequence[int], norm: Any = columns.LayerNormalization) -> None:
        self.layers, self.out = columns.Layers(*(Ported(calls, norm) for _ in range(3))), columns.Dense(4, 4)
        self.numbers = numbers

    def forward(self, x: Any) -> Any:
        for number in self.numbers:
            x = self.layers[number](x)
        return self.out(x)


@pytest.mark.parametrize("moved", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize(
    ("calls", "numbers", "called", "due"),
    [
        ({"norm2": "norm1"}, (0, 1, 2), ["norm1", 1], "n2"),
        ({"norm1": "norm2"}, (0, 1, 2), ["norm2", 0], "n1"),
        ({"w3": "w1"}, (0, 1, 2), ["w1", 1], "up"),
        ({}, (0, 0, 2), ["layers.0", 1], "blocks.1"),
        ({}, (0, 1, 2), [], ""),
    ],
)
def test_a_layer_that_is_called_twice_is_one_source_wherever_its_line_runs(
    calls: dict[str, str], numbers: Sequence[int], called: list[Any], due: str, moved: bool
) -> None:
    """The unused one's partner was taken for what was called in its place; each layer of a block was a source."""
    right, port = Blocks(), PortedBlocks(calls, numbers)
    numbers_of = np.random.default_rng(2)
    for block in right.blocks if moved else ():
        for norm in (block.n1, block.n2):
            norm.weight.data[...] = numbers_of.uniform(0.5, 1.5, 4)
    report = padiff.diff(right, port, X)
    assert report.aligned == (not called), str(report)
    assert str(report).startswith("not aligned: 1 source " if called else "aligned"), str(report)
    for source in report.sources:
        assert (source.reference.path or "").endswith(due), str(report)
        assert (source.candidate.path or "").endswith(called[0]), str(report)
        assert source.candidate.call == called[1], str(report)


def test_a_block_that_is_left_out_is_named() -> None:
    """Its layers were listed as never called, and nothing said that it is what is missing."""
    report = padiff.diff(Blocks(), PortedBlocks({}, (0, 1)), X)
    (source,) = report.sources
    said = [one.figures for one in source.evidence if one.kind == "uncalled"]
    assert said == [{"reference": "blocks.2", "candidate": "layers.2"}], str(report)


@pytest.mark.parametrize("calls", [{}, {"norm2": "norm1"}])
def test_a_layer_that_wraps_another_and_is_called_twice_is_named(calls: dict[str, str]) -> None:
    """The code of both norms was told as the cause, which is right: it is the line that calls the wrong one."""
    report = padiff.diff(Blocks(OwnNorm), PortedBlocks(calls, range(3), PaddedNorm), X)
    assert str(report).startswith("not aligned: 1 source in 3 places" if calls else "aligned"), str(report)
    for source in report.sources:
        said = [one.figures for one in source.evidence if one.kind == "another_layer"]
        block = (source.candidate.path or "").rpartition(".")[0]
        assert said == [{"called": f"{block}.norm1", "due": [f"{block}.norm2"]}], str(report)
        line = int(str(source.candidate.location).rpartition(":")[2])
        assert source.cause is None
        assert 'self.of("norm2")(x)' in Path(__file__).read_text().splitlines()[line - 1], str(report)


def stepping(base: Any, table: Any, linear: Any, *, at_once: bool) -> Any:
    """Return a model that looks words up step by step, or all at once, and then calls its last layer in each step."""

    class Model(base):
        def __init__(self) -> None:
            self.words, self.cell, self.look, self.out = table(9, 4), linear(4, 4), linear(4, 4), linear(4, 4)

        def forward(self, ids: Any) -> Any:
            found = self.words(ids) if at_once else None
            h = self.words(ids[:, 0]) * 0.0
            for step in range(3):
                word = self.words(ids[:, step]) if found is None else found[:, step]
                h = functional.tanh(self.cell(word + self.look(h)))
                h = h + self.out(h) * 0.1 if at_once else h
            return self.out(h)

    return Model()


def test_a_further_call_of_one_layer_is_none_of_a_layer_of_another_kind() -> None:
    """Both give one shape: what looks words up was matched with what the fault calls once more."""
    ours = stepping(rows.Module, rows.Embedding, rows.Linear, at_once=False)
    theirs = stepping(columns.Layer, columns.Embed, columns.Dense, at_once=True)
    report = padiff.diff(ours, theirs, (np.arange(6).reshape(2, 3),))
    both = {(call.reference.path, call.candidate.path) for call in report.calls if call.reference and call.candidate}
    assert ("words", "words") in both, str(report)
    assert both <= {("", ""), ("words", "words"), ("cell", "cell"), ("look", "look"), ("out", "out")}, str(report)
    assert not report.aligned


class Opening(rows.Module):
    """A block, of which the first one has a norm of its own in front."""

    def __init__(self, first: bool) -> None:
        self.before = rows.LayerNorm(4) if first else None
        self.norm, self.layer = rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = x if self.before is None else self.before(x)
        return x + functional.tanh(self.layer(self.norm(x)))


class Opened(rows.Module):
    def __init__(self) -> None:
        self.embedding, self.blocks = rows.Linear(4, 4), rows.ModuleList(Opening(first=True), Opening(first=False))

    def forward(self, x: Any) -> Any:
        x = self.embedding(x)
        for one in self.blocks:
            x = one(x)
        return x


class OpenedBlock(columns.Layer):
    def __init__(self) -> None:
        self.ln, self.fc = columns.LayerNormalization(4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return x + functional.tanh(self.fc(self.ln(x)))


class OpenedPort(columns.Layer):
    """The same with the first block's norm beside the blocks, which it may forget to call."""

    def __init__(self, faulty: bool) -> None:
        self.embedding, self.ln_in, self.faulty = columns.Dense(4, 4), columns.LayerNormalization(4), faulty
        self.blocks = columns.Layers(OpenedBlock(), OpenedBlock())

    def forward(self, x: Any) -> Any:
        x = self.embedding(x)
        x = x if self.faulty else self.ln_in(x)
        for one in self.blocks:
            x = one(x)
        return x


def test_a_layer_of_a_block_that_the_code_around_forgets_to_call_is_one_source() -> None:
    """That no gradient comes to its parameters was a source of its own, since another module holds them."""
    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    assert padiff.diff(Opened(), OpenedPort(faulty=False), (x,)).aligned
    report = padiff.diff(Opened(), OpenedPort(faulty=True), (x,))
    assert str(report).startswith("not aligned: 1 source"), str(report)
    assert {str(one.cause) for one in report.sources} == {"before(_) in the reference only"}, str(report)
