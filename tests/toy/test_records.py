"""What a trace says of a run, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import padiff
from padiff.distributed import open_ranks
from padiff.distributed._sketches import read
from padiff.forcing import LocalSide
from padiff.plugins import adapter_for
from padiff.recording import Task, plain
from padiff.testing.toy import columns, rows
from padiff.trace import Slot, Text, Trace, ValueStore, settings_of

from .ranks import record


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def trace_of(model: Any, *args: Any) -> Trace:
    side = LocalSide(adapter_for(model).wrap(model))
    side.prepare(None, None, index=0)
    return side.record(Task(args, {}), ValueStore())


class Warming(rows.Module):
    """A model that changes a hyper-parameter between two calls of the same module."""

    def __init__(self) -> None:
        self.norm = rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        self.norm.eps = 1e-5
        x = self.norm(x)
        self.norm.eps = 0.5
        return self.norm(x)


def test_settings_are_those_of_each_call() -> None:
    calls = trace_of(Warming(), numbers(2, 4)).by_module()["norm"]
    assert [settings_of(call)["eps"] for call in calls] == [1e-5, 0.5]


def test_a_setting_that_one_call_has_otherwise_is_named() -> None:
    class Port(columns.Layer):
        def __init__(self) -> None:
            self.norm = columns.LayerNormalization(4)

        def forward(self, x: Any) -> Any:
            self.norm.epsilon = 1e-5
            return self.norm(self.norm(x))

    report = padiff.diff(Warming(), Port(), (numbers(2, 4),))
    assert not report.aligned
    assert any(source.candidate.path == "norm" and "0.5" in str(source.cause) for source in report.sources), str(report)


class Shared(rows.Module):
    """One module under two paths, used below both."""

    def __init__(self) -> None:
        self.one, self.two = Inner(), Inner()
        self.two.linear = self.one.linear

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


class Inner(rows.Module):
    def __init__(self) -> None:
        self.linear, self.scale = rows.Linear(4, 4), 1.0

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale


def test_a_module_under_two_paths_is_known_by_the_first() -> None:
    trace = trace_of(Shared(), numbers(2, 4))
    assert [call.key for call in trace.calls] == [
        ("", 0), ("one", 0), ("one.linear", 0), ("two", 0), ("one.linear", 1),
    ]  # fmt: skip


def test_code_around_a_shared_module_is_judged_where_it_is() -> None:
    reference, candidate = Shared(), Shared()
    candidate.two.scale = 1.01
    report = padiff.diff(reference, candidate, (numbers(2, 4),))
    assert [source.candidate.path for source in report.sources] == ["two"], str(report)


def _walk(value: Any, seen: set[int]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _walk(getattr(value, field.name), seen)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _walk(list(pair), seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _walk(item, seen)


def test_nothing_in_a_trace_is_alive() -> None:
    trace = trace_of(Shared(), numbers(2, 4))
    plain_types = (int, float, str, bool, type(None), list, tuple, dict, np.ndarray, Enum, ValueStore)
    odd = [one for one in _walk(trace, set()) if not (isinstance(one, plain_types) or attrs.has(type(one)))]
    assert not odd, odd[:5]


def test_arguments_become_plain_data() -> None:
    class Odd:
        def __repr__(self) -> str:
            msg = "nobody asks for this"
            raise AssertionError(msg)

    given = ({"a": [1, 2.5, Slot(0)]}, (None, "x", np.float32(0.5)), slice(1, None), Odd(), np.dtype("float32"))
    found = plain(given)
    assert found[:3] == ({"a": [1, 2.5, Slot(0)]}, (None, "x", 0.5), slice(1, None))
    assert found[3].text.endswith("Odd>")
    assert isinstance(found[4], Text)


def test_what_ranks_hold_alike_is_held_once(tmp_path: Path) -> None:
    """Else the memory grows with the ranks: a thousand copies of one norm, and of the records of one module."""
    run = open_ranks(record(tmp_path / "job", tp=2, dp=2))
    assert run is not None
    first, *others = (one.about for one in run.runs.values())
    assert all(one.parameters["norm.weight"] is first.parameters["norm.weight"] for one in others)
    step = run.merged(0)
    norm, up = (read(step.parameters["weights", f"{name}.weight"].arrays) for name in ("norm", "up"))
    assert [part is norm[0] for part in norm.values()] == [True] * 4
    assert [part is up[0] for part in up.values()] == [True, False, True, False]
