"""Match the parameters of models that are never run: kinds, shapes, settings and names are all that tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.alignment import Resolved
from padiff.isolation import side_of
from padiff.parameters import matched_unrun, units_of
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

OURS, THEIRS = ("q_proj", "k_proj", "v_proj", "out_proj"), ("query", "key", "value", "out")


def _holding(base: type, children: Mapping[str, Any]) -> Any:
    model = type("Holder", (base,), {"forward": lambda self, x: x})()
    for name, child in children.items():
        setattr(model, name, child)
    return model


def _partners(reference: Any, candidate: Any) -> dict[str, str]:
    ours, theirs = (units_of(side_of(model).about) for model in (reference, candidate))
    return {one.reference.path: one.candidate.path for one in matched_unrun(ours, theirs, Resolved()).matches}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (1, 2, 3, 0), (3, 2, 1, 0)])
def test_projections_that_are_listed_in_another_order_are_told_by_names(order: tuple[int, ...]) -> None:
    reference = _holding(
        rows.Module,
        {f"layer{n}": _holding(rows.Module, {name: rows.Linear(4, 4) for name in OURS}) for n in range(2)},
    )
    listed = [THEIRS[place] for place in order]
    candidate = _holding(
        columns.Layer,
        {f"block{n}": _holding(columns.Layer, {name: columns.Dense(4, 4) for name in listed}) for n in range(2)},
    )
    expected = {
        f"layer{n}.{ours}": f"block{n}.{theirs}" for n in range(2) for ours, theirs in zip(OURS, THEIRS, strict=True)
    }
    assert _partners(reference, candidate) == expected


@pytest.mark.parametrize("strides", [(1, 1, 2), (1, 2, 2), (2, 1, 2)])
def test_settings_tell_which_layer_is_one_more(strides: tuple[int, ...]) -> None:
    reference = _holding(rows.Module, {"one": rows.Conv2d(4, 4, 3), "two": rows.Conv2d(4, 4, 3, stride=2)})
    names = dict(zip("abc", strides, strict=True))
    candidate = _holding(columns.Layer, {name: columns.Conv(4, 4, 3, stride=n) for name, n in names.items()})
    partners = _partners(reference, candidate)
    assert {ours: names[theirs] for ours, theirs in partners.items()} == {"one": 1, "two": 2}


class Packed(columns.Layer):
    """Attention whose projections are one layer, in an order of its own, and a layer behind it."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self.qkv, self.proj, self.order = columns.Dense(6, 18), columns.Dense(6, 6), order

    def forward(self, x: Any) -> Any:
        packed = self.qkv(x)
        parts = [packed[..., i * 6 : (i + 1) * 6] for i in range(3)]
        return self.proj(F.attention(*(parts[self.order.index(i)] for i in range(3)), 2))


class Held(rows.Module):
    """Attention whose module is not called: what holds it computes with its parameters, as a fast path does."""

    def __init__(self) -> None:
        self.attn = rows.Attention(6, 2)

    def forward(self, x: Any) -> Any:
        packed = F.linear(x, self.attn.packed.transpose(1, 0), self.attn.packed_bias)
        y = F.attention(*(packed[..., i * 6 : (i + 1) * 6] for i in range(3)), 2)
        return F.linear(y, self.attn.out.weight.transpose(1, 0), self.attn.out.bias)


X = (np.random.default_rng(0).standard_normal((2, 5, 6), dtype=np.float32),)


def test_a_packed_parameter_stays_one_where_nothing_runs() -> None:
    """The layer behind it was taken for the query, and this one for the last that is packed."""
    net, port = Held(), Packed((0, 1, 2))
    padiff.transfer(net, port)
    assert np.array_equal(port.proj.kernel.data, net.attn.out.weight.data.T)
    assert padiff.diff(net, port, X, transfer=False).aligned


@pytest.mark.parametrize("scale", [1.0, 1.5])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_what_was_loaded_in_an_order_that_the_code_has_not_is_copied_anew(order: tuple[int, ...], scale: float) -> None:
    """Values that a candidate holds tell how it packs them only where it gives what the reference gives."""
    net, port = Held(), Packed(order)
    rows_of = np.concatenate([np.arange(i * 6, (i + 1) * 6) for i in (1, 0, 2)])
    port.qkv.kernel.data[...] = net.attn.packed.data.T[:, rows_of]
    port.qkv.offset.data[...] = net.attn.packed_bias.data[rows_of]
    port.proj.kernel.data[...], port.proj.offset.data[...] = net.attn.out.weight.data.T, net.attn.out.bias.data
    wrong = Scaled(port, scale)
    report = padiff.diff(net, wrong, X)
    assert report.aligned == (scale == 1.0), str(report)
    assert len(report.sources) == (scale != 1.0), str(report)


