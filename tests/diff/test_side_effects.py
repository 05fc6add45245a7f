"""Compare models whose forward changes the model itself: noticed, put back, told."""

from __future__ import annotations

from typing import Any

import numpy as np
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
