"""Compare recorded scripts that use parameters themselves, which one model holds in a layer and the other does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase, Report
from padiff.testing.toy import functional, rows

SIZE = 6


class Held(rows.Module):
    """Prototypes in a layer, or as a matrix, which the script uses; features and scores in either order."""

    def __init__(self, *, layer: bool, swapped: bool = False, more: bool = False) -> None:
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)
        if layer:
            self.proto = rows.Linear(SIZE, 4, bias=False)
        else:
            self.proto = rows.parameter(SIZE, 4)
        self.layer, self.swapped, self.more = layer, swapped, more

    def forward(self, x: Any) -> Any:
        inner = functional.tanh(self.first(x))
        scores = self.last(inner)
        given = (inner, scores) if self.swapped else (scores, inner)
        return (*given, inner * np.float32(2)) if self.more else given


class Both(rows.Module):
    def __init__(self, **how: Any) -> None:
        self.student, self.teacher = Held(**how), Held(**how)

    def forward(self) -> Any:
        raise NotImplementedError


def scored(model: Held, inner: Any) -> Any:
    return model.proto(inner) if model.layer else inner @ model.proto


def train(folder: Path, model: Both, *, weight: float = 1.0, eps: float = 0.0) -> None:
    optimizer = rows.SGD(model.student.parameters(), 0.1)
    rng = np.random.default_rng(3)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            x = rng.standard_normal((5, SIZE)).astype(np.float32)
            given = model.teacher(rows.Tensor(x + np.float32(eps)))[1 - model.teacher.swapped]
            taught = rows.Tensor(given.data.copy())
            out, inner = model.student(rows.Tensor(x))[:2][:: 1 - 2 * model.student.swapped]
            scores = scored(model.student, inner)
            loss = (out * out).mean() + (scores * scores).mean() * np.float32(weight) + (inner * taught).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear()
            recorder.step(float(loss.data))


def compared(folder: Path, fault: Any, **how: Any) -> Report:
    np.random.seed(0)
    models = Both(layer=True), Both(layer=False, **how)
    for ours, theirs in ((models[0].student, models[1].student), (models[0].teacher, models[1].teacher)):
        for name in ("first", "last"):
            for one in ("weight", "bias"):
                getattr(getattr(theirs, name), one).data[...] = getattr(getattr(ours, name), one).data
        theirs.proto.data[...] = ours.proto.weight.data.T
    train(folder / "a", models[0])
    train(folder / "b", models[1], **fault)
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("how", [{}, {"swapped": True}, {"more": True}])
def test_right_scripts_that_use_what_their_models_hold_are_aligned(tmp_path: Path, how: Any) -> None:
    """Of models that give as much as they hold nothing was compared but their layers, and padiff itself raised."""
    report = compared(tmp_path, {}, **how)
    assert report.aligned, str(report)
    assert {"student", "teacher"} <= {
        one.candidate.path for one in report.calls if one.reference and one.candidate
    } or "more" in how


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"), [({"weight": 3.0}, (Phase.LOSS, "")), ({"eps": 0.3}, (Phase.FORWARD, "teacher"))]
)
def test_a_fault_of_such_a_script_is_one_source(tmp_path: Path, fault: Any, place: Any, *, swapped: bool) -> None:
    """It was one at each layer that the model gives, or takes, something of."""
    (source,) = compared(tmp_path, fault, swapped=swapped).sources
    assert (source.phase, source.candidate.path) == place


class Actor(rows.Module):
    """A policy with a head for values inside, or that gives what a script's own critic takes."""

    def __init__(self, *, whole: bool) -> None:
        self.first, self.norm, self.last = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE), rows.Linear(SIZE, 3)
        if whole:
            self.value = rows.Linear(SIZE, 1)
        self.whole = whole

    def forward(self, x: Any) -> Any:
        inner = functional.tanh(self.norm(self.first(x)) * np.float32(3))
        return self.last(inner), self.value(inner) if self.whole else inner


class Agent(rows.Module):
    def __init__(self, *, whole: bool) -> None:
        self.policy, self.frozen = Actor(whole=whole), Actor(whole=False)
        if not whole:
            self.critic = rows.Linear(SIZE, 1)

    def forward(self) -> Any:
        raise NotImplementedError


