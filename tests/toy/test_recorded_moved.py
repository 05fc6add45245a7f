"""Compare recorded training loops that go on with weights which moved within the step: by an optimizer, or by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase, Report
from padiff.testing.toy import functional, rows

SIZE = 6


class World(rows.Module):
    def __init__(self) -> None:
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.first(x)))


class Agent(rows.Module):
    """A world model, and an actor that is trained behind it on what that gives by then."""

    def __init__(self) -> None:
        self.world, self.actor = World(), rows.Linear(SIZE, SIZE)

    def forward(self) -> Any:
        raise NotImplementedError


def pair(make: Any) -> tuple[Any, Any]:
    np.random.seed(0)
    models = make(), make()
    padiff.transfer(*models)
    return models


def batches(count: int = 2) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((5, SIZE)).astype(np.float32) for _ in range(count)]


def agent(folder: Path, model: Agent, *, weight: float = 1.0, rate: float = 0.1, shift: float = 0.0) -> None:
    first, second = rows.SGD(model.world.parameters(), rate), rows.SGD(model.actor.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=[first, second]) as recorder:
        for x in batches():
            out = model.world(rows.Tensor(x.copy()))
            ((out * out).mean() * np.float32(weight)).backward()
            first.step()
            imagined = np.tanh(model.world(rows.Tensor(x.copy())).data)
            acted = model.actor(rows.Tensor((imagined + np.float32(shift)).astype(np.float32)))
            (acted * acted).mean().backward()
            second.step()
            first.clear()
            second.clear()
            recorder.step()


def compared(folder: Path, run: Any, models: tuple[Any, Any], **fault: Any) -> Report:
    run(folder / "a", models[0])
    run(folder / "b", models[1], **fault)
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({"weight": 3.0}, (0, Phase.BACKWARD, "world")),
        ({"rate": 0.3}, (0, Phase.UPDATE, "world")),
        ({"shift": 0.3}, (0, Phase.FORWARD, "actor")),
        ({"weight": 3.0, "shift": 0.3}, (0, Phase.BACKWARD, "world")),
    ],
)
def test_what_a_script_makes_behind_a_step_follows_from_it(tmp_path: Path, fault: Any, place: Any) -> None:
    """What the world model gave the actor by its new weights was a source: `the inputs themselves differ`."""
    (source,) = compared(tmp_path, agent, pair(Agent), **fault).sources
    assert (source.step, source.phase, source.candidate.path) == place
    assert source.is_caused_by("inputs") is (fault == {"shift": 0.3})


def test_right_steps_of_two_optimizers_are_aligned(tmp_path: Path) -> None:
    report = compared(tmp_path, agent, pair(Agent))
    assert report.aligned, str(report)


def adapted(folder: Path, model: World, *, noise: float = 0.0, passes: int = 3, last: bool = True) -> None:
    """Adapt the weights within the step, by hand, and give them back in front of the optimizer's step."""
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for x, other in zip(batches(), reversed(batches()), strict=True):
            for turn, data in enumerate((x, other)):
                kept = [one.data.copy() for one in model.parameters()]
                for number in range(passes):
                    shifted = data + np.float32(noise) * (number == 1)
                    out = model(rows.Tensor(shifted.astype(np.float32)))
                    (out * out).mean().backward()
                    for one in model.parameters():
                        one.data[...] = one.data - np.float32(0.5) * one.grad
                    optimizer.clear()
                for one, value in list(zip(model.parameters(), kept, strict=True))[: 4 if last or turn else 2]:
                    one.data[...] = value
            out = model(rows.Tensor(x.copy()))
            (out * out).mean().backward()
            optimizer.step()
            optimizer.clear()
            recorder.step()


@pytest.mark.parametrize(
    ("fault", "cause"), [({}, ""), ({"noise": 0.3}, "inputs"), ({"passes": 4}, "micro_batches"), ({"last": False}, "")]
)
def test_what_a_script_makes_of_weights_within_a_step_is_one_source(tmp_path: Path, fault: Any, cause: str) -> None:
    """A layer whose weights such a fault moved otherwise was a second source, and a third one behind it."""
    report = compared(tmp_path, adapted, pair(World), **fault)
    assert len(report.sources) == bool(fault), str(report)
    for source in report.sources:
        assert source.step == 0
        assert (source.cause is not None and source.is_caused_by(cause)) if cause else source.cause is None


