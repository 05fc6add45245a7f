"""Tell a narrower type inside a module from another computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import padiff

X = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)


class Narrow(torch.nn.Linear):
    """Compute in bfloat16 what comes in float32."""

    def forward(self, x: Any) -> Any:
        dtype = torch.bfloat16 if x.dtype == torch.float32 else x.dtype
        return F.linear(x.to(dtype), self.weight.to(dtype), self.bias.to(dtype)).to(x.dtype)


def build(linear: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(linear(4, 8), torch.nn.ReLU(), linear(8, 3))


def test_a_policy_of_narrower_types_is_precision_forward_and_backward() -> None:
    report = padiff.diff(build(torch.nn.Linear), build(Narrow), (X,))
    assert report.aligned, report
    narrow = [found for found in report.findings if found.verdict is padiff.Verdict.PRECISION]
    assert {found.phase for found in narrow} == {padiff.Phase.FORWARD, padiff.Phase.BACKWARD}, report


def test_a_hook_on_a_parameter_is_none() -> None:
    for linear in (torch.nn.Linear, Narrow):
        hooked = build(linear)
        hooked[2].weight.register_hook(lambda gradient: gradient * 1.5)
        report = padiff.diff(build(torch.nn.Linear), hooked, (X,))
        sources = [(found.candidate.path, found.phase, found.verdict) for found in report.sources]
        assert sources == [("2", padiff.Phase.BACKWARD, padiff.Verdict.DIFFERS)], report
