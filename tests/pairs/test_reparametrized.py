"""Weights that each forward computes from others: weight norm, in both of torch's forms, and spectral norm."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

IMAGES = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


class Ours(torch.nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.a, self.b = norm(torch.nn.Conv2d(3, 8, 3)), norm(torch.nn.Conv2d(8, 4, 3))
        self.head = norm(torch.nn.Linear(64, 1))

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.leaky_relu(self.a(x), 0.2)
        return self.head(torch.nn.functional.leaky_relu(self.b(x), 0.2).flatten(1))


class Theirs(paddle.nn.Layer):
    def __init__(self, norm: Any, slope: float = 0.2) -> None:
        super().__init__()
        self.a, self.b = norm(paddle.nn.Conv2D(3, 8, 3)), norm(paddle.nn.Conv2D(8, 4, 3))
        self.head, self.slope = norm(paddle.nn.Linear(64, 1)), slope

    def forward(self, x: Any) -> Any:
        x = paddle.nn.functional.leaky_relu(self.a(x), 0.2)
        return self.head(paddle.nn.functional.leaky_relu(self.b(x), self.slope).flatten(1))


def _weight_normed(layer: Any) -> Any:
    return paddle.nn.utils.weight_norm(layer, dim=1 if isinstance(layer, paddle.nn.Linear) else 0)


PAIRS = {
    "weight": (torch.nn.utils.weight_norm, _weight_normed),
    "weight, as a parametrization": (torch.nn.utils.parametrizations.weight_norm, _weight_normed),
    "spectral": (torch.nn.utils.spectral_norm, paddle.nn.utils.spectral_norm),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch would rather have parametrizations
        torch.manual_seed(0)
        paddle.seed(0)
        yield


@pytest.mark.parametrize(("norm", "train"), itertools.product(PAIRS, (True, False)))
def test_a_right_port_is_right(norm: str, train: bool) -> None:
    ours, theirs = PAIRS[norm]
    first, second = Ours(ours).train(train), Theirs(theirs)
    (second.train if train else second.eval)()
    report = padiff.diff(first, second, IMAGES)
    assert report.aligned, report


@pytest.mark.parametrize("norm", PAIRS)
def test_a_fault_behind_such_a_layer_is_placed(norm: str) -> None:
    ours, theirs = PAIRS[norm]
    report = padiff.diff(Ours(ours), Theirs(theirs, 0.25), IMAGES)
    (source,) = report.sources
    assert (source.candidate.path, source.between) == ("", ("b", "head")), report


class LowRank(torch.nn.Module):
    """A layer with an update of low rank beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(8, 8)
        self.down, self.up = torch.nn.Linear(8, 3, bias=False), torch.nn.Linear(3, 8, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x)) * 2.0


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.v, self.k, self.o = LowRank(), LowRank(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        weights = (self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5).softmax(-1)
        return self.o(weights @ self.v(x))


class Updated(paddle.nn.Linear):  # type: ignore[misc]
    """The same, which adds its update to its weight."""

    def __init__(self, scale: float) -> None:
        super().__init__(8, 8)
        self.first, self.second = self.create_parameter([8, 3]), self.create_parameter([3, 8])
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.linear(x, self.weight + self.scale * self.first @ self.second, self.bias)


class Attending(paddle.nn.Layer):  # type: ignore[misc]
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.q, self.v = Updated(2.0), Updated(scale)
        self.k, self.o = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        key, value = self.k(x), self.v(x)
        weights = paddle.nn.functional.softmax(self.q(x) @ key.transpose([0, 2, 1]) / 8**0.5, -1)
        return self.o(weights @ value)


@pytest.mark.parametrize("scale", [2.0, 2.1])
def test_what_a_weight_is_computed_of_belongs_to_the_layer_beside_it(scale: float) -> None:
    """It was given to layers in the order in which they run: that of the queries to the values."""
    tokens = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    torch.manual_seed(0)
    report = padiff.diff(Attention(), Attending(scale), tokens)
    assert len(report.sources) == (scale != 2.0), report
    assert all(one.reference[0][0] == one.candidate[0] for one in report.mapping.parameters), report.mapping


class Packed(torch.nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.both, self.out = norm(torch.nn.Conv2d(3, 8, 3)), torch.nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        value, gate = self.both(x).chunk(2, 1)
        return self.out(torch.tanh(value) * torch.sigmoid(gate))


class Apart(paddle.nn.Layer):
    def __init__(self, norm: Any, scale: float) -> None:
        super().__init__()
        self.value, self.gate = norm(paddle.nn.Conv2D(3, 4, 3)), norm(paddle.nn.Conv2D(3, 4, 3))
        self.out, self.scale = paddle.nn.Conv2D(4, 2, 1), scale

    def forward(self, x: Any) -> Any:
        value, gate = self.value(x) * self.scale, self.gate(x)
        return self.out(paddle.tanh(value) * paddle.nn.functional.sigmoid(gate))


@pytest.mark.parametrize("scale", [1.0, 1.01])
@pytest.mark.parametrize(("norm", "turned"), [("weight", False), ("weight, as a parametrization", True)])
def test_a_normed_layer_packs_biases_and_lengths(norm: str, turned: bool, scale: float) -> None:
    """The bias and the lengths of one layer were joined in the bias of the packed one: right ports were not aligned."""
    ours, theirs = Packed(PAIRS[norm][0]), Apart(PAIRS[norm][1], scale)
    report = padiff.diff(theirs, ours, (IMAGES,)) if turned else padiff.diff(ours, theirs, (IMAGES,))
    assert report.aligned is (scale == 1.0), str(report)
    assert len(report.sources) == (scale != 1.0), str(report)
