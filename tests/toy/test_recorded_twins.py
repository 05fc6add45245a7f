"""Compare recorded scripts that train a network beside a copy of it, which they call in an order of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE = 6


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.norm, self.last = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.norm(self.first(x))))


class Twins(rows.Module):
    """Two networks that begin with the same weights; in which order they are called is the script's business."""

    def __init__(self, student: str, teacher: str) -> None:
        self.student, self.teacher = Net(), Net()
        for ours, theirs in zip(self.student.parameters(), self.teacher.parameters(), strict=True):
            theirs.data[...] = ours.data
        setattr(self, student, self.__dict__.pop("student"))
        setattr(self, teacher, self.__dict__.pop("teacher"))
        self.names = student, teacher

    def forward(self) -> Any:
        raise NotImplementedError


def train(
    folder: Path,
    model: Twins,
    *,
    frozen: bool,
    first: int,
    more: bool,
    values: Any,
    rate: float = 0.1,
    attached: bool = False,
    keep: float = 0.9,
    eps: float = 1e-5,
) -> None:
    """Train one of both on what the other gives, which is ``first``, and is its average; on ``more`` of its own."""
    both = [getattr(model, name) for name in model.names]
    both[1].norm.eps = eps
    for parameter in both[1].parameters():
        parameter.requires_grad = not frozen
    optimizer, rng = rows.SGD(both[0].parameters(), rate), np.random.default_rng(2)
    with padiff.record(model, folder, optimizer=optimizer, values=values) as recorder:
        for _ in range(3):
            x, z = (rng.standard_normal((5, SIZE)).astype(np.float32) for _ in range(2))
            given = {n: both[n](rows.Tensor((x, x)[n].copy())) for n in (first, 1 - first)}
            further = both[0](rows.Tensor(z)) if more else given[0]
            wanted = given[1] if attached else given[1].data
            loss = ((given[0] - wanted * 2) * (given[0] - wanted * 2) + further * wanted).mean()
            optimizer.clear()
            loss.backward()
            optimizer.step()
            for ours, theirs in zip(both[0].parameters(), both[1].parameters(), strict=True):
                theirs.data[...] = theirs.data * np.float32(keep) + ours.data * np.float32(1 - keep)
            recorder.step(float(loss.data))


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(("frozen", "values"), [(False, "tensors"), (True, "sketch")])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),
        ({"rate": 0.2}, (Phase.UPDATE, "b", "a")),
        ({"keep": 0.5}, (Phase.UPDATE, "a", "z")),
        ({"eps": 0.1}, (Phase.FORWARD, "a.norm", "z.norm")),
        ({"attached": True}, (Phase.BACKWARD, "a", "z")),
    ],
)
def test_what_is_trained_tells_a_network_from_its_copy(
    tmp_path: Path, first: int, frozen: bool, values: Any, more: bool, fault: Any, place: Any
) -> None:
    """They were taken for each other where one script calls them in another order, or for the models themselves."""
    np.random.seed(0)
    models = Twins("a", "z"), Twins("b", "a")
    for ours, theirs in zip("az", "ba", strict=True):
        padiff.transfer(getattr(models[0], ours), getattr(models[1], theirs))
    train(tmp_path / "a", models[0], frozen=frozen, first=0, more=more, values=values)
    frozen &= not fault.get("attached", False)
    train(tmp_path / "b", models[1], frozen=frozen, first=first, more=more, values=values, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    found = [(one.phase, one.candidate.path, one.reference.path) for one in report.sources]
    assert found == ([] if place is None else [place]), str(report)
    assert report.aligned is (place is None)


class Attending(rows.Module):
    """A network that attends, with queries, keys and values apart or packed in one layer."""

    def __init__(self, *, packed: bool) -> None:
        self.embed, self.norm = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE)
        if packed:
            self.qkv = rows.Linear(SIZE, 3 * SIZE)
        else:
            self.q, self.k, self.v = (rows.Linear(SIZE, SIZE) for _ in range(3))
        self.out = rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        h = self.norm(self.embed(x))
        if hasattr(self, "qkv"):
            whole = self.qkv(h)
            q, k, v = (whole[..., n * SIZE : (n + 1) * SIZE] for n in range(3))
        else:
            q, k, v = self.q(h), self.k(h), self.v(h)
        return self.out(x + functional.attention(q, k, v, 2))


class Taught(rows.Module):
    """A network, and a teacher with weights of its own."""

    def __init__(self, *, packed: bool) -> None:
        self.student, self.teacher = Attending(packed=packed), Attending(packed=packed)

    def forward(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("packed", [0, 1])
@pytest.mark.parametrize("first", ["student", "teacher"])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        (None, None),
        ("eps", (Phase.FORWARD, "teacher.norm", "teacher.norm")),
        ("weights", (Phase.PARAMETER, "teacher.out", "teacher.out")),
        ("rate", (Phase.UPDATE, "student", "student")),
    ],
)
def test_values_tell_which_network_is_which_whatever_they_pack(
    tmp_path: Path, packed: int, first: str, fault: str | None, place: Any
) -> None:
    """What one side packs stayed with the other network, where one script calls that first: each part was a source."""
    np.random.seed(0)
    models = [Taught(packed=packed == side) for side in (0, 1)]
    x = np.random.default_rng(0).standard_normal((2, 5, SIZE)).astype(np.float32)
    for name in ("student", "teacher"):
        padiff.transfer(*(getattr(model, name) for model in models), x)
    if fault == "eps":
        models[1].teacher.norm.eps = 0.1
    elif fault == "weights":
        models[1].teacher.out.weight.data[0] *= 2
    for side, (model, folder) in enumerate(zip(models, "ab", strict=True)):
        optimizer = rows.SGD(model.student.parameters(), 0.2 if side and fault == "rate" else 0.1)
        for parameter in model.teacher.parameters():
            parameter.requires_grad = False
        with padiff.record(model, tmp_path / folder, optimizer=optimizer) as recorder:
            order = ("student", "teacher") if not side or first == "student" else ("teacher", "student")
            given = {name: getattr(model, name)(rows.Tensor(x.copy())) for name in order}
            apart = given["student"] - given["teacher"].data
            (apart * apart).mean().backward()
            optimizer.step()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    found = [(one.phase, one.candidate.path, one.reference.path) for one in report.sources]
    assert found == ([] if place is None else [place]), str(report)
    assert report.aligned is (place is None)
