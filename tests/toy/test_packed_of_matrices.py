"""A layer that packs maps of several sizes, against matrices that code holds, all or some of them beside a layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.recording._contracted import contracts_last_by_size
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


def attended(q: Any, k: Any, v: Any) -> Any:
    """Return what four heads of queries find among two of keys and values (2 features each)."""
    q, k, v = (y.reshape(-1, 5, y.shape[-1] // 2, 2).transpose(0, 2, 1, 3) for y in (q, k, v))
    pairs = ((q[:, 2 * n : 2 * n + 2], k[:, n : n + 1], v[:, n : n + 1]) for n in (0, 1))
    groups = [F.softmax(q @ k.transpose(0, 1, 3, 2)) @ v for q, k, v in pairs]
    return F.concat(groups, 1).transpose(0, 2, 1, 3).reshape(-1, 5, 8)


class Block(rows.Module):
    def __init__(self) -> None:
        self.norm, self.packed, self.last = rows.LayerNorm(8), rows.Linear(8, 16), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        found = self.packed(self.norm(x))
        return x + self.last(attended(found[..., :8], found[..., 8:12], found[..., 12:]))


class Model(rows.Module):
    def __init__(self) -> None:
        self.one, self.two = Block(), Block()

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


class Matrices(rows.Module):
    """The same of matrices, ``turned`` or not; queries may be a ``layer``."""

    def __init__(self, *, turned: bool, layer: bool, fault: str) -> None:
        self.norm, self.last = rows.LayerNorm(8), rows.Linear(8, 8)
        self.turned, self.fault = turned, fault
        for name, size in (("q", 8), ("k", 4), ("v", 4)):
            if name == "q" and layer:
                self.q = rows.Linear(8, 8)
                continue
            setattr(self, name, rows.parameter(*((size, 8) if turned else (8, size)), scale=0.4))
            if name != fault:
                setattr(self, f"{name}_bias", rows.parameter(size))

    def _of(self, name: str, x: Any) -> Any:
        held = getattr(self, name)
        if callable(held):
            return held(x)
        found = x @ (held.transpose(1, 0) if self.turned else held)
        return found if name == self.fault else found + getattr(self, f"{name}_bias")

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        q, k, v = (self._of(name, y) for name in ("q", "k", "v"))
        return x + self.last(attended(q * 1.1 if self.fault == "scale" else q, k, v))


class Port(rows.Module):
    def __init__(self, **how: Any) -> None:
        self.first, self.second = Matrices(**how), Matrices(**how)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


@pytest.mark.parametrize(
    ("fault", "turned", "layer"),
    [
        ("", False, False),
        ("", True, False),
        ("", False, True),
        ("", True, True),
        ("scale", False, True),
        ("v", True, False),
    ],
)
def test_matrices_are_what_a_layer_packs_whatever_their_sizes(fault: str, turned: bool, layer: bool) -> None:
    """They were no layers, and had no counterpart."""
    port = Port(turned=turned, layer=layer, fault=fault)
    for sides in ((Model(), port), (port, Model())):
        report = padiff.diff(*sides, (X,))
        if fault == "scale":
            both = [(str(one.cause), str(one.what)) for one in report.sources]
            assert [what for _, what in both] == ["input 'x' of last"] * 2, str(report)
            assert all("mul(_, 1.1)" in cause for cause, _ in both), str(report)
        else:  # the values' bias, in both blocks
            told = [str(one.what) for one in report.sources if one.phase.value == "parameter"]
            assert len(told) == 2 * bool(fault), str(report)
            assert report.aligned is (not fault), str(report)


class Packed(rows.Module):
    def __init__(self) -> None:
        self.norm, self.packed, self.last = rows.LayerNorm(8), rows.Linear(8, 24), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        found = self.packed(self.norm(x))
        return x + self.last(F.attention(found[..., :8], found[..., 8:16], found[..., 16:], 2))


class HeadsFirst(rows.Module):
    """The same of matrices (heads, features, size), as libraries for interpreting transformers hold them."""

    def __init__(self, fault: str) -> None:
        self.norm, self.fault = rows.LayerNorm(8), fault
        self.q, self.k, self.v = (rows.parameter(2, 8, 4, scale=0.4) for _ in range(3))
        self.q_bias, self.k_bias, self.v_bias = rows.parameter(2, 4), rows.parameter(2, 1, 4), rows.parameter(2, 4)
        self.o, self.o_bias = rows.parameter(2, 4, 8, scale=0.4), rows.parameter(8)

    def forward(self, x: Any) -> Any:
        y = self.norm(x).reshape(-1, 1, 5, 8)
        held = ((self.q, self.q_bias), (self.k, self.k_bias), (self.v, self.v_bias))
        q, k, v = (y @ matrix + bias.reshape(2, 1, 4) for matrix, bias in held)
        found = F.softmax(q @ k.transpose(0, 1, 3, 2) * (0.25 if self.fault == "scale" else 0.5)) @ v
        found = (found @ self.o).sum(1)
        return x + (found if self.fault == "bias" else found + self.o_bias)


@pytest.mark.parametrize("fault", ["", "scale", "bias"])
def test_heads_around_their_inputs_are_what_a_layer_packs(fault: str) -> None:
    """Queries, keys and values had no counterpart: their rows do not lie beside each other."""
    reference, port = rows.Sequential(Packed(), Packed()), rows.Sequential(HeadsFirst(""), HeadsFirst(fault))
    for sides in ((reference, port), (port, reference)):
        report = padiff.diff(*sides, (X,))
        assert not any(report.mapping.unmatched_parameters.values()), str(report)
        assert [one.candidate.path for one in report.sources] == ["1"] * bool(fault), str(report)


class Apart(rows.Module):
    def __init__(self) -> None:
        self.norm, self.last = rows.LayerNorm(8), rows.Linear(8, 8)
        self.q, self.k, self.v = (rows.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        return x + self.last(F.attention(self.q(y), self.k(y), self.v(y), 2))


class FourAxes(rows.Module):
    """The same of one matrix for all three, its axes in an ``order`` of three, features, heads, and size."""

    def __init__(self, order: tuple[int, ...], scale: float = 0.5) -> None:
        self.norm, self.last, self.scale = rows.LayerNorm(8), rows.Linear(8, 8), scale
        self.weight = rows.parameter(*((3, 8, 2, 4)[axis] for axis in order), scale=0.4)
        self.bias, self.back = rows.parameter(3, 2, 4), tuple(map(order.index, (0, 2, 1, 3)))

    def forward(self, x: Any) -> Any:
        matrices, biases = self.weight.transpose(*self.back), self.bias.reshape(3, 2, 1, 4)
        y = self.norm(x).reshape(-1, 1, 5, 8)
        q, k, v = (y @ matrices[n] + biases[n] for n in range(3))
        found = F.softmax(q @ k.transpose(0, 1, 3, 2) * self.scale) @ v
        return x + self.last(found.transpose(0, 2, 1, 3).reshape(-1, 5, 8))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3)])
@pytest.mark.parametrize("scale", [0.5, 0.25])
def test_a_matrix_of_four_axes_packs_queries_keys_and_values(order: tuple[int, ...], scale: float) -> None:
    """As frameworks of dense layers with several axes hold it: it packed no layers."""
    report = padiff.diff(
        rows.Sequential(Apart(), Apart()), rows.Sequential(FourAxes(order), FourAxes(order, scale)), (X,)
    )
    assert not any(report.mapping.unmatched_parameters.values()), str(report)
    assert [one.candidate.path for one in report.sources] == ["1"] * (scale != 0.5), str(report)


class Gated(rows.Module):
    """A map and a gate in one layer."""

    def __init__(self) -> None:
        self.packed, self.last = rows.Linear(8, 24, bias=False), rows.Linear(12, 8)

    def forward(self, x: Any) -> Any:
        y = self.packed(x)
        return x + self.last(y[..., :12] * F.sigmoid(y[..., 12:]))


class GatedByHand(rows.Module):
    """The same of a layer and, for the gate, a matrix of the block."""

    def __init__(self, scale: float = 1.0) -> None:
        self.map, self.last, self.scale = rows.Linear(8, 12, bias=False), rows.Linear(12, 8), scale
        self.gate = rows.parameter(8, 12, scale=0.4)

    def forward(self, x: Any) -> Any:
        return x + self.last(self.map(x) * F.sigmoid((x @ self.gate) * self.scale))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_matrix_beside_a_layer_is_what_a_layer_packs(scale: float) -> None:
    report = padiff.diff(
        rows.Sequential(rows.Sequential(Gated(), Gated())),
        rows.Sequential(rows.Sequential(GatedByHand(), GatedByHand(scale))),
        (X,),
    )
    assert not any(report.mapping.unmatched_parameters.values()), str(report)
    assert [one.candidate.path for one in report.sources] == ["0.1"] * (scale != 1.0), str(report)


class Crossing(rows.Module):
    """Two blocks that look up one memory, each with keys and values packed."""

    def __init__(self) -> None:
        self.queries = rows.ModuleList(*(rows.Linear(8, 8) for _ in range(2)))
        self.packed = rows.ModuleList(*(rows.Linear(8, 16) for _ in range(2)))

    def forward(self, x: Any, memory: Any) -> Any:
        for query, packed in zip(self.queries, self.packed, strict=True):
            found = packed(memory)
            x = x + F.attention(query(x), found[..., :8], found[..., 8:], 2)
        return x


class CrossingByHand(rows.Module):
    """The same of matrices."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        for block in range(2):
            for name in ("q", "k", "v"):
                setattr(self, f"{name}{block}", rows.parameter(8, 8, scale=0.4))
                setattr(self, f"{name}_bias{block}", rows.parameter(8))

    def forward(self, x: Any, memory: Any) -> Any:
        for block in range(2):
            q, k, v = (
                (y @ getattr(self, f"{name}{block}")).reshape(-1, 5, 2, 4).transpose(0, 2, 1, 3)
                + getattr(self, f"{name}_bias{block}").reshape(2, 1, 4)
                for name, y in (("q", x), ("k", memory), ("v", memory))
            )
            found = F.softmax(q @ k.transpose(0, 1, 3, 2) * 0.5) @ v
            x = x + found.transpose(0, 2, 1, 3).reshape(-1, 5, 8) * (self.scale if block else 1.0)
        return x


