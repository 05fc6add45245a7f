"""Norms that hold their activation, as timm's do, against a norm and an activation side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

WIDTH = 8
TOKENS = np.random.default_rng(0).standard_normal((2, 5, WIDTH)).astype(np.float32)


class Silu(rows.Module):
    def forward(self, x: Any) -> Any:
        return F.silu(x)


class Norm(rows.LayerNorm):
    """A norm with its activation."""

    def __init__(self) -> None:
        super().__init__(WIDTH)
        self.act = Silu()

    def forward(self, x: Any) -> Any:
        return self.act(super().forward(x))


class Flat(rows.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(len(x.data), -1)


class Fused(rows.Module):
    """Layers with fused norms, and a head."""

    def __init__(self) -> None:
        self.a, self.c = (rows.Linear(WIDTH, WIDTH) for _ in range(2))
        self.n, self.m, self.flat, self.head = Norm(), Norm(), Flat(), rows.Linear(5 * WIDTH, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.flat(self.m(self.c(self.n(self.a(x))))))


class Activation(columns.Layer):
    def forward(self, x: Any) -> Any:
        return F.silu(x)


class Layer(columns.Layer):
    """A layer, its norm, its activation."""

    def __init__(self, eps: float, scale: float) -> None:
        self.layer, self.norm = columns.Dense(WIDTH, WIDTH), columns.LayerNormalization(WIDTH, eps)
        self.act, self.scale = Activation(), scale

    def forward(self, x: Any) -> Any:
        return self.act(self.norm(self.layer(x)) * self.scale)


class Reshaped(columns.Layer):
    def forward(self, x: Any) -> Any:
        return x.reshape(len(x.data), -1)


class Apart(columns.Layer):
    """The same, with faults: a scale inside of the first layer, an eps in the second, a scale behind both."""

    def __init__(self, inside: float = 1.0, eps: float = 1e-5, behind: float = 1.0) -> None:
        self.one, self.two = Layer(1e-5, inside), Layer(eps, 1.0)
        self.flat, self.head, self.behind = Reshaped(), columns.Dense(5 * WIDTH, 4), behind

    def forward(self, x: Any) -> Any:
        return self.head(self.flat(self.two(self.one(x)) * self.behind))


@pytest.mark.parametrize(
    ("faults", "places"),
    [
        ({}, []),
        ({"behind": 0.8}, ["input 'x' of flat"]),
        ({"behind": 0.8, "inside": 1.1}, ["input 'x' of two.layer", "input 'x' of flat"]),
        ({"eps": 1e-2}, ["input 'x' of flat"]),
    ],
)
def test_a_fault_beside_fused_norms_is_no_fault_of_theirs(faults: dict[str, float], places: list[str]) -> None:
    """One scale before LCNet's classifier made 42 sources of it: each of its norms, and what followed."""
    report = padiff.diff(Fused(), Apart(**faults), TOKENS)
    assert [str(source.what) for source in report.sources] == places, str(report)


def test_the_eps_of_fused_norms_is_one_source_with_its_cause() -> None:
    """Each norm of timm's EfficientNet was a source without a cause, where the other side's have another eps."""
    other = Apart()
    other.one, other.two = Layer(1e-2, 1.0), Layer(1e-2, 1.0)
    report = padiff.diff(Fused(), other, TOKENS)
    assert "1 source in 2 places" in str(report)
    for source in report.sources:
        assert (source.cause.name, list(source.cause.parameters)) == ("settings", ["eps"]), str(report)
        assert source.cause.verified


def test_an_eps_that_is_not_all_is_no_cause() -> None:
    other = Apart()
    other.two = Layer(1e-2, 1.1)
    (source,) = padiff.diff(Fused(), other, TOKENS).sources
    assert str(source.cause).startswith(
        "computed as layer_norm(a, b, c, 1e-05) in the reference, as norm(a), mul(_, 1.1)"
    )
    assert "eps" in str([one for one in source.evidence if one.kind == "unverified_settings"])


class Block(rows.Module):
    """A layer, its fused norm, and what does nothing, as timm's blocks have it."""

    def __init__(self) -> None:
        self.layer, self.norm, self.idle = rows.Linear(WIDTH, WIDTH), Norm(), rows.Dropout(0.0)
        self.norm.act = rows.ReLU()

    def forward(self, x: Any) -> Any:
        return self.idle(self.norm(self.layer(x)))


@pytest.mark.parametrize("scale", [1.0, 1.1])
def test_what_does_nothing_behind_a_fused_norm_is_no_activation(scale: float) -> None:
    """It is given what the other side's activation gives: each block of timm's MobileNetV4 was a source."""
    ours = rows.Sequential(Block(), Block(), rows.Linear(WIDTH, 4))
    theirs = columns.Stack(Layer(1e-5, 1.0), Layer(1e-5, scale), columns.Dense(WIDTH, 4))
    for layer in (theirs[0], theirs[1]):
        layer.act = columns.Rectifier()
    report = padiff.diff(ours, theirs, TOKENS)
    assert [source.candidate.path for source in report.sources] == ["1"] * (scale > 1), str(report)


