"""Compare running statistics that two batches move, for a reference in bfloat16: its rounding hides their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

REAL, FAKE = (np.random.default_rng(0).standard_normal((2, 6, 4)) + 1).astype("float32")


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.out = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)

    def judged(self, x: Any) -> Any:
        return self.out(torch.tanh(self.norm(self.layer(x.to(self.out.weight.dtype)))))

    def forward(self, real: Any, fake: Any) -> Any:
        return self.judged(real), self.judged(fake)


class Port(paddle.nn.Layer):
    def __init__(self, fault: str) -> None:
        super().__init__()
        nn = paddle.nn
        self.layer, self.norm, self.out, self.fault = nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Linear(8, 1), fault

    def judged(self, x: Any) -> Any:
        known = self.layer(x)
        return self.out(paddle.tanh(self.norm(known * 1.5 if self.fault == "scale" else known)))

    def forward(self, real: Any, fake: Any) -> Any:
        if self.fault != "order":
            return self.judged(real), self.judged(fake)
        second = self.judged(fake)
        return self.judged(real), second


@pytest.mark.parametrize("fault", ["", "order", "scale"])
def test_their_order_shows_though_a_narrow_type_rounds_more_than_it_changes(fault: str) -> None:
    torch.manual_seed(0)
    report = padiff.diff(Reference().bfloat16(), Port(fault), (REAL, FAKE))
    assert report.aligned is (not fault), str(report)
    places = {(source.what.kind, source.candidate.path) for source in report.sources}
    wrong = {"order": {("updated_buffer", "norm")}, "scale": {("input", "")}}
    assert places == wrong.get(fault, set()), str(report)
