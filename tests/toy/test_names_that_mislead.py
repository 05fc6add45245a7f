"""Tell where a matching contradicts names that agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Named(rows.Module):
    """Two layers of one shape, an activation between them."""

    def __init__(self) -> None:
        self.query, self.norm, self.value = rows.Linear(4, 4), rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.value(self.norm(F.tanh(self.query(x))))


class Misnamed(columns.Layer):
    """The same, each under the other one's name; one may lie in a wrapper."""

    def __init__(self, crossed: bool, wrapped: bool = False) -> None:
        self.v, self.norm, self.q = columns.Dense(4, 4), columns.LayerNormalization(4), columns.Dense(4, 4)
        self.v = columns.Stack(self.v) if wrapped else self.v
        self.crossed = crossed

    def forward(self, x: Any) -> Any:
        first, last = (self.v, self.q) if self.crossed else (self.q, self.v)
        return last(self.norm(F.tanh(first(x))))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_matching_against_names_is_told(wrapped: bool) -> None:
    """A layer that is alone in a wrapper is called as that is."""
    report = padiff.diff(Named(), Misnamed(True, wrapped), ROWS)
    assert report.aligned, str(report)
    (note,) = (note for note in report.notes if note.kind == "against_names")
    v = "v.0" if wrapped else "v"
    assert sorted(note.data["matches"]) == [("query", v, "q"), ("value", "q", v)]
    assert f"query with {v}, not with q" in str(report).replace("\n             ", " ")


def test_nothing_is_told_where_names_and_dataflow_agree() -> None:
    report = padiff.diff(Named(), Misnamed(False), ROWS)
    assert report.aligned, str(report)
    assert not any(note.kind == "against_names" for note in report.notes)


class Gated(rows.Module):
    """Layers in a list, of which one is a gate."""

    def __init__(self, gate: int) -> None:
        self.parts, self.gate = rows.ModuleList(rows.Linear(4, 4), rows.Linear(4, 4)), gate

    def forward(self, x: Any) -> Any:
        return F.sigmoid(self.parts[self.gate](x)) * F.tanh(self.parts[1 - self.gate](x))


@pytest.mark.parametrize("gate", [0, 1])
def test_numbers_of_one_list_are_names_too(gate: int) -> None:
    """A port that takes a list's layers for each other's was aligned without a word."""
    report = padiff.diff(Gated(0), Gated(gate), ROWS)
    told = [note.data["matches"] for note in report.notes if note.kind == "against_names"]
    assert sorted(*told or [[]]) == (
        [("parts.0", "parts.1", "parts.0"), ("parts.1", "parts.0", "parts.1")] if gate else []
    )


class Block(rows.Module):
    def __init__(self) -> None:
        self.first, self.second = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.second(F.tanh(self.first(x)))


class Stack(rows.Module):
    """Two blocks, one behind the other."""

    def __init__(self) -> None:
        self.blocks = rows.ModuleList(Block(), Block())

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class Layer(columns.Layer):
    def __init__(self) -> None:
        self.inner = columns.Layers(columns.Dense(4, 4), columns.Dense(4, 4))

    def forward(self, x: Any) -> Any:
        first, second = self.inner
        return x + second(F.tanh(first(x)))


class Backwards(columns.Layer):
    """The same, in which what a block holds has numbers too; the blocks may run in another order than theirs."""

    def __init__(self, backwards: bool) -> None:
        self.layers, self.backwards = columns.Layers(Layer(), Layer()), backwards

    def forward(self, x: Any) -> Any:
        for layer in [*self.layers][:: -1 if self.backwards else 1]:
            x = layer(x)
        return x


class Glued(columns.Layer):
    """The same with numbers in the names of attributes."""

    def __init__(self, backwards: bool) -> None:
        self.layer0, self.layer1, self.backwards = Layer(), Layer(), backwards

    def forward(self, x: Any) -> Any:
        return self.layer0(self.layer1(x)) if self.backwards else self.layer1(self.layer0(x))


@pytest.mark.parametrize("port", [Backwards, Glued])
def test_blocks_that_run_in_another_order_than_their_numbers_are_a_fault(port: Any) -> None:
    """A port whose layers have their numbers glued to their names was called aligned."""
    assert padiff.diff(Stack(), port(False), ROWS).aligned
    report = padiff.diff(Stack(), port(True), ROWS)
    assert {source.candidate.path for source in report.sources} == {""}, report


def gated(base: Any, linear: Any, *, packed: bool, backwards: bool = False) -> Any:
    """Return blocks with a value and a gate, in one layer or in two."""

    class Gated(base):
        def __init__(self) -> None:
            if packed:
                self.both = linear(4, 8)
            else:
                self.value, self.gate = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.both(x) if packed else None
            value, gate = (y[..., :4], y[..., 4:]) if packed else (self.value(x), self.gate(x))
            return x + value * F.sigmoid(gate)

    class Model(base):
        def __init__(self) -> None:
            self.layer0, self.layer1 = Gated(), Gated()

        def forward(self, x: Any) -> Any:
            return self.layer0(self.layer1(x)) if backwards else self.layer1(self.layer0(x))

    return Model()


def test_packed_layers_keep_the_numbers_of_their_blocks() -> None:
    """One packed layer that fits nothing by itself left all numbers aside: blocks in reverse were aligned."""
    packed = gated(rows.Module, rows.Linear, packed=True)
    assert padiff.diff(packed, gated(columns.Layer, columns.Dense, packed=False), ROWS).aligned
    assert not padiff.diff(packed, gated(columns.Layer, columns.Dense, packed=False, backwards=True), ROWS).aligned


class Gate(rows.Module):
    """A gate and a map, by whatever names; each may be used for the other."""

    def __init__(self, names: tuple[str, str], crossed: bool) -> None:
        self.names = names[::-1] if crossed else names
        for name in names:
            setattr(self, name, rows.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        gate, up = (getattr(self, name) for name in self.names)
        return x + F.silu(gate(x)) * up(x)


class Gates(rows.Module):
    """Three such blocks, some of them crossed."""

    def __init__(self, names: tuple[str, str], crossed: tuple[int, ...] = ()) -> None:
        self.blocks = rows.ModuleList(*(Gate(names, number in crossed) for number in range(3)))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("crossed", [(), (1,), (0, 1, 2)])
def test_a_matching_otherwise_than_in_other_blocks_is_told(crossed: tuple[int, ...]) -> None:
    """Names that say nothing by themselves, but what one of them is in each block."""
    report = padiff.diff(Gates(("gate", "up")), Gates(("w1", "w3"), crossed), ROWS)
    assert report.aligned, str(report)
    told = [match for note in report.notes if note.kind == "against_other_blocks" for match in note.data["matches"]]
    ways = (("gate", "w3", "w1"), ("up", "w1", "w3"))
    assert told == [tuple(f"blocks.1.{name}" for name in way) for way in ways] * (len(crossed) == 1), str(report)


class Three(rows.Module):
    """Blocks of two maps, each under names of the block's own."""

    def __init__(self, *names: tuple[str, str]) -> None:
        self.blocks = rows.ModuleList(*(Gate(one, False) for one in names))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def test_names_that_blocks_do_not_share_say_nothing_of_other_blocks() -> None:
    port = Three(("fc1", "fc2"), ("fc2", "out1"), ("out1", "fc1"))
    report = padiff.diff(Gates(("gate", "up")), port, ROWS)
    assert report.aligned, str(report)
    assert not any(note.kind == "against_other_blocks" for note in report.notes), str(report)
