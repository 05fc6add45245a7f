"""Add up sketches of what ranks hold: verdicts are those on the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.adapter import Placement, Ranks
from padiff.numerics import sketch
from padiff.recording._places import Places
from padiff.trace import Trace, ValueStore, open_run, rank_folders

from .archive import write_run
from .ranks import record, record_sequences
from .test_ranks import FAULTS, LAYOUTS


def sketched(folder: Path, *, by_hand: bool = False) -> Path:
    """Return a copy of a run, or of a job's, as `padiff.record` would have sketched it.

    Of layers that were split ``by_hand`` nothing says how they lie.
    """
    target = folder.with_name(f"{folder.name}-sketched")
    for path in [*rank_folders(folder).values()] or [folder]:
        run = open_run(path)
        about = run.about
        if by_hand and about.ranks is not None:
            groups = {"world": tuple(range(about.ranks.world))}
            about = attrs.evolve(about, ranks=Ranks(about.ranks.rank, about.ranks.world, groups))
        write_run(target / path.relative_to(folder), about, [(0, _sketched(run, about))], "sketch")
    return target


def _sketched(run: Any, about: Any) -> Trace:
    full, places = run.trace(0), Places(about)
    trace = attrs.evolve(full, store=ValueStore(), values={}, weights={}, samples={})
    made = {call.outputs[0].token: call.path for call in full.calls[1:]}
    places.given(full.root.inputs[0])
    for token, key in full.values.items():
        array = full.array(key)
        trace.values[token] = trace.summarized(places.of_value(array.shape, made.get(token)).sketched(array))
    for path, key in full.weights.items():
        trace.weights[path] = trace.summarized(places.of_parameter(path).sketched(full.array(key)))
    return trace


def test_a_job_is_the_model_that_it_runs_as_far_as_sketches_show(tmp_path: Path) -> None:
    one = sketched(record(tmp_path / "one"))
    for name, layout in LAYOUTS.items():
        many = sketched(record(tmp_path / name, **layout))
        for pair in ((one, many), (many, one)):
            report = padiff.compare(*pair)
            assert report.aligned, report
    wide, narrow = (padiff.compare(tmp_path / f"{a}-sketched", tmp_path / f"{b}-sketched") for a, b in PAIRS)
    assert wide.aligned, wide
    assert narrow.aligned, narrow


@pytest.mark.parametrize("claimed", [False, True])
def test_what_nothing_tells_of_is_not_compared_and_no_fault(claimed: bool, tmp_path: Path) -> None:
    """Nor what a framework calls the same on all ranks, which does not know of a layer that is split by hand."""
    says, by_hand = (None, False) if claimed else (True, True)
    one, two = sketched(record(tmp_path / "one")), record(tmp_path / "two", tp=2, says=says)
    report = padiff.compare(one, sketched(two, by_hand=by_hand))
    assert report.aligned, report
    assert "could not be put together" in str(report)
    wrong = record(tmp_path / "three", tp=2, says=says, reduce=lambda parts: parts)
    report = padiff.compare(one, sketched(wrong, by_hand=by_hand))
    assert [source.what.kind for source in report.sources] == ["output"], report


PAIRS = (("tp2", "tp4"), ("dp2-tp2", "dp2-tp2"))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_between_ranks_is_named_by_sketches_too(fault: str, tmp_path: Path) -> None:
    settings, path, cause, parameters = FAULTS[fault]
    one, two = sketched(record(tmp_path / "one")), sketched(record(tmp_path / "two", tp=2, **settings))
    report = padiff.compare(one, two)
    found = [source for source in report.sources if source.cause is not None and source.cause.name == cause]
    assert [(source.candidate.path, dict(source.cause.parameters)) for source in found] == [(path, parameters)], report


def test_a_rank_that_is_missing_leaves_the_rest(tmp_path: Path) -> None:
    one, two = sketched(record(tmp_path / "one")), sketched(record(tmp_path / "two", tp=2, left_out=(1,)))
    report = padiff.compare(one, two)
    assert not report.sources, report
    assert report.coverage.missing


def test_a_gradient_is_sketched_on_the_rank_too_that_holds_all_of_its_parameter(tmp_path: Path) -> None:
    """Of ranges of a flat parameter some are empty, and what arrives is of all of it on each rank."""
    about = open_run(rank_folders(record(tmp_path / "two", dp=2))[0]).about
    assert about.ranks is not None
    places = Places(
        attrs.evolve(about, ranks=attrs.evolve(about.ranks, parameters={"up.weight": {"dp": Placement("range")}}))
    )
    gradient = np.ones((8, 4), np.float32)
    here, there = (places.of_gradient("up.weight", (8, 4), own).sketched(gradient) for own in ((8, 4), (0,)))
    assert here.sketch is not None
    assert np.array_equal(here.sketch, there.sketch)


def test_ranges_of_a_flat_parameter_add_up_to_it(tmp_path: Path) -> None:
    about = open_run(rank_folders(record(tmp_path / "two", dp=2))[0]).about
    value = np.arange(1, 33, dtype=np.float32).reshape(8, 4)
    sketches = []
    for start, end in ((0, 5), (5, 5), (5, 32)):
        how: dict[str, Any] = {"parameters": {"up.weight": {"dp": Placement("range")}}, "starts": {"up.weight": start}}
        places = Places(attrs.evolve(about, ranks=attrs.evolve(about.ranks, shapes={"up.weight": (8, 4)}, **how)))
        found = places.of_parameter("up.weight").sketched(value.reshape(-1)[start:end])
        assert found.whole == (8, 4)
        sketches.append(found.sketch)
    assert np.array_equal(sum(sketches), sketch(value))


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_that_share_sequences_are_put_together_along_whichever_axis_they_lie(count: int, tmp_path: Path) -> None:
    one, many = sketched(record_sequences(tmp_path / "one")), sketched(record_sequences(tmp_path / "many", cp=count))
    for pair in ((one, many), (many, one)):
        report = padiff.compare(*pair)
        assert report.aligned, report
        assert not report.coverage.missing, report
    wrong = sketched(record_sequences(tmp_path / "wrong", cp=count, order=lambda parts: parts[::-1]))
    report = padiff.compare(one, wrong)
    assert [(source.what.kind, source.candidate.path) for source in report.sources] == [("output", "down")], report
