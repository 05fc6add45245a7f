"""Compare recorded steps in which one script calls the model more often: for slices of one batch, or another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.alignment import Alignment, Pair
from padiff.judging._findings import at_home
from padiff.report import Finding, Phase, Place, Verdict, What
from padiff.testing.toy import columns, rows
from padiff.trace import Call, ModuleRecord

from .test_compare import pair

ALL = np.random.default_rng(1).standard_normal((8, 3, 6)).astype(np.float32)


def recorded(folder: Path, model: Any, count: int, weights: Sequence[float] | None = None, batch: Any = ALL) -> None:
    """Record a step made of so many slices of a batch; a loss is the share that its slice has in the whole's."""
    home: Any = rows if isinstance(model, rows.Module) else columns
    with padiff.record(model, folder) as recorder:
        for number, part in enumerate(np.split(batch, count)):
            y = model(home.Tensor(part.copy()))
            loss = (y * y).sum() * np.float32((weights or [1.0] * count)[number] / batch.size)
            loss.backward()
        recorder.step(loss.data)


def compared(folder: Path, cuts: tuple[int, int], *, fault: str = "", other: bool = False) -> padiff.Report:
    for side, (model, count) in enumerate(zip(pair(fault), cuts, strict=True)):
        recorded(folder / "ab"[side], model, count, batch=np.roll(ALL, 1, -1) if other and side else ALL)
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("cuts", [(2, 4), (4, 2), (2, 8), (8, 4)])
def test_batches_may_be_cut_into_more_on_one_side(tmp_path: Path, cuts: tuple[int, int]) -> None:
    """As many rows a process, on fewer processes: each batch of the side that has fewer is read as slices of it."""
    report = compared(tmp_path, cuts)
    assert report.aligned, str(report)
    assert report.coverage is not None
    assert not report.coverage.missing
    assert {call.candidate.call for call in report.calls if call.candidate.path == ""} == {*range(max(cuts))}


def test_a_slice_may_have_as_many_rows_as_another_batch(tmp_path: Path) -> None:
    cuts = [ALL[:6], ALL[6:]], [ALL[:2], ALL[2:6], ALL[6:7], ALL[7:]]
    for name, model, parts in zip("ab", pair(), cuts, strict=True):
        home: Any = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, tmp_path / name) as recorder:
            for part in parts:
                y = model(home.Tensor(part.copy()))
                ((y * y).sum() * np.float32(1 / ALL.size)).backward()
            recorder.step()
    for turned in (("a", "b"), ("b", "a")):
        report = padiff.compare(*(tmp_path / name for name in turned))
        assert report.aligned, str(report)


def test_slices_that_both_cut_otherwise_are_named(tmp_path: Path) -> None:
    for name, model, count in zip("ab", pair(), (2, 3), strict=True):
        recorded(tmp_path / name, model, count, batch=ALL[:6])
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert source.cause.name == "micro_batches"
    assert source.cause.parameters == {"reference": 2, "candidate": 3, "slices": True}
    assert "slices of one batch" in str(report)


@pytest.mark.parametrize("cuts", [(1, 4), (4, 1)])
def test_a_batch_is_read_as_the_slices_that_the_other_side_makes_of_it(tmp_path: Path, cuts: tuple[int, int]) -> None:
    report = compared(tmp_path, cuts)
    assert report.aligned, str(report)
    assert report.coverage is not None
    assert not report.coverage.missing
    (note,) = [one for one in report.notes if one.kind == "slices"]
    assert note.data == {"side": "reference" if cuts == (1, 4) else "candidate", "count": 4, "losses": True}
    assert {call.candidate.call for call in report.calls if call.candidate.path == ""} == {0, 1, 2, 3}


