"""Hold a pass against runs of whole models; gradients tell of accumulated rounding; the garbage collector is left."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.judging._forced._wholes import response_by_gradients
from padiff.numerics import difference
from padiff.plugins import adapter_for
from padiff.recording import Task, record
from padiff.testing.toy import columns, rows
from padiff.trace import temporary_store

from .generated import numbers


class Deep(rows.Module):
    """Layers with a sum around them, whose response is more than one rounding."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        for i in range(depth):
            setattr(self, f"layer{i}", rows.Linear(4, 4))
            setattr(self, f"norm{i}", rows.LayerNorm(4, 1e-5))
        self.depth = depth

    def forward(self, x: Any) -> Any:
        for i in range(self.depth):
            x = x + getattr(self, f"norm{i}")(getattr(self, f"layer{i}")(x))
        return x


@pytest.mark.parametrize("depth", [1, 6, 20])
def test_gradients_tell_how_far_rounding_moves_the_output(depth: int) -> None:
    np.random.seed(depth)
    native = Deep(depth)
    model = adapter_for(native).wrap(native)
    with temporary_store() as store:
        task = Task((numbers(),), {})
        trace = record(model, task, store)
        disturbed = record(model, Task((numbers(),), {}, disturbed=True), store, values=False)
        expected = difference(trace.outputs[0], disturbed.outputs[0]).rel_l2
        found = response_by_gradients(trace)
        assert found is not None
        assert expected / 4 < found < 2 * expected


@pytest.mark.parametrize("set_aside", [False, True])
def test_the_garbage_collector_is_left_as_it_was(set_aside: bool) -> None:
    """What the user has set aside stays so."""
    (gc.freeze if set_aside else gc.unfreeze)()
    before = gc.get_threshold(), gc.get_freeze_count()
    model = Deep(2)
    try:
        padiff.diff(model, model, (numbers(),))
        with pytest.raises(padiff.PadiffError):
            padiff.diff(model, model, (numbers(3, 7),))
        assert (gc.get_threshold(), gc.isenabled()) == (before[0], True)
        assert (gc.get_freeze_count() > 0) is (before[1] > 0) is set_aside
    finally:
        gc.unfreeze()  # a million of frozen objects would be counted in every diff of the tests to come


def test_a_collector_that_a_user_has_set_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    gc.disable()
    try:
        padiff.diff(Deep(1), columns.Dense(4, 4), (numbers(),))
        assert not frozen
        assert not gc.isenabled()
    finally:
        gc.enable()


class EveryOther(columns.Layer):
    """Gives something else in every other run of it, beginning with the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.runs = columns.Dense(4, 4), columns.Dense(4, 4), itertools.count()

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x)) * (1.0 if next(self.runs) % 2 else 1.5)


def test_what_only_the_free_runs_show_is_no_pass() -> None:
    """The forced run shows nothing: every call gives there what the reference gives."""
    reference = rows.Sequential(rows.Linear(4, 4), rows.Sequential(rows.Linear(4, 4), rows.Linear(4, 4)))
    candidate = columns.Stack(columns.Dense(4, 4), EveryOther())
    report = padiff.diff(reference, candidate, (numbers(),))
    assert not report.aligned
    (source,) = report.sources
    assert [one.kind for one in source.evidence] == ["unexplained"], report
    assert source.candidate.path == "1"
    assert report.free_runs is not None
    assert not report.free_runs.explained
    assert "rounding does not explain it" in str(report)