class Prior(rows.Module):
    def __init__(self) -> None:
        self.only = rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        return functional.tanh(self.only(x))


class States(rows.Module):
    def __init__(self) -> None:
        self.cell, self.prior, self.post = rows.Linear(SIZE, SIZE), Prior(), Prior()

    def forward(self) -> Any:
        raise NotImplementedError


def states(folder: Path, model: States, *, weight: float = 1.0) -> None:
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for x in batches():
            state = model.cell(rows.Tensor(x.copy()))
            prior = model.prior(state)
            post = model.post(functional.tanh(state))
            ((prior * prior).mean() + (post * post).mean() * np.float32(weight)).backward()
            optimizer.step()
            optimizer.clear()
            recorder.step()


def test_a_gradient_that_a_script_sends_is_judged_by_all_that_it_sends(tmp_path: Path) -> None:
    """The state's gradient was a source at the first layer of what takes it: it is also of what the script makes."""
    (source,) = compared(tmp_path, states, pair(States), weight=3.0).sources
    assert (source.phase, source.candidate.path, source.what.kind) == (Phase.BACKWARD, "post", "output_gradient")


class Damped(rows.Module):
    """A block whose own code uses no weights; those of its layers are used where these are called."""

    def __init__(self, times: float) -> None:
        self.first, self.last, self.times = rows.Linear(4, 4), rows.Linear(4, 4), times

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x) * np.float32(self.times))


class Adversaries(rows.Module):
    def __init__(self, times: float) -> None:
        self.maker, self.critic = Damped(times), rows.Linear(4, 4)

    def forward(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("times", [1.0, 1.1])
def test_a_step_in_front_of_a_call_is_no_cause_where_its_code_uses_no_weights(tmp_path: Path, times: float) -> None:
    """One script makes its samples anew behind the critic's step, which moves nothing that these are made by."""
    np.random.seed(0)
    models = Adversaries(1.0), Adversaries(times)
    for ours, theirs in zip(*(list(model.parameters()) for model in models), strict=True):
        theirs.data[...] = ours.data
    for name, model in zip("ab", models, strict=True):
        optimizers = [rows.SGD(one.parameters(), 0.1) for one in (model.critic, model.maker)]
        with padiff.record(model, tmp_path / name, optimizer=optimizers) as recorder:
            for seed in range(2):
                x = np.random.default_rng(seed).standard_normal((5, 4)).astype(np.float32)
                made = model.maker(rows.Tensor(x.copy()))
                judged = model.critic(rows.Tensor(made.data.copy()))
                (judged * judged).mean().backward()
                optimizers[0].step()
                made = model.maker(rows.Tensor(x.copy())) if name == "a" else made
                model.critic(made).mean().backward()
                optimizers[1].step()
                for one in optimizers:
                    one.clear()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.candidate.path, one.cause) for one in report.sources] == ([] if times == 1 else [("maker", None)])


class Small(rows.Module):
    def __init__(self) -> None:
        self.first, self.second, self.last = rows.Linear(1, 12), rows.Linear(12, 12), rows.Linear(12, 1)

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.second(functional.tanh(self.first(x)))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.02, 0.0201, 0.03])
@pytest.mark.parametrize("by_hand", ["", "a", "b", "ab"])
def test_inner_steps_at_another_rate_are_a_difference_whoever_makes_them(
    tmp_path: Path, by_hand: str, rate: float, seed: int
) -> None:
    """Two inner loops, whose weights are mixed with those in front of them: where one script steps by hand, and the
    other by an optimizer, what differed behind the first step followed from weights that nobody judged: `aligned`.
    """
    np.random.seed(seed)
    models = Small(), Small()
    for ours, theirs in zip(*(list(model.parameters()) for model in models), strict=True):
        ours.data *= np.float32(0.5)
        theirs.data[...] = ours.data
    for name, model, by in zip("ab", models, (0.02, rate), strict=True):
        optimizer = rows.SGD(model.parameters(), by)
        known = {} if name in by_hand else {"optimizer": optimizer}
        with padiff.record(model, tmp_path / name, **known) as recorder:
            for batch in range(2):
                rng = np.random.default_rng(batch)
                for task in range(2):
                    slow = [one.data.copy() for one in model.parameters()]
                    for _ in range(3):
                        x = rng.standard_normal((10, 1)).astype(np.float32)
                        out = model(rows.Tensor(x)) - np.sin(x) * np.float32(task + 1)
                        (out * out).mean().backward()
                        for one in model.parameters() if name in by_hand else ():
                            one.data[...] = one.data - np.float32(by) * one.grad
                        if name not in by_hand:
                            optimizer.step()
                        optimizer.clear()
                    for one, before in zip(model.parameters(), slow, strict=True):
                        one.data[...] = (one.data + before) / 2
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (rate == 0.02), str(report)
    assert bool(report.sources) is (rate != 0.02), str(report)


