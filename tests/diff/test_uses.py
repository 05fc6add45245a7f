"""A tensor that one side's own code uses elsewhere as well has another gradient, and that is no fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff
from padiff.report import Phase

X = (np.random.default_rng(0).standard_normal((6, 8), dtype=np.float32),)


class Dense(nn.Module):
    """Give new features from all that came before."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, growth)

    def forward(self, features: Any) -> Any:
        joined = torch.cat(features, 1) if isinstance(features, list) else features
        return self.linear(torch.tanh(self.norm(joined)))


class Listed(nn.Module):
    """Keep the features in a list, which every layer joins for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Dense(8 + 4 * index, 4) for index in range(4)])
        self.head = nn.Linear(24, 3)

    def forward(self, x: Any) -> Any:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return self.head(torch.cat(features, 1))


class Chained(Listed):
    """Join the features once for all, layer by layer; ``fault`` spoils the third time."""

    def __init__(self, fault: str | None = None) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x: Any) -> Any:
        for index, layer in enumerate(self.layers):
            new = layer(x)
            if index == 2 and self.fault == "detached":
                x = x.detach()
            if index == 2 and self.fault == "scaled":
                new = new * 0.9 + new.detach() * 0.1
            x = torch.cat([x, new], 1)
        return self.head(x)


@pytest.mark.parametrize("models", [(Listed, Chained), (Chained, Listed)], ids=["to chained", "to listed"])
def test_features_may_be_joined_at_once_or_later(models: Any) -> None:
    report = padiff.diff(*(model() for model in models), X)
    assert report.aligned, report


def test_a_fault_inside_of_one_layer_is_named_there_alone() -> None:
    """Behind it the whole is wrong too, so that only gradients which are left uncompared make no further source."""
    port = Chained()
    port.layers[2].norm.eps = 1e-2
    assert [found.candidate.path for found in padiff.diff(Listed(), port, X).sources] == ["layers.2.norm"]


@pytest.mark.parametrize(("fault", "between"), [("detached", "layers.1"), ("scaled", "layers.2")])
def test_a_fault_of_the_backward_pass_is_named_all_the_same(fault: str, between: str) -> None:
    report = padiff.diff(Listed(), Chained(fault), X)
    assert {(found.phase, found.candidate.path) for found in report.sources} == {(Phase.BACKWARD, "")}
    assert any(found.between is not None and found.between[0] == between for found in report.sources)


class OnEach(nn.Module):
    """Run listed layers on each of two batches, and compare what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.tower, self.head = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 3)), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        apart = self.tower(x[:3]) - self.tower(x[3:])
        return self.head(apart * apart)


class OnBoth(OnEach):
    """Do so on both in one."""

    fault = 1.0

    def forward(self, x: Any) -> Any:
        both = self.tower(x)
        return self.head((both[:3] - both[3:]) ** 2 * self.fault)


@pytest.mark.parametrize("fault", [1.0, 1.1], ids=["right", "wrong"])
def test_layers_that_the_candidate_runs_on_both_in_one_are_no_source(fault: float) -> None:
    """What lists them was told to give another shape, and not the code behind it."""
    candidate = OnBoth()
    candidate.fault = fault
    report = padiff.diff(OnEach(), candidate, X)
    assert report.aligned is (fault == 1.0), str(report)
    places = [(source.candidate.path, source.between) for source in report.sources]
    assert places == ([] if fault == 1.0 else [("", ("start", "head"))]), str(report)


class Halves(nn.Module):
    """A layer for one half of the features; ``exchanged`` takes the halves in each other's place."""

    def __init__(self, exchanged: bool) -> None:
        super().__init__()
        self.one, self.two, self.exchanged = nn.Linear(4, 4), nn.Linear(4, 3), exchanged

    def forward(self, x: Any) -> Any:
        left, right = torch.split(x, 4, dim=1)
        if self.exchanged:
            right, left = left, right
        return torch.cat([self.one(left), self.two(right)], 1)


def test_halves_in_each_others_place_are_one_source_with_the_halves_that_are_taken() -> None:
    """It was told that `split gives something else of the same values, called alike: its kernel`."""
    report = padiff.diff(Halves(False), Halves(True), X)
    assert str(report).startswith("not aligned: 1 source in 2 places ("), report
    assert {str(found.cause) for found in report.sources} == {
        "one takes split[0] of the input x in the reference, split[1] of the input x in the candidate",
        "two takes split[1] of the input x in the reference, split[0] of the input x in the candidate",
    }, report
