"""Hold a bias apart from its layer, as those who pack projections do, and loose parameters that nothing tells apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)


class Attention(rows.Module):
    """Heads of one packed projection without bias, and the biases of queries and values beside it."""

    def __init__(self, joined: bool) -> None:
        self.qkv, self.out = rows.Linear(4, 12, bias=False), rows.Linear(4, 4)
        self.q_bias, self.v_bias, self.joined = rows.parameter(4), rows.parameter(4), joined

    def forward(self, x: Any) -> Any:
        if self.joined:
            bias = F.concat([self.q_bias, rows.Tensor(np.zeros(4, np.float32)), self.v_bias])
            packed = F.linear(x, self.qkv.weight.transpose(1, 0), bias)
            return self.out(F.attention(packed[..., :4], packed[..., 4:8], packed[..., 8:], 2))
        packed = self.qkv(x)
        q, k, v = packed[..., :4] + self.q_bias, packed[..., 4:8], packed[..., 8:] + self.v_bias
        return self.out(F.attention(q, k, v, 2))


class Apart(rows.Module):
    """A block of layers without bias, and vectors that it adds behind them."""

    def __init__(self, joined: bool = False) -> None:
        self.up, self.down = rows.Linear(4, 6, bias=False), rows.Linear(6, 4, bias=False)
        self.up_bias, self.down_bias, self.attn = rows.parameter(6), rows.parameter(4), Attention(joined)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(x)
        return x + self.down(F.tanh(self.up(x) + self.up_bias)) + self.down_bias


class AttentionOfLayers(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.value, self.query = columns.Dense(4, 4), columns.Dense(4, 4)
        self.key, self.proj, self.fault = columns.Dense(4, 4, bias=False), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        q, k, v = self.query(x), self.key(x), self.value(x)
        return self.proj(F.attention(q, k, v, 2, 1.0 if self.fault == "scale" else None))


class OfLayers(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.mixer, self.fc2 = AttentionOfLayers(fault), columns.Dense(6, 4)
        self.fc1, self.fault = columns.Dense(4, 6, bias=fault != "bias"), fault

    def forward(self, x: Any) -> Any:
        x = x + self.mixer(x)
        act = F.relu if self.fault == "act" else F.tanh
        return x + self.fc2(act(self.fc1(x)))


@pytest.mark.parametrize("joined", [False, True], ids=["added", "joined"])
@pytest.mark.parametrize("turned", [False, True], ids=["apart", "inside"])
def test_a_bias_may_be_held_apart_from_its_layer(turned: bool, joined: bool) -> None:
    sides = Apart(joined), OfLayers()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied


@pytest.mark.parametrize("joined", [False, True], ids=["added", "joined"])
@pytest.mark.parametrize(("fault", "place"), [("scale", ("mixer", "proj")), ("act", ("", "end"))])
def test_a_fault_beside_a_bias_apart_stands_at_its_place(fault: str, place: tuple[str, str], joined: bool) -> None:
    report = padiff.diff(Apart(joined), OfLayers(fault), (X,))
    (source,) = report.sources
    assert (source.candidate.path, source.between[-1]) == place, str(report)


class Packed(rows.Module):
    def __init__(self) -> None:
        self.qkv, self.out = rows.Linear(4, 12), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        q, k, v = (self.qkv(x)[..., 4 * n : 4 * n + 4] for n in range(3))
        return self.out(F.attention(q, k, v, 2))


class Whole(columns.Layer):
    """What `Attention` does with one bias for all, of which the keys' part is left out or counts for nothing."""

    def __init__(self, fault: str = "") -> None:
        self.qkv, self.proj, self.fault = columns.Dense(4, 12), columns.Dense(4, 4), fault
        self.qkv.offset.data[:] = np.random.default_rng(1).standard_normal(12)

    def forward(self, x: Any) -> Any:
        packed = self.qkv(x)
        q, k, v = packed[..., :4], packed[..., 4:8], packed[..., 8:]
        if self.fault == "keys":
            k = F.tanh(k)
        return self.proj(F.attention(q, k, -v if self.fault == "sign" else v, 2))


