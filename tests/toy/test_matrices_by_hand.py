"""Blocks that hold all matrices themselves, and use them by functions: the code tells which way each one lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


def _computed(x: Any, project: Any, fault: str) -> Any:
    """Attention and a gated layer; ``project`` applies one of the block's matrices."""
    q, k, v = project(x, "qkv")
    x = x + project(F.attention(q, -k if fault == "sign" else k, v, 2), "o")[0]
    gate, up = project(x, "gate_up")
    return x + project((F.gelu if fault == "gelu" else F.silu)(gate) * up, "down")[0]


class Layers(rows.Module):
    """The block with a layer for each."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(4, 4, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (rows.Linear(*one, bias=False) for one in ((4, 6), (4, 6), (6, 4)))

    def forward(self, x: Any) -> Any:
        several = {"qkv": (self.q, self.k, self.v), "gate_up": (self.gate, self.up)}
        return _computed(x, lambda x, name: [one(x) for one in several.get(name, (getattr(self, name, None),))], "")


class Block(rows.Module):
    """The block with matrices ``[in, out]``, those that take one value maybe side by side in one."""

    def __init__(self, fault: str = "", *, packed: bool = False) -> None:
        self.packed, self.fault = packed, fault
        shapes = {"wq": (4, 4), "wk": (4, 4), "wv": (4, 4), "wo": (4, 4), "w1": (4, 6), "w3": (4, 6), "w2": (6, 4)}
        if packed:
            shapes = {"wqkv": (4, 12), "wo": (4, 4), "w13": (4, 12), "w2": (6, 4)}
        for name, shape in shapes.items():
            setattr(self, name, rows.parameter(*shape, scale=0.5))

    def forward(self, x: Any) -> Any:
        return _computed(x, self._project, self.fault)

    def _project(self, x: Any, name: str) -> Any:
        parts = {"qkv": 3, "gate_up": 2}.get(name, 1)
        if parts > 1 and self.packed:
            found = x @ (self.wqkv if parts == 3 else self.w13)
            width = found.shape[-1] // parts
            return [found[..., n * width : (n + 1) * width] for n in range(parts)]
        names = {"qkv": ("wq", "wk", "wv"), "gate_up": ("w1", "w3"), "o": ("wo",), "down": ("w2",)}[name]
        return [x @ getattr(self, one) for one in names]


class Others(columns.Layer):
    """The block with matrices ``[out, in]``."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.query, self.key, self.value, self.result = (columns.weight(4, 4, scale=0.5) for _ in range(4))
        self.gated, self.above, self.below = (columns.weight(*one, scale=0.5) for one in ((6, 4), (6, 4), (4, 6)))

    def forward(self, x: Any) -> Any:
        some = {"qkv": (self.query, self.key, self.value), "gate_up": (self.gated, self.above)}
        some |= {"o": (self.result,), "down": (self.below,)}
        return _computed(x, lambda x, name: [x @ one.transpose(1, 0) for one in some[name]], self.fault)


def _stack(block: Any, *faults: str, **kwargs: Any) -> Any:
    blocks = [block(*fault, **kwargs) for fault in ((one,) if one else () for one in faults)]
    return columns.Stack(*blocks) if issubclass(block, columns.Layer) else rows.Sequential(*blocks)


SIDES = {
    "layers": lambda *faults: _stack(Layers, *faults),
    "in-out": lambda *faults: _stack(Block, *faults),
    "packed": lambda *faults: _stack(Block, *faults, packed=True),
    "out-in": lambda *faults: _stack(Others, *faults),
}


@pytest.mark.parametrize("fault", ["", "sign", "gelu"])
@pytest.mark.parametrize(
    ("reference", "candidate"),
    [(a, b) for a in SIDES for b in SIDES if a != b and b != "layers"] + [("in-out", "layers"), ("packed", "layers")],
)
def test_matrices_lie_as_the_code_uses_them(reference: str, candidate: str, fault: str) -> None:
    """A gate's `[in, out]` looks like the `[out, in]` of the layer behind it, and was taken for that one."""
    if candidate == "layers" and fault:
        reference, candidate = candidate, reference
    report = padiff.diff(SIDES[reference]("", ""), SIDES[candidate]("", fault), X)
    assert report.aligned == (not fault), str(report)
    assert {one.candidate.path for one in report.sources} == ({"1"} if fault else set()), str(report)


