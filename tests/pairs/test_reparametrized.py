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
