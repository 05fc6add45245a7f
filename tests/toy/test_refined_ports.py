"""Let each refinement do its work on the smallest models that need it: layouts, exchanges, axis order, mismatches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


def randoms(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def model(base: type, forward: Any, **children: Any) -> Any:
    """Return a model with these children, registered in this order."""
    made = type("Made", (base,), {"forward": forward})()
    vars(made).update(children)
    return made


# Layouts ----------------------------------------------------------------------------------------------------


class RowsTable(rows.Module):
    """A class that no table knows, with a square weight."""

    def __init__(self) -> None:
        self.table = rows.parameter(4, 4)

    def forward(self, x: Any) -> Any:
        return x @ self.table


class ColumnsTable(columns.Layer):
    """The same with its weight the other way round."""

    def __init__(self, factor: float = 1.0) -> None:
        self.table, self.factor = columns.weight(4, 4), factor

    def forward(self, x: Any) -> Any:
        return x @ self.table.transpose(1, 0) * self.factor


def test_a_square_weight_of_an_unknown_class_is_laid_as_its_model_reads_it() -> None:
    ours, theirs = RowsTable(), ColumnsTable()
    report = padiff.diff(ours, theirs, (randoms(3, 4),))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.settled == {"table": "transposed"}
    np.testing.assert_array_equal(theirs.table.data, ours.table.data.T)


def test_a_fault_beside_an_open_layout_is_named() -> None:
    report = padiff.diff(RowsTable(), ColumnsTable(1.01), (randoms(3, 4),))
    assert [source.candidate.path for source in report.sources] == [""]


class Bilinear(rows.Module):
    """How well two go together, by a matrix between them."""

    def __init__(self) -> None:
        self.one, self.other, self.table = rows.Linear(3, 4), rows.Linear(6, 4), rows.parameter(4, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return (self.one(x) @ self.table * self.other(y)).sum(-1)


class FromTheOtherEnd(columns.Layer):
    """The same, with the matrix applied to the second of both."""

    def __init__(self, layer: bool, factor: float) -> None:
        self.one, self.other, self.factor = columns.Dense(3, 4), columns.Dense(6, 4), factor
        self.w = columns.Dense(4, 4, bias=False) if layer else columns.weight(4, 4)

    def forward(self, x: Any, y: Any) -> Any:
        y = self.other(y)
        return (self.one(x) * (self.w(y) if callable(self.w) else y @ self.w) * self.factor).sum(-1)


@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_bilinear_form_may_be_computed_from_either_end(layer: bool, factor: float) -> None:
    """A matrix that code sums with other data lay as if it were summed with the same: right ports were a source."""
    report = padiff.diff(Bilinear(), FromTheOtherEnd(layer, factor), (randoms(5, 3), randoms(5, 6)))
    assert len(report.sources) == (factor != 1.0), str(report)
    # A layer holds (in, out), and its input is the end that the matrix gives to in the reference.
    assert {one.layout for one in report.mapping.parameters if one.candidate.startswith("w")} == {"transposed"}


@pytest.mark.parametrize("flipped", [False, True])
def test_a_table_that_a_layer_holds_too_lies_as_in_that_layer(flipped: bool) -> None:
    """Read the other way round by one of both, it is no parameter that lies otherwise: that code is wrong."""
    words, embed, head, tied = rows.Embedding(4, 4), columns.Embed(4, 4), RowsTable(), ColumnsTable()
    head.table, tied.table = words.weight, embed.table
    ours = model(rows.Module, lambda own, x: own.head(F.tanh(own.words(x))), words=words, head=head)
    theirs = model(columns.Layer, lambda own, x: own.head(F.tanh(own.words(x))), words=embed, head=tied)
    if not flipped:
        tied.forward = lambda x: x @ tied.table
    report = padiff.diff(ours, theirs, (np.array([[0, 1, 2], [3, 1, 0]]),))
    assert [source.candidate.path for source in report.sources] == ["head"] * flipped, str(report)


class RowsPacked(rows.Module):
    """Three projections in one layer, in some order."""

    def __init__(self, order: str) -> None:
        self.qkv, self.last, self.order = rows.Linear(4, 12), rows.Linear(4, 2), order

    def forward(self, x: Any) -> Any:
        packed = self.qkv(x)
        part = {name: packed[..., 4 * i : 4 * i + 4] for i, name in enumerate(self.order)}
        return self.last(F.attention(part["q"], part["k"], part["v"], 2))


class ColumnsApart(columns.Layer):
    """The same in three layers."""

    def __init__(self, scale: float | None = None) -> None:
        self.query, self.key, self.value = (columns.Dense(4, 4) for _ in range(3))
        self.last, self.scale = columns.Dense(4, 2), scale

    def forward(self, x: Any) -> Any:
        return self.last(F.attention(self.query(x), self.key(x), self.value(x), 2, self.scale))


@pytest.mark.parametrize("order", ["qkv", "kqv", "vkq"])
def test_a_packed_layer_is_split_as_its_model_reads_it(order: str) -> None:
    report = padiff.diff(RowsPacked(order), ColumnsApart(), (randoms(2, 5, 4),))
    assert report.aligned, str(report)
    assert report.transfer is not None
    names = {"q": "query", "k": "key", "v": "value"}
    assert report.transfer.settled["qkv"].startswith(f"packs {', '.join(names[one] for one in order)}")


def test_a_fault_behind_a_packed_layer_is_named() -> None:
    report = padiff.diff(RowsPacked("qkv"), ColumnsApart(0.7), (randoms(2, 5, 4),))
    assert [(source.candidate.path, source.between and source.between[1]) for source in report.sources] == [
        ("", "last")
    ]


# Exchanges --------------------------------------------------------------------------------------------------


def gate(base: type, layer: Any, one: str, other: str) -> Any:
    """Return a model whose first layer goes through a tanh, and is multiplied with the second."""

    def forward(self: Any, x: Any) -> Any:
        return self.last(F.tanh(getattr(self, one)(x)) * getattr(self, other)(x))

    return model(base, forward, **{one: layer(4, 6), other: layer(4, 6), "last": layer(6, 2)})


@pytest.mark.parametrize("names", [("w3", "w1"), ("b", "a")])
def test_partners_that_names_do_not_tell_are_exchanged(names: tuple[str, str]) -> None:
    ours, theirs = gate(rows.Module, rows.Linear, "gate", "up"), gate(columns.Layer, columns.Dense, *names)
    report = padiff.diff(ours, theirs, (randoms(3, 4),))
    assert report.aligned, str(report)
    np.testing.assert_array_equal(getattr(theirs, names[0]).kernel.data, ours.gate.weight.data.T)


def test_partners_that_names_cross_are_a_fault_whose_other_reading_is_told() -> None:
    """Nothing tells crossed names from code that uses an up for a gate, which whoever loads weights by name meets."""
    ours, theirs = gate(rows.Module, rows.Linear, "gate", "up"), gate(columns.Layer, columns.Dense, "up", "gate")
    report = padiff.diff(ours, theirs, (randoms(3, 4),))
    assert [source.candidate.path for source in report.sources] == [""], str(report)
    (note,) = (note for note in report.notes if note.kind == "crossed_names")
    assert sorted(note.data["matches"]) == [["gate", "up"], ["up", "gate"]]
    assert padiff.diff(ours, theirs, (randoms(3, 4),), mapping=dict(note.data["matches"])).aligned


@pytest.mark.parametrize("crossed", [True, False])
def test_weights_that_stand_where_they_belong_outrank_names(crossed: bool) -> None:
    """A port that has its weights already, and gives what the reference gives, is right whatever it calls them."""
    ours, theirs = gate(rows.Module, rows.Linear, "gate", "up"), gate(columns.Layer, columns.Dense, "up", "gate")
    names = {"gate": "up", "up": "gate"} if crossed else {"gate": "gate", "up": "up"}
    for one, other in {**names, "last": "last"}.items():
        layer, mine = getattr(theirs, other), getattr(ours, one)
        layer.kernel.data[...], layer.offset.data[...] = mine.weight.data.T, mine.bias.data
    report = padiff.diff(ours, theirs, (randoms(3, 4),), transfer=False)
    assert report.aligned is crossed, str(report)
    assert crossed or {source.candidate.path for source in report.sources} == {""}
    assert crossed is any(note.kind == "against_names" for note in report.notes)


# Axis order -------------------------------------------------------------------------------------------------


def images(base: type, conv: Any, norm: Any, axis: int, scale: float = 1.0, **settings: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        return self.second(F.relu(self.norm(self.first(x))) * scale)

    return model(base, forward, second=conv(8, 8, 3, padding=1), norm=norm(8, **settings), first=conv(8, 8, 3))


@pytest.mark.parametrize("shape", [(2, 8, 5, 5), (2, 8, 8, 8)], ids=["unlike", "all alike"])
def test_channels_last_are_read_in_the_references_order(shape: tuple[int, ...]) -> None:
    x = randoms(*shape)
    sides = (
        images(rows.Module, rows.Conv2d, rows.BatchNorm, 1),
        images(columns.Layer, columns.Conv, columns.BatchNormalization, -1),
    )
    report = padiff.diff(*sides, (x,), candidate_inputs=(x.transpose(0, 2, 3, 1),))
    assert report.aligned, str(report)
    assert report.output is not None
    assert report.output.rel_l2 < 1e-5


@pytest.mark.parametrize(("wrong", "path"), [({"scale": 1.01}, ""), ({"epsilon": 1e-2}, "norm")])
def test_a_fault_among_channels_last_is_named(wrong: dict[str, Any], path: str) -> None:
    x = randoms(2, 8, 5, 5)
    ours = images(rows.Module, rows.Conv2d, rows.BatchNorm, 1)
    theirs = images(columns.Layer, columns.Conv, columns.BatchNormalization, -1, **wrong)
    report = padiff.diff(ours, theirs, (x,), candidate_inputs=(x.transpose(0, 2, 3, 1),))
    assert [source.candidate.path for source in report.sources] == [path], str(report)


# Operations -------------------------------------------------------------------------------------------------


def scaled(base: type, layer: Any, factor: float) -> Any:
    return model(base, lambda self, x: F.relu(self.one(x) * factor + x), one=layer(4, 4))


def test_operations_of_a_models_own_code_are_compared_one_by_one() -> None:
    x = (randoms(3, 4),)
    clean = padiff.diff(
        scaled(rows.Module, rows.Linear, 2.0), scaled(columns.Layer, columns.Dense, 2.0), x, operations=True
    )
    assert clean.aligned, str(clean)
    wrong = scaled(columns.Layer, columns.Dense, 2.01)
    report = padiff.diff(scaled(rows.Module, rows.Linear, 2.0), wrong, x, operations=True)
    assert [source.candidate.path for source in report.sources] == ["mul"]
    assert "2.01" in str(report.sources[0].cause)


# Composites -------------------------------------------------------------------------------------------------


def test_a_wrapper_that_one_side_has_folds_away() -> None:
    def chain(base: type, sequence: Any, layer: Any, wrapped: bool) -> Any:
        inner = sequence(layer(4, 4), layer(4, 3))
        inner = model(base, lambda self, x: self.inner(x), inner=inner) if wrapped else inner
        return model(base, lambda self, x: self.body(x), body=inner)

    ours = chain(rows.Module, rows.Sequential, rows.Linear, wrapped=False)
    theirs = chain(columns.Layer, columns.Stack, columns.Dense, wrapped=True)
    report = padiff.diff(ours, theirs, (randoms(3, 4),))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == 4


class Inner(rows.Module):
    """A layer, and what is added to its half."""

    def __init__(self) -> None:
        self.layer = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + F.tanh(self.layer(x))


class Flipping(rows.Module):
    """Two such behind an encoder, the values turned round behind each."""

    def __init__(self) -> None:
        self.encoder, self.one, self.two = Inner(), Inner(), Inner()

    def forward(self, x: Any) -> Any:
        x = self.one(self.encoder(x))[..., ::-1]
        return self.two(x)[..., ::-1]


class Flipped(columns.Layer):
    """The same layer, that may turn its values round itself."""

    def __init__(self, factor: float, step: int = -1) -> None:
        self.layer, self.factor, self.step = columns.Dense(4, 4), factor, step

    def forward(self, x: Any) -> Any:
        return (x + F.tanh(self.layer(x)) * self.factor)[..., :: self.step]


class FlippingInside(columns.Layer):
    def __init__(self, factor: float = 1.0) -> None:
        self.encoder, self.one, self.two = Flipped(factor, 1), Flipped(1.0), Flipped(1.0)

    def forward(self, x: Any) -> Any:
        return self.two(self.one(self.encoder(x)))


def test_blocks_that_end_later_are_taken_apart_beside_one_with_a_fault() -> None:
    """Taken apart with the fault, all of them were taken for it: the flows of a VITS behind its posterior encoder."""
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert padiff.diff(Flipping(), FlippingInside(), x).aligned
    report = padiff.diff(Flipping(), FlippingInside(0.9), x)
    assert [source.candidate.path for source in report.sources] == ["encoder"], str(report)


class Capsules(rows.Module):
    """Each capsule below tells each one above what it sees, by a matrix of its own."""

    def __init__(self) -> None:
        self.vote = rows.parameter(1, 3, 4, 2, 5)

    def forward(self, x: Any) -> Any:
        votes = self.vote @ x.reshape(-1, 3, 1, 5, 1)
        return F.tanh(votes.reshape(-1, 3, 8)).sum(1)


class CapsulesInOne(columns.Layer):
    """The same, all matrices of a capsule below side by side."""

    def __init__(self, factor: float = 1.0) -> None:
        self.kernel, self.factor = columns.weight(3, 5, 8), factor

    def forward(self, x: Any) -> Any:
        votes = x.reshape(-1, 3, 1, 5) @ self.kernel * self.factor
        return F.tanh(votes.reshape(-1, 3, 8)).sum(1)


def test_a_weight_of_many_axes_is_laid_as_its_model_reads_it() -> None:
    """A capsule network's: each side had a weight that the other had not."""
    assert padiff.diff(model(rows.Module, _call_layer, layer=Capsules()), _in_one(1.0), randoms(6, 3, 5)).aligned
    (source,) = padiff.diff(model(rows.Module, _call_layer, layer=Capsules()), _in_one(0.9), randoms(6, 3, 5)).sources
    assert source.candidate.path == "layer", str(source)