@pytest.mark.parametrize("cuts", [(1, 4), (4, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize(
    ("fault", "place"),
    [("epsilon", (Phase.FORWARD, "layers.1.norm")), ("detach", (Phase.BACKWARD, "layers.1"))],
)
def test_a_fault_is_named_in_slices(tmp_path: Path, cuts: tuple[int, int], fault: str, place: Any) -> None:
    sources = compared(tmp_path, cuts, fault=fault).sources
    assert (sources[0].phase, sources[0].candidate.path) == place


def test_a_loss_of_several_batches_has_what_each_is_scaled_by_as_its_cause(tmp_path: Path) -> None:
    """A mean over what each batch holds, where the other side's is over all of them."""
    for name, model, weights in zip("ab", pair(), ([1.0, 1.0], [1.5, 0.5]), strict=True):
        recorded(tmp_path / name, model, 2, weights)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.cause.name) == (Phase.LOSS, "loss_of_each_batch")
    assert source.cause.parameters == {"times": [1.5, 0.5]}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("weights", [[4.0, 4.0, 4.0, 4.0], [1.0, 1.0, 2.0, 1.0]])
def test_losses_that_are_not_divided_are_named_at_their_slice(
    tmp_path: Path, turned: bool, weights: Sequence[float]
) -> None:
    whole, sliced = pair()
    recorded(tmp_path / "a", whole, 1)
    recorded(tmp_path / "b", sliced, 4, weights)
    (source,) = padiff.compare(
        *[tmp_path / "b", tmp_path / "a"] if turned else [tmp_path / "a", tmp_path / "b"]
    ).sources
    assert (source.phase, source.candidate.path, source.what.kind) == (Phase.BACKWARD, "", "output_gradient")
    if weights[0] > 1:
        assert source.cause.parameters == {"times": 0.25 if turned else 4.0}
    else:
        assert source.cause.name == "loss_of_each_batch"
        assert source.cause.parameters == {"times": [1.0, 1.0, 0.5 if turned else 2.0, 1.0]}
        assert source.candidate.micro_batch == 2


class Placed(rows.Module):
    """Adds places to what it is given, which do not depend on it; they move from call to call where they drift."""

    def __init__(self, drift: float = 0.0) -> None:
        np.random.seed(0)
        self.places, self.last, self.drift, self.calls = rows.Linear(6, 6), rows.Linear(6, 4), drift, 0

    def forward(self, x: Any) -> Any:
        at = np.eye(3, 6, dtype=np.float32) * np.float32(1 + self.drift * (self.calls == 2))
        self.calls += 1
        return self.last(x + self.places(rows.Tensor(at)))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_what_is_alike_in_all_slices_is_compared_with_each(tmp_path: Path, turned: bool, drift: float) -> None:
    recorded(tmp_path / "a", Placed(), 1)
    recorded(tmp_path / "b", Placed(drift), 4)
    report = padiff.compare(*[tmp_path / "b", tmp_path / "a"] if turned else [tmp_path / "a", tmp_path / "b"])
    assert report.aligned is not bool(drift), str(report)
    assert [(one.phase, one.candidate.micro_batch) for one in report.sources] == [(Phase.FORWARD, 2)] * bool(drift)


def test_slices_of_another_batch_are_other_inputs(tmp_path: Path) -> None:
    report = compared(tmp_path, (1, 4), other=True)
    assert "inputs" in [one.cause.name for one in report.sources if one.cause is not None]
    assert "slices of one batch" not in str(report)


@pytest.mark.parametrize(("weight", "aligned"), [(1.0, True), (1.5, False)])
def test_slices_may_be_of_any_size_and_hold_the_rows_in_any_order(tmp_path: Path, weight: float, aligned: bool) -> None:
    """They were told as other inputs."""
    net, port = pair()
    recorded(tmp_path / "a", net, 1)
    order = np.random.default_rng(2).permutation(len(ALL))
    with padiff.record(port, tmp_path / "b") as recorder:
        for part in np.split(ALL[order], [1, 3]):
            y = port(columns.Tensor(part.copy()))
            loss = (y * y).sum() * np.float32((weight if len(part) == 1 else 1.0) / ALL.size)
            loss.backward()
        recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is aligned, str(report)
    assert [one.cause.name for one in report.sources] == ["loss_of_each_batch"] * (not aligned)


HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]


def crossing(folder: Path, cuts: Any, fault: str = "", *, weight: float = 1.0, told: bool = True) -> padiff.Report:
    """Compare scripts that make micro-batches of other rows of one batch; the first of the candidate may count more."""
    for side, (model, parts, name) in enumerate(zip(pair(fault), cuts, "ab", strict=True)):
        home: Any = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / name) as recorder:
            for number, part in enumerate(parts):
                y = model(home.Tensor(ALL[part].copy()))
                times = weight if side and not number else 1.0
                loss = (y * y).sum() * np.float32(times / ALL.size)
                loss.backward()
            recorder.step(loss.data if told else None)
    return padiff.compare(folder / "a", folder / "b")


