"""Merge ranks, and compare what they make together with one process, or with a job that is split otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import padiff
from padiff.adapter import Placement, Ranks
from padiff.distributed._expected import Expected
from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading, merged, spread_of
from padiff.distributed._losses import Losses
from padiff.distributed._merged_step import Parts
from padiff.distributed._placements import joined, joined_shape
from padiff.distributed._reductions import cause_of
from padiff.distributed._shared import shared_calls
from padiff.distributed._sides import part_of
from padiff.engine import _transfer
from padiff.errors import InputError
from padiff.kinds import Part as KindPart
from padiff.kinds import Unit
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows
from padiff.trace import Call, Description, ModuleDescription, ModuleRecord, ParameterRecord

from .ranks import record, weights, x


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.sampled_from([1, 2]))
def test_what_was_split_is_put_together_again(count: int, extent: int, dim: int, stride: int) -> None:
    shape = [3, 3, 3]
    shape[dim] = count * stride * extent
    whole = np.arange(np.prod(shape)).reshape(shape)
    blocks = [np.split(block, count, dim) for block in np.split(whole, stride, dim)]
    parts = [np.concatenate([block[rank] for block in blocks], dim) for rank in range(count)]
    how = Placement("shard", dim, stride)
    assert np.array_equal(joined(parts, how), whole)
    assert joined_shape([part.shape for part in parts], how) == whole.shape
    flat = np.array_split(whole.reshape(-1), count)
    assert np.array_equal(joined(flat, Placement("range"), whole.shape), whole)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("packed", [1, 2, 3])
def test_layers_behind_each_other_in_one_weight_are_inferred(count: int, packed: int) -> None:
    whole = np.random.default_rng(0).standard_normal((packed * count * 2, 3)).astype(np.float32)
    blocks = [np.split(block, count) for block in np.split(whole, packed)]
    parts = {rank: np.concatenate([block[rank] for block in blocks]) for rank in range(count)}
    grid = Grid(("world",), {rank: {"world": tuple(range(count))} for rank in range(count)})
    found = spread_of(parts, grid, {}, Expected(((whole.shape, lambda: whole),)), sums=False)
    assert found is not None
    assert found.placements == {"world": Placement("shard", 0, packed)}


TWO = Grid(("dp", "world"), {r: {"dp": (r // 2 * 2, r // 2 * 2 + 1), "world": (r % 2, r % 2 + 2)} for r in range(4)})
"""Four ranks: 0 and 1 share data in one group, and 2 and 3 in another; nobody says what the other groups are for."""


@pytest.mark.parametrize(
    ("told", "other", "whole", "summed", "axes"),
    [
        ({0: 1.0, 1: 3.0, 2: 1.0, 3: 3.0}, 2.0, 2.0, False, ["dp"]),
        ({0: 1.0, 1: 3.0, 2: 1.0, 3: 3.0}, 4.0, 2.0, False, ["dp"]),  # a stack that shares data averages
        ({0: 1.0, 1: 1.0, 2: 3.0, 3: 3.0}, 2.0, 2.0, False, ["world"]),
        ({0: 1.0, 1: 1.0, 2: 3.0, 3: 3.0}, 4.0, 4.0, True, ["world"]),
        ({2: 1.0, 3: 3.0}, None, 2.0, False, ["dp"]),  # the last stage's
        ({}, 2.0, None, False, ["world"]),
        (dict.fromkeys(range(4), 2.0), 2.0, 2.0, False, []),
    ],
)
def test_losses_of_ranks_are_one_or_a_mean_or_a_sum(
    told: dict[int, float], other: float | None, whole: float | None, summed: bool, axes: list[str]
) -> None:
    found = Losses(told, TWO, other)
    assert (found.whole, found.summed, found.axes({"world"})) == (whole, summed, axes)


def test_of_several_readings_that_agree_replicas_that_differ_are_the_last() -> None:
    """What two jobs hold that lie alike is the same however it is read: nothing then says that ranks disagree."""
    whole = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    parts = dict(enumerate(np.split(whole, 2, -1)))
    grid = Grid(("world",), {rank: {"world": (0, 1)} for rank in range(2)})
    stacked = np.concatenate([*parts.values()])
    expected = Expected(((parts[0].shape, lambda: parts[0]), (stacked.shape, lambda: stacked + np.float32(1e-7))))
    found = spread_of(parts, grid, {}, expected)
    assert found is not None
    assert (found.placements["world"].kind, found.unlike) == ("shard", ())
    assert spread_of(parts, grid, {}, expected, shape=whole.shape) is None


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1), st.sampled_from([1, 2]), st.booleans())
def test_each_rank_is_given_what_makes_the_whole_again(
    count: int, extent: int, dim: int, stride: int, flat: bool
) -> None:
    whole = np.arange(3 * count * stride * extent).reshape((3, -1) if dim else (-1, 3))
    how = Placement("range") if flat else Placement("shard", dim, stride)
    group = tuple(range(count))
    shape = (whole.size // count,) if flat else tuple(n // count if i == dim else n for i, n in enumerate(whole.shape))
    ranks = [Ranks(rank, count, {"tp": group} if count > 1 else {}, {"w": {"tp": how}}) for rank in group]
    parts = [part_of(whole, "w", one, shape if count > 1 else whole.shape) for one in ranks]
    assert np.array_equal(joined(parts, how, whole.shape), whole)


class Part:
    """A linear layer of which a rank holds a part."""

    def __init__(self, shape: tuple[int, ...], spread: dict[str, Placement]) -> None:
        ranks = Ranks(1, 2, {"tp": (0, 1)}, {"up.weight": spread} if spread else {})
        record = ParameterRecord("up.weight", ("up.weight",), "float32", shape)
        module = ModuleRecord("up", "made.Up", "linear")
        units = {"": Unit("linear", {"weight": KindPart("weight")})}
        modules = {"up": ModuleDescription(module, {}, units)}
        self.about = Description("toy", "Up", frozenset(), "cpu", False, {}, modules, {"up.weight": record}, ranks)
        self.held = np.zeros(shape, np.float32)

    def value(self, path: str) -> Any:
        return self.held

    def assign(self, arrays: Any) -> None:
        self.held = arrays.get("up.weight", self.held)

    def native(self, path: str) -> None:
        return None

    def find(self, native: Any) -> None:
        return None


def test_weights_of_a_job_are_given_to_a_rank_of_another_layout(tmp_path: Path, monkeypatch: Any) -> None:
    run = record(tmp_path / "run", tp=4)
    monkeypatch.setattr(_transfer, "side_of", lambda model: model)
    part = Part((4, 4), {"tp": Placement("shard", 0)})
    done = padiff.transfer(run, part)
    assert (done.copied, done.unmatched_candidate) == (1, ())
    assert np.array_equal(part.held, weights()["up.weight"][4:])
    with pytest.raises(InputError, match=r"rank 1 of 2 holds \[4, 4\] of 'up.weight'.*\[8, 4\](.|\n)*Hint"):
        padiff.transfer(run, Part((4, 4), {}))


LAYOUTS: dict[str, dict[str, Any]] = {
    "tp2": {"tp": 2},
    "tp4": {"tp": 4},
    "dp2": {"dp": 2},
    "dp3": {"dp": 3},
    "dp2-tp2": {"dp": 2, "tp": 2},
    "dp3-tp4": {"dp": 3, "tp": 4},
}


@pytest.mark.parametrize("says", [True, False, None], ids=["told", "inferred", "by hand"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_is_the_model_that_it_runs(layout: str, says: bool | None, tmp_path: Path) -> None:
    one = record(tmp_path / "one")
    many = record(tmp_path / "many", **LAYOUTS[layout], says=says)
    for pair in ((one, many), (many, one)):
        report = padiff.compare(*pair)
        assert report.aligned, report
        assert all(call.verdict in ("equal", "rounding") for call in report.calls)
        assert not report.coverage.missing, report


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_that_is_split_by_hand_may_hold_its_matrices_the_other_way(layout: str, tmp_path: Path) -> None:
    """Names agree, and shapes do not: such weights were put together of nothing, and compared with nothing."""
    one = record(tmp_path / "one")
    many = record(tmp_path / "many", **LAYOUTS[layout], says=None, columns=True)
    for pair in ((one, many), (many, one)):
        report = padiff.compare(*pair)
        assert report.aligned, report
        assert "could not be put together" not in str(report), report
    wrong = record(tmp_path / "wrong", **LAYOUTS[layout], says=None, columns=True, fault=stale("up.weight", 1))
    (source,) = padiff.compare(one, wrong).sources
    assert (source.phase.value, source.candidate.path) == ("parameter", "up")


def test_two_jobs_of_one_layout_are_compared_whole(tmp_path: Path) -> None:
    """Nothing says how the activation lies: it is compared rank by rank."""
    report = padiff.compare(record(tmp_path / "a", tp=2, says=False), record(tmp_path / "b", tp=2, says=False))
    assert report.aligned, report
    assert not report.coverage.missing, report


OTHERWISE = {"norm": "ln_1", "up": "mlp_c_fc", "down": "mlp_c_proj", "act": "tail"}


@pytest.mark.parametrize("says", [True, False], ids=["told", "inferred"])
@pytest.mark.parametrize(
    ("one", "other"), [("dp2", "tp2"), ("tp2", "dp2"), ("tp2", "tp4"), ("tp2", "tp2"), ("", "tp2")]
)
def test_jobs_of_other_layouts_and_other_names_are_aligned(one: str, other: str, says: bool, tmp_path: Path) -> None:
    ours = record(tmp_path / "one", **LAYOUTS.get(one, {}), says=says)
    theirs = record(tmp_path / "two", **LAYOUTS[other], says=says, names=OTHERWISE)
    report = padiff.compare(ours, theirs)
    assert report.aligned, report
    assert not report.coverage.missing, report


def summed_twice(parts: list[Any]) -> list[Any]:
    return [len(parts) * sum(parts)] * len(parts)


def averaged(parts: list[Any]) -> list[Any]:
    return [sum(parts) / np.float32(len(parts))] * len(parts)


def swapped(rank: int, held: dict[str, Any]) -> None:
    from .ranks import weights

    held["up.weight"] = np.split(weights()["up.weight"], 2)[1 - rank]


def stale(path: str, wrong: int) -> Callable[[int, dict[str, Any]], None]:
    def change(rank: int, held: dict[str, Any]) -> None:
        if rank == wrong:
            held[path] = held[path] * np.float32(1.1)

    return change


FAULTS: dict[str, tuple[dict[str, Any], str, str, dict[str, Any]]] = {
    "missing all-reduce": ({"reduce": lambda parts: parts}, "down", "missing_all_reduce", {"ranks": [0, 1]}),
    "doubled all-reduce": ({"reduce": summed_twice}, "down", "reduced_twice", {"ranks": [0, 1], "times": 2}),
    "averaged": ({"reduce": averaged}, "down", "averaged", {"ranks": [0, 1], "times": 2}),
    "stale replica": ({"fault": stale("norm.weight", 1)}, "norm", "out_of_step", {"ranks": [1], "first": 0}),
}


@pytest.mark.parametrize("says", [True, False], ids=["told", "inferred"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_between_ranks_is_named_with_its_module_and_ranks(fault: str, says: bool, tmp_path: Path) -> None:
    settings, path, cause, parameters = FAULTS[fault]
    report = padiff.compare(record(tmp_path / "one"), record(tmp_path / "two", tp=2, says=says, **settings))
    found = [source for source in report.sources if source.cause is not None and source.cause.name == cause]
    assert [(source.candidate.path, dict(source.cause.parameters)) for source in found] == [(path, parameters)], report


BIAS, TABLE, TOKENS = (
    np.float32([1, 2, 3]),
    np.arange(18, dtype=np.float32).reshape(6, 3) ** 2,
    np.array([[0, 4], [2, 5]]),
)


@pytest.mark.parametrize(
    ("held", "right", "cause"),
    [
        (x()[:, :3] / 2 + BIAS, x()[:, :3] + BIAS, "averaged"),
        (x()[:, :3] * 2 + BIAS, x()[:, :3] + BIAS, "reduced_twice"),
        (x()[:, :3] * 3 + BIAS, x()[:, :3] + BIAS, None),
        (TABLE[TOKENS] + TABLE[TOKENS % 3 + 3 * (TOKENS < 3)], TABLE[TOKENS], "looked_up_by_each"),
        (TABLE[TOKENS] + TABLE[3 * (TOKENS < 3)], TABLE[TOKENS], "looked_up_by_each"),
        (TABLE[TOKENS] + TABLE[np.where(TOKENS < 3, 3, 2)], TABLE[TOKENS], "looked_up_by_each"),  # clipped
        (TABLE[TOKENS] + TABLE[np.where(TOKENS < 3, 3, 1)], TABLE[TOKENS], None),
    ],
)
def test_what_a_layer_holds_tells_what_is_wrong_with_a_value(held: Any, right: Any, cause: str | None) -> None:
    grid = Grid(("tp",), {rank: {"tp": (0, 1)} for rank in range(2)})
    parts = Parts(dict.fromkeys(range(2), lambda: held), Spreading({"tp": Placement()}), grid, None)
    found = cause_of(parts, Expected(((right.shape, lambda: right),)), {"bias": BIAS, "table": TABLE}, [TOKENS])
    assert (found and found.name) == cause


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_where_both_sides_are_jobs_of_other_names(fault: str, tmp_path: Path) -> None:
    settings, path, cause, parameters = FAULTS[fault]
    report = padiff.compare(record(tmp_path / "one", dp=2), record(tmp_path / "two", tp=2, names=OTHERWISE, **settings))
    found = [source for source in report.sources if source.cause is not None and source.cause.name == cause]
    assert [(source.candidate.path, dict(source.cause.parameters)) for source in found] == [
        (OTHERWISE[path], parameters)
    ], report
    assert found[0].reference.path == path


@pytest.mark.parametrize("drift", [0.0, 1e-8, 2e-5])
def test_replicas_that_part_in_a_step_are_a_fault_though_each_is_nearly_right(drift: float, tmp_path: Path) -> None:
    def stepped(rank: int, held: dict[str, Any]) -> dict[str, Any]:
        after = {path: value - np.float32(0.1) for path, value in held.items()}
        after["norm.weight"] = after["norm.weight"] * np.float32(1 + drift * rank)
        return after

    report = padiff.compare(record(tmp_path / "one", stepped=stepped), record(tmp_path / "two", dp=2, stepped=stepped))
    told = [(one.phase.value, one.cause.name, dict(one.cause.parameters)) for one in report.sources]
    assert told == ([("update", "out_of_step", {"ranks": [1], "first": 0})] if drift > 1e-6 else []), report


def test_what_a_model_returns_is_no_sum_that_somebody_else_may_add_up(tmp_path: Path) -> None:
    one = record(tmp_path / "one", last=False)
    two = record(tmp_path / "two", last=False, tp=2, says=False, reduce=lambda parts: parts)
    (source,) = padiff.compare(one, two).sources
    assert (source.candidate.path, source.cause.name) == ("down", "missing_all_reduce")


def test_a_sum_that_code_hands_on_is_missing_at_the_layer_that_gave_its_parts(tmp_path: Path) -> None:
    """Where no call takes just what it gave, what takes the parts for the whole was told, without a cause."""
    one = record(tmp_path / "one", twice=True)
    two = record(tmp_path / "two", twice=True, tp=2, says=False, reduce=lambda parts: parts)
    (source,) = padiff.compare(one, two).sources
    assert (source.candidate.path, source.cause and source.cause.name) == ("down", "missing_all_reduce")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_wrong_shard_is_named_with_its_rank(rank: int, tmp_path: Path) -> None:
    one, two = record(tmp_path / "one"), record(tmp_path / "two", tp=2, fault=stale("up.weight", rank))
    (source,) = padiff.compare(one, two).sources
    assert (source.candidate.path, source.what.kind) == ("up", "parameter")
    assert source.cause.name == "wrong_on_ranks"
    assert source.cause.parameters == {"ranks": [rank], "right": [1 - rank]}


def test_ranks_that_each_start_from_weights_of_their_own_are_one_source(tmp_path: Path) -> None:
    def drawn(rank: int, held: dict[str, Any]) -> None:
        held.update({path: value + np.float32(rank) for path, value in held.items()})

    report = padiff.compare(record(tmp_path / "one"), record(tmp_path / "two", dp=2, fault=drawn))
    assert {source.cause.name for source in report.sources} == {"out_of_step"}
    assert str(report).startswith("not aligned, forward only: 1 source in 3 places"), str(report)


def test_shards_in_the_wrong_order_are_told(tmp_path: Path) -> None:
    one, two = record(tmp_path / "one"), record(tmp_path / "two", tp=2, fault=swapped)
    sources = {source.candidate.path: source.cause for source in padiff.compare(one, two).sources}
    assert sources["up"].name == "shard_order"
    assert sources["up"].parameters == {"ranks": [0, 1], "order": [1, 0]}


def test_ranks_that_are_missing_are_told_and_the_rest_is_compared(tmp_path: Path) -> None:
    one = record(tmp_path / "one")
    two = record(tmp_path / "two", tp=2, left_out=(1,))
    report = padiff.compare(one, two)
    note = next(note for note in report.notes if note.kind == "ranks_missing")
    assert note.data["missing"] == ((1, "it recorded nothing"),)
    assert not report.sources, report
    assert report.coverage.missing
    (tmp_path / "three" / "rank-00001").mkdir(parents=True)
    report = padiff.compare(one, record(tmp_path / "three", tp=2, left_out=(1,)))
    note = next(note for note in report.notes if note.kind == "ranks_missing")
    assert "no manifest.json" in note.text


def test_no_rank_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank-00000").mkdir()
    with pytest.raises(InputError, match=r"holds no rank's run that can be read(.|\n)*Hint"):
        padiff.compare(tmp_path, tmp_path)


class Scale(rows.Module):
    def __init__(self) -> None:
        self.weight = rows.parameter(4)

    def forward(self, x: Any) -> Any:
        return x * self.weight


class Tanh(rows.Module):
    def forward(self, x: Any) -> Any:
        return F.tanh(x)


class Whole(rows.Module):
    """What the job runs, in one process; or a factor wrong."""

    def __init__(self, factor: float = 1.0) -> None:
        self.scale, self.first, self.act = Scale(), rows.Linear(4, 8, bias=False), Tanh()
        self.second, self.factor = rows.Linear(8, 4, bias=False), factor

    def forward(self, x: Any) -> Any:
        return self.act(self.second(F.relu(self.first(self.scale(x))) * self.factor))


@pytest.mark.parametrize("layout", ["tp2", "dp2-tp2"])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_model_is_forced_against_a_job(layout: str, factor: float, tmp_path: Path) -> None:
    job = record(tmp_path / "job", **LAYOUTS[layout])
    report = padiff.compare(job, force=Whole(factor), inputs=(x(),))
    assert [one.candidate.path for one in report.sources] == ([] if factor == 1 else [""]), report
    assert report.transfer is not None
    assert not report.transfer.unmatched_candidate
    if factor != 1:
        assert report.sources[0].between == ("first", "second")


@pytest.mark.parametrize("dp", [1, 2])
def test_rows_that_one_run_has_in_another_order_inside_are_no_difference(dp: int, tmp_path: Path) -> None:
    report = padiff.compare(record(tmp_path / "one"), record(tmp_path / "two", dp=dp, shuffled="inside"))
    assert report.aligned, report
    assert not report.coverage.missing, report
    assert any(note.kind == "row_order" for note in report.notes)


def test_rows_that_are_not_put_back_are_a_difference_of_whoever_should(tmp_path: Path) -> None:
    report = padiff.compare(record(tmp_path / "one"), record(tmp_path / "two", shuffled="forgets"))
    (source,) = report.sources
    assert (source.candidate.path, source.what.kind) == ("", "output"), report


def test_a_fault_of_a_layer_that_has_rows_in_another_order_is_its_own(tmp_path: Path) -> None:
    def wrong(_: int, held: dict[str, Any]) -> None:
        held["up.weight"] = held["up.weight"] * np.float32(1.5)

    report = padiff.compare(record(tmp_path / "one"), record(tmp_path / "two", fault=wrong, shuffled="inside"))
    (source,) = report.sources
    assert (source.candidate.path, source.what.kind) == ("up", "parameter"), report


def test_calls_of_modules_that_one_rank_holds_stand_where_the_model_has_them() -> None:
    def call(path: str) -> Call:
        return Call(0, ModuleRecord(path, path.title()), 0, None, False)

    held = {0: ["", "experts", "experts.0", "last"], 1: ["", "experts", "experts.1", "last"]}
    calls = {rank: {(path, 0): call(path) for path in paths} for rank, paths in held.items()}
    found = shared_calls(calls, held)
    assert [one.call.path for one in found] == ["", "experts", "experts.0", "experts.1", "last"]
    assert [one.ranks for one in found] == [(0, 1), (0, 1), (0,), (1,), (0, 1)]


def test_a_mean_over_ranks_of_which_one_alone_has_a_part_counts_all_of_them() -> None:
    part = np.ones((2, 2), np.float32)
    grid = Grid(("dp",), {rank: {"dp": (0, 1)} for rank in range(2)})
    mean = merged({1: part}, grid, {"dp": Placement("partial", mean=True)})
    assert np.array_equal(mean, part / 2)
