"""Metrics and special transfers where one side is in a process of its own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.errors import PluginError

PORT = """
import torch

class Stacked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = torch.nn.Parameter(torch.randn(2, 6, 6)), torch.nn.Parameter(torch.randn(2, 6))

    def forward(self, x):
        return (x @ self.w[0] + self.b[0]) * (x @ self.w[1] + self.b[1]).sigmoid()

class Listed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.q(x) * self.k(x).sigmoid()

def reference():
    torch.manual_seed(0)
    return torch.nn.Sequential(Stacked(), torch.nn.LayerNorm(6))

def candidate():
    torch.manual_seed(1)
    return torch.nn.Sequential(Listed(), torch.nn.LayerNorm(6, eps=1e-3))
"""
INPUTS = (np.random.default_rng(0).standard_normal((4, 6), dtype="float32"),)


def taken_apart(arrays: Any) -> dict[str, Any]:
    weights = {f"{name}.weight": arrays["w"][i].T for i, name in enumerate("qk")}
    return weights | {f"{name}.bias": arrays["b"][i] for i, name in enumerate("qk")}


def test_both_work_across_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("stacked_port.py").write_text(PORT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    reference = import_module("stacked_port").reference()
    peak = padiff.Metric("peak", lambda a, b: np.abs(b - a).max(), limit=0.1)
    with padiff.remote("stacked_port:candidate") as candidate:
        with padiff.register_transfer(padiff.SpecialTransfer("Stacked", "Listed", taken_apart)):
            report = padiff.diff(reference, candidate, INPUTS)
            assert [(s.phase, s.candidate.path) for s in report.sources] == [("forward", "1")]
            assert report.transfer is not None
            assert (report.transfer.copied, report.transfer.unverified) == (6, ("1.weight", "1.bias"))
            report = padiff.diff(reference, candidate, INPUTS, tolerance={"metric": peak})
            assert report.aligned
            assert report.output is not None
            assert report.output.metrics[0].value == pytest.approx(report.output.max_abs, rel=1e-6)
        writing = padiff.SpecialTransfer("Stacked", "Listed", lambda ours, theirs: None, takes="modules")
        with (
            padiff.register_transfer(writing),
            pytest.raises(PluginError, match=r"the candidate's is in another process.*\nHint: takes='arrays' works"),
        ):
            padiff.diff(reference, candidate, INPUTS)
