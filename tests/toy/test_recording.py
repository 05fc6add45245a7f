"""Record a script's own loop: what is written is what the model did, and the model does what it did before."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.errors import InputError
from padiff.numerics import sample
from padiff.testing.toy import rows
from padiff.trace import open_run
from padiff.trace._run_writer import RunWriter
from padiff.trace._staging import Staging, checksum

MOMENTS = 20


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.act, self.norm = rows.Linear(6, 8), rows.GELU(), rows.LayerNorm(8)
        self.head = rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.act(self.first(x))))


def batches(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rows.Tensor(rng.standard_normal((5, 6), dtype=np.float32)) for _ in range(count)]


def parameters(model: Any) -> list[Any]:
    return [p for layer in (model.first, model.norm, model.head) for p in (layer.weight, layer.bias)]


def train(model: Any, data: list[Any], step: Any = lambda: None) -> list[float]:
    """Train a model, and clear the gradients before each step is over."""
    optimizer, losses = rows.SGD(parameters(model), 0.1), []
    for x in data:
        y = model(x)
        loss = (y * y).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear()
        losses.append(float(loss.data))
        step()
    return losses


def state_of(model: Any) -> list[bytes]:
    return [p.data.tobytes() for p in (model.first.weight, model.norm.weight, model.head.bias)]


def test_a_loop_is_recorded_and_runs_as_before(tmp_path: Path) -> None:
    np.random.seed(0)
    model = Net()
    np.random.seed(0)
    plain = Net()
    with padiff.record(model, tmp_path / "run") as recorder:
        losses = train(model, batches(3), recorder.step)
    assert losses == train(plain, batches(3))
    assert state_of(model) == state_of(plain)
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 1, 2]
    trace = run.trace(2)
    assert [call.path for call in trace.calls] == ["", "first", "act", "norm", "head"]
    assert trace.calls[3].settings["eps"].value == 1e-5
    np.random.seed(0)
    diffed = Net()
    train(diffed, batches(2))
    x = batches(3)[2]
    y = diffed(x)
    (y * y).mean().backward()
    assert trace.value(trace.root.outputs[0]).tobytes() == y.data.tobytes()
    for path, native in (("first.weight", diffed.first.weight), ("norm.bias", diffed.norm.bias)):
        assert trace.array(trace.parameter_gradients[path]).tobytes() == native.grad.tobytes()
    assert trace.gradient(trace.calls[3].outputs[0]) is not None


def test_weights_are_whole_once_and_glimpsed_later(tmp_path: Path) -> None:
    model = Net()
    first = model.first.weight.data.copy()
    with padiff.record(model, tmp_path / "run") as recorder:
        train(model, batches(2), recorder.step)
    run = open_run(tmp_path / "run")
    one, two = run.trace(0), run.trace(1)
    assert one.array(one.weights["first.weight"]).tobytes() == first.tobytes()
    assert two.weights["first.weight"] < 0
    glimpse = two.summaries[two.weights["first.weight"]].sample
    after = [run.array(run.updated["first.weight"]) for run in (one, two)]
    assert list(glimpse) == list(sample(after[0]))
    assert after[0].tobytes() != after[1].tobytes() == model.first.weight.data.tobytes()


def test_what_is_kept_is_chosen(tmp_path: Path) -> None:
    model = Net()
    for name, options in {
        "summary": {"values": "summary"},
        "structure": {"values": "structure"},
        "some": {"modules": "no*", "steps": [1]},
        "two": {"steps": 2},
    }.items():
        with padiff.record(model, tmp_path / name, **options) as recorder:
            train(model, batches(3), recorder.step)
    summary, structure, some, two = (open_run(tmp_path / n) for n in ("summary", "structure", "some", "two"))
    trace = summary.trace(0)
    assert trace.summaries[trace.values[trace.root.outputs[0].token]].norm > 0
    assert trace.summaries[trace.parameter_gradients["head.bias"]].norm > 0
    trace = structure.trace(0)
    assert not trace.values
    assert [leaf.shape for leaf in trace.root.outputs] == [(5, 4)]
    assert some.steps == [1]
    trace = some.trace(1)
    kept = {call.path for call in trace.calls for leaf in call.inputs if leaf.token in trace.values}
    assert kept == {"", "first", "norm", "head"}  # what these take, or what the model or the chosen module gave
    assert len(trace.values) == 4
    assert two.steps == [0, 1]
    with pytest.raises(InputError, match="no module of the model has a path like 'nirm'"):
        padiff.record(model, tmp_path / "none", modules=["nirm"])
    with pytest.raises(InputError, match="values is 'all'"):
        padiff.record(model, tmp_path / "none", values="all")  # type: ignore[arg-type]


def test_several_passes_of_a_step_add_up(tmp_path: Path) -> None:
    model = Net()
    with padiff.record(model, tmp_path / "run") as recorder:
        for x in batches(2):
            (model(x) * model(x)).mean().backward()
        recorder.step()
    trace = open_run(tmp_path / "run").trace(0)
    assert [call.key for call in trace.calls if call.parent is None] == [("", i) for i in range(4)]
    expected = np.zeros_like(model.first.weight.data)
    for x in batches(2):
        model.first.weight.grad = None
        (model(x) * model(x)).mean().backward()
        expected += model.first.weight.grad
    assert trace.array(trace.parameter_gradients["first.weight"]).tobytes() == expected.tobytes()


def test_what_is_open_at_the_end_is_no_step(tmp_path: Path) -> None:
    model = Net()
    with padiff.record(model, tmp_path / "run") as recorder:
        train(model, batches(1), recorder.step)
        model(batches(1)[0])
    assert open_run(tmp_path / "run").steps == [0]
    with padiff.record(model, tmp_path / "alone"):
        model(batches(1)[0])
    assert open_run(tmp_path / "alone").steps == [0]


def test_what_fails_leaves_the_finished_steps(tmp_path: Path) -> None:
    model = Net()

    def fail() -> None:
        with padiff.record(model, tmp_path / "failed") as recorder:
            train(model, batches(1), recorder.step)
            model(batches(1)[0])
            raise ZeroDivisionError

    def forget() -> None:
        with padiff.record(model, tmp_path / "empty") as recorder:
            train(model, batches(1), recorder.step)
            recorder.step()

    with pytest.raises(ZeroDivisionError):
        fail()
    assert open_run(tmp_path / "failed").steps == [0]
    assert not list((tmp_path / "failed").glob("*.part"))
    with pytest.raises(InputError, match="step 1 of the recording is empty"):
        forget()


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_looked_for_among_records(tmp_path: Path, monkeypatch: Any, enabled: bool) -> None:
    """Behind a step, and behind one that failed, the collector is as the user had it."""
    finish, seen = RunWriter.finish, []

    def watched(self: RunWriter, step: int, trace: Any) -> None:
        seen.append(gc.isenabled())
        finish(self, step, trace)

    monkeypatch.setattr(RunWriter, "finish", watched)
    (gc.enable if enabled else gc.disable)()
    try:
        with padiff.record(Net(), tmp_path / "run") as recorder:
            train(recorder.model.native, batches(2), recorder.step)
            assert gc.isenabled() is enabled
            with pytest.raises(InputError):
                recorder.step()
            assert gc.isenabled() is enabled
        assert seen == [False, False]
    finally:
        gc.enable()


def test_memory_for_copies_is_used_again_up_to_its_bound() -> None:
    staging, rng, held = Staging(1 << 20), np.random.default_rng(0), []
    for _ in range(400):
        if held and rng.random() < 0.5:
            staging.reuse(held.pop(rng.integers(len(held))))
            assert staging.kept <= 1 << 20
        else:
            array = rng.standard_normal((int(rng.choice([3, 200, 300, 400, 700])), 250), dtype=np.float32).T
            held.append(staging.copy(array))
            assert b"".join(part.tobytes() for part in held[-1].parts) == array.tobytes()
            assert held[-1].sum == checksum(np.ascontiguousarray(array))
            assert held[-1].holds(np.ascontiguousarray(array))
            assert not any(
                np.shares_memory(part, one) for other in held[:-1] for one in other.parts for part in held[-1].parts
            )
    for array in held:
        staging.reuse(array)
    assert 0 < staging.kept <= 1 << 20
    array = np.zeros(1 << 20, np.float32)
    staging.reuse(staging.copy(array))  # more than may be kept at all
    assert staging.kept <= 1 << 20


def test_a_full_disk_is_told_at_the_step_and_what_is_finished_stays(tmp_path: Path, monkeypatch: Any) -> None:
    import padiff.trace._shards as shards

    model, write, left = Net(), shards._write, [9]

    def full(file: Any, array: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        write(file, array)

    monkeypatch.setattr(shards, "_write", full)
    with (
        pytest.raises(InputError, match="cannot be written to: No space left on device"),
        padiff.record(model, tmp_path / "run") as recorder,
    ):
        train(model, batches(20), recorder.step)
    run = open_run(tmp_path / "run")
    assert run.steps
    assert all(run.trace(step).value(run.trace(step).root.outputs[0]) is not None for step in run.steps)
    assert not list((tmp_path / "run").glob("*.part"))


SCRIPT = """
import os, pathlib, random, signal, sys, time
sys.path[:0] = {paths!r}
from tests.toy.test_recording import *
with padiff.record(Net(), pathlib.Path(sys.argv[1], "whole")) as recorder:  # whatever is imported late
    train(Net(), [], recorder.step)
for moment in range({moments}):
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        model = Net()
        with padiff.record(model, pathlib.Path(sys.argv[1], str(moment))) as recorder:
            train(model, batches(5000), lambda: (recorder.step(), os.write(tell, b".")))
    os.close(tell)
    os.read(told, 1)
    time.sleep(random.Random(moment).uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(1 + len(os.read(told, 1 << 16)), flush=True)
    os.close(told)
"""


def test_a_kill_loses_no_finished_step(tmp_path: Path) -> None:
    paths = [path for path in sys.path if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    script = SCRIPT.format(paths=paths, moments=MOMENTS)
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    told = [int(line) for line in done.stdout.split()]
    assert len(told) == MOMENTS
    for moment, finished in enumerate(told):
        run = open_run(tmp_path / str(moment))
        assert run.steps == list(range(len(run.steps)))
        assert len(run.steps) >= finished > 0
        for step in run.steps:
            trace = run.trace(step)
            assert all(trace.array(key) is not None for key in trace.values.values())
