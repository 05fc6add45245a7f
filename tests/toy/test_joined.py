"""Compare a layer with several that it joins by columns or rows: of concatenated inputs, and of tables with offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

RNG = np.random.default_rng(0)
STEPS = RNG.standard_normal((2, 5, 4)).astype(np.float32)
INDICES = np.stack([RNG.integers(0, count, 6) for count in (5, 7, 3)], 1)


class Concatenated(rows.Module):
    """A recurrent layer with one matrix for input and state."""

    def __init__(self) -> None:
        self.gates, self.out = rows.Linear(7, 3), rows.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        state = x[:, 0, :3] * 0.0
        for n in range(x.shape[1]):
            state = F.tanh(self.gates(F.concat([x[:, n], state])))
        return self.out(state)


class Added(columns.Layer):
    """The same with a matrix for each."""

    def __init__(self, biases: tuple[bool, bool], fault: float = 1.0) -> None:
        self.of_state, self.of_input = columns.Dense(3, 3, biases[0]), columns.Dense(4, 3, biases[1])
        self.out, self.fault = columns.Dense(3, 4), fault

    def forward(self, x: Any) -> Any:
        state = x[:, 0, :3] * 0.0
        for n in range(x.shape[1]):
            state = F.tanh(self.of_input(x[:, n]) + self.of_state(state) * self.fault)
        return self.out(state)


def diffed(ours: Any, theirs: Any, inputs: Any, *, turned: bool) -> padiff.Report:
    return padiff.diff(theirs, ours, inputs) if turned else padiff.diff(ours, theirs, inputs)


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "joined"])
@pytest.mark.parametrize("biases", [(False, True), (True, False), (True, True)], ids=["second", "first", "both"])
def test_a_matrix_of_concatenated_inputs_is_two(biases: tuple[bool, bool], turned: bool) -> None:
    """Biases that are added up are one: 0.4 found no counterpart of the matrices."""
    report = diffed(Concatenated(), Added(biases), STEPS, turned=turned)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied == (4 if turned else 4 + sum(biases))


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "joined"])
def test_a_fault_beside_columns_is_no_layout(turned: bool) -> None:
    report = diffed(Concatenated(), Added((True, True), 1.01), STEPS, turned=turned)
    assert {(source.phase, source.candidate.path) for source in report.sources} == {("forward", "")}, str(report)


ENDS = np.array([0, 0, 1, 1, 2, 2]), np.array([1, 2, 0, 2, 0, 1])


class Edges(rows.Module):
    """A layer on both ends of each edge and its length, and square ones behind it."""

    def __init__(self) -> None:
        self.first, self.second, self.third, self.far = (rows.Linear(size, 4) for size in (9, 4, 4, 4))
        self.node, self.out = rows.Linear(8, 4), rows.Linear(4, 4)

    def forward(self, x: Any, length: Any) -> Any:
        ends = F.concat([*(x[end] for end in ENDS), length])
        found = F.silu(self.second(F.silu(self.first(ends))))
        moved = self.far(F.silu(self.third(found))) * length
        return x + self.out(F.silu(self.node(F.concat([x, found.reshape(3, 2, 4).mean(1)])))), moved


class EdgesOfNodes(columns.Layer):
    """The same with a layer for each of them, before ends are looked up."""

    def __init__(self, fault: float) -> None:
        self.from_, self.to, self.long = columns.Dense(4, 4), columns.Dense(4, 4, False), columns.Dense(1, 4, False)
        self.e2, self.n1, self.n2 = columns.Dense(4, 4), columns.Dense(8, 4), columns.Dense(4, 4)
        self.c1, self.c2, self.fault = columns.Dense(4, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any, length: Any) -> Any:
        found = self.from_(x)[ENDS[0]] + self.to(x)[ENDS[1]] + self.long(length) * self.fault
        found = F.silu(self.e2(F.silu(found)))
        moved = length * self.c2(F.silu(self.c1(found)))
        return x + self.n2(F.silu(self.n1(F.concat([x, found.reshape(3, 2, 4).mean(1)])))), moved


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "joined"])
@pytest.mark.parametrize("fault", [1.0, 1.01])
def test_one_of_the_layers_that_are_added_up_may_look_like_another(fault: float, turned: bool) -> None:
    """It is as large as the layer behind them, and was taken for that of the other side."""
    inputs = STEPS[0, :3], RNG.standard_normal((6, 1)).astype(np.float32)
    report = diffed(Edges(), EdgesOfNodes(fault), inputs, turned=turned)
    behind = "second" if turned else "e2"
    assert [one.what.taker for one in report.sources] == [behind] * (fault != 1), str(report)
    assert report.aligned is (fault == 1), str(report)


class WithMeans(rows.Module):
    """A convolution of one element on an image and, at each place, the means of its channels."""

    def __init__(self) -> None:
        self.map, self.out = rows.Conv2d(8, 5, 1), rows.Conv2d(5, 2, 1)

    def forward(self, x: Any) -> Any:
        x = x.transpose(0, 3, 1, 2)
        means = x.mean((2, 3)).reshape(2, 4, 1, 1)
        return self.out(F.tanh(self.map(F.concat([x, x * 0.0 + means], 1)))).mean((2, 3))


class MeansApart(columns.Layer):
    """The same with a convolution of the image, and a layer of the means, added at each place."""

    def __init__(self, fault: float) -> None:
        self.means, self.image, self.out = columns.Dense(4, 5, False), columns.Conv(4, 5, 1), columns.Conv(5, 2, 1)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        means = self.means(x.mean((1, 2)) * self.fault).reshape(2, 1, 1, 5)
        return self.out(F.tanh(self.image(x) + means)).mean((1, 2))


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "joined"])
@pytest.mark.parametrize("fault", [1.0, 1.01])
def test_a_convolution_of_one_element_joins_another_and_a_layer(fault: float, turned: bool) -> None:
    """What is the same at each place needs no convolution (attentive statistics): neither had a counterpart."""
    image = RNG.standard_normal((2, 3, 3, 4)).astype(np.float32)
    report = diffed(WithMeans(), MeansApart(fault), image, turned=turned)
    assert [one.what.taker for one in report.sources] == ["out"] * (fault != 1), str(report)
    assert report.aligned is (fault == 1), str(report)


class Tables(rows.Module):
    """A table for each feature."""

    def __init__(self) -> None:
        self.tables = rows.ModuleList(*(rows.Embedding(count, 4) for count in (5, 7, 3)))
        self.out = rows.Linear(12, 2)

    def forward(self, x: Any) -> Any:
        return self.out(F.concat([table(x[:, n]) for n, table in enumerate(self.tables)]))


class Table(columns.Layer):
    """One table for all, with an offset for each feature."""

    def __init__(self, last: int, factor: float = 1.0) -> None:
        self.table, self.out, self.offsets = columns.Embed(15, 4), columns.Dense(12, 2), np.array([0, 5, last])
        self.factor = factor

    def forward(self, x: Any) -> Any:
        found = self.table(type(x)(x.data + self.offsets)) * self.factor
        return self.out(found.reshape(len(x.data), 12))


@pytest.mark.parametrize("turned", [False, True], ids=["joined", "apart"])
@pytest.mark.parametrize("last", [12, 11], ids=["right", "wrong"])
def test_tables_are_joined_with_offsets(last: int, turned: bool) -> None:
    report = diffed(Tables(), Table(last), INDICES, turned=turned)
    assert [source.candidate.path for source in report.sources] == [""] * (last != 12), str(report)


@pytest.mark.parametrize("turned", [False, True], ids=["joined", "apart"])
def test_a_fault_behind_joined_tables_is_not_at_their_indices(turned: bool) -> None:
    """One table is no counterpart of the first of several: it looks up other indices, and that is right."""
    (source,) = diffed(Tables(), Table(12, 1.1), INDICES, turned=turned).sources
    assert (source.what.kind, source.what.taker) == ("input", "out"), str(source)


class Conditioned(rows.Module):
    """A table of what scales and shifts each channel of a norm."""

    def __init__(self) -> None:
        self.given, self.table, self.out = rows.Linear(4, 6), rows.Embedding(5, 12), rows.Linear(6, 2)

    def forward(self, index: Any, x: Any) -> Any:
        found = self.table(index)
        return self.out(F.tanh(self.given(x)) * (found[:, :6] + 1.0) + found[:, 6:])


class ConditionedByTables(columns.Layer):
    def __init__(self, fault: bool) -> None:
        self.scale, self.shift, self.fault = columns.Embed(5, 6), columns.Embed(5, 6), fault
        self.given, self.out = columns.Dense(4, 6), columns.Dense(6, 2)

    def forward(self, index: Any, x: Any) -> Any:
        scale, shift = self.scale(index), self.shift(index)
        return self.out(F.tanh(self.given(x)) * (scale if self.fault else scale + 1.0) + shift)


@pytest.mark.parametrize("turned", [False, True], ids=["joined", "apart"])
@pytest.mark.parametrize("fault", [False, True])
def test_a_fault_behind_a_table_that_holds_others_side_by_side_is_not_at_what_it_gives(
    fault: bool, turned: bool
) -> None:
    """Its call was matched with that of one of them, by its place, and gave another shape."""
    sides = Conditioned(), ConditionedByTables(fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), (INDICES[:2, 0], STEPS[:, 0]))
    assert [(one.what.kind, one.what.taker) for one in report.sources] == [("input", "out")] * fault, str(report)
    assert report.aligned is not fault


def test_tables_are_joined_without_inputs() -> None:
    assert padiff.transfer(Tables(), Table(12)).copied == 3


class Tokens(rows.Module):
    """Tokens of a class, of numbers and of choices, and trees behind: a table as large as a parameter beside it."""

    def __init__(self) -> None:
        self.weight, self.bias, self.table = rows.parameter(4, 6), rows.parameter(5, 6), rows.Embedding(9, 6)
        self.norm, self.out = rows.LayerNorm(6), rows.Linear(6, 6)
        self.norm.weight.data[...], self.norm.bias.data[...] = 1, 0
        self.select, self.shift, self.codes = rows.parameter(6, 3, 2), rows.parameter(3, 2), rows.parameter(2, 3, 1)
        self.codes.requires_grad = False

    def forward(self, numbers: Any, choices: Any) -> Any:
        tokens = [self.weight[0:1] + numbers[:, :1] * 0.0]
        tokens += [numbers[:, n : n + 1] * self.weight[n + 1] + self.bias[n] for n in range(3)]
        chosen = self.table(type(choices)(choices.data + np.array([0, 4])))
        tokens += [chosen[:, n] + self.bias[n + 3] for n in range(2)]
        x = F.tanh(self.out(self.norm(sum(F.tanh(token) * (n + 1.0) for n, token in enumerate(tokens)))))
        return (x @ self.select.reshape(6, 6)).reshape(6, 3, 2) - self.shift


class TokensApart(columns.Layer):
    """The same with a parameter, or a table, for each of them, and trees whose parameters lie flat."""

    def __init__(self, scale: float) -> None:
        self.slope, self.start, self.own = columns.weight(3, 6), columns.weight(3, 6), columns.weight(2, 6)
        self.begin, self.tables = columns.weight(1, 1, 6), columns.Layers(columns.Embed(4, 6), columns.Embed(5, 6))
        self.norm, self.out = columns.LayerNormalization(6), columns.Dense(6, 6)
        self.select, self.shift, self.scale = columns.weight(6, 6), columns.weight(6), scale

    def forward(self, numbers: Any, choices: Any) -> Any:
        tokens = [self.begin[0] + numbers[:, :1] * 0.0]
        tokens += [numbers[:, n : n + 1] * self.slope[n] + self.start[n] for n in range(3)]
        tokens += [self.tables[n](type(choices)(choices.data[:, n])) + self.own[n] for n in range(2)]
        x = F.tanh(self.out(self.norm(sum(F.tanh(token) * (n + 1.0) for n, token in enumerate(tokens)))))
        return ((x @ self.select) * self.scale - self.shift).reshape(6, 3, 2)


def tokens(scale: float, phase: str, *, turned: bool) -> padiff.Report:
    sides = Tokens(), TokensApart(scale)
    inputs = RNG.standard_normal((6, 3)).astype(np.float32), np.stack([RNG.integers(0, n, 6) for n in (4, 5)], 1)
    return padiff.diff(*(sides[::-1] if turned else sides), inputs, phase=phase)


@pytest.mark.parametrize("turned", [False, True], ids=["joined", "apart"])
@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_what_joins_nothing_stays_with_its_counterpart_where_others_are_joined_anew(scale: float, turned: bool) -> None:
    """A table was taken for the parameter of its size, since what lies otherwise would have had no counterpart."""
    report = tokens(scale, "both", turned=turned)
    assert [one.what.kind for one in report.sources] == ["output"] * (scale != 1), str(report)


def test_the_second_run_does_not_ask_what_the_candidate_was_given() -> None:
    """It was left what the first run had copied to it, as if it came so, and was compared with what it held."""
    report = tokens(1.0, "forward", turned=False)
    assert report.aligned, str(report)
    assert not {"as_given", "merged"} & {note.kind for note in report.notes}, str(report)
    assert report.transfer is not None


CODES = np.stack([RNG.integers(0, count, 6) for count in (5, 4, 6)], 1)


class Codebooks(rows.Module):
    """One table of the codes of several books, looked up book by book."""

    def __init__(self) -> None:
        self.table, self.out = rows.Embedding(15, 4), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        found = (self.table(type(x)(x.data[:, n] + start)) for n, start in enumerate((0, 5, 9)))
        return self.out(F.tanh(sum(map(F.tanh, found))))


class Books(columns.Layer):
    """The same with a table for each book."""

    def __init__(self, fault: str) -> None:
        self.tables, self.fault = columns.Layers(*(columns.Embed(count, 4) for count in (5, 4, 6))), fault
        self.out = columns.Dense(4, 2)

    def forward(self, x: Any) -> Any:
        shift = {"index": 1}.get(self.fault, 0)
        found = [self.tables[n](type(x)((x.data[:, n] + shift * (n == 1)) % (5, 4, 6)[n])) for n in range(3)]
        found[2] = found[2] * (1.01 if self.fault == "scale" else 1.0)
        return self.out(F.tanh(sum(map(F.tanh, found))))


@pytest.mark.parametrize("turned", [False, True], ids=["joined", "apart"])
@pytest.mark.parametrize("fault", ["", "index", "scale"])
def test_a_joined_table_may_be_looked_up_piece_by_piece(fault: str, turned: bool) -> None:
    """A table of one book was given the indices that the others have in the joined one, and raised an IndexError."""
    report = diffed(Codebooks(), Books(fault), CODES, turned=turned)
    assert [one.what.taker for one in report.sources] == ["out"] * bool(fault), str(report)
    assert report.aligned is (not fault), str(report)
