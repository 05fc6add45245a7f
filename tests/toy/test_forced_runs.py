"""Run a model against a recorded run on the toy framework: the sources that diff() names, over steps too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.cli import main
from padiff.engine._open import opened
from padiff.errors import InputError
from padiff.report import Phase, Verdict
from padiff.testing.toy import columns, rows

from .test_compare import Drawing, Net, Port, inputs, loop, places

FAULTS = ["epsilon", "glue", "residual", "detach", "slope"]


def recorded(folder: Path, model: Any = None, **asked: Any) -> Any:
    """Record a model of the reference's; return it."""
    np.random.seed(0)
    model = Net() if model is None else model
    loop(model, folder, **asked)
    return model


def other(fault: str = "") -> Port:
    """Return a port with weights of its own."""
    np.random.seed(9)
    return Port(fault)


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_sources_are_those_of_diff(tmp_path: Path, fault: str) -> None:
    net, port = recorded(tmp_path / "a"), other(fault)
    report = padiff.compare(tmp_path / "a", force=port)
    diffed = padiff.diff(net, other(fault), inputs())
    assert places(report) == places(diffed), str(report)
    assert report.aligned is diffed.aligned is (not fault)
    assert report.transfer is not None
    assert len(report.transfer.unverified) == len(diffed.transfer.unverified)  # type: ignore[union-attr]
    assert "the reference is the recorded run" in str(report)


def test_several_faults_are_all_found_at_once(tmp_path: Path) -> None:
    """Without forcing, the one behind the other would be a consequence."""
    recorded(tmp_path / "a")
    port = other("epsilon")
    port.layers[0].fault = "glue"
    assert set(places(padiff.compare(tmp_path / "a", force=port))) == {
        ("layers.0", "forward"),
        ("layers.1.norm", "forward"),
    }


def optimized(tmp_path: Path, rate: float, **asked: Any) -> padiff.Report:
    np.random.seed(0)
    net, port = Net(), other(asked.pop("fault", ""))
    loop(net, tmp_path / "a", rows.SGD(net.parameters(), 0.1, 0.9), steps=3)
    return padiff.compare(tmp_path / "a", force=port, optimizer=rows.SGD(port.parameters(), rate, 0.9), **asked)


def test_three_steps_are_forced_from_their_own_weights(tmp_path: Path) -> None:
    report = optimized(tmp_path, 0.1)
    assert report.aligned, str(report)
    assert {call.step for call in report.calls} == {0, 1, 2}
    assert "(steps 0, 1, 2)" in str(report)


def test_an_optimizer_that_steps_otherwise_is_named(tmp_path: Path) -> None:
    report = optimized(tmp_path, 0.12)
    assert {(one.phase, one.step) for one in report.sources} == {(Phase.UPDATE, step) for step in range(3)}, str(report)


def test_a_fault_shows_at_its_place_in_every_step(tmp_path: Path) -> None:
    report = optimized(tmp_path, 0.1, fault="glue")
    assert {(one.candidate.path, one.phase.value, one.step) for one in report.sources} == {
        ("layers.1", "forward", step) for step in range(3)
    }


def test_without_an_optimizer_each_step_starts_from_the_recorded_weights(tmp_path: Path) -> None:
    np.random.seed(0)
    net = Net()
    loop(net, tmp_path / "a", rows.SGD(net.parameters(), 0.1), steps=3)
    assert padiff.compare(tmp_path / "a", force=other()).aligned
    last = padiff.compare(tmp_path / "a", force=other("residual"), step=2)
    assert places(last) == [("layers.1", "forward")]
    assert {one.step for one in last.sources} == {2}


def test_a_candidates_run_gives_its_inputs(tmp_path: Path) -> None:
    recorded(tmp_path / "a")
    recorded(tmp_path / "b", other("glue"))
    report = padiff.compare(tmp_path / "a", tmp_path / "b", force=other("glue"))
    assert places(report) == [("layers.1", "forward")]