class JoinedLast(Attention):
    """Its vectors are registered, and joined, in an order that their names do not tell; keys go through a function."""

    def __init__(self, keys: bool) -> None:
        super().__init__(joined=True)
        self.v_bias, self.q_bias, self.keys = rows.parameter(4), rows.parameter(4), keys

    def forward(self, x: Any) -> Any:
        bias = F.concat([self.v_bias, rows.Tensor(np.zeros(4, np.float32)), self.q_bias])
        packed = F.linear(x, self.qkv.weight.transpose(1, 0), bias)
        k = packed[..., 4:8]
        return self.out(F.attention(packed[..., :4], F.tanh(k) if self.keys else k, packed[..., 8:], 2))


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("turned", [False, True], ids=["vectors", "bias"])
@pytest.mark.parametrize("make", [lambda: Attention(True), lambda: JoinedLast(False)], ids=["named", "misnamed"])
def test_vectors_may_be_parts_of_one_bias(make: Any, turned: bool, phase: str) -> None:
    """Swin v2: one library has vectors and zeros between, the other one a bias whose keys' part it leaves out."""
    sides = make(), Whole()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,), phase=phase)
    assert report.aligned, str(report)
    lacking = "the model has no bias, and nothing shows that it changes anything"
    assert any(note.text.endswith(lacking) for note in report.notes), str(report)
    (source,) = padiff.diff(*(make(), Whole("sign"))[:: -1 if turned else 1], (X,), phase=phase).sources
    assert (source.candidate.path, source.between[-1]) == ("", "out" if turned else "proj"), str(source)


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("turned", [False, True], ids=["vectors", "bias"])
def test_a_part_of_one_bias_that_changes_something_is_the_source(turned: bool, phase: str) -> None:
    sides = JoinedLast(keys=True), Whole("keys")
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,), phase=phase)
    first, *rest = report.sources
    assert (first.phase.value, first.what.name) == ("parameter", "offset"), str(report)
    # What the candidate alone has was made zero; what it lacks its own code shows as well.
    assert [(one.candidate.path, one.between[-1]) for one in rest] == [("", "out")] * turned, str(report)


class InAnOrderOfItsOwn(columns.Layer):
    """Layers without bias, the last one of the packed ones first, and a vector behind each."""

    def __init__(self, fault: str = "") -> None:
        self.v, self.q, self.k = (columns.Dense(4, 4, bias=False) for _ in range(3))
        self.shift_v, self.shift_q, self.shift_k = (columns.weight(4) for _ in range(3))
        self.proj, self.fault = columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        v, q, k = self.v(x) + self.shift_v, self.q(x) + self.shift_q, self.k(x) + self.shift_k
        return self.proj(F.attention(q, -k if self.fault == "sign" else k, v + q if self.fault == "sum" else v, 2))