class Scaled(columns.Layer):
    def __init__(self, inner: Any, scale: float) -> None:
        self.inner, self.scale = inner, scale

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.scale


class Apart(rows.Module):
    """A block whose projections, and a gate and what it gates, lie side by side in one module."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(6, 6, bias=False) for _ in range(4))
        self.gate, self.up, self.down = rows.Linear(6, 12), rows.Linear(6, 12), rows.Linear(12, 6)

    def forward(self, x: Any) -> Any:
        x = x + self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Fused(columns.Layer):
    def __init__(self) -> None:
        self.down, self.out = columns.Dense(12, 6), columns.Dense(6, 6, bias=False)
        self.qkv, self.gate_up = columns.Dense(6, 18, bias=False), columns.Dense(6, 24)

    def forward(self, x: Any) -> Any:
        packed = self.qkv(x)
        x = x + self.out(F.attention(packed[..., :6], packed[..., 6:12], packed[..., 12:], 2))
        packed = self.gate_up(x)
        return x + self.down(F.silu(packed[..., :12]) * packed[..., 12:])


def test_several_packed_layers_of_one_block_are_told_by_the_shapes_of_what_they_pack() -> None:
    """None of them was as wide as all layers of the block together, and nothing of them was copied."""
    net, port = Apart(), Fused()
    done = padiff.transfer(net, port)
    assert not done.unmatched_reference, done
    assert padiff.diff(net, port, X, transfer=False).aligned


class Two(rows.Module):
    def __init__(self, block: type, layer: Any) -> None:
        self.first, self.later = layer, block()

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


class Both(columns.Layer):
    __init__, forward = Two.__init__, Two.forward


@pytest.mark.parametrize("share", [1.0, 1.1])
def test_packed_layers_of_a_part_that_runs_in_later_steps_have_a_counterpart(tmp_path: Path, share: float) -> None:
    """What the first step does not run (a draft model, a critic) was without one, where a layer packs others."""
    net, port = Two(Apart, rows.Linear(6, 6)), Both(Fused, columns.Dense(6, 6))
    padiff.transfer(net, port)
    port.later.gate_up.kernel.data[:, 0] *= np.float32(share)
    for model, home, name in ((net, rows, "a"), (port, columns, "b")):
        with padiff.record(model, tmp_path / name) as recorder:
            for part in (model.first, model.later):
                part(home.Tensor(X[0]))
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned == (share == 1.0), str(report)
    assert len(report.sources) == (share != 1.0), str(report)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("narrow", [6, 3])
def test_what_is_packed_stands_where_its_parts_stand(narrow: int, first: bool, turned: bool) -> None:
    """The layer beside it took the first one of its shape, the query, and its own partner was packed as another."""
    order = (1, 2, 3, 0) if first else (0, 1, 2, 3)  # whether the layer beside it is defined first
    sizes = (6, 6, narrow, narrow) if first else (6, narrow, narrow, 6)
    apart = [[rows.Linear(6, size) for size in sizes] for _ in range(2)]
    packed = [{"fused": columns.Dense(6, 6 + 2 * narrow), "tail": columns.Dense(6, 6)} for _ in range(2)]
    listed = [dict(reversed(one.items())) if first else one for one in packed]
    named = [dict(zip("wxyz", one, strict=True)) | {"up": rows.Linear(6, 12)} for one in apart]
    listed = [one | {"up": columns.Dense(6, 12)} for one in listed]
    ours = _holding(rows.Module, {f"layer{n}": _holding(rows.Module, one) for n, one in enumerate(named)})
    theirs = _holding(columns.Layer, {f"block{n}": _holding(columns.Layer, one) for n, one in enumerate(listed)})
    done = padiff.transfer(*(theirs, ours)[:: -1 if not turned else 1])
    assert done.unmatched_reference == done.unmatched_candidate == ()
    for one, other in zip(apart, packed, strict=True):
        members = [one[place].weight.data.T for place in order[:3]]
        assert np.array_equal(other["fused"].kernel.data, np.concatenate(members, 1))
        assert np.array_equal(other["tail"].kernel.data, one[order[3]].weight.data.T)
