"""Compare scripts of two frameworks that weigh the losses of two tasks by the gradients of each, asked for apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff.report import Phase

GIVEN = np.random.default_rng(0).standard_normal((2, 8, 12)).astype(np.float32)


class Reference(torch.nn.Module):
    """A trunk, and a head for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = torch.nn.Linear(12, 16), torch.nn.Linear(16, 16)
        self.a, self.b = torch.nn.Linear(16, 3), torch.nn.Linear(16, 2)

    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.shared(torch.tanh(self.first(x))))
        return self.a(h), self.b(h)


class Candidate(paddle.nn.Layer):  # type: ignore[misc]  # untyped
    """The same."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = paddle.nn.Linear(12, 16), paddle.nn.Linear(16, 16)
        self.a, self.b = paddle.nn.Linear(16, 3), paddle.nn.Linear(16, 2)

    def forward(self, x: Any) -> Any:
        h = paddle.tanh(self.shared(paddle.tanh(self.first(x))))
        return self.a(h), self.b(h)


def train_reference(folder: Path) -> None:
    """Ask for the gradients of one weight."""
    torch.manual_seed(0)
    model = Reference()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for x in torch.from_numpy(GIVEN):
            losses = [(out * out).mean() for out in model(x)]
            asked = [torch.autograd.grad(one, model.shared.weight, retain_graph=True)[0] for one in losses]
            weights = [1 / one.norm() for one in asked]
            loss = (weights[0] * losses[0] + weights[1] * losses[1]) / (weights[0] + weights[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)


@pytest.mark.parametrize("fault", [None, "rate", "weights"])
def test_a_script_may_differentiate_each_loss_by_all_parameters(tmp_path: Path, fault: str | None) -> None:
    train_reference(tmp_path / "a")
    model = Candidate()
    padiff.transfer(tmp_path / "a", model)
    optimizer = paddle.optimizer.Adam(0.02 if fault == "rate" else 0.01, parameters=model.parameters())
    with padiff.record(model, tmp_path / "b", optimizer=optimizer) as recorder:
        for x in GIVEN:
            losses = [(out * out).mean() for out in model(paddle.to_tensor(x))]
            weights = []
            for one in losses:
                one.backward(retain_graph=True)
                weights.append(1 / model.shared.weight.grad.norm().detach())
                optimizer.clear_grad()
            weights = weights[::-1] if fault == "weights" else weights
            loss = (weights[0] * losses[0] + weights[1] * losses[1]) / (weights[0] + weights[1])
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            recorder.step(loss)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (fault is None), str(report)
    phases = {"rate": [Phase.UPDATE], "weights": [Phase.LOSS]}
    assert [one.phase for one in report.sources] == phases.get(fault or "", []), str(report)