def test_a_loss_of_the_candidates_is_compared(tmp_path: Path) -> None:
    recorded(tmp_path / "a")
    right = padiff.compare(tmp_path / "a", force=other(), loss=lambda y: (y * y).mean())
    assert right.aligned, str(right)
    wrong = padiff.compare(tmp_path / "a", force=other(), loss=lambda y: (y * y).mean() * 2.0)
    assert {one.phase for one in wrong.sources} == {Phase.LOSS}, str(wrong)


class Twice(rows.Module):
    """A model that goes on with what it returns."""

    def __init__(self) -> None:
        self.first, self.head = rows.Linear(6, 8), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        return self.head(hidden), hidden


class TwicePort(columns.Layer):
    def __init__(self, cut: bool = False) -> None:
        self.first, self.head, self.cut = columns.Dense(6, 8), columns.Dense(8, 4), cut

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        return self.head(type(hidden)(hidden.data) if self.cut else hidden), hidden


def twice(folder: Path, both: bool = True) -> None:
    np.random.seed(0)
    model = Twice()
    with padiff.record(model, folder):
        y, hidden = model(rows.Tensor(inputs()[0]))
        ((y * y).mean() + (hidden * hidden).mean() if both else (y * y).mean()).backward()


def test_where_the_backward_pass_started_has_to_be_known(tmp_path: Path) -> None:
    """Of an output that the model goes on with only the whole gradient is recorded, the model's own share in it."""
    twice(tmp_path / "a")
    for cut in (False, True):
        report = padiff.compare(tmp_path / "a", force=TwicePort(cut))
        assert report.forward_only is not None
        assert "gradients came to 2 outputs" in report.forward_only
        assert str(report).startswith("aligned, forward only"), str(report)

    def loss(found: Any) -> Any:
        return (found[0] * found[0]).mean() + (found[1] * found[1]).mean()

    assert padiff.compare(tmp_path / "a", force=TwicePort(), loss=loss).aligned
    cut_off = padiff.compare(tmp_path / "a", force=TwicePort(cut=True), loss=loss)
    assert [one.phase for one in cut_off.sources] == [Phase.BACKWARD], str(cut_off)


def test_a_gradient_that_comes_from_inside_alone_is_compared(tmp_path: Path) -> None:
    """The loss takes one output; what comes to the other one comes through it."""
    twice(tmp_path / "a", both=False)
    right = padiff.compare(tmp_path / "a", force=TwicePort())
    assert right.aligned, str(right)
    assert right.forward_only is None
    cut_off = padiff.compare(tmp_path / "a", force=TwicePort(cut=True))
    assert not cut_off.aligned or cut_off.forward_only is not None


def test_what_record_once_wrote_says_where_backward_started(tmp_path: Path) -> None:
    from padiff.engine import record_once

    np.random.seed(0)
    record_once(Twice(), inputs(), tmp_path / "a")
    right = padiff.compare(tmp_path / "a", force=TwicePort())
    assert right.aligned, str(right)
    assert right.forward_only is None
    assert not padiff.compare(tmp_path / "a", force=TwicePort(cut=True)).aligned


def test_what_is_random_is_never_a_pass(tmp_path: Path) -> None:
    np.random.seed(3)
    loop(Drawing(), tmp_path / "a")
    report = padiff.compare(tmp_path / "a", force=Drawing())
    assert not report.aligned
    assert not report.sources, str(report)
    assert [one.verdict for one in report.unmatched] == [Verdict.UNMATCHED]
    assert "evaluation mode" in str(report.unmatched[0].evidence[0])


def test_operations_that_were_recorded_are_compared(tmp_path: Path) -> None:
    recorded(tmp_path / "a", operations=True)
    assert padiff.compare(tmp_path / "a", force=other()).aligned
    report = padiff.compare(tmp_path / "a", force=other("glue"))
    assert report.operations
    assert not report.aligned
    assert all((one.candidate.path or "").startswith("layers.1") for one in report.sources), str(report)


def test_a_model_of_another_process_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).with_name("site"))
    recorded(tmp_path / "a")
    for target, expected in (("other", []), ("wrong", [("layers.1", "forward")])):
        with padiff.remote(f"tests.toy.test_forced_runs:{target}") as model:
            report = padiff.compare(tmp_path / "a", force=model)
        assert places(report) == expected, str(report)
    with (
        padiff.remote("tests.toy.test_forced_runs:other") as model,
        pytest.raises(InputError, match="be watched from"),
    ):
        padiff.record(model, tmp_path / "b")


