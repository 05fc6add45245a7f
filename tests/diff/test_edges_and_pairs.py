"""Compare code that holds the edges of a graph with code that holds all pairs, and leaves those without edge out."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
import torch

import padiff

from .models import array

FAR = 2.5


class Passing(torch.nn.Module):
    """Weighs what comes along each edge by what a filter makes of its length."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave, self.last = (
            torch.nn.Linear(8, 8, bias=False),
            torch.nn.Linear(8, 8),
            torch.nn.Linear(8, 8),
        )
        self.filter = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Softplus(), torch.nn.Linear(8, 8))

    def forward(self, x: Any, begin: Any, end: Any, length: Any, told: Any) -> Any:
        weights = self.filter(told) * torch.cos(length / FAR).view(-1, 1)
        passed = self.enter(x)[begin] * weights
        summed = torch.zeros_like(x).index_add(0, end, passed)
        return self.last(torch.nn.functional.softplus(self.leave(summed)))


class Graph(torch.nn.Module):
    """Two such blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Passing(), Passing()])

    def forward(self, x: Any, at: Any) -> Any:
        with torch.no_grad():
            near = ((at[:, None] - at[None]).norm(dim=-1) < FAR) & ~torch.eye(len(at), dtype=torch.bool)
            begin, end = near.nonzero(as_tuple=True)
        length = (at[begin] - at[end]).norm(dim=-1)
        told = torch.exp(-((length.view(-1, 1) - torch.linspace(0, FAR, 6, dtype=at.dtype)) ** 2))
        for block in self.blocks:
            x = x + block(x, begin, end, length, told)
        return x


class PassingAll(paddle.nn.Layer):
    """The same of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)
        self.enter, self.leave = paddle.nn.Linear(8, 8, bias_attr=False), paddle.nn.Linear(8, 8)

    def forward(self, x: Any, told: Any, near: Any) -> Any:
        weights = self.two(paddle.nn.functional.softplus(self.one(told)))
        passed = self.enter(x).unsqueeze(0) * (weights * near.unsqueeze(-1))
        return self.last(paddle.nn.functional.softplus(self.leave(passed.sum(1))))


class GraphOfAll(paddle.nn.Layer):
    """The same; ``fault`` is in how pairs without edge are left out, or in what is told of each pair."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.blocks, self.fault = paddle.nn.LayerList([PassingAll(), PassingAll()]), fault

    def forward(self, x: Any, at: Any) -> Any:
        apart, itself = at.unsqueeze(1) - at.unsqueeze(0), paddle.eye(len(at)).astype("bool")
        squares = (apart * apart).sum(-1)
        length = paddle.where(itself, paddle.ones_like(squares), squares).sqrt()
        length = paddle.where(itself, paddle.zeros_like(length), length)
        near = (length < FAR) if self.fault == "near" else paddle.logical_and(length < FAR, ~itself)
        weights = paddle.cos(length / FAR) * near.astype(length.dtype)
        centres = paddle.linspace(0, FAR, 6).astype(at.dtype) * (0.5 if self.fault == "told" else 1.0)
        told = paddle.exp(-paddle.square(length.unsqueeze(-1) - centres))
        for block in self.blocks:
            x = x + block(x, told, weights)
        return x


@pytest.mark.parametrize(("fault", "taker"), [("", ""), ("near", "leave"), ("told", "one")])
def test_a_fault_is_one_source_in_every_block(fault: str, taker: str) -> None:
    """In some of them what all pairs are given was said to be of another size, though the fault is behind."""
    report = padiff.diff(Graph(), GraphOfAll(fault), (array(7, 8), array(7, 3)))
    assert report.aligned is not bool(fault), str(report)
    found = [(one.candidate.path, one.what.taker) for one in report.sources]
    assert found == [("blocks.0", taker), ("blocks.1", taker)] * bool(fault), str(report)
