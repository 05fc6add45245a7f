"""What padiff does where an adapter does not offer something, seen on an adapter that lost it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff
from padiff.adapter import Model
from padiff.errors import InputError, MappingError, NotOffered
from padiff.report import Phase
from padiff.testing import fault
from padiff_torch.adapter import TorchAdapter
from padiff_torch.model import TorchModel

X = (np.random.default_rng(0).standard_normal((6, 8)).astype("float32"),)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Take a capability from the PyTorch adapter."""

    def lost(capability: str) -> None:
        monkeypatch.setattr(TorchAdapter, "capabilities", TorchAdapter.capabilities - {capability})
        if capability == "float64":
            monkeypatch.setattr(TorchModel, "lifted", Model.lifted)

    return lost


def net(eps: float = 1e-5) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps), nn.Dropout(0.5), nn.Linear(8, 4))


def test_without_gradients_the_forward_pass_is_compared_and_a_note_says_so(lose: Callable[[str], None]) -> None:
    lose("gradients")
    report = padiff.diff(net(), net(), X)
    assert report.aligned
    assert [note.text for note in report.notes if "only" in note.text] == [
        "compared forward only: the torch adapter does not offer gradients"
    ]
    assert report.forward_only == "the torch adapter does not offer gradients"
    assert str(report).startswith("aligned, forward only (")
    assert report.to_dict()["forward_only"] == report.forward_only
    asked_for = padiff.diff(net(), net(), X, phase="forward")
    assert asked_for.forward_only is None
    assert str(asked_for).startswith("aligned, forward only (")
    found = padiff.diff(net(), net(1e-3), X)
    assert found.sources[0].candidate.path == "1"
    assert str(found).startswith("not aligned, forward only: 1 source ")


class Kernel(torch.autograd.Function):
    """Compute a square, without a backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        msg = "no kernel for this"
        raise RuntimeError(msg)


class Squared(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return Kernel.apply(self.fc(x)) * self.factor


def test_a_backward_pass_that_is_refused_in_evaluation_is_told_by_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for factor, state in ((1.0, "aligned"), (1.1, "not aligned")):
        models = Squared().eval(), Squared(factor).eval()
        report = padiff.diff(*models, X)
        assert str(report).startswith(f"{state}, forward only")
        assert report.forward_only is not None
        assert "no kernel for this" in report.forward_only
        assert padiff.auto_diff(*models, ({"x": torch.from_numpy(X[0])},) * 2) is (state == "aligned")
        said = capsys.readouterr().out
        assert "backward steps are not compared: in evaluation mode the torch model Squared ran forward" in said
        assert "weight.grad is compared" not in said
    with pytest.raises(padiff.BackwardError, match="no kernel for this"):
        padiff.diff(*(model.train() for model in models), X)


@pytest.mark.parametrize("asked", [{"phase": "backward"}, {"optimizers": (print, print)}], ids=["phase", "optimizers"])
def test_asking_for_a_backward_pass_that_is_not_offered_is_an_error(
    lose: Callable[[str], None], asked: dict[str, Any]
) -> None:
    lose("gradients")
    with pytest.raises(InputError, match=r"the torch adapter does not offer gradients\.\nHint: phase='forward'"):
        padiff.diff(net(), net(), X, **asked)


def test_without_float64_other_evidence_serves(lose: Callable[[str], None]) -> None:
    """A fault is still named; chance is still told from a fault, and rounding too."""
    lose("float64")
    assert padiff.diff(net(), net(), X).aligned
    (source,) = padiff.diff(net(), net(1e-3), X).sources
    assert (source.phase, source.candidate.path) == (Phase.FORWARD, "1")
    assert any("not settled in float64" in text and "Hint" not in text for text in source.evidence)
    assert source.cause == "eps: 1e-05 in the reference, 0.001 in the candidate"


def test_what_is_not_offered_says_so() -> None:
    """The defaults of the interface raise one error that names the capability and what to do."""

    class Bare(padiff.Tensor):
        dtype, shape = "float32", ()
        numpy = swapped = None  # type: ignore[assignment]

    with pytest.raises(NotOffered, match=r"'gradients'(.|\n)*Hint"):
        Bare(None).on_gradient(lambda gradient: None)


def test_a_planted_fault_is_named() -> None:
    """padiff.testing.fault spoils a module for a while; the diff says which, and afterwards all is well."""
    reference, candidate = net().eval(), net().eval()
    with fault(candidate, "1", lambda output: output * 1.0001):
        assert [source.candidate.path for source in padiff.diff(reference, candidate, X).sources] == ["1"]
    assert padiff.diff(reference, candidate, X).aligned
    words = r"'nowhere'(.|\n)*Hint: one of '', '0', '1'"
    with pytest.raises(MappingError, match=words), fault(candidate, "nowhere", abs):
        pass
    assert not any(module._forward_hooks for module in candidate.modules())