def test_what_cannot_be_forced_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "a")
    recorded(tmp_path / "summary", values="summary")
    recorded(tmp_path / "later", steps=3)
    shutil.copytree(tmp_path / "a", tmp_path / "killed", ignore=shutil.ignore_patterns("step-*"))
    port = other()
    x = rows.Tensor(inputs()[0])
    for name, called in (("twice", lambda net: net(x) + net(x)), ("part", lambda net: net.first(x))):
        net = Net()
        with padiff.record(net, tmp_path / name) as recorder:
            called(net).mean().backward()
            recorder.step()
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("a", {"force": port, "step": 3}, "has no step 3"),
        ("a", {"force": port, "inputs": (np.ones((5, 3, 6), np.float32),)}, "the inputs hold other values"),
        ("a", {"force": port, "inputs": (np.ones((2, 6), np.float32),)}, "nothing of that size"),
        ("a", {"inputs": inputs()}, "inputs= serves a model that is run"),
        ("a", {}, "there is no candidate"),
        ("a", {"force": port, "cache": tmp_path / "measured.txt"}, "cache= serves the values of two recorded runs"),
        ("a", {"force": port, "executor": object()}, "executor= serves the values"),
        ("summary", {"force": port}, "holds no values to feed"),
        ("killed", {"force": port}, "holds no finished step"),
        ("twice", {"force": port}, "calls the model 2 times"),
        ("part", {"force": port}, "calls its part 'first' by itself"),
    ]
    for name, asked, said in cases:
        with pytest.raises(InputError, match=said) as caught:
            padiff.compare(tmp_path / name, **asked)
        assert "Hint: " in str(caught.value)


class Earlier:
    """A run of an earlier padiff, which kept weights of the first step alone."""

    def __init__(self, run: Any) -> None:
        self.run, self.steps = run, run.steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    def trace(self, step: int) -> Any:
        trace = self.run.trace(step)
        return attrs.evolve(trace, weights={}) if step else trace


def test_a_step_behind_a_gap_has_its_weights(tmp_path: Path) -> None:
    np.random.seed(0)
    net = Net()
    with padiff.record(net, tmp_path / "a", steps=[0, 2]) as recorder:
        optimizer = rows.SGD(net.parameters(), 0.1)
        for _ in range(3):
            (net(rows.Tensor(inputs()[0])) * 1.0).mean().backward()
            optimizer.step()
            optimizer.clear()
            recorder.step()
    for step in (None, 2):
        report = padiff.compare(tmp_path / "a", force=other(), step=step)
        assert report.aligned, str(report)
    with pytest.raises(InputError, match="weights that step 2 started from"):
        padiff.compare(Earlier(opened(tmp_path / "a")), force=other(), step=2)
    port = other()
    with pytest.raises(InputError, match="the steps 0, 2 would be forced"):
        padiff.compare(tmp_path / "a", force=port, optimizer=rows.SGD(port.parameters(), 0.1))


def test_the_command_line_forces(tmp_path: Path, capsys: Any) -> None:
    this, folder = "tests.toy.test_forced_runs", str(tmp_path / "a")
    assert main(["record", "tests.toy.test_compare:Net", "--inputs", f"{this}:inputs", "-o", folder]) == 0
    assert main(["compare", folder, "--force", f"{this}:other", "--inputs", f"{this}:inputs"]) == 0
    assert main(["compare", folder, "--force", f"{this}:wrong"]) == 1
    assert "layers.1" in capsys.readouterr().out
    assert main(["compare", folder]) == 2
    assert "--force my_port:build" in capsys.readouterr().err
    assert main(["compare", folder, "--force", f"{this}:other", "--cache", f"{folder}.txt"]) == 2
    assert "--cache keeps" in capsys.readouterr().err
    assert main(["compare", folder, folder, "--inputs", f"{this}:inputs"]) == 2
    assert "--force SPEC" in capsys.readouterr().err


def wrong() -> Port:
    return other("glue")