def acted(folder: Path, model: Agent, *, goal: float = 1.0, rate: float = 0.1, told: bool = True) -> None:
    optimizer = rows.SGD([one for one in model.parameters() if one not in model.frozen.parameters()], rate)
    rng = np.random.default_rng(3)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            x = rng.standard_normal((5, SIZE)).astype(np.float32)
            kept = rows.Tensor(model.frozen(rows.Tensor(x))[0].data.copy())
            for _ in range(2):
                out, value = model.policy(rows.Tensor(x))
                value = value if model.policy.whole else model.critic(value)
                advantage = (value * value).mean() * np.float32(goal)
                loss = ((out - kept) * (out - kept)).mean() * advantage + advantage
                loss.backward()
                optimizer.step()
                optimizer.clear()
            recorder.step(float(loss.data) if told else None)


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),
        ({"goal": 2.0}, (0, Phase.BACKWARD, "policy")),
        ({"rate": 0.2}, (0, Phase.UPDATE, "")),
    ],
)
def test_a_layer_may_be_called_by_one_script_and_the_others_model(tmp_path: Path, fault: Any, place: Any) -> None:
    """Both models were compared with nothing, and their layers' inputs were taken for what the scripts give."""
    np.random.seed(0)
    models = Agent(whole=True), Agent(whole=False)
    for ours, theirs in ((models[0].policy, models[1].policy), (models[0].frozen, models[1].frozen)):
        for mine, yours in zip(
            (ours.first, ours.norm, ours.last), (theirs.first, theirs.norm, theirs.last), strict=True
        ):
            mine.weight.data[...] += np.float32(0.1)
            yours.weight.data[...], yours.bias.data[...] = mine.weight.data, mine.bias.data
    models[1].critic.weight.data[...] = models[0].policy.value.weight.data
    models[1].critic.bias.data[...] = models[0].policy.value.bias.data
    acted(tmp_path / "a", models[0], told=False)
    acted(tmp_path / "b", models[1], told=False, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    found = [(one.step, one.phase, one.candidate.path) for one in report.sources]
    assert found == ([] if place is None else [place]), str(report)
    assert report.aligned is (place is None)
    pairs = {(one.reference.path, one.candidate.path) for one in report.calls if one.reference and one.candidate}
    assert {("policy", "policy"), ("frozen", "frozen"), ("policy.value", "critic")} <= pairs


class Learner(rows.Module):
    def __init__(self) -> None:
        self.first, self.last = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.first(x)))


def adapted(folder: Path, model: Any, *, in_place: bool, fault: str | None = None) -> None:
    """Learn to learn: two inner steps on each of two tasks, and a step by what both send behind these.

    The weights of the inner steps are the parameters themselves, ``in_place``, or tensors in their place.
    """
    optimizer = rows.SGD(model.parameters(), 0.1)
    layers, names = (model.first, model.last), ("weight", "bias")
    homes = [(layer, name) for layer in layers for name in names]
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for seed in range(2):
            rng, sums = np.random.default_rng(seed), [np.float32(0)] * 4
            for _ in range(2):
                slow = [getattr(layer, name) for layer, name in homes]
                data, used = [one.data.copy() for one in slow], slow
                for turn in range(3):
                    out = model(rows.Tensor(rng.standard_normal((5, 4)).astype(np.float32)))
                    ((out - 1.0) * (out - 1.0)).mean().backward()
                    gradients = [one.grad for one in used]
                    for one in used:
                        one.grad = None
                    if turn < 2:
                        moved = [one.data - np.float32(0.2) * by for one, by in zip(used, gradients, strict=True)]
                        used = slow if in_place else [rows.Tensor(one, requires_grad=True) for one in moved]
                        for (layer, name), one, value in zip(homes, used, moved, strict=True):
                            one.data[...] = value
                            setattr(layer, name, one)
                for (layer, name), one, value in zip(homes, slow, data, strict=True):
                    one.data[...] = value
                    setattr(layer, name, one)
                sums = [by if fault == "last" else one + by for one, by in zip(sums, gradients, strict=True)]
            for number, (one, by) in enumerate(zip(slow, sums, strict=True)):
                one.grad = by * np.float32(0.5 if fault == "half" and number == 2 else 1)
            optimizer.step()
            optimizer.clear()
            recorder.step()


@pytest.mark.parametrize("fault", [None, "last", "half"])
@pytest.mark.parametrize("in_place", [(False, True), (True, False)])
def test_inner_steps_by_other_tensors_are_no_difference(
    tmp_path: Path, in_place: tuple[bool, bool], fault: str | None
) -> None:
    """The gradients of the second inner steps came to the parameters on one side alone, and were a source."""
    np.random.seed(0)
    models = Learner(), Learner()
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        theirs.data[...] = ours.data
    for name, model, one in zip("ab", models, in_place, strict=True):
        adapted(tmp_path / name, model, in_place=one, fault=fault if name == "b" else None)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert len(report.sources) == bool(fault), str(report)
    assert report.aligned is (fault is None)