class Tables(rows.Module):
    """Two layers that take the same, and one behind them."""

    def __init__(self) -> None:
        self.words, self.places, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), World()

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.words(x)) + functional.tanh(self.places(x)))


def sharpened(folder: Path, model: Tables, *, far: float = 0.05, rate: float = 0.1, restored: bool = True) -> None:
    """Step by the gradients that come where those before lead uphill: sharpness-aware."""
    optimizer = rows.SGD(model.parameters(), rate)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for x in batches():
            (model(rows.Tensor(x.copy())) * np.float32(0.5)).mean().backward()
            norm = np.sqrt(sum(float(np.square(one.grad).sum()) for one in model.parameters()))
            moves = [(one, one.grad * np.float32(far / norm)) for one in model.parameters()]
            for one, move in moves:
                one.data[...] += move
            optimizer.clear()
            (model(rows.Tensor(x.copy())) * np.float32(0.5)).mean().backward()
            for one, move in moves if restored else ():
                one.data[...] -= move
            optimizer.step()
            optimizer.clear()
            recorder.step()


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),
        ({"far": 0.5}, (0, Phase.FORWARD, "words")),
        ({"rate": 0.2}, (0, Phase.UPDATE, "")),
        ({"restored": False}, (0, Phase.UPDATE, "")),
    ],
)
def test_weights_that_a_script_moves_between_calls_are_one_source(tmp_path: Path, fault: Any, place: Any) -> None:
    """Each layer that is given the same in the second call was one."""
    report = compared(tmp_path, sharpened, pair(Tables), **fault)
    found = [(one.step, one.phase, one.candidate.path) for one in report.sources]
    assert found == ([] if place is None else [place]), str(report)
    assert report.aligned is (place is None)
    said = [one.rests_on("changed_within_step") for one in report.sources]
    assert said == ([] if place is None else ["far" in fault])


class Critics(rows.Module):
    """An actor, and two critics of what it makes."""

    def __init__(self) -> None:
        self.actor, self.one, self.other = rows.Linear(SIZE, SIZE), World(), World()

    def forward(self) -> Any:
        raise NotImplementedError


def judged(folder: Path, model: Critics, *, rate: float = 0.1, weight: float = 1.0) -> None:
    """Train the actor, behind the critics' step, on whichever of them is the least in each row."""
    critics = rows.SGD([*model.one.parameters(), *model.other.parameters()], rate)
    actor = rows.SGD(model.actor.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=[critics, actor]) as recorder:
        for x in batches(3):
            first = [critic(rows.Tensor(x.copy())) for critic in (model.one, model.other)]
            sum(((one - 1.0) * (one - 1.0) for one in first), rows.Tensor(np.zeros(1, np.float32))).mean().backward()
            critics.step()
            critics.clear()
            made = model.actor(rows.Tensor(x.copy()))
            one, other = model.one(made), model.other(made)
            least = (one.data < other.data).astype(np.float32)
            ((one * least + other * (1 - least)) * np.float32(weight)).mean().backward()
            actor.step()
            actor.clear()
            critics.clear()
            recorder.step()


@pytest.mark.parametrize("weight", [1.0, 1.5])
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_what_a_loss_sends_by_weights_that_moved_otherwise_follows(tmp_path: Path, rate: float, weight: float) -> None:
    """The gradient of a critic that is the least nowhere on one side was the source, and hid the rate."""
    models = pair(Critics)
    for model in models:
        model.other.last.bias.data[...] += np.float32(3.16)
    report = compared(tmp_path, judged, models, rate=rate, weight=weight)
    assert report.aligned is (rate == 0.1 and weight == 1), str(report)
    found = [(one.step, one.is_caused_by("optimizer_settings")) for one in report.sources]
    assert found == [(0, rate > 0.1)] * (not report.aligned), str(report)