class Batched(rows.BatchNorm):
    """A norm of batches with its activation."""

    def __init__(self) -> None:
        super().__init__(WIDTH)
        self.act = Silu()

    def forward(self, x: Any) -> Any:
        return self.act(super().forward(x))


class Kept(columns.Layer):
    """Layers, each with a norm of batches and its activation."""

    def __init__(self, keep: float) -> None:
        self.one, self.two = (Layer(1e-5, 1.0) for _ in range(2))
        self.one.norm, self.two.norm = (columns.BatchNormalization(WIDTH, keep=keep) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


def test_the_momentum_of_fused_norms_is_one_source() -> None:
    """No call tells their settings: of twelve norms each of the two statistics was a source, without a cause."""
    layers = (rows.Linear(WIDTH, WIDTH), Batched(), rows.Linear(WIDTH, WIDTH), Batched())
    assert padiff.diff(rows.Sequential(*layers), Kept(0.9), TOKENS[0]).aligned
    report = padiff.diff(rows.Sequential(*layers), Kept(0.99), TOKENS[0])
    assert "1 source in 2 places" in str(report)
    assert all(source.cause is not None and "momentum" in str(source.cause) for source in report.sources), str(report)
    report = padiff.diff(
        rows.Sequential(*layers), Kept(1.0), TOKENS[0]
    )  # no ratio tells of one that keeps what it held
    assert not report.aligned
    assert {source.candidate.path for source in report.sources} == {"one.norm", "two.norm"}, str(report)


def by_hand(base: Any, *, squashed: bool, fault: float = 1.0) -> Any:
    """Return a model of layers by hand, of no known kind: two make scales of one input, and hold what squashes them."""

    class Layer(base):
        def __init__(self, n: int, m: int, scale: float = 1.0) -> None:
            rng = np.random.default_rng(n)
            self.w = base.Tensor(rng.standard_normal((n, m), dtype=np.float32), requires_grad=True, role="parameter")
            self.scale = scale

        def forward(self, x: Any) -> Any:
            y = x @ self.w * self.scale
            return F.tanh(y) if squashed and self.w.shape[1] > 3 else y

    def squash(x: Any) -> Any:
        return x if squashed else F.tanh(x)

    class Net(base):
        def __init__(self) -> None:
            self.one, self.two, self.head = Layer(4, 6), Layer(6, 4), Layer(4, 3, fault)

        def forward(self, x: Any, z: Any) -> Any:
            return self.head(x * squash(self.two(squash(self.one(z))))) * 2.0

    return Net()


class Rows(rows.Module):
    """The reference's base."""

    Tensor = rows.Tensor


class Columns(columns.Layer):
    """The candidate's."""

    Tensor = columns.Tensor


@pytest.mark.parametrize("fault", [1.0, 1.1])
def test_layers_by_hand_that_end_elsewhere_are_no_source_beside_a_fault(fault: float) -> None:
    """Each layer of StyleGAN's mapping was one, as it holds its activation: what is behind all of them was wrong."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((3, 4), dtype=np.float32), rng.standard_normal((3, 4), dtype=np.float32)
    report = padiff.diff(by_hand(Rows, squashed=True), by_hand(Columns, squashed=False, fault=fault), inputs)
    assert [one.candidate.path for one in report.sources] == ["head"] * (fault != 1), str(report)


class Same(rows.Module):
    def forward(self, x: Any) -> Any:
        return x


class Activated(rows.LayerNorm):
    """A norm that holds its activation."""

    def __init__(self, eps: float) -> None:
        super().__init__(4, eps=eps)
        self.act = rows.GELU()

    def forward(self, x: Any) -> Any:
        return self.act(super().forward(x))


class Stages(rows.Module):
    """Layers, each with a norm, and with what does nothing (where timm puts an optional layer)."""

    def __init__(self, eps: float) -> None:
        self.layers = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(3)))
        self.norms = rows.ModuleList(*(Activated(eps) for _ in range(3)))
        self.idle, self.head = rows.ModuleList(*(Same() for _ in range(3))), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for layer, norm, same in zip(self.layers, self.norms, self.idle, strict=True):
            x = same(norm(layer(x)))
        return self.head(x)


def staged(eps: float) -> Any:
    """Return the same, the activations behind the norms."""
    kinds = ((columns.Dense(4, 4), columns.LayerNormalization(4, epsilon=eps), columns.Gelu()) for _ in range(3))
    return columns.Stack(*(layer for stage in kinds for layer in stage), columns.Dense(4, 2))


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize("fused_first", [True, False])
def test_a_norm_that_holds_its_activation_is_told_apart_whatever_else_differs(eps: float, fused_first: bool) -> None:
    """With another epsilon the norm was to give what the activation gives, and what does nothing to be that."""
    sides = (Stages(1e-5), staged(eps)) if fused_first else (staged(eps), Stages(1e-5))
    report = padiff.diff(*sides, np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32))
    assert report.aligned == (eps == 1e-5), str(report)
    assert {one.cause and one.cause.name for one in report.sources} <= {"settings"}, str(report)
    assert report.aligned or str(report).startswith("not aligned: 1 source in 3 places"), str(report)
