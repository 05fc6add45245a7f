"""Judge what runs within vmap and its like with the code around: tensors have no values there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((5, 3), dtype=np.float32)


class Forces(torch.nn.Module):
    """A network, and the gradient of its output, for each row."""

    def __init__(self, sign: float = -1.0) -> None:
        super().__init__()
        self.energy = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.head, self.sign = torch.nn.Linear(3, 2), sign

    def forward(self, x: Any) -> Any:
        x = x if x.requires_grad else x.requires_grad_()
        (gradient,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return self.head(self.sign * gradient)


class Mapped(Forces):
    """The same, of functions that torch transforms."""

    def forward(self, x: Any) -> Any:
        gradient = torch.func.grad(lambda row: self.energy(row).sum())
        return self.head(self.sign * torch.vmap(gradient)(x))


@pytest.mark.parametrize(("reference", "candidate"), [(Mapped, Mapped), (Forces, Mapped), (Mapped, Forces)])
def test_transformed_functions_are_compared(reference: Any, candidate: Any) -> None:
    report = padiff.diff(reference(), candidate(), (X,))
    assert report.aligned, report
    assert report.transfer.verified == 6


def test_a_fault_beside_a_transformed_function_is_placed() -> None:
    report = padiff.diff(Mapped(), Mapped(sign=-1.001), (X,))
    (source,) = report.sources
    assert (source.what, source.candidate.path, source.between) == ("input 'input' of head", "", ("start", "head")), (
        report
    )


def test_a_step_whose_calls_are_all_within_a_transform_says_so(tmp_path: Path) -> None:
    """It said that the model was not called, which it was."""
    net = torch.nn.Linear(3, 2)
    with padiff.record(net, tmp_path / "run") as recorder:
        torch.func.grad(lambda row: net(row).sum())(torch.from_numpy(X))
        with pytest.raises(padiff.InputError, match="a functional grad"):
            recorder.step()