CROSSED = [
    (HALVES, [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ([[5, 0, 7, 2], [3, 6, 1, 4]], HALVES),
    ([[0, 1, 2], [3, 4, 5], [6, 7]], [[0, 1, 2], [3, 6, 5], [4, 7]]),
    ([[0, 1, 2, 3, 4], [5, 6, 7]], [[7, 1, 3], [0, 2, 4, 5, 6]]),
]


@pytest.mark.parametrize("cuts", CROSSED)
@pytest.mark.parametrize("told", [True, False])
def test_as_many_micro_batches_may_be_of_other_rows(tmp_path: Path, cuts: Any, told: bool) -> None:
    """Even and odd rows, say, where the other side takes halves: they were told as other inputs."""
    report = crossing(tmp_path, cuts, told=told)
    assert report.aligned, str(report)
    assert report.coverage is not None
    assert not report.coverage.missing
    (note,) = [one for one in report.notes if one.kind == "slices_cross"]
    assert note.data == {"name": "", "count": len(cuts[0]), "losses": told}


@pytest.mark.parametrize("cuts", CROSSED)
@pytest.mark.parametrize(
    ("fault", "place"),
    [("epsilon", (Phase.FORWARD, "layers.1.norm")), ("detach", (Phase.BACKWARD, "layers.1"))],
)
def test_a_fault_is_named_where_micro_batches_are_of_other_rows(
    tmp_path: Path, cuts: Any, fault: str, place: Any
) -> None:
    source = crossing(tmp_path, cuts, fault).sources[0]
    assert (source.phase, source.candidate.path) == place


@pytest.mark.parametrize("cuts", CROSSED)
def test_a_micro_batch_of_other_rows_that_counts_more_is_told(tmp_path: Path, cuts: Any) -> None:
    (source,) = crossing(tmp_path, cuts, weight=1.5).sources
    assert (source.phase, source.cause.name) == (Phase.BACKWARD, "loss_of_each_batch")
    assert {*source.cause.parameters["times"]} == {1.0, 1.5}


def test_micro_batches_with_rows_of_another_batch_are_other_inputs(tmp_path: Path) -> None:
    report = crossing(tmp_path, (HALVES, [[0, 2, 4, 6], [1, 3, 5, 5]]))
    assert [one.cause.name for one in report.sources] == ["inputs"]


def test_a_batch_that_both_cut_alike_is_aligned(tmp_path: Path) -> None:
    report = compared(tmp_path, (4, 4))
    assert report.aligned, str(report)


Calls = Sequence[tuple[int, float | None]]
"""Of each call of a step: which batch it is given, and what its loss counts; None without a backward pass."""


def called(folder: Path, *scripts: Sequence[Calls]) -> padiff.Report:
    """Compare scripts, each with the calls that it makes in a step."""
    batches = np.random.default_rng(1).standard_normal((3, 8, 3, 6)).astype(np.float32)
    for side, (model, steps) in enumerate(zip(pair(), scripts, strict=True)):
        home: Any = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / "ab"[side]) as recorder:
            for calls in steps:
                for batch, weight in calls:
                    y = model(home.Tensor(batches[batch].copy()))
                    if weight is not None:
                        ((y * y).mean() * np.float32(weight)).backward()
                recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("extra", [[(1, None), (0, 1.0)], [(0, 1.0), (1, None)], [(0, None), (0, 1.0)]])
@pytest.mark.parametrize("turned", [False, True])
def test_a_call_to_which_no_gradient_comes_is_noted_in_whatever_step(
    tmp_path: Path, extra: Calls, turned: bool
) -> None:
    """What was called first was compared with what the other side calls first; and of later steps nothing was said."""
    scripts = [[[(0, 1.0)], [(0, 1.0)]], [[(0, 1.0)], extra]]
    report = called(tmp_path, *(reversed(scripts) if turned else scripts))
    assert report.aligned, str(report)
    assert [(note.kind, note.data["side"]) for note in report.notes] == [
        ("extra_call", padiff.report.SIDES[not turned])
    ]


def test_calls_that_one_side_makes_in_another_order_are_the_same(tmp_path: Path) -> None:
    report = called(tmp_path, [[(0, 1.0), (1, None)]], [[(1, None), (0, 1.0)]])
    assert report.aligned, str(report)
    assert not report.notes


@pytest.mark.parametrize("weight", [1.0, 1e-5])
@pytest.mark.parametrize("first", [True, False])
def test_a_call_whose_gradients_one_side_alone_sums_is_the_cause(tmp_path: Path, weight: float, first: bool) -> None:
    """Of one that counts little the gradients of parameters show nothing: such runs were aligned."""
    extra = [(1, weight), (0, 1.0)] if first else [(0, 1.0), (1, weight)]
    (source,) = called(tmp_path, [[(0, 1.0)]], [extra]).sources
    assert (source.cause.name, source.cause.parameters) == ("micro_batches", {"reference": 1, "candidate": 2})
    assert (source.candidate.path, source.candidate.micro_batch) == ("", 0 if first else 1)


def test_a_call_that_is_compared_with_nothing_is_no_pass_forward(tmp_path: Path) -> None:
    report = called(tmp_path, [[(0, None)], [(0, None)]], [[(0, None)], [(1, None), (0, None)]])
    assert not report.aligned
    assert not report.sources
    (finding,) = report.unmatched
    assert (finding.step, finding.side, finding.candidate.micro_batch) == (1, "candidate", 0)
    assert "make the same calls in both scripts" in str(report)


class Lossy(rows.Module):
    """Gives a loss of what it is given, the mean of all or the sum, beside what it is of."""

    def __init__(self, *, mean: bool) -> None:
        np.random.seed(0)
        self.net, self.mean = rows.Linear(6, 4), mean

    def forward(self, x: Any) -> Any:
        y = self.net(x)
        return ((y * y).mean() if self.mean else (y * y).sum()), y


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("times", [1.0, 4.0])
def test_what_a_model_gives_of_its_batch_is_the_mean_or_the_sum_of_slices(
    tmp_path: Path, turned: bool, mean: bool, times: float
) -> None:
    for name, count in (("a", 1), ("b", 4)):
        model = Lossy(mean=mean)
        with padiff.record(model, tmp_path / name) as recorder:
            for part in np.split(ALL, count):
                loss, _ = model(rows.Tensor(part.copy()))
                (loss * np.float32(times ** (count > 1) / (count if mean else 1))).backward()
            recorder.step()
    report = padiff.compare(*(tmp_path / name for name in ("ba" if turned else "ab")))
    causes = [(one.phase, one.what.kind, one.cause.parameters["times"]) for one in report.sources]
    assert causes == ([(Phase.BACKWARD, "output_gradient", 0.25 if turned else 4.0)] if times > 1 else [])
    assert report.aligned is (times == 1), str(report)


def test_what_one_side_has_and_no_matched_call_holds_is_placed_all_the_same() -> None:
    """A script calls a critic on two batches in one, and nothing of that call fits: there was an internal error."""
    ours, theirs = (Call(0, ModuleRecord(path, "Linear"), 0, None, training=True) for path in ("maker.0", "net.0"))
    found = Finding(Verdict.UNMATCHED, Phase.BACKWARD, Place(None), Place("critic"), What("output"))
    assert at_home(found, Alignment([Pair(ours, theirs, "")], [], [])).reference.path == "maker.0"
