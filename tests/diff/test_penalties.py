"""Compare models whose own code asks for gradients: a penalty on them is differentiated once more."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((5, 6), dtype=np.float32)


class Critic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.body(x).sum(), x, create_graph=True)
        return self.body(x).mean() + 10 * ((gradient.norm(2, dim=1) - 1) ** 2).mean()


class Turned(paddle.nn.Layer):
    def __init__(self, weight: float = 10.0) -> None:
        super().__init__()
        self.last, self.first, self.weight = paddle.nn.Linear(8, 1), paddle.nn.Linear(6, 8), weight

    def judged(self, x: Any) -> Any:
        return self.last(paddle.tanh(self.first(x)))

    def forward(self, x: Any) -> Any:
        x = x.detach()
        x.stop_gradient = False
        (gradient,) = paddle.grad([self.judged(x).sum()], [x], create_graph=True)
        norm = (gradient**2).sum(1).sqrt()
        return self.judged(x).mean() + self.weight * ((norm - 1) ** 2).mean()


def test_a_gradient_penalty_is_aligned() -> None:
    report = padiff.diff(Critic(), Turned(), (X,))
    assert report.aligned, report
    assert padiff.diff(Critic(), Critic(), (X,)).aligned


def test_another_weight_of_the_penalty_is_the_only_source() -> None:
    report = padiff.diff(Critic(), Turned(1.0), (X,))
    assert [(found.candidate.path, found.what.kind) for found in report.sources] == [("", "output")], report


def judge(framework: Any) -> Any:
    nn = framework.nn
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def recorded(folder: Path, model: Any, make: Any, grad: Any, step: Any, weight: float = 10.0) -> None:
    """Train a critic as scripts do: the penalty is on its gradient by a batch, which is a leaf."""
    with padiff.record(model, folder) as recorder:
        for x in (X, X[::-1].copy()):
            real = make(x)
            judged = model(real)
            (gradient,) = grad(judged.sum(), real, create_graph=True)
            loss = (1 - judged).mean() + weight * (gradient**2).sum(1).mean()
            loss.backward()
            step()
            recorder.step(loss)


@pytest.mark.parametrize("weight", [10.0, 9.0])
def test_a_penalty_in_a_script_is_aligned_or_one_source(tmp_path: Path, weight: float) -> None:
    """Torch runs the hooks of a leaf in `torch.autograd.grad` too, and Paddle in `paddle.grad` none."""
    ours, theirs = judge(torch), judge(paddle)
    padiff.transfer(ours, theirs)
    adam = torch.optim.Adam(ours.parameters(), 0.01)
    other = paddle.optimizer.Adam(0.01, parameters=theirs.parameters())
    native = paddle.base.core.eager.run_partial_grad

    def step() -> None:
        adam.step()
        adam.zero_grad()

    def turn() -> None:
        other.step()
        other.clear_grad()

    recorded(tmp_path / "a", ours, lambda x: torch.from_numpy(x).requires_grad_(), torch.autograd.grad, step)
    make = partial(paddle.to_tensor, stop_gradient=False)
    recorded(tmp_path / "b", theirs, make, paddle.grad, turn, weight)
    assert paddle.base.core.eager.run_partial_grad is native
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [found.candidate.path for found in report.sources] == ([] if weight == 10 else [""]), report


def squares(nn: Any, base: Any) -> Any:
    """Return a critic whose own code is none that is linear: of that a penalty sends a gradient to each layer."""

    class Squares(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: Any) -> Any:
            inner = self.first(x)
            inner = self.second(inner * inner + inner)
            return self.last(inner * inner + inner)

    return Squares()


@pytest.mark.parametrize("weight", [10.0, 5.0])
def test_a_penalty_on_code_between_layers_is_one_source(tmp_path: Path, weight: float) -> None:
    """What the critic's code sends back, and the weights of each layer, were a source each where no loss is told."""
    ours, theirs = squares(torch.nn, torch.nn.Module), squares(paddle.nn, paddle.nn.Layer)
    padiff.transfer(ours, theirs)
    for name, critic, make, grad, times in (
        ("a", ours, lambda x: torch.from_numpy(x).requires_grad_(), torch.autograd.grad, 10.0),
        ("b", theirs, partial(paddle.to_tensor, stop_gradient=False), paddle.grad, weight),
    ):
        with padiff.record(critic, tmp_path / name) as recorder:
            batch = make(X)
            judged = critic(batch)
            (gradient,) = grad(judged.sum(), batch, create_graph=True)
            penalty = (((gradient**2).sum(1) ** 0.5 - 1) ** 2).mean()
            (judged.mean() + times / 100 * penalty).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [found.what.kind for found in report.sources] == ([] if weight == 10 else ["parameter_gradient"]), report
