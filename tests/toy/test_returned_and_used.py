"""Judge a model that returns a value and another made of it, in the other order, beside a fault in its blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Block(rows.Module):
    def __init__(self) -> None:
        self.norm, self.fc, self.mask = rows.LayerNorm(4), rows.Linear(4, 4), rows.Tensor(np.ones(4, np.float32))

    def forward(self, x: Any) -> Any:
        return x + self.fc(self.norm(x) * self.mask)


class Model(rows.Module):
    def __init__(self) -> None:
        self.blocks, self.head = rows.Sequential(Block(), Block()), rows.Linear(4, 3)
        self.scale = rows.parameter(1)

    def forward(self, x: Any) -> Any:
        scores = self.head(self.blocks(x)) * self.scale
        return scores, scores * 2.0


class Given(columns.Layer):
    """The block, to which the model hands its mask."""

    def __init__(self, scale: float, slope: float = 1.0) -> None:
        self.norm, self.fc, self.scale = columns.LayerNormalization(4), columns.Dense(4, 4), scale
        self.slope = slope

    def forward(self, x: Any, mask: Any) -> Any:
        return x + self.fc(self.norm(x) * mask * self.slope) * self.scale


class Port(columns.Layer):
    """The model, which makes first what the other one makes of it."""

    def __init__(self, scales: tuple[float, float]) -> None:
        self.first, self.second, self.head = Given(scales[0]), Given(scales[1]), columns.Dense(4, 3)
        self.scale = columns.weight(1)

    def forward(self, x: Any) -> Any:
        mask = columns.Tensor(np.ones(4, np.float32))
        twice = self.head(self.second(self.first(x, mask), mask)) * (self.scale * 2.0)
        return twice * 0.5, twice


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.0, 1.1), (1.1, 1.0), (1.1, 1.1)])
def test_what_one_output_sends_to_the_other_is_no_source_beside_a_fault(scales: tuple[float, float]) -> None:
    report = padiff.diff(Model(), Port(scales), X)
    wrong = [name for name, scale in zip(("first", "second"), scales, strict=True) if scale != 1.0]
    assert [(str(one.phase), one.candidate.path) for one in report.sources] == [("forward", name) for name in wrong]


class Filled(rows.Module):
    """A layer that gives back the cache of all layers before it, with its own keys and values in it."""

    def __init__(self) -> None:
        self.k, self.v, self.o = (rows.Linear(4, 4) for _ in range(3))

    def forward(self, x: Any, cache: Any) -> Any:
        k, v = F.tanh(self.k(x)), F.tanh(self.v(x))
        return x + self.o(k * v), {**cache, len(cache): (k, v)}


class Own(columns.Layer):
    """A layer that gives its own alone, values first."""

    def __init__(self, factor: float) -> None:
        self.k, self.v, self.o = (columns.Dense(4, 4) for _ in range(3))
        self.factor = factor

    def forward(self, x: Any) -> Any:
        k, v = F.tanh(self.k(x)), F.tanh(self.v(x))
        return x + self.o(k * v), (v, k if self.factor == 1 else k * self.factor)


class FilledStack(rows.Module):
    def __init__(self) -> None:
        self.layers = rows.ModuleList(*(Filled() for _ in range(3)))

    def forward(self, x: Any) -> Any:
        cache: Any = {}
        for layer in self.layers:
            x, cache = layer(x, cache)
        return {"hidden": x, "cache": cache}


class OwnStack(columns.Layer):
    def __init__(self, factor: float) -> None:
        self.layers = columns.Layers(*(Own(factor if index == 1 else 1.0) for index in range(3)))

    def forward(self, x: Any) -> Any:
        cache = []
        for layer in self.layers:
            x, (v, k) = layer(x)
            cache.append((k, v))
        return {"hidden": x, "cache": cache}


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_what_is_given_back_in_other_containers_is_known_by_its_values(factor: float) -> None:
    """The first keys of a whole cache were compared with those of each layer, so that no layer was compared."""
    report = padiff.diff(FilledStack(), OwnStack(factor), X)
    assert not report.notes, str(report)
    assert {source.candidate.path for source in report.sources} == (set() if factor == 1 else {"layers.1"}), str(report)


class Carrying(rows.Module):
    """A cell with two states of one shape, which it gives behind what it makes of them."""

    def __init__(self) -> None:
        self.a, self.b, self.out = rows.Linear(4, 4), rows.Linear(4, 4), rows.Linear(8, 4)

    def forward(self, x: Any, c: Any, m: Any) -> Any:
        c = F.tanh(self.a(x) + c)
        m = F.sigmoid(self.b(x) + m)
        return F.tanh(self.out(F.concat([c, m], -1))), c, m


class Carried(rows.Module):
    def __init__(self) -> None:
        self.cells = rows.ModuleList(Carrying(), Carrying())

    def forward(self, x: Any) -> Any:
        c = m = x * 0.0
        for cell in self.cells:
            x, c, m = cell(x, c, m)
        return x + c * m


class CarryingState(columns.Layer):
    """The same, with one of the states in a tuple with what is made."""

    def __init__(self, factor: float) -> None:
        self.a, self.b, self.out, self.factor = columns.Dense(4, 4), columns.Dense(4, 4), columns.Dense(8, 4), factor

    def forward(self, x: Any, c: Any, m: Any) -> Any:
        c = F.tanh(self.a(x) + c * self.factor)
        m = F.sigmoid(self.b(x) + m)
        return (F.tanh(self.out(F.concat([c, m], -1))), c), m


class CarriedState(columns.Layer):
    def __init__(self, factor: float) -> None:
        self.cells = columns.Layers(CarryingState(1.0), CarryingState(factor))

    def forward(self, x: Any) -> Any:
        c = m = x * 0.0
        for cell in self.cells:
            (x, c), m = cell(x, c, m)
        return x + c * m


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_position_in_containers_that_nest_otherwise_is_another(factor: float) -> None:
    """The second of three was compared with what stands behind a pair: right ports were several sources."""
    report = padiff.diff(Carried(), CarriedState(factor), X)
    assert not report.notes, str(report)
    assert {source.candidate.path for source in report.sources} == (set() if factor == 1 else {"cells.1"}), str(report)
    assert report.aligned == (factor == 1), str(report)


class Biased(rows.Module):
    """A model that hands each block a bias of its own, by the first axis."""

    def __init__(self) -> None:
        self.blocks, self.head = rows.Sequential(Widened(), Widened()), rows.Linear(4, 3)
        self.bias = rows.parameter(4)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x, self.bias.reshape(2, 2))
        return self.head(x)


class Widened(rows.Module):
    def __init__(self) -> None:
        self.norm, self.fc = rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any, bias: Any) -> Any:
        return x + self.fc(self.norm(x) * bias.reshape(4))


class Narrowed(columns.Layer):
    """The same, which hands it as it is."""

    def __init__(self, slope: float, shift: float = 0.0) -> None:
        self.first, self.second, self.head = Given(1.0, slope), Given(1.0), columns.Dense(4, 3)
        self.bias, self.shift = columns.weight(4), shift

    def forward(self, x: Any) -> Any:
        bias = self.bias + self.shift
        return self.head(self.second(self.first(x, bias), bias))


def test_what_a_faulty_block_sends_to_what_it_was_not_fed_is_no_source() -> None:
    """The bias has another shape, so that its gradient is not put right behind the block; what makes it is named."""
    assert padiff.diff(Biased(), Narrowed(1.0), X).aligned
    (source,) = padiff.diff(Biased(), Narrowed(1.1), X).sources
    assert (source.phase, source.candidate.path) == ("forward", "first"), str(source)
    (source,) = padiff.diff(Biased(), Narrowed(1.0, 0.1), X).sources
    assert (source.what, source.cause) == ("input 'mask' of first", "add(_, 0.1) in the candidate only"), str(source)


class Named(rows.Module):
    def __init__(self) -> None:
        self.body, self.head = rows.Linear(4, 4), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        x = self.body(x)
        return {"hidden": x, "pooled": self.head(x)}


class Placed(columns.Layer):
    def __init__(self, turned: bool) -> None:
        self.body, self.head, self.turned = columns.Dense(4, 4), columns.Dense(4, 2), turned

    def forward(self, x: Any) -> Any:
        x = self.body(x)
        return (self.head(x), x) if self.turned else (x, self.head(x))


@pytest.mark.parametrize("turned", [True, False])
def test_outputs_in_another_order_than_the_names_are_noted(turned: bool) -> None:
    """Names tell no place: whoever takes the first output of either gets another one."""
    report = padiff.diff(Named(), Placed(turned), X)
    assert report.aligned, str(report)
    assert [note.kind for note in report.notes] == ["moved_output"] * 2 * turned, str(report)


class Cached(rows.Module):
    def __init__(self) -> None:
        self.k, self.o = rows.Linear(4, 4), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        keys = F.tanh(self.k(x))
        return {"hidden": self.o(keys), "past_key_values": [keys * 2.0]}


class CachedPort(columns.Layer):
    """The same, with a cache that bears no name, or with none."""

    def __init__(self, factor: float) -> None:
        self.k, self.o, self.factor = columns.Dense(4, 4), columns.Dense(4, 3), factor

    def forward(self, x: Any) -> Any:
        keys = F.tanh(self.k(x))
        return (self.o(keys), (keys * self.factor,)) if self.factor else self.o(keys)


@pytest.mark.parametrize(("factor", "noted"), [(2.0, False), (2.1, False), (0.0, True)])
def test_a_cache_is_noted_only_where_the_other_side_has_none(factor: float, noted: bool) -> None:
    report = padiff.diff(Cached(), CachedPort(factor), X)
    assert report.aligned is (factor != 2.1), str(report)
    assert ("cache_alone" in [note.kind for note in report.notes]) is noted, str(report)


class Weighing(rows.Module):
    """A layer that gives back the weights that it has used itself."""

    def __init__(self) -> None:
        self.query, self.energy = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any, before: Any) -> Any:
        weights = F.softmax(self.energy(F.tanh(self.query(x) + before)))
        return weights * x, weights


class Steps(rows.Module):
    def __init__(self) -> None:
        self.weighing, self.head, self.post = Weighing(), rows.Linear(4, 3), rows.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        first, weights = self.weighing(x, x * 0.0)
        second, again = self.weighing(first, weights)
        y = self.head(second)
        return y, y + self.post(y), weights, again


class Weighed(columns.Layer):
    """The same, which gives back a view of them."""

    def __init__(self) -> None:
        self.query, self.energy = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any, before: Any) -> Any:
        weights = F.softmax(self.energy(F.tanh(self.query(x) + before)))
        return weights * x, weights.reshape(weights.shape[0], 1, 4).reshape(weights.shape[0], 4)


class Stepped(columns.Layer):
    def __init__(self, cut: str) -> None:
        self.weighed, self.head, self.post = Weighed(), columns.Dense(4, 3), columns.Dense(3, 3)
        self.cut = cut

    def forward(self, x: Any) -> Any:
        first, weights = self.weighed(x, x * 0.0)
        second, again = self.weighed(first, weights)
        y = self.head(second)
        return y, y + self.post(columns.Tensor(y.data) if self.cut == "post" else y), weights, again


@pytest.mark.parametrize(("cut", "told"), [("", []), ("post", ["gradient of output"])])
def test_what_a_call_gives_a_view_of_is_no_source_beside_a_gradient_that_is_cut(cut: str, told: list[str]) -> None:
    report = padiff.diff(Steps(), Stepped(cut), X)
    assert [str(source.what) for source in report.sources] == told, str(report)
