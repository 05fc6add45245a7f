"""Judge values at positions that nothing reads, behind a mask or beyond a length: there a side holds what it likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

WORDS = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)
LENGTHS = np.array([4, 3, 2])
SEEN = (np.arange(5) < LENGTHS[:, None]).astype(np.float32)[..., None]


def _seen(x: Any, given: Any) -> Any:
    """Return ones where a position counts: as they are given, or made of lengths, or of positions in front."""
    if given.data.ndim == 1:
        given = type(x)((np.arange(5) < given.data[:, None]).astype(np.float32)[..., None])
    return given.transpose(1, 0, 2) if given.data.shape[0] != x.data.shape[0] else given


class Padded(rows.Module):
    def __init__(self, axis: int = 1) -> None:
        self.first, self.second, self.head = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 3)
        self.axis = axis

    def forward(self, x: Any, given: Any) -> Any:
        h = F.tanh(self.second(F.tanh(self.first(x))))
        return self.head((h * _seen(x, given)).sum(self.axis))


class Cleared(columns.Layer):
    """The same, with zeros at hidden positions from the first layer on."""

    def __init__(self, axis: int = 1, fault: str = "", times: float = 1.0) -> None:
        self.first, self.second, self.head = columns.Dense(8, 8), columns.Dense(8, 8), columns.Dense(8, 3)
        self.axis, self.fault, self.times = axis, fault, times

    def forward(self, x: Any, given: Any) -> Any:
        seen = _seen(x, given)
        h = F.tanh(self.first(x)) * seen
        if self.fault in ("last", "first"):
            at = np.zeros((5, 1), np.float32)
            at[-1 if self.fault == "last" else 0] = 0.3
            h = h + type(h)(at)
        if self.fault == "hidden":
            h = h + (seen - 1.0) * 0.3
        h = F.tanh(self.second(h)) * self.times
        return self.head((h * (seen if self.fault != "counted" else 1.0)).sum(self.axis))


class Averaged(rows.Module):
    """Adds to each position the average over those that count, or over all that are ``counted``."""

    def __init__(self, *, counted: bool = False, times: float = 1.0) -> None:
        self.first, self.second, self.head = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 3)
        self.counted, self.times = counted, times

    def forward(self, x: Any, given: Any) -> Any:
        seen = _seen(x, given)
        over = seen * 0.0 + 1.0 if self.counted else seen
        h = F.tanh(self.first(x))
        h = h + (h * over).sum(1, keepdims=True) / over.sum(1, keepdims=True)
        return self.head((F.tanh(self.second(h)) * self.times * seen).sum(1))


HIDING = {
    "mask": (1, WORDS, SEEN),
    "lengths": (1, WORDS, LENGTHS),
    "the same lengths": (1, WORDS, np.array([3, 3, 3])),
    "positions first": (0, WORDS.transpose(1, 0, 2), SEEN.transpose(1, 0, 2)),
    "positions first, mask batch first": (0, WORDS.transpose(1, 0, 2), SEEN),
}


@pytest.mark.parametrize(("axis", "words", "given"), HIDING.values(), ids=HIDING)
def test_what_differs_at_hidden_positions_alone_is_no_source(axis: int, words: Any, given: Any) -> None:
    report = padiff.diff(Padded(axis), Cleared(axis), (words, given))
    assert report.aligned, str(report)
    (note,) = (one for one in report.notes if one.kind == "harmless_hidden")
    assert (note.data["value"], note.candidate.path) == ("input 'x' of second", ""), str(report)


def test_other_numbers_at_hidden_positions_are_no_source() -> None:
    assert padiff.diff(Padded(), Cleared(fault="hidden"), (WORDS, SEEN)).aligned


@pytest.mark.parametrize("fault", ["last", "first", "counted"])
def test_a_fault_is_a_source_where_inputs_hide_it_too(fault: str) -> None:
    """All lines of the batch hide the last position; what is wrong there would be read of a longer one."""
    report = padiff.diff(Padded(), Cleared(fault=fault), (WORDS, SEEN))
    assert not report.aligned, str(report)


def test_one_visible_position_shows_nothing_of_the_others() -> None:
    seen = np.zeros_like(SEEN)
    seen[:, 1] = 1
    assert not padiff.diff(Padded(), Cleared(), (WORDS, seen)).aligned


def test_a_fault_beside_what_is_hidden_is_the_only_source() -> None:
    report = padiff.diff(Padded(), Cleared(times=1.01), (WORDS, SEEN))
    assert [str(one.what) for one in report.sources] == ["input 'x' of head"], str(report)
    (note,) = (one for one in report.notes if one.kind == "hidden_alone")
    assert note.data["value"] == "input 'x' of second"


def test_a_fault_that_a_mask_alone_shows_stays_a_source_beside_another() -> None:
    """With inputs that hide nothing it does not differ either: it does where gradients come, as they are."""
    report = padiff.diff(Averaged(), Averaged(counted=True, times=1.01), (WORDS, SEEN))
    assert len(report.sources) == 2, str(report)


def test_nothing_is_hidden_that_no_inputs_show() -> None:
    seen = np.zeros_like(SEEN)
    seen[:, 1] = 1
    report = padiff.diff(Padded(), Cleared(times=1.01), (WORDS, seen))
    assert len(report.sources) == 2, str(report)


class Counted(rows.Module):
    """Adds to each position what a table holds for its number; ``over`` is that of positions that do not count."""

    def __init__(self, over: int | None = None, *, shift: int = 0) -> None:
        self.first, self.places, self.head = rows.Linear(8, 8), rows.Embedding(8, 8), rows.Linear(8, 3)
        self.over, self.shift = over, shift

    def forward(self, x: Any, given: Any) -> Any:
        seen, numbers = _seen(x, given), np.arange(5) + self.shift
        known = numbers if self.over is None else np.where(seen.data[..., 0] > 0, numbers, self.over)
        h = F.tanh(self.first(x) + self.places(rows.Tensor(np.broadcast_to(known, (3, 5)).copy())))
        return self.head((h * seen).sum(1))


def test_numbers_of_hidden_positions_are_no_source() -> None:
    report = padiff.diff(Counted(), Counted(0), (WORDS, SEEN))
    assert report.aligned, str(report)
    assert any(note.kind == "harmless_hidden" for note in report.notes), str(report)
    report = padiff.diff(Counted(), Counted(0, shift=1), (WORDS, SEEN))
    assert not report.aligned, str(report)


def test_outputs_that_a_mask_alone_tells_apart_are_told_so() -> None:
    class Each(rows.Module):
        """Gives what each position has; zeros where none counts, if it is ``cleared``."""

        def __init__(self, *, cleared: bool, fault: float = 0.0) -> None:
            self.layer, self.cleared, self.fault = rows.Linear(8, 8), cleared, fault

        def forward(self, x: Any, given: Any) -> Any:
            h = self.layer(x) + self.fault
            return h * _seen(x, given) if self.cleared else h

    report = padiff.diff(Each(cleared=False), Each(cleared=True), (WORDS, SEEN))
    assert len(report.sources) == 1, str(report)
    (note,) = (one for one in report.notes if one.kind == "differs_where")
    assert (note.data["input"], note.data["value"]) == ("given", 0.0), str(report)
    report = padiff.diff(Each(cleared=False), Each(cleared=True, fault=0.1), (WORDS, SEEN))
    assert not any(one.kind == "differs_where" for one in report.notes), str(report)


@pytest.mark.parametrize("times", [1.0, 1.01])
def test_steps_are_told_as_one(times: float) -> None:
    reference, candidate = Padded(), Cleared(times=times)
    optimizers = rows.SGD(reference.parameters(), 0.1), columns.Descent(candidate.parameters(), 0.1)
    report = padiff.diff(reference, candidate, (WORDS, SEEN), optimizers=optimizers, steps=3)
    assert report.aligned is (times == 1.0), str(report)
    assert {str(one.what) for one in report.sources} <= {"input 'x' of head"}, str(report)
    kinds = [one.kind for one in report.notes]
    assert kinds.count("harmless_hidden") + kinds.count("hidden_alone") == 1, str(report)


def _record(folder: Path, model: Any, tensor: Any) -> Path:
    with padiff.record(model, folder):
        out = model(tensor(WORDS.copy()), tensor(SEEN.copy()))
        (out * out).mean().backward()
    return folder


@pytest.mark.parametrize("fault", [{}, {"times": 1.01}, {"fault": "first"}], ids=["right", "scaled", "shifted"])
def test_recorded_values_are_compared_where_gradients_come(fault: dict[str, Any], tmp_path: Path) -> None:
    reference, candidate = Padded(), Cleared(**fault)
    padiff.transfer(reference, candidate)
    ours = _record(tmp_path / "a", reference, rows.Tensor)
    report = padiff.compare(ours, _record(tmp_path / "b", candidate, columns.Tensor))
    assert report.aligned is not bool(fault), str(report)
    assert "hidden_positions" in [note.kind for note in report.notes]
    where = {"times": "input 'x' of head", "fault": "input 'x' of second"}
    assert [str(one.what) for one in report.sources] == [where[one] for one in fault], str(report)


class Scores(rows.Module):
    """Gives scores of each word, or one number, with zeros in front of the last layer where none counts."""

    def __init__(self, count: int = 3, *, cleared: bool = False, times: float = 1.0) -> None:
        self.first, self.head = rows.Linear(8, 8), rows.Linear(8, count)
        self.cleared, self.times = cleared, times

    def forward(self, x: Any, given: Any) -> Any:
        h = F.tanh(self.first(x)) * self.times
        y = self.head(h * _seen(x, given) if self.cleared else h)
        return y.reshape(3, 5) if y.data.shape[-1] == 1 else y


def _train(folder: Path, model: Any, *, unmasked: bool = False) -> None:
    """Record a script whose loss counts the words that are seen."""
    seen = SEEN if model.head.weight.data.shape[0] > 1 else SEEN[..., 0]
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            out = model(rows.Tensor(WORDS.copy()), rows.Tensor(SEEN.copy()))
            off = out if unmasked else out * rows.Tensor(seen.copy())
            loss = (off * off).mean()
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize(
    ("count", "model", "script", "where"),
    [
        (3, {}, {}, None),
        (3, {"times": 1.01}, {}, "input 'x' of head"),
        (3, {}, {"unmasked": True}, "input 'x' of head"),  # a gradient comes there: what is given differs first
        (1, {}, {}, "output"),  # one number of several: the script may choose by the others
    ],
    ids=["right", "scaled", "all count", "numbers"],
)
def test_scores_that_no_loss_counts_are_not_compared(
    tmp_path: Path, count: int, model: Any, script: Any, where: str | None
) -> None:
    reference, candidate = Scores(count), Scores(count, cleared=True, **model)
    padiff.transfer(reference, candidate)
    _train(tmp_path / "a", reference)
    _train(tmp_path / "b", candidate, **script)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (where is None), report
    assert [str(one.what) for one in report.sources] == [where] * (where is not None), report
    assert where is not None or "hidden_positions" in [note.kind for note in report.notes], report