@pytest.mark.parametrize("scale", [1.0, 1.1])
def test_matrices_that_take_one_memory_are_keys_and_values_of_their_blocks(scale: float) -> None:
    memory = np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32)
    for sides in ((Crossing(), CrossingByHand(scale)), (CrossingByHand(scale), Crossing())):
        report = padiff.diff(*sides, (X, memory))
        assert not any(report.mapping.unmatched_parameters.values()), str(report)
        assert len(report.sources) == (scale != 1.0), str(report)
        assert report.aligned is (scale == 1.0), str(report)


def test_what_keeps_the_shape_of_data_is_no_contraction() -> None:
    """A bias of two heads that is added, where two matrices may be stacked."""
    assert contracts_last_by_size((2, 1, 4), (2, 2, 5, 4), (2, 2, 5, 4), stacked=2) is None
    assert contracts_last_by_size((2, 4), (2, 5, 4), (2, 5, 2)) is True
    assert contracts_last_by_size((3, 6), (4, 5, 3), (4, 5, 6), stacked=4) is False
    assert contracts_last_by_size((6, 3), (4, 5, 3), (4, 5, 6), stacked=4) is True
    assert contracts_last_by_size((3, 6), (1, 5, 3), (4, 5, 6), stacked=4) is False
    assert contracts_last_by_size((3, 6), (4, 9), (4, 18), stacked=4) is None
