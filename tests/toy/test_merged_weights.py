"""Weights that one side merged on purpose: what has no equal by itself, and makes the same together, is no fault."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows

X = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32)


class Net(rows.Module):
    """Layers, each with a norm behind it, of which a candidate may hold none; and a gate on the last one."""

    def __init__(self, norms: bool = True) -> None:
        self.first, self.second, self.third = (rows.Linear(*size) for size in ((6, 8), (8, 8), (8, 8)))
        if norms:
            self.norm1, self.norm2, self.gain = rows.BatchNorm(8), rows.BatchNorm(8), rows.parameter(8, at=1.0)
            random = np.random.default_rng(1)
            for norm in (self.norm1, self.norm2):
                norm.running_mean.data[:], norm.running_var.data[:] = (
                    random.normal(0, 0.3, 8),
                    random.uniform(0.5, 2, 8),
                )
        self.out = rows.Linear(8, 3)
        self.norms = norms
        self.train(False)

    def forward(self, x: Any) -> Any:
        a = self.first(x)
        a = F.relu(self.norm1(a) if self.norms else a)
        b = self.second(a)
        b = F.relu(self.norm2(b) if self.norms else b)
        c = self.third(b)
        return self.out(F.tanh(a + (c * self.gain if self.norms else c)))


def fold(layer: Any, norm: Any, *, eps: float | None = None, mean: bool = True) -> None:
    scale = norm.weight.data / np.sqrt(norm.running_var.data + (norm.eps if eps is None else eps))
    layer.weight.data[:] *= scale[:, None]
    shift = norm.running_mean.data if mean else 0
    layer.bias.data[:] = (layer.bias.data - shift) * scale + norm.bias.data


def merged(net: Net, second: Callable[[Any, Any], None] = fold, gain: bool = True) -> Net:
    """Return a candidate without norms, and without the gate."""
    port = Net(norms=False)
    for name in ("first", "second", "third", "out"):
        setattr(port, name, copy.deepcopy(getattr(net, name)))
    fold(port.first, net.norm1)
    second(port.second, net.norm2)
    if gain:
        port.third.weight.data[:] *= net.gain.data[:, None]
        port.third.bias.data[:] *= net.gain.data
    return port


def freeze(*models: Any) -> None:
    for tensor in (tensor for model in models for tensor in model.parameters()):
        tensor.requires_grad = False


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("transfer", [True, False])
@pytest.mark.parametrize("frozen", [False, True])
def test_merged_weights_are_noted_and_no_fault(*, phase: str, transfer: bool, frozen: bool) -> None:
    net = Net()
    port = merged(net)
    freeze(*([net, port] if frozen else []))
    before = [tensor.data.copy() for model in (net, port) for tensor in model.parameters()]
    report = padiff.diff(net, port, (X,), phase=phase, transfer=transfer)
    assert report.aligned, str(report)
    assert str(report).startswith("aligned, forward only (")
    note = next(note.data for note in report.notes if note.kind == "merged")
    held = [f"{layer}.{name}" for layer in ("first", "second", "third") for name in ("bias", "weight")]
    assert note["candidate"] == held
    norms = [f"{norm}.{name}" for norm in ("norm1", "norm2") for name in ("bias", "weight")]
    assert note["reference"] == sorted([*held, *norms, "gain"])
    assert any(note.kind == "as_given" for note in report.notes) is transfer
    after = [tensor.data for model in (net, port) for tensor in model.parameters()]
    assert all(map(np.array_equal, before, after))
    assert all(tensor.requires_grad is not frozen for model in (net, port) for tensor in model.parameters())


def wrong_eps(layer: Any, norm: Any) -> None:
    fold(layer, norm, eps=1e-3)


def slightly_wrong_eps(layer: Any, norm: Any) -> None:
    fold(layer, norm, eps=3e-6)


def without_mean(layer: Any, norm: Any) -> None:
    fold(layer, norm, mean=False)


def hidden(layer: Any, norm: Any) -> None:
    """Be wrong where a relu hides it of these inputs."""
    fold(layer, norm)
    layer.bias.data[2] += 0.5


@pytest.mark.parametrize("second", [wrong_eps, slightly_wrong_eps, without_mean, hidden])
def test_what_was_merged_wrongly_is_one_source_at_its_layer(second: Any) -> None:
    net = Net()
    net.norm2.bias.data[2] = -60 if second is hidden else net.norm2.bias.data[2]
    report = padiff.diff(net, merged(net, second), (X,), transfer=False)
    (source,) = report.sources
    assert (source.reference.path, source.candidate.path) == ("second", "second"), str(report)
    assert source.cause is not None
    named = ["second.bias", "second.weight"]
    assert dict(source.cause.parameters) == {"reference": ["norm2.bias", "norm2.weight", *named], "candidate": named}
    assert "merge" in str(report).rpartition("next ")[2]
    note = next(note.data for note in report.notes if note.kind == "merged")
    assert note["candidate"] == [f"{layer}.{name}" for layer in ("first", "third") for name in ("bias", "weight")]


class Gated(rows.Module):
    """A layer with a gate, which a candidate takes into the layer; and another one in front, perhaps."""

    def __init__(self, gated: bool, inner: Any = None) -> None:
        size = 6 if inner is None else 8
        self.gated, self.inner, self.linear = gated, inner, rows.Linear(size, 8)
        if gated:
            self.gain = rows.parameter(8, scale=0.1, at=1.0)

    def forward(self, x: Any) -> Any:
        y = self.linear(x if self.inner is None else self.inner(x))
        return F.relu(y * self.gain if self.gated else y)

    def merged(self) -> Gated:
        port = Gated(False, self.inner and self.inner.merged())
        port.linear.weight.data[:] = self.linear.weight.data * self.gain.data[:, None]
        port.linear.bias.data[:] = self.linear.bias.data * self.gain.data
        return port


def test_what_is_hidden_in_one_module_is_not_shown_by_what_another_one_needs() -> None:
    """Much noise, with which all of both counts, is what the one around alone was tried with."""
    net = Gated(True, Gated(True))
    net.linear.bias.data[1], net.inner.linear.bias.data[2] = -60, -20
    port = net.merged()
    assert padiff.diff(net, port, (X,), transfer=False).aligned
    port.inner.linear.bias.data[2] += 3
    (source,) = padiff.diff(net, port, (X,), transfer=False).sources
    assert source.candidate.path == "inner.linear"


@pytest.mark.parametrize("given", [np.ones((3, 6)), np.zeros((3, 6)), np.eye(6)[:3]], ids=["ones", "zeros", "marks"])
def test_inputs_of_one_number_or_two_show_no_more_than_others(given: Any) -> None:
    net, x = Gated(True), given.astype(np.float32)
    port = net.merged()
    assert padiff.diff(net, port, (x,), transfer=False).aligned
    port.linear.weight.data[2] += [0, 0, 0, 0, 1, -1]
    for transfer in (False, True):
        report = padiff.diff(net, port, (x,), transfer=transfer)
        assert not report.aligned, str(report)


def test_a_mask_of_truth_values_is_no_obstacle() -> None:
    class Masked(Gated):
        def forward(self, x: Any, mask: Any) -> Any:
            return super().forward(x) * rows.Tensor(np.asarray(getattr(mask, "data", mask)).astype(np.float32))

    net, mask = Masked(True), np.arange(9)[:, None] < 5
    port = Masked(False)
    vars(port).update(vars(net.merged()))
    assert padiff.diff(net, port, (X, mask), transfer=False).aligned
    port.linear.bias.data[2] += 1e-4
    assert not padiff.diff(net, port, (X, mask), transfer=False).aligned


def test_what_a_quantizer_hides_is_not_shown_by_gradients_that_it_sends_straight_through() -> None:
    class Quantized(Gated):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return F.tanh(y + rows.Tensor(np.round(y.data) - y.data))

    net = Quantized(True)
    port = Quantized(False)
    vars(port).update(vars(net.merged()))
    port.linear.bias.data[2] += 1e-4
    report = padiff.diff(net, port, (X,), transfer=False)
    assert {source.candidate.path for source in report.sources} == {"linear", ""}, str(report)
    assert not any(note.kind == "merged" for note in report.notes)


def test_a_layer_that_was_not_merged_lacks_its_norm() -> None:
    net = Net()
    report = padiff.diff(net, merged(net, lambda *_: None), (X,), transfer=False)
    assert {source.reference.path for source in report.sources} == {"norm2"}, str(report)


def test_a_gate_that_was_merged_but_for_the_bias_is_told() -> None:
    net = Net()
    port = merged(net, gain=False)
    port.third.weight.data[:] *= net.gain.data[:, None]
    (source,) = padiff.diff(net, port, (X,), transfer=False).sources
    assert source.candidate.path == "third"
    assert "gain" in str(source.cause)


@pytest.mark.parametrize("gain", [0.0, 1e-7])
def test_what_a_gate_hides_is_not_taken_for_merged(gain: float) -> None:
    net = Net()
    net.gain.data[:] = gain
    port = copy.deepcopy(net)
    port.third.weight.data[1] += 1
    (source,) = padiff.diff(net, port, (X,), transfer=False).sources
    assert (source.candidate.path, source.what.kind) == ("third", "parameter")


class Part(rows.Linear):
    """A layer that reads four of six channels."""

    def forward(self, x: Any) -> Any:
        return x[:, :4] @ self.weight[:, :4].transpose(1, 0) + self.bias


def test_how_much_of_merged_weights_counts_is_told_where_some_of_them_does_not() -> None:
    """A right port of inputs that reach a part of a layer alone is not aligned; it was as if nothing of it agreed."""
    net = Net()
    net.first.__class__ = Part
    (source,) = padiff.diff(net, merged(net), (X,), transfer=False).sources
    (told,) = [one for one in source.evidence if one.kind == "unshown"]
    assert (source.candidate.path, source.what.name) == ("first", "weight")
    assert told.figures == {"count": 32, "size": 48}


def test_a_fault_beside_merged_weights_is_told_alone() -> None:
    net = Net()

    class Other(Net):
        def forward(self, x: Any) -> Any:
            a = F.relu(self.first(x))
            return self.out(F.tanh(a + self.third(F.gelu(self.second(a)))))

    port = merged(net)
    other = Other(norms=False)
    vars(other).update(vars(port))
    report = padiff.diff(net, other, (X,), transfer=False)
    assert len(report.sources) == 1, str(report)
    assert report.sources[0].what.taker == "third" or report.sources[0].candidate.path == "second"


def test_the_advice_where_merged_weights_were_overwritten_names_what_to_do() -> None:
    net = Net()
    report = padiff.diff(net, merged(net, without_mean), (X,))
    assert not report.aligned
    assert "transfer=False" in str(report).rpartition("next ")[2]
    assert padiff.transfer(net, merged(net), (X,)).copied == 8
