"""Compare models whose forward changes the model itself: noticed, put back, told."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff import Phase

X = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)


class Changing(torch.nn.Module):
    """A layer that keeps something between calls, at an attribute of its own."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.linear, self.factor = torch.nn.Linear(8, 8), factor
        self.count, self.counter = 0, torch.zeros(1)
        self.past: list[Any] = []
        self.memo: dict[str, Any] = {}
        self.table = torch.zeros(4, 16, 8)


class Counting(Changing):
    def forward(self, x: Any) -> Any:
        self.count += 1
        return self.linear(x) * self.factor * (1 + self.count)


class CountingInPlace(Changing):
    def forward(self, x: Any) -> Any:
        self.counter += 1
        return self.linear(x) * self.factor * (1 + self.counter)


class Remembering(Changing):
    def forward(self, x: Any) -> Any:
        self.past.append(self.linear(x))
        return sum(self.past) * self.factor


class Memoizing(Changing):
    def forward(self, x: Any) -> Any:
        if "y" not in self.memo:
            self.memo["y"] = self.linear(x)
        return self.memo["y"] * self.factor


class Tabulating(Changing):
    def forward(self, x: Any) -> Any:
        self.table[:, self.count] = self.linear(x).detach()
        self.count += 1
        return self.linear(self.table[:, : self.count].sum(1)) * self.factor


def wrapped(inner: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), inner, torch.nn.Linear(8, 2))


def places(report: padiff.Report) -> set[tuple[str | None, Phase]]:
    return {(found.candidate.path, found.phase) for found in report.sources}


@pytest.mark.parametrize("kind", [Counting, CountingInPlace, Remembering, Memoizing, Tabulating])
def test_state_at_plain_attributes_is_put_back_and_told(kind: type[Changing]) -> None:
    """Before, a fault behind a counter passed as aligned, and a list that grew raised in the second backward pass."""
    one, other = wrapped(kind()), wrapped(kind())
    report = padiff.diff(one, other, (X,))
    assert report.aligned, report
    told = [note for note in report.notes if note.kind == "kept_state"]
    assert {note.data["side"] for note in told} == {"reference", "candidate"}
    assert all(path.startswith("2.") for note in told for path in note.data["paths"])
    for model in (one, other):
        kept = model[2]
        assert (kept.count, float(kept.counter), kept.past, kept.memo) == (0, 0.0, [], {})
        assert not kept.table.any()
        assert kept.counter.is_leaf
    report = padiff.diff(one, wrapped(kind(1.1)), (X,))
    assert places(report) == {("2", Phase.FORWARD)}, report


class Averaging(torch.nn.Module):
    """A teacher that follows its student, by either way of writing that."""

    def __init__(self, momentum: float = 0.9, *, in_place: bool = False, used: bool = True) -> None:
        super().__init__()
        self.student, self.teacher = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8).requires_grad_(False)
        self.momentum, self.in_place, self.used = momentum, in_place, used

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            for kept, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                if self.in_place:
                    kept.mul_(self.momentum).add_(new, alpha=1 - self.momentum)
                else:
                    kept.data = kept.data * self.momentum + new.data * (1 - self.momentum)
        return self.student(x) + (self.teacher(x) if self.used else 0)


@pytest.mark.parametrize("used", [True, False])
def test_weights_that_a_forward_changes_are_put_back_compared_and_told(used: bool) -> None:
    """Before, the reference kept what its run had made of them, and the right port was called wrong."""
    one, other = wrapped(Averaging(used=used)), wrapped(Averaging(in_place=True, used=used))
    before = one[2].teacher.weight.clone()
    report = padiff.diff(one, other, (X,))
    assert report.aligned, report
    assert torch.equal(before, one[2].teacher.weight)
    assert torch.equal(before, other[2].teacher.weight)
    told = [note.data for note in report.notes if note.kind == "rewritten_weights"]
    assert [note["side"] for note in told] == ["reference", "candidate"]
    report = padiff.diff(one, wrapped(Averaging(0.5, used=used)), (X,))
    assert places(report) == {("2.teacher" if used else "2", Phase.BUFFER)}, report
    assert "weight after the run" in {str(found.what) for found in report.sources}


def test_how_a_forward_moves_weights_is_one_source() -> None:
    """It was one for each layer."""

    def of_two_layers(momentum: float) -> Any:
        model = Averaging(momentum)
        model.student = torch.nn.Sequential(model.student, torch.nn.LayerNorm(8))
        model.teacher = torch.nn.Sequential(model.teacher, torch.nn.LayerNorm(8)).requires_grad_(False)
        torch.nn.init.normal_(model.student[1].weight)
        return model

    report = padiff.diff(of_two_layers(0.9), of_two_layers(0.5), (X,))
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)


class Biased(torch.nn.Module):
    """A layer that gathers its biases when it goes into evaluation mode, as LeViT does, or when they are needed."""

    def __init__(self, lazily: bool = False) -> None:
        super().__init__()
        self.inner, self.biases = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.randn(3))
        self.index, self.lazily, self.cache = torch.tensor([0, 1, 2, 2, 1, 0]), lazily, {}
        self.gathered: Any = None

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.cache = {}
        self.gathered = None if mode or self.lazily else self.biases.detach()[self.index]
        return self

    def forward(self, x: Any) -> Any:
        if self.training:
            return self.inner(x) + self.biases[self.index]
        if self.lazily:
            return self.inner(x) + self.cache.setdefault("cpu", self.biases.detach()[self.index])
        return self.inner(x) + self.gathered


class Plain(paddle.nn.Layer):
    """The same without a cache."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.linear, self.scale = paddle.nn.Linear(6, 6), scale
        self.table = self.create_parameter([3], default_initializer=paddle.nn.initializer.Normal())

    def forward(self, x: Any) -> Any:
        table = self.table if self.training else self.table.detach()
        return self.linear(x) + table[paddle.to_tensor([0, 1, 2, 2, 1, 0])] * self.scale


@pytest.mark.parametrize("lazily", [False, True])
def test_what_is_made_of_weights_is_made_anew_behind_a_transfer(lazily: bool) -> None:
    """0.4 compared with biases of the candidate's own old weights: an alarm, and with equal old ones a wrong pass."""
    x = np.random.default_rng(0).standard_normal((2, 6), dtype=np.float32)
    reference, candidate = Plain(), Biased(lazily).eval()
    reference.eval()
    candidate(torch.tensor(x))
    report = padiff.diff(reference, candidate, (x,))
    assert report.aligned, str(report)
    assert [note.data["paths"] for note in report.notes if note.kind == "rebuilt"] == [
        ["cache" if lazily else "gathered"]
    ]
    assert not candidate.training
    faulty = Plain(1.05)
    faulty.eval()
    assert not padiff.diff(faulty, candidate, (x,)).aligned