def _call_layer(self: Any, x: Any) -> Any:
    return self.layer(x)


def _in_one(factor: float) -> Any:
    return model(columns.Layer, _call_layer, layer=CapsulesInOne(factor))


class Activating(columns.BatchNormalization):
    """A norm that ends with an activation."""

    def forward(self, x: Any) -> Any:
        return F.relu(super().forward(x))


def _norm_and_relu(self: Any, x: Any) -> Any:
    return self.layer(F.relu(self.norm(x)))


def _norm(self: Any, x: Any) -> Any:
    return self.layer(self.norm(x))


def test_buffers_are_updated_by_the_module_that_holds_them() -> None:
    """A norm that ends elsewhere than the other side's is judged with the code around it, but for its statistics."""
    ours = model(rows.Module, _norm_and_relu, norm=rows.BatchNorm(4), layer=rows.Linear(4, 4))
    theirs = model(columns.Layer, _norm, norm=Activating(4), layer=columns.Dense(4, 4))
    assert padiff.diff(ours, theirs, randoms(6, 4)).aligned
    theirs.norm.keep = 0.5
    sources = padiff.diff(ours, theirs, randoms(6, 4)).sources
    assert {source.candidate.path for source in sources} == {"norm"}, str(sources)
    assert {source.what.kind for source in sources} == {"updated_buffer"}, str(sources)
