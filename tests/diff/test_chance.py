"""Find what is wrong behind an active dropout, whose masks are others in each framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((5, 3), dtype=np.float32)


class Torch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(self.first(x)))


class Paddle(paddle.nn.Layer):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.first, self.drop, self.last = paddle.nn.Linear(3, 8), paddle.nn.Dropout(0.5), paddle.nn.Linear(8, 2)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(self.first(x)) * self.factor)


def test_a_factor_behind_a_dropout_is_named_between_it_and_what_follows() -> None:
    assert padiff.diff(Torch(), Paddle(), (X,)).aligned
    report = padiff.diff(Torch(), Paddle(1.01), (X,))
    assert [(found.candidate.path, found.between) for found in report.sources] == [("", ("drop", "last"))], report


class Seldom(torch.nn.Dropout):
    """Zero the whole first sample under one seed: what `p` allows, and two runs of the other side hardly ever do."""

    always = False

    def forward(self, x: Any) -> Any:
        lucky = self.training and torch.initial_seed() == 0
        return x * (torch.arange(len(x)) > 0)[:, None] if lucky or self.always else x


def test_what_draws_seldom_is_left_to_chance_too() -> None:
    reference, candidate = Torch(), Torch()
    reference.drop, candidate.drop = torch.nn.Dropout(1e-9), Seldom(1e-9)
    report = padiff.diff(reference, candidate, (X,))
    assert report.aligned, report
    assert report.counts["stochastic"] == 1, report
    candidate.drop.always = True  # then it is no dropout: other seeds tell
    report = padiff.diff(reference, candidate, (X,))
    assert [found.candidate.path for found in report.sources] == ["drop"], report
    reference.eval()
    candidate.eval()
    report = padiff.diff(reference, candidate, (X,))
    assert [found.candidate.path for found in report.sources] == ["drop"], report


Drop = Callable[[Any], Any]


class TorchWith(torch.nn.Module):
    """Apply something between two layers, around which their values pass too."""

    def __init__(self, drop: Drop | None) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(3, 8), drop, torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.last(x + (x if self.drop is None else self.drop(x)))


class PaddleWith(paddle.nn.Layer):
    """Do the same in Paddle."""

    def __init__(self, drop: Drop | None) -> None:
        super().__init__()
        self.first, self.drop, self.last = paddle.nn.Linear(3, 8), drop, paddle.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.last(x + (x if self.drop is None else self.drop(x)))


class TorchDropPath(torch.nn.Module):
    """Drop whole samples, as timm does."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Any) -> Any:
        return _torch_path(x, self.drop_prob) if self.training else x


def _torch_path(x: Any, p: float) -> Any:
    return x * (torch.rand(len(x), 1) >= p) / (1 - p)


def _paddle_path(x: Any, p: float) -> Any:
    return x * (paddle.rand([len(x), 1]) >= p).astype(x.dtype) / (1 - p)


MODULES = {"torch": lambda p: torch.nn.Dropout(p), "paddle": lambda p: paddle.nn.Dropout(p)}
FUNCTIONS = {
    "torch": lambda p: lambda x: torch.nn.functional.dropout(x, p),
    "paddle": lambda p: lambda x: paddle.nn.functional.dropout(x, p),
}
PATHS = {
    "torch": lambda p: lambda x: _torch_path(x, p),
    "paddle": lambda p: lambda x: _paddle_path(x, p),
}
MODELS = {"torch": TorchWith, "paddle": PaddleWith}
EACH_WAY = pytest.mark.parametrize("frameworks", [("torch", "paddle"), ("paddle", "torch")], ids="-".join)
Frameworks = tuple[str, str]


def _sides(frameworks: Frameworks, *drops: Drop | None) -> list[Any]:
    return [MODELS[framework](drop) for framework, drop in zip(frameworks, drops, strict=True)]


@EACH_WAY
@pytest.mark.parametrize("p", [0.5, 0.01])
@pytest.mark.parametrize("ours", [True, False], ids=["reference", "candidate"])
def test_a_dropout_on_one_side_only_is_named(ours: bool, p: float, frameworks: Frameworks) -> None:
    drop = MODULES[frameworks[not ours]](p)
    sides = _sides(frameworks, *((drop, None) if ours else (None, drop)))
    report = padiff.diff(*sides, (X,))
    assert [(found.candidate.path, found.between) for found in report.sources] == [("", ("first", "last"))], report
    side, other = ("reference", "candidate") if ours else ("candidate", "reference")
    expected = f"dropout: 'drop' (Dropout, p={p}) in the {side}, nothing like it in the {other}"
    assert report.sources[0].cause == expected
    for model in sides:
        model.eval()
    assert padiff.diff(*sides, (X,)).aligned


