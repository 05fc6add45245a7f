"""Modules that hold several layers' parameters themselves, as ports written with functions and fused layers do."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

WIDTH = 8
TOKENS = np.random.default_rng(0).standard_normal((2, 5, WIDTH)).astype(np.float32)


class RMSNorm(rows.Module):
    """A norm that no table knows."""

    def __init__(self) -> None:
        self.weight = rows.parameter(WIDTH, at=1.0, scale=0.3)

    def forward(self, x: Any) -> Any:
        return x / ((x * x).mean(-1, keepdims=True) + 1e-5).sqrt() * self.weight


class Block(rows.Module):
    """A block of a transformer, each of its layers a module."""

    def __init__(self, inner: int, bias: bool, rms: bool) -> None:
        self.norm1, self.norm2 = (RMSNorm() if rms else rows.LayerNorm(WIDTH) for _ in range(2))
        self.q, self.k, self.v, self.o = (rows.Linear(WIDTH, WIDTH, bias=bias) for _ in range(4))
        self.fc1, self.fc2 = rows.Linear(WIDTH, inner, bias=bias), rows.Linear(inner, WIDTH, bias=bias)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        x = x + self.o(F.attention(self.q(y), self.k(y), self.v(y), 2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class NormLinear(columns.Layer):
    """A norm inside of the linear layer behind it, as Transformer Engine has it."""

    def __init__(self, width: int, bias: bool, rms: bool, eps: float = 1e-5) -> None:
        self.layer_norm_weight = columns.weight(WIDTH)
        if not rms:
            self.layer_norm_bias = columns.weight(WIDTH)
        self.weight = columns.weight(width, WIDTH)
        if bias:
            self.bias = columns.weight(width)
        self.eps, self.rms, self.has_bias = eps, rms, bias

    def forward(self, x: Any) -> Any:
        if self.rms:
            y = x / ((x * x).mean(-1, keepdims=True) + self.eps).sqrt() * self.layer_norm_weight
        else:
            y = F.layer_norm(x, self.layer_norm_weight, self.layer_norm_bias, self.eps)
        return F.linear(y, self.weight.transpose(1, 0), self.bias if self.has_bias else None)


class Fused(columns.Layer):
    """The same block, with both norms fused, and queries, keys and values packed."""

    def __init__(self, inner: int, bias: bool, rms: bool, eps: float = 1e-5) -> None:
        self.qkv, self.fc1 = NormLinear(3 * WIDTH, bias, rms), NormLinear(inner, bias, rms, eps)
        self.o, self.fc2 = columns.Dense(WIDTH, WIDTH, bias=bias), columns.Dense(inner, WIDTH, bias=bias)

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        x = x + self.o(F.attention(y[..., :WIDTH], y[..., WIDTH : 2 * WIDTH], y[..., 2 * WIDTH :], 2))
        return x + self.fc2(F.gelu(self.fc1(x)))


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize(("inner", "bias"), [(16, True), (WIDTH, True), (WIDTH, False)])
def test_a_norm_inside_of_the_linear_layer_behind_it_is_aligned(inner: int, bias: bool, rms: bool) -> None:
    """0.4 left the norm over, and called every such block wrong."""
    blocks = rows.Sequential(*(Block(inner, bias, rms) for _ in range(2)))
    report = padiff.diff(blocks, columns.Stack(*(Fused(inner, bias, rms) for _ in range(2))), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer.unverified == ()


@pytest.mark.parametrize("rms", [False, True])
def test_another_eps_in_a_fused_norm_is_named_in_its_block(rms: bool) -> None:
    blocks = rows.Sequential(*(Block(16, True, rms) for _ in range(3)))
    fused = columns.Stack(*(Fused(16, True, rms, 1e-2 if i == 1 else 1e-5) for i in range(3)))
    report = padiff.diff(blocks, fused, TOKENS)
    assert {source.candidate.path for source in report.sources} == {"1"}, str(report)


class Attention(rows.Module):
    """Attention of four layers."""

    def __init__(self, bias: bool = True) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(WIDTH, WIDTH, bias=bias) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return x + self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class FeedForward(rows.Module):
    """Two layers."""

    def __init__(self, inner: int) -> None:
        self.fc1, self.fc2 = rows.Linear(WIDTH, inner), rows.Linear(inner, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.fc2(F.gelu(self.fc1(x)))


class KeptAttention(columns.Layer):
    """Attention that holds all matrices and biases itself."""

    def __init__(self, fault: str = "") -> None:
        self.wq, self.wk, self.wv, self.wo = (columns.weight(WIDTH, WIDTH, scale=0.3) for _ in range(4))
        self.bq, self.bk, self.bv, self.bo = (columns.weight(WIDTH) for _ in range(4))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        given = ((self.wq, self.bq), (self.wk, self.bk), (self.wv, self.bv))
        q, k, v = (F.linear(x, weight, bias) for weight, bias in given)
        if self.fault == "values for keys":
            k, v = v, k
        y = F.linear(F.attention(q, k, v, 4 if self.fault == "heads" else 2), self.wo, self.bo)
        return y if self.fault == "residual" else x + y * (1.01 if self.fault == "scale" else 1.0)


class KeptFeedForward(columns.Layer):
    """Two layers in one, its matrices as they are multiplied or transposed."""

    def __init__(self, inner: int, turned: bool = False) -> None:
        first, second = (WIDTH, inner), (inner, WIDTH)
        self.b1, self.b2 = columns.weight(inner), columns.weight(WIDTH)
        self.w2 = columns.weight(*second[:: -1 if turned else 1])
        self.w1 = columns.weight(*first[:: -1 if turned else 1])
        self.turned = turned

    def forward(self, x: Any) -> Any:
        w1, w2 = (w.transpose(1, 0) if self.turned else w for w in (self.w1, self.w2))
        return F.linear(F.gelu(F.linear(x, w1, self.b1)), w2, self.b2)


def apart(inner: int) -> Any:
    return rows.Sequential(Attention(), FeedForward(inner), Attention(), FeedForward(inner))


def kept(inner: int, turned: bool = False, fault: str = "") -> Any:
    first = KeptAttention(), KeptFeedForward(inner, turned)
    return columns.Stack(*first, KeptAttention(fault), KeptFeedForward(inner, turned))


@pytest.mark.parametrize(("inner", "turned"), [(16, False), (16, True), (WIDTH, False), (WIDTH, True)])
def test_layers_kept_as_parameters_of_one_module_are_aligned(inner: int, turned: bool) -> None:
    """0.4 tied such a module to one of the layers, and left the others over."""
    report = padiff.diff(apart(inner), kept(inner, turned), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer.unverified == ()


def test_layers_kept_as_parameters_by_the_reference_are_aligned() -> None:
    report = padiff.diff(kept(16), apart(16), TOKENS)
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", ["values for keys", "heads", "residual", "scale"])
def test_a_fault_among_kept_parameters_is_named_there(fault: str) -> None:
    report = padiff.diff(apart(16), kept(16, fault=fault), TOKENS)
    assert {source.candidate.path for source in report.sources} == {"2"}, str(report)


class Heads(columns.Layer):
    """Attention with its matrices as (in, heads, size) and (heads, size, out), as JAX's layers have them."""

    def __init__(self, scale: float = 1.0) -> None:
        self.q, self.k, self.v = (columns.weight(WIDTH, 2, WIDTH // 2, scale=0.3) for _ in range(3))
        self.o, self.scale = columns.weight(2, WIDTH // 2, WIDTH, scale=0.3), scale

    def forward(self, x: Any) -> Any:
        q, k, v = (F.linear(x, weight.reshape(WIDTH, WIDTH)) for weight in (self.q, self.k, self.v))
        return x + F.linear(F.attention(q, k, v, 2), self.o.reshape(WIDTH, WIDTH)) * self.scale


@pytest.mark.parametrize("reverse", [False, True])
def test_axes_of_heads_are_joined(reverse: bool) -> None:
    pair = rows.Sequential(Attention(bias=False)), columns.Stack(Heads())
    report = padiff.diff(*(pair[::-1] if reverse else pair), TOKENS)
    assert report.aligned, str(report)
    report = padiff.diff(rows.Sequential(Attention(bias=False)), columns.Stack(Heads(1.01)), TOKENS)
    assert [source.candidate.path for source in report.sources] == ["0"], str(report)


class Positions(rows.Module):
    """A table of positions as an image, (1, channels, height, width)."""

    def __init__(self) -> None:
        self.table, self.head = rows.parameter(1, 5, 2, 4), rows.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.head(x.transpose(0, 2, 1) + self.table.reshape(1, 5, 8).transpose(0, 2, 1))


class FlatPositions(columns.Layer):
    """The same numbers as (1, places, channels)."""

    def __init__(self, scale: float = 1.0) -> None:
        self.table, self.head, self.scale = columns.weight(1, 8, 5), columns.Dense(5, 3), scale

    def forward(self, x: Any) -> Any:
        return self.head(x.transpose(0, 2, 1) + self.table * self.scale)


@pytest.mark.parametrize("alike", [False, True], ids=["named apart", "named alike"])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_same_numbers_in_another_shape_are_transferred(reverse: bool, alike: bool) -> None:
    """TNT's pixel_pos is (1, 24, 4, 4) in timm, and (1, 16, 24) in PaddleClas."""
    flat = type("Positions", (FlatPositions,), {}) if alike else FlatPositions
    pair = Positions(), flat()
    report = padiff.diff(*(pair[::-1] if reverse else pair), TOKENS)
    assert report.aligned, str(report)
    assert [s.candidate.path for s in padiff.diff(Positions(), flat(1.1), TOKENS).sources] == [""]


class LowRank(rows.Module):
    """A layer that is frozen, with what is learnt beside it in two matrices."""

    def __init__(self) -> None:
        self.base, self.a, self.b = rows.Linear(WIDTH, WIDTH), rows.parameter(2, WIDTH), rows.parameter(WIDTH, 2)
        self.base.weight.requires_grad = False

    def forward(self, x: Any) -> Any:
        return self.base(x) + F.linear(F.linear(x, self.a.transpose(1, 0)), self.b.transpose(1, 0)) * 2.0


class Merged(columns.Dense):
    """The same with layers that nobody calls: the product of their kernels is added to its own."""

    def __init__(self, fault: str) -> None:
        super().__init__(WIDTH, WIDTH)
        self.down, self.up = columns.Dense(WIDTH, 2, bias=False), columns.Dense(2, WIDTH, bias=False)
        self.kernel.requires_grad, self.fault = fault == "trained", fault

    def forward(self, x: Any) -> Any:
        change = F.linear(self.down.kernel, self.up.kernel)
        return F.linear(x, self.kernel + change * (1.0 if self.fault == "scale" else 2.0), self.offset)


@pytest.mark.parametrize("fault", ["", "scale", "trained"])
def test_layers_whose_weights_alone_are_used_are_matched(fault: str) -> None:
    """The second matrix was laid as the first, whose layer was the only one left: it was told as missing.

    A weight that is not frozen was a source in each layer.
    """
    ours = rows.Sequential(*(LowRank() for _ in range(3)), rows.Linear(WIDTH, 2))
    theirs = columns.Stack(*(Merged(fault) for _ in range(3)), columns.Dense(WIDTH, 2))
    report = padiff.diff(ours, theirs, TOKENS)
    assert report.aligned == (not fault), str(report)
    assert {one.cause and one.cause.name for one in report.sources} == {
        "": set(), "scale": {None}, "trained": {"frozen"}
    }[fault], str(report)  # fmt: skip
    assert not fault or str(report).startswith("not aligned: 1 source in 3 places" if fault == "trained" else "not")


class Gained(rows.Linear):
    """A layer of the framework's with one parameter more."""

    def __init__(self, width: int) -> None:
        super().__init__(WIDTH, width)
        self.gain = rows.parameter(width, at=1.0, scale=0.3)

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.gain


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_layer_may_hold_more_than_its_rule_names(factor: float) -> None:
    """By names what is held beside hid the layer itself: of a copy no weight had a counterpart."""
    ours = rows.Sequential(Gained(WIDTH), rows.Tanh(), Gained(3))
    theirs = copy.deepcopy(ours)
    theirs[0].gain.data = ours[0].gain.data * factor
    report = padiff.diff(ours, theirs, TOKENS, transfer=False)
    assert report.aligned == (factor == 1.0), str(report)
    assert {source.candidate.path for source in report.sources} == (set() if report.aligned else {"0"}), str(report)
    assert padiff.diff(ours, theirs, TOKENS).transfer.copied == 6
