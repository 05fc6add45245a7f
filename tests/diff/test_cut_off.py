"""Name where the gradient is cut off, and nothing that only lies before."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import padiff

X = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)


class Block(torch.nn.Module):
    def __init__(self, *, cut: bool = False) -> None:
        super().__init__()
        self.cut = cut
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = x + self.one(x)
        x = x.detach() if self.cut else x
        return x + self.two(torch.tanh(x))


class Model(torch.nn.Module):
    def __init__(self, cut: int | None = None) -> None:
        super().__init__()
        self.stem = torch.nn.Linear(4, 4)
        self.shift = torch.nn.Parameter(torch.randn(4))
        self.blocks = torch.nn.ModuleList([Block(cut=index == cut) for index in range(3)])

    def forward(self, x: Any) -> Any:
        x = self.stem(x) + self.shift
        for block in self.blocks:
            x = block(x)
        return x


def test_a_stream_that_is_cut_off_is_named_where_it_is_cut() -> None:
    for cut in range(3):
        report = padiff.diff(Model(), Model(cut), (X,))
        sources = {(found.candidate.path, found.phase) for found in report.sources}
        assert sources == {(f"blocks.{cut}", padiff.Phase.BACKWARD)}, report


def test_a_parameter_that_is_cut_off_is_named_itself() -> None:
    class Frozen(Model):
        def forward(self, x: Any) -> Any:
            x = self.stem(x) + self.shift.detach()
            for block in self.blocks:
                x = block(x)
            return x

    report = padiff.diff(Model(), Frozen(), (X,))
    assert [(found.candidate.path, found.what) for found in report.sources] == [("", "gradient of shift")], report