class Stacks(columns.Layer):
    """Three blocks whose matrices are stacked, those that take one value maybe side by side in one."""

    def __init__(self, fault: str = "", *, packed: bool) -> None:
        shapes = {"query": (4, 4), "key": (4, 4), "value": (4, 4), "result": (4, 4)}
        shapes |= {"gated": (4, 6), "above": (4, 6), "below": (6, 4)}
        if packed:
            shapes = {"three": (4, 12), "result": (4, 4), "two": (4, 12), "below": (6, 4)}
        for name, shape in shapes.items():
            setattr(self, name, columns.weight(3, *shape, scale=0.5))
        self.packed, self.fault = packed, fault

    def forward(self, x: Any) -> Any:
        several = {
            "qkv": ("query", "key", "value"),
            "gate_up": ("gated", "above"),
            "o": ("result",),
            "down": ("below",),
        }

        def project(x: Any, name: str) -> Any:
            if not self.packed or len(several[name]) == 1:
                return [x @ getattr(self, one)[n] for one in several[name]]
            found, parts = x @ (self.three if name == "qkv" else self.two)[n], len(several[name])
            width = found.shape[-1] // parts
            return [found[..., part * width : (part + 1) * width] for part in range(parts)]

        for n in range(3):
            x = _computed(x, project, self.fault if n == 1 else "")
        return x


@pytest.mark.parametrize("fault", ["", "gelu"])
@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("listed", SIDES)
def test_blocks_are_stacked_and_packed_at_once(listed: str, packed: bool, fault: str) -> None:
    """What lists packed matrices, and what stacks them, had no counterpart where the other side had them apart."""
    ours = SIDES[listed]("", "", "")
    for sides in ((ours, Stacks(fault, packed=packed)), (Stacks(fault, packed=packed), ours)):
        report = padiff.diff(*sides, X)
        assert report.aligned == (not fault), str(report)
        assert len({(one.phase, str(one.cause)) for one in report.sources}) == bool(fault), str(report)