def test_what_draws_seldom_on_one_side_only_is_named_though_nothing_was_dropped() -> None:
    p = 1e-4  # of five samples
    for sides in ((TorchWith(TorchDropPath(p)), PaddleWith(None)), (PaddleWith(None), TorchWith(TorchDropPath(p)))):
        report = padiff.diff(*sides, (X,))
        assert len(report.sources) == 1, report
        assert "'drop' (TorchDropPath, p=0.0001)" in (report.sources[0].cause or ""), report


@EACH_WAY
@pytest.mark.parametrize(("made", "p"), [(FUNCTIONS, 0.01), (PATHS, 0.5)], ids=["elements", "samples"])
def test_a_function_may_draw_what_a_module_draws(made: Any, p: float, frameworks: Frameworks) -> None:
    modules = MODULES if made is FUNCTIONS else {"torch": TorchDropPath, "paddle": PATHS["paddle"]}
    ours, theirs = frameworks
    assert padiff.diff(*_sides(frameworks, modules[ours](p), made[theirs](p)), (X,)).aligned
    assert padiff.diff(*_sides(frameworks, made[ours](p), modules[theirs](p)), (X,)).aligned


@EACH_WAY
@pytest.mark.parametrize("ours", [True, False], ids=["reference", "candidate"])
def test_a_function_that_draws_on_one_side_only_is_named(ours: bool, frameworks: Frameworks) -> None:
    drop = FUNCTIONS[frameworks[not ours]](0.3)
    report = padiff.diff(*_sides(frameworks, *((drop, None) if ours else (None, drop))), (X,))
    assert [(found.candidate.path, found.between) for found in report.sources] == [("", ("first", "last"))], report
    side, other = ("reference", "candidate") if ours else ("candidate", "reference")
    expected = f"the {side} samples random numbers there (a dropout?), the {other} does not"
    assert report.sources[0].cause == expected


def test_the_users_own_tolerance_does_not_hide_a_dropout_on_one_side() -> None:
    rule = {"atol": 1e-3, "rtol": 1e-3}
    report = padiff.diff(TorchWith(torch.nn.Dropout(0.5)), PaddleWith(None), (X,), tolerance=rule)
    assert [found.cause for found in report.sources] == [
        "dropout: 'drop' (Dropout, p=0.5) in the reference, nothing like it in the candidate"
    ], report
    sides = TorchWith(torch.nn.Dropout(0.5)), PaddleWith(paddle.nn.Dropout(0.5))
    assert padiff.diff(*sides, (X,), tolerance=rule).aligned


class TorchGate(torch.nn.Module):
    """Drop what a gate lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        gate = torch.softmax(x.reshape(5, 2, 4), -1)
        return self.last(self.drop(x * gate.reshape(5, 8)))


class PaddleGate(paddle.nn.Layer):
    """Have a dropout at another place, which drops nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate_drop, self.last = paddle.nn.Linear(3, 8), paddle.nn.Dropout(0.0), paddle.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        gate = self.gate_drop(paddle.nn.functional.softmax(x.reshape([5, 2, 4]), -1))
        return self.last(x * gate.reshape([5, 8]))


@pytest.mark.parametrize("ours", [True, False], ids=["reference", "candidate"])
def test_a_dropout_is_not_taken_for_one_of_another_shape(ours: bool) -> None:
    sides = (TorchGate(), PaddleGate()) if ours else (PaddleGate(), TorchGate())
    report = padiff.diff(*sides, (X,))
    assert [found.between and found.between[1] for found in report.sources] == ["last"], report
    assert "'drop' (Dropout, p=0.3) in the" in (report.sources[0].cause or ""), report
    for model in sides:
        model.eval()
    report = padiff.diff(*sides, (X,))
    assert report.aligned, report


@pytest.mark.parametrize("seed", range(2))
def test_stochastic_depth_written_inline_is_judged_by_more_than_one_seed_of_two_samples(seed: int) -> None:
    p = 0.2
    sides = TorchWith(lambda x: _torch_path(x, p)), PaddleWith(lambda x: _paddle_path(x, p))
    report = padiff.diff(*sides, (X[:2],), seed=seed)
    assert report.aligned, report
    sides[1].drop = lambda x: _paddle_path(x, p) * (1 - p)
    report = padiff.diff(*sides, (X[:2],), seed=seed)
    assert [(found.candidate.path, found.between) for found in report.sources] == [("", ("first", "last"))], report
