"""Compare models that hold the same values in another order: tokens of experts, sorted batches, swapped calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch.nn.functional as TF

import padiff

F = paddle.nn.functional


def randoms(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


class Expert(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

    def forward(self, x: Any) -> Any:
        return self.down(TF.silu(self.up(x)))


class Experts(torch.nn.Module):
    """Give each expert its tokens: those first of which it is the first choice."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = torch.nn.Linear(8, 4), torch.nn.Linear(8, 3)
        self.experts = torch.nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x: Any) -> Any:
        tokens = x.reshape(-1, 8)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2, -1)
        found, choices = torch.zeros_like(tokens), TF.one_hot(chosen, 4).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            rank, which = torch.where(choices[index])
            found = found.index_add(0, which, expert(tokens[which]) * weights[which, rank, None])
        return self.head(found.reshape(x.shape))


class PaddleExpert(paddle.nn.Layer):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.up, self.down, self.factor = paddle.nn.Linear(8, 12), paddle.nn.Linear(12, 8), factor

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.up(x)) * self.factor)


class PaddleExperts(paddle.nn.Layer):
    """Call the last expert first, and give each its tokens from the last to the first; the time first, if asked."""

    def __init__(self, fault: str = "", time_first: bool = False) -> None:
        super().__init__()
        self.gate, self.head = paddle.nn.Linear(8, 4), paddle.nn.Linear(8, 3)
        self.experts = paddle.nn.LayerList(
            [PaddleExpert(1.01 if fault == "expert" and i == 2 else 1.0) for i in range(4)]
        )
        self.fault, self.time_first = fault, time_first

    def forward(self, x: Any) -> Any:
        inside = x.transpose([1, 0, 2]) if self.time_first else x
        tokens = inside.reshape([-1, 8])
        weights, chosen = paddle.topk(F.softmax(self.gate(tokens), -1), 2, -1)
        found = paddle.zeros_like(tokens)
        for index in reversed(range(4)):
            mine = chosen == index
            which = paddle.nonzero(mine.any(-1)).flatten().flip(0)
            weight = (weights * mine.astype("float32")).sum(-1)[which] * (1.01 if self.fault == "weight" else 1.0)
            found = paddle.scatter(found, which, found[which] + self.experts[index](tokens[which]) * weight[:, None])
        found = found.reshape(inside.shape)
        return self.head(found.transpose([1, 0, 2]) if self.time_first else found)


@pytest.mark.parametrize("time_first", [False, True], ids=["batch first", "time first"])
def test_experts_may_get_their_tokens_in_another_order(time_first: bool) -> None:
    report = padiff.diff(Experts(), PaddleExperts(time_first=time_first), (randoms(3, 5, 8),))
    assert report.aligned, str(report)
    assert report.coverage is not None
    assert not report.coverage.missing
    assert any("rows" in note.text for note in report.notes)


def test_a_fault_inside_an_expert_is_named() -> None:
    report = padiff.diff(Experts(), PaddleExperts("expert"), (randoms(3, 5, 8),))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("experts.2", ("up", "down"))], (
        str(report)
    )


def test_a_fault_around_the_experts_is_named() -> None:
    report = padiff.diff(Experts(), PaddleExperts("weight"), (randoms(3, 5, 8),))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("experts.0", "head"))], str(
        report
    )


class Sorting(paddle.nn.Layer):
    """Sort the batch, as for packed sequences, and take it back in its order."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.stem, self.rnn, self.head = paddle.nn.Linear(6, 8), paddle.nn.GRU(8, 10), paddle.nn.Linear(10, 3)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        x = self.stem(x) * (1.1 if self.fault == "scaled" else 1.0)
        order = paddle.argsort(x.sum([1, 2]))
        y, _ = self.rnn(x[order])
        back = y if self.fault == "not taken back" else y[paddle.argsort(order)]
        return self.head(back)


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.rnn = torch.nn.Linear(6, 8), torch.nn.GRU(8, 10, batch_first=True)
        self.head = torch.nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.rnn(self.stem(x))[0])


def test_a_batch_may_be_permuted_inside() -> None:
    report = padiff.diff(Plain(), Sorting(), (randoms(4, 5, 6),))
    assert report.aligned, str(report)


def test_a_fault_in_front_of_rows_in_another_order_is_one_source() -> None:
    """What it makes of the numbers is none of the reference's, in whatever order."""
    report = padiff.diff(Plain(), Sorting("scaled"), (randoms(4, 5, 6),))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("stem", "rnn"))], str(
        report
    )


def test_a_batch_that_comes_back_permuted_is_a_fault() -> None:
    torch.manual_seed(0)  # of some weights the batch is in order
    report = padiff.diff(Plain(), Sorting("not taken back"), (randoms(4, 5, 6),))
    assert not report.aligned
    assert {source.candidate.path for source in report.sources} == {""}, str(report)


class Twice(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.both = (torch.nn.Linear(n, 6) for n in (8, 8, 6))

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.both(self.a(x))) * self.both(self.b(x))


class PaddleTwice(paddle.nn.Layer):
    """Call the second branch first."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.a, self.b, self.both = (paddle.nn.Linear(n, 6) for n in (8, 8, 6))
        self.factor = factor

    def forward(self, x: Any) -> Any:
        right = self.both(self.b(x))
        return paddle.tanh(self.both(self.a(x) * self.factor)) * right


def test_a_shared_modules_calls_are_matched_by_what_they_take() -> None:
    report = padiff.diff(Twice(), PaddleTwice(), (randoms(5, 8),))
    assert report.aligned, str(report)


def test_a_fault_before_one_of_them_is_named() -> None:
    report = padiff.diff(Twice(), PaddleTwice(1.01), (randoms(5, 8),))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("a", "both"))], str(report)