class Biased(rows.Module):
    """Attention with layers that have biases."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(4, 4) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return x + self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class AtPlaces(columns.Layer):
    """The same with one parameter ``[3, in, out]`` for queries, keys and values, and one for their biases."""

    def __init__(self, fault: float = 1.0) -> None:
        self.many, self.shifts, self.fault = columns.weight(3, 4, 4, scale=0.5), columns.weight(3, 4), fault
        self.one, self.shift = columns.weight(4, 4, scale=0.5), columns.weight(4)

    def forward(self, x: Any) -> Any:
        q, k, v = (x @ self.many[n] + self.shifts[n] for n in range(3))
        return x + F.attention(q, k * self.fault, v, 2) @ self.one + self.shift


@pytest.mark.parametrize("turned", [False, True], ids=["layers", "places"])
def test_places_of_one_parameter_have_biases_at_their_places(turned: bool) -> None:
    """The one square matrix beside them was taken for the queries, and nothing else had a counterpart."""
    ours = rows.Sequential(Biased(), Biased())
    for fault in (1.0, 1.1):
        sides = ours, columns.Stack(AtPlaces(), AtPlaces(fault))
        report = padiff.diff(*(sides[::-1] if turned else sides), X)
        assert {one.candidate.path for one in report.sources} == ({"1"} if fault > 1 else set()), str(report)
        assert report.aligned == (fault == 1), str(report)


class Dense(columns.Layer):
    """Attention with layers that hold ``[in, out]``."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (columns.Dense(4, 4, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class InOut(rows.Module):
    """The same by matrices that lie so, too."""

    def __init__(self) -> None:
        self.wq, self.wk, self.wv, self.wo = (rows.parameter(4, 4, scale=0.5) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return F.attention(x @ self.wq, x @ self.wk, x @ self.wv, 2) @ self.wo


def test_how_a_matrix_lies_is_told_as_it_is_held() -> None:
    """It was `transposed` for a layer whose rule turns its own weight, and in `report.mapping` as in the reference."""
    report = padiff.diff(InOut(), Dense(), X)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.mapping is not None
    told = {row.candidate: row.layout for row in report.mapping.parameters}
    assert report.transfer.settled == told == dict.fromkeys(told, "as in the reference"), str(report)


def split(base: Any, held: str, weight: Any, linear: Any, scale: float = 0.5) -> Any:
    """Return attention whose queries, keys and values one layer makes, or matrices ``[in, out]``, stacked or not."""

    class Model(base):
        def __init__(self) -> None:
            shapes = {"stack": (3, 4, 4), "beside": (4, 12)}
            self.into = weight(*shapes[held]) if held in shapes else linear(4, 12, bias=False)
            self.out = linear(4, 4)

        def forward(self, x: Any) -> Any:
            if held == "stack":
                parts = [x @ self.into[n] for n in range(3)]
            else:
                made = self.into(x) if held == "layer" else x @ self.into
                parts = [made[..., n * 4 : (n + 1) * 4] for n in range(3)]
            return self.out(F.attention(*parts, 2, scale) + x)

    return Model()


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize("held", ["layer", "beside"])
def test_square_matrices_of_a_stack_may_lie_turned(held: str, fault: bool) -> None:
    """A stack of square matrices has the shape of others below one another either way; only one way was tried."""
    ours, theirs = split(rows.Module, held, rows.parameter, rows.Linear), ("stack", columns.weight, columns.Dense)
    report = padiff.diff(ours, split(columns.Layer, *theirs, 0.7 if fault else 0.5), X)
    assert report.aligned is not fault, str(report)
    assert [one.cause.name for one in report.sources] == ["arguments"] * fault, str(report)


class Gained(rows.Module):
    """A layer, and what it gives once more beside what the next one makes of it."""

    def __init__(self) -> None:
        self.first, self.second, self.gain = rows.Linear(4, 4), rows.Linear(4, 4), rows.parameter(4)
        self.out = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        h = F.tanh(self.first(x))
        return self.out(F.sigmoid(self.second(h)) + h * self.gain)


class GainedByHand(columns.Layer):
    """The same, of which the first layer's parameters are the model's own."""

    def __init__(self, fault: str = "") -> None:
        self.skip, self.w, self.b = columns.weight(4), columns.weight(4, 4), columns.weight(4)
        self.then, self.end, self.fault = columns.Dense(4, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        h = F.tanh(x @ self.w + self.b)
        y = F.sigmoid(self.then(h))
        if self.fault == "skip":
            return self.end(y)
        return self.end(y + (h if self.fault == "plain" else h * self.skip))


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("skip", "mul(_, _), add(_, _) in the reference only"), ("plain", "mul(_, _) in the reference only")],
)
def test_a_vector_that_is_never_used_is_not_taken_for_a_bias(fault: str, cause: str) -> None:
    """The bias had got what the candidate leaves out, and another value was wrong: exchanged, that one is right."""
    ours = Gained()
    assert padiff.diff(ours, GainedByHand(), X).aligned
    port = GainedByHand(fault)
    report = padiff.diff(ours, port, X)
    assert [(one.what.taker, str(one.cause)) for one in report.sources] == [("end", cause)], report
    assert np.array_equal(port.b.data, ours.first.bias.data)


class Begun(columns.Layer):
    """A layer by hand, of which all numbers begin with zero: they are to be loaded."""

    def __init__(self, fault: str = "") -> None:
        self.w, self.b = columns.weight(4, 4, scale=0.0), columns.weight(4, scale=0.0)
        self.end, self.fault = columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        y = x @ self.w + self.b
        return self.end(F.sigmoid(y) if self.fault else F.tanh(y))


def test_the_code_tells_how_a_matrix_lies_that_began_with_zeros_and_is_a_layers_in_the_reference() -> None:
    """Of zeros nothing was seen, and beside a fault neither layout is right: the matrix stayed the wrong way round."""

    class Layers(rows.Module):
        def __init__(self) -> None:
            self.first, self.last = rows.Linear(4, 4), rows.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.last(F.tanh(self.first(x)))

    ours = Layers()
    for fault in ("", "sigmoid"):
        port = Begun(fault)
        report = padiff.diff(ours, port, X)
        assert report.aligned is not bool(fault), report
        assert np.array_equal(port.w.data, ours.first.weight.data.T), report
    assert [str(one.cause) for one in report.sources] == [
        "kind: tanh (tanh) in the reference, sigmoid (sigmoid) in the candidate"
    ], report