@pytest.mark.parametrize(("fault", "turned"), [("", False), ("", True), ("sign", False), ("sum", False)])
def test_vectors_lie_in_a_packed_bias_as_the_layers_do_that_they_stand_behind(fault: str, turned: bool) -> None:
    """Only the layers were put in order: each had the bias of another, and was told to differ before any run."""
    sides = Packed(), InAnOrderOfItsOwn(fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert [(one.candidate.path, one.between[-1]) for one in report.sources] == [("", "proj")] * bool(fault), str(
        report
    )
    assert report.aligned is not bool(fault), str(report)


class Tree(rows.Module):
    """A cell of two leaves and their root, node by node, with vectors that are added to its gates at last."""

    def __init__(self) -> None:
        self.w_iou, self.u_iou = rows.Linear(4, 9, bias=False), rows.Linear(3, 9, bias=False)
        self.w_f, self.u_f = rows.Linear(4, 3, bias=False), rows.Linear(3, 3, bias=False)
        self.b_iou, self.b_f, self.out = rows.parameter(1, 9), rows.parameter(1, 3), rows.Linear(3, 2)

    def node(self, x: Any, *below: Any) -> Any:
        h = below[0][0] + below[1][0] if below else rows.Tensor(np.zeros((1, 5, 3), np.float32))
        iou = self.w_iou(x) + self.u_iou(h) + self.b_iou[0]
        c = F.sigmoid(iou[..., :3]) * F.tanh(iou[..., 6:])
        for one in below:
            c = c + F.sigmoid(self.w_f(x) + self.u_f(one[0]) + self.b_f) * one[1]
        return F.sigmoid(iou[..., 3:6]) * F.tanh(c), c

    def forward(self, x: Any) -> Any:
        left, right = self.node(x[:1]), self.node(x[1:2])
        return self.out(F.concat([left[0], right[0], self.node(x[2:], left, right)[0]], 0))


class Levels(columns.Layer):
    """The same level by level, with all of the input's gates and their vectors in one layer."""

    def __init__(self) -> None:
        self.out, self.x = columns.Dense(3, 2), columns.Dense(4, 12)
        self.iou, self.f = columns.Dense(3, 9, bias=False), columns.Dense(3, 3, bias=False)

    def forward(self, x: Any) -> Any:
        p, h, c = self.x(x), columns.Tensor(np.zeros((2, 5, 3), np.float32)), 0.0
        found = []
        for level in (slice(2), slice(2, 3)):
            iou = p[level, ..., :9] + self.iou(h)
            c = F.sigmoid(iou[..., :3]) * F.tanh(iou[..., 6:]) + c
            h = F.sigmoid(iou[..., 3:6]) * F.tanh(c)
            found.append(h)
            if level.stop == 2:
                kept = F.sigmoid(p[2:, ..., 9:] + self.f(h)) * c
                h, c = h[:1] + h[1:], kept[:1] + kept[1:]
        return self.out(F.concat(found, 0))


def test_vectors_of_a_packed_layer_are_kept_while_its_order_is_tried() -> None:
    """Where nothing said whose biases they are they were left zero (a tree-LSTM's), and differed before any run."""
    report = padiff.diff(Tree(), Levels(), X)
    assert report.aligned, str(report)


def test_a_bias_that_is_missing_is_named() -> None:
    report = padiff.diff(Apart(), OfLayers("bias"), (X,))
    lacking = [one.what.name for one in report.sources if one.what.kind == "parameter"]
    assert lacking == ["up_bias"], str(report)


def test_a_gain_is_no_bias() -> None:
    class Scaled(columns.Layer):
        def __init__(self) -> None:
            self.fc1, self.fc2 = columns.Dense(4, 6, bias=False), columns.Dense(6, 4)
            self.gain = columns.weight(6, at=1.0)

        def forward(self, x: Any) -> Any:
            return self.fc2(F.tanh(self.fc1(x) * self.gain))

    plain = rows.Sequential(rows.Linear(4, 6), rows.Tanh(), rows.Linear(6, 4))
    report = padiff.diff(plain, Scaled(), (X,))
    lacking = {one.what.name for one in report.sources if one.what.kind == "parameter"}
    assert lacking == {"bias", "gain"}, str(report)


class Marked(rows.Module):
    """Adds what a layer makes of the distances, as ones and zeros; a gate ends the block."""

    def __init__(self) -> None:
        self.distance, self.gate, self.out = rows.Linear(5, 4), rows.Linear(4, 4), rows.Linear(4, 4)
        self.ones = rows.buffer(np.eye(5))

    def forward(self, x: Any) -> Any:
        x = x + self.distance(self.ones)
        return self.out(F.tanh(x) * F.sigmoid(self.gate(x)))


class LookedUp(columns.Layer):
    """The same with a table and a vector behind it, and a gate that is kept by heads."""

    def __init__(self, fault: str = "") -> None:
        self.table, self.table_bias = columns.Embed(5, 4), columns.weight(4)
        self.gate_w, self.gate_b = columns.weight(4, 2, 2), columns.weight(2, 2)
        self.out, self.fault = columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        places = columns.Tensor(np.arange(5) if self.fault != "places" else np.arange(5)[::-1])
        x = x + self.table(places) + self.table_bias
        gate = (x @ self.gate_w.reshape(4, 4)).reshape(-1, 5, 2, 2) + self.gate_b
        act = F.tanh if self.fault == "act" else F.sigmoid
        return self.out(F.tanh(x) * act(gate.reshape(-1, 5, 4)))


@pytest.mark.parametrize("turned", [False, True], ids=["layers", "tables"])
def test_a_table_may_have_its_bias_apart_and_a_bias_lie_by_heads(turned: bool) -> None:
    sides = Marked(), LookedUp()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", ["places", "act"])
def test_a_fault_beside_a_table_or_a_gate_is_found(fault: str) -> None:
    report = padiff.diff(Marked(), LookedUp(fault), (X,))
    assert [(one.candidate.path, one.between[-1]) for one in report.sources] == [("", "out")], str(report)


class Decayed(rows.Module):
    """A layer with a gated norm of its own behind it; three vectors of one shape are beside it."""

    def __init__(self, *vectors: str) -> None:
        self.both, self.out = rows.Linear(4, 8, bias=False), rows.Linear(4, 4)
        for name in vectors:
            setattr(self, name, rows.parameter(4))
        self.norm = GatedNorm()

    def forward(self, x: Any) -> Any:
        given = self.both(x)
        value, rate = given[..., :4], F.sigmoid(given[..., 4:] + self.rate)
        made = value * (-(self.decay.exp() * rate)).exp() + value * self.skip
        return self.out(self.norm(made, rate))


class GatedNorm(rows.Module):
    def __init__(self) -> None:
        self.weight = rows.parameter(4)

    def forward(self, x: Any, gate: Any) -> Any:
        x = x * F.sigmoid(gate)
        return x / (x * x).mean(-1, keepdims=True).sqrt() * self.weight


class Norm(columns.Layer):
    def __init__(self) -> None:
        self.gain = columns.weight(4, at=1.0)

    def forward(self, x: Any) -> Any:
        return x / (x * x).mean(-1, keepdims=True).sqrt() * self.gain


class DecayedOfLayers(columns.Layer):
    """The same with two layers, and the gate in front of the norm."""

    def __init__(self, fault: str) -> None:
        self.first, self.second = columns.Dense(4, 4, bias=False), columns.Dense(4, 4)
        self.slow, self.direct, self.rms, self.last = columns.weight(4), columns.weight(4), Norm(), columns.Dense(4, 4)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        value, rate = self.first(x), F.sigmoid(self.second(x))
        decay = -(self.slow.exp() * rate)
        made = value * (decay * 1.1 if self.fault == "decay" else decay).exp()
        made = made + (value if self.fault == "unused" else value * self.direct)
        return self.last(self.rms(made * F.sigmoid(rate)))


@pytest.mark.parametrize("vectors", [("rate", "decay", "skip"), ("decay", "rate", "skip")], ids="-".join)
@pytest.mark.parametrize("fault", ["", "decay", "unused"])
def test_a_fault_beside_vectors_of_one_shape_and_a_gate_is_one_source(fault: str, vectors: tuple[str, ...]) -> None:
    """The norm, which is given less, was a second source; an unused vector let two others be told as missing."""
    report = padiff.diff(Decayed(*vectors), DecayedOfLayers(fault), (X,))
    told = [(str(one.what), one.between[-1]) for one in report.sources if one.between]
    assert len(report.sources) == len(told) == bool(fault), str(report)
    assert told == [("input 'x' of last", "last")] * bool(fault), str(report)


class Forgetful(columns.Layer):
    """A block that holds weights and biases itself, or beside its layers, and does not read all of these."""

    def __init__(self, unread: bool, layers: bool) -> None:
        self.fc2 = columns.Dense(6, 4)
        self.w = columns.Dense(4, 6, bias=False) if layers else columns.weight(4, 6)
        self.b, self.unread, self.layers = columns.weight(6), unread, layers

    def forward(self, x: Any) -> Any:
        y = self.w(x) if self.layers else x @ self.w
        return self.fc2(F.tanh(y if self.unread else y + self.b))


class OfRows(rows.Module):
    def __init__(self, zeros: bool) -> None:
        self.last, self.first = rows.Linear(6, 4), rows.Linear(4, 6)
        if zeros:
            self.first.bias.data[:] = 0

    def forward(self, x: Any) -> Any:
        return self.last(F.tanh(self.first(x)))


class OfTwo(rows.Module):
    def __init__(self, zeros: bool) -> None:
        self.blocks = rows.ModuleList(OfRows(zeros), OfRows(zeros))

    def forward(self, x: Any) -> Any:
        return self.blocks[1](F.relu(self.blocks[0](x)))


class ForgetfulTwo(columns.Layer):
    def __init__(self, unread: bool, layers: bool) -> None:
        self.stack = columns.Layers(*(Forgetful(unread, layers) for _ in range(2)))

    def forward(self, x: Any) -> Any:
        return self.stack[1](F.relu(self.stack[0](x)))


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("zeros", [False, True], ids=["drawn", "zeros"])
@pytest.mark.parametrize("layers", [False, True], ids=["weights", "layers"])
def test_biases_that_nobody_reads_are_one_source_where_they_should_be_added(
    layers: bool, zeros: bool, phase: Any
) -> None:
    """Each block had two: the bias of the reference, and the vector that is in the candidate alone."""
    assert padiff.diff(OfTwo(zeros), ForgetfulTwo(False, layers), (X,), phase=phase).aligned
    report = padiff.diff(OfTwo(zeros), ForgetfulTwo(True, layers), (X,), phase=phase)
    assert "1 source in 2 places" in str(report), str(report)
    assert {one.candidate.path for one in report.sources} <= {"stack.0", "stack.1", "stack.0.w", "stack.1.w"}


class Tasks(rows.Module):
    """A layer for each task, of one number, and the weights of their losses, which it returns as they are."""

    def __init__(self) -> None:
        self.first, self.tasks = rows.Linear(4, 6), rows.ModuleList(*(rows.Linear(6, 1) for _ in range(2)))
        self.weights = rows.parameter(2)

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.first(x))
        return F.concat([task(x) for task in self.tasks]), self.weights


class TasksTogether(columns.Layer):
    """The same by rows of one matrix and one vector."""

    def __init__(self, fault: bool) -> None:
        self.first, self.fault = columns.Dense(4, 6), fault
        self.rows, self.offsets, self.shares = columns.weight(2, 6), columns.weight(2), columns.weight(2)

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.first(x))
        x = (x.reshape(*x.shape[:-1], 1, 6) * self.rows).sum(-1)
        return x + (self.shares if self.fault else self.offsets), self.shares


@pytest.mark.parametrize("fault", [False, True])
def test_a_parameter_that_is_returned_is_none_of_those_that_are_used(fault: bool) -> None:
    """It was taken for the vector of its shape, whose numbers, one of each layer, had no counterpart then."""
    report = padiff.diff(Tasks(), TasksTogether(fault), (X,))
    assert report.aligned is not fault, str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference
    assert [one.candidate.path for one in report.sources] == [""] * fault, str(report)
