"""Compare recorded training loops that put several modules together themselves: towers, a critic, a teacher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE = 6


class Tower(rows.Module):
    def __init__(self) -> None:
        self.first, self.norm, self.last = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        inner = functional.tanh(self.norm(self.first(x)))
        return self.last(inner), inner


class Whole(rows.Module):
    """A student and a teacher, which the model itself calls."""

    def __init__(self) -> None:
        self.student, self.teacher, self.hint = Tower(), Tower(), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        out, inner = self.student(x)
        taught, _ = self.teacher(x)
        return out, detached(taught), self.hint(inner)


class Uncalled(rows.Module):
    def forward(self) -> Any:
        raise NotImplementedError


class Parts(Uncalled):
    """The same, which a script calls one by one."""

    def __init__(self) -> None:
        self.net, self.big, self.adapt = Tower(), Tower(), rows.Linear(SIZE, SIZE)


def detached(x: Any) -> Any:
    return type(x)(x.data.copy())


def batches() -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((4, SIZE)).astype(np.float32) for _ in range(3)]


def same(*models: Any) -> None:
    """Give models with as many parameters the same values, in order."""
    first, *others = (list(model.parameters()) for model in models)
    for other in others:
        for ours, theirs in zip(first, other, strict=True):
            theirs.data[...] = ours.data


def whole(folder: Path, model: Whole) -> None:
    optimizer = rows.SGD([*model.student.parameters(), *model.hint.parameters()], 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for x in batches():
            out, taught, hint = model(rows.Tensor(x.copy()))
            loss = ((out - taught) * (out - taught)).mean() + (hint * hint).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear()
            recorder.step(float(loss.data))


def parts(folder: Path, model: Parts, *, weight: float = 1.0, steps: Any = None) -> None:
    optimizer = rows.SGD(steps or [*model.net.parameters(), *model.adapt.parameters()], 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for x in batches():
            out, inner = model.net(rows.Tensor(x.copy()))
            taught = detached(model.big(rows.Tensor(x.copy()))[0])
            hint = model.adapt(inner)
            loss = ((out - taught) * (out - taught)).mean() * np.float32(weight) + (hint * hint).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear()
            recorder.step(float(loss.data))


def test_modules_that_one_script_calls_one_by_one_are_those_that_the_model_calls(tmp_path: Path) -> None:
    """The model's own call was matched with the first of them, whatever that is."""
    np.random.seed(0)
    models = Whole(), Parts()
    same(*models)
    whole(tmp_path / "a", models[0])
    parts(tmp_path / "b", models[1])
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", ["weight", "teacher", "steps"])
def test_a_fault_among_modules_that_a_script_calls_is_one_source(tmp_path: Path, fault: str) -> None:
    np.random.seed(0)
    models = Whole(), Parts()
    same(*models)
    if fault == "teacher":
        models[1].big.norm.eps = 0.1
    whole(tmp_path / "a", models[0])
    steps = models[1].net.parameters() if fault == "steps" else None
    parts(tmp_path / "b", models[1], weight=2.0 if fault == "weight" else 1.0, steps=steps)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    places = {
        "weight": (Phase.BACKWARD, "net"),
        "teacher": (Phase.FORWARD, "big.norm"),
        "steps": (Phase.UPDATE, "adapt"),
    }
    assert (source.phase, source.candidate.path) == places[fault]


class Pair(Uncalled):
    def __init__(self) -> None:
        self.maker, self.critic = Tower(), Tower()


Loss = Callable[[Any], Any]
STEP = rows.SGD.step
"""A step that nobody hears of: that of an optimizer by hand."""


def adversarial(
    folder: Path,
    model: Pair,
    *,
    freeze: bool = False,
    stale: bool = False,
    known: bool = True,
    scale: float = 1.0,
    paired: bool = False,
    more: float = 0.0,
) -> None:
    """Train two modules in turns, each by its own optimizer; a critic may be frozen as the maker is trained.

    Where its losses are ``paired`` its last bias gets a gradient of zeros. It is given so much ``more`` than was made.
    """
    optimizers = [rows.SGD(one.parameters(), 0.1) for one in (model.critic, model.maker)]
    with padiff.record(model, folder, optimizer=optimizers if known else None) as recorder:
        for x in batches():
            fake = detached(model.maker(rows.Tensor(x.copy()))[0])
            judged = model.critic(fake + np.float32(more))[0]
            loss = judged.mean() - model.critic(rows.Tensor(x.copy()))[0].mean() if paired else (judged * judged).mean()
            loss.backward()
            optimizers[0].step() if known else STEP(optimizers[0])
            optimizers[0].clear()
            optimizers[1].clear()
            recorder.step()
            for parameter in model.critic.parameters() if freeze else ():
                parameter.requires_grad = False
            judged = model.critic(model.maker(rows.Tensor(x.copy()))[0])[0]
            loss = (judged * np.linspace(0, 1, SIZE, dtype=np.float32)).mean() * np.float32(scale)
            loss.backward()
            optimizers[1].step() if known else STEP(optimizers[1])
            optimizers[1].clear()
            for parameter in model.critic.parameters():
                parameter.requires_grad = True
            if not stale:
                optimizers[0].clear()
            recorder.step(float(loss.data))


def both(tmp_path: Path, train: Callable[..., None], *hows: Any) -> padiff.Report:
    np.random.seed(0)
    models = Pair(), Pair()
    same(*models)
    for model, name, how in zip(models, "ab", hows, strict=True):
        train(tmp_path / name, model, **how)
    return padiff.compare(tmp_path / "a", tmp_path / "b")


def turns(tmp_path: Path, a: Any = (), b: Any = ()) -> padiff.Report:
    return both(tmp_path, adversarial, dict(a), dict(b))


@pytest.mark.parametrize("side", "ab")
def test_gradients_that_no_optimizer_steps_with_are_no_difference(tmp_path: Path, side: str) -> None:
    report = turns(tmp_path, **{side: {"freeze": True}})
    assert report.aligned, str(report)
    (note,) = {(note.kind, note.data["side"]) for note in report.notes if note.kind == "unused_gradients"}
    assert note[1] == ("candidate" if side == "a" else "reference")


class Rounding(Tower):
    """What rounds by more than inputs that are the same on both sides may differ."""

    def forward(self, x: Any) -> Any:
        out, inner = super().forward(x)
        return out * np.float32(1 + 2e-6), inner


@pytest.mark.parametrize("more", [0.0, 1e-4])
def test_what_a_script_hands_on_may_be_as_far_apart_as_what_it_was_given(tmp_path: Path, more: float) -> None:
    np.random.seed(0)
    models = Pair(), Pair()
    models[1].maker = Rounding()
    same(*models)
    adversarial(tmp_path / "a", models[0])
    adversarial(tmp_path / "b", models[1], more=more)
    found = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert [(one.step, one.candidate.path, one.cause.name) for one in found if one.cause] == (
        [(0, "critic", "inputs")] if more else []
    )
    assert len(found) == bool(more)


def in_one_step(
    folder: Path,
    model: Pair,
    *,
    turns: int = 1,
    freeze: bool = False,
    scale: float = 1.0,
    clear: bool = True,
    term: float = 0.0,
    extra: bool = False,
    late: bool = False,
    momentum: float = 0.0,
    maker_first: bool | None = None,
) -> None:
    """Train two modules in turns within one recorded step: the critic's gradients come behind its own steps, too.

    What is frozen may be trained again as ``late`` as behind the next step's first call. Unless ``maker_first`` is None
    the maker is called for each of both.
    """
    optimizers = [rows.SGD(model.critic.parameters(), 0.1, momentum), rows.SGD(model.maker.parameters(), 0.1)]

    def train_maker(x: Any, fake: Any) -> None:
        for parameter in model.critic.parameters() if freeze else ():
            parameter.requires_grad = False
        fake = fake if maker_first is None else model.maker(rows.Tensor(x[::-1].copy()))[0]
        (model.critic(fake)[0] * np.linspace(0, scale, SIZE, dtype=np.float32)).mean().backward()
        optimizers[1].step()
        optimizers[1].clear()
        for parameter in () if late else model.critic.parameters():
            parameter.requires_grad = True

    with padiff.record(model, folder, optimizer=optimizers) as recorder:
        for x in batches():
            if maker_first:
                train_maker(x, None)
            fake = model.maker(rows.Tensor(x.copy()))[0]
            for parameter in model.critic.parameters():
                parameter.requires_grad = True
            for _ in range(turns):
                if clear:
                    optimizers[0].clear()
                judged = model.critic(detached(fake))[0]
                loss = (judged * judged).mean()
                for weight in model.critic.parameters() if term else ():
                    loss = loss + (weight.tanh() * np.float32(term)).sum()
                if extra:
                    loss = loss + model.critic(detached(fake) * 0.5)[0].mean()
                loss.backward()
                optimizers[0].step()
            if not maker_first:
                train_maker(x, fake)
            recorder.step()


@pytest.mark.parametrize(("side", "turns", "late"), [(0, 1, False), (1, 1, False), (1, 2, False), (1, 1, True)])
def test_gradients_behind_the_step_of_one_side_are_no_difference(
    tmp_path: Path, side: int, turns: int, late: bool
) -> None:
    """A critic that is frozen as the maker is trained, behind its own step: of its gradients more come on one side.

    It may be so still as the next step begins: no gradient of it was recorded there.
    """
    report = both(tmp_path, in_one_step, *({"turns": turns, "freeze": n == side, "late": late} for n in (0, 1)))
    assert report.aligned, str(report)
    (note,) = {(note.kind, note.data["side"]) for note in report.notes if note.kind == "unused_gradients"}
    assert note[1] == ("candidate", "reference")[side]


@pytest.mark.parametrize("turns", [1, 2])
def test_a_fault_beside_gradients_behind_the_step_is_found(tmp_path: Path, turns: int) -> None:
    report = both(tmp_path, in_one_step, {"turns": turns}, {"turns": turns, "freeze": True, "scale": 2.0})
    (source,) = report.sources
    assert (source.phase, source.candidate.path) == (Phase.BACKWARD, "critic")


def test_a_momentum_beside_gradients_behind_the_step_is_the_cause(tmp_path: Path) -> None:
    """Of its gradients more came on one side, and its later steps were taken for unsure: there was no source."""
    (source,) = both(tmp_path, in_one_step, {"momentum": 0.5}, {"momentum": 0.9, "freeze": True}).sources
    assert (source.step, source.phase, source.candidate.path) == (1, Phase.UPDATE, "critic")
    assert list(source.cause.parameters) == ["momentum"]


def test_optimizers_that_step_in_another_order_are_one_source(tmp_path: Path) -> None:
    """Each of both modules was one: what steps it comes before its call on one side alone."""
    report = both(tmp_path, in_one_step, {"maker_first": False}, {"maker_first": True})
    assert [one.cause and one.cause.name for one in report.sources] == ["stepped_before"], str(report)


def test_a_term_that_comes_past_all_calls_is_found_in_front_of_the_step(tmp_path: Path) -> None:
    """All that differs followed from the calls behind the step: there was no source, and then one for each module."""
    (source,) = both(tmp_path, in_one_step, {}, {"term": 0.1}).sources
    assert (source.step, source.phase, source.what.kind) == (0, Phase.BACKWARD, "gradients")
    assert source.candidate.path == "critic"


def test_a_call_that_one_side_lacks_is_one_source_beside_calls_behind_the_step(tmp_path: Path) -> None:
    """Layers inside of calls that differ, as the step does, were matched in their order: one was given other inputs."""
    (source,) = both(tmp_path, in_one_step, {"extra": True}, {}).sources
    assert (source.candidate.path, source.cause.name) == ("critic", "calls")


def test_gradients_of_one_optimizer_that_are_never_cleared_are_named(tmp_path: Path) -> None:
    """What came behind the optimizer's step is there in the next one, too; those of the other are cleared."""
    (source,) = both(tmp_path, in_one_step, {}, {"clear": False}).sources
    assert (source.step, source.candidate.path) == (1, "critic")
    assert "added to those of the step before (which were not cleared) in the candidate" in str(source.cause)


@pytest.mark.parametrize("how", [{}, {"paired": True}])
def test_gradients_that_are_stepped_with_later_are_a_difference(tmp_path: Path, how: dict[str, bool]) -> None:
    """Those of a step in which nothing steps them were told by their size alone."""
    (source,) = turns(tmp_path, {"freeze": True, **how}, {"stale": True, **how}).sources
    assert (source.phase, source.step, source.candidate.path) == (Phase.UPDATE, 2, "critic")
    assert "added to those of the step before (which were not cleared) in the candidate" in str(source.cause)


def test_gradients_count_where_nobody_tells_what_is_stepped(tmp_path: Path) -> None:
    assert not turns(tmp_path, {"known": False}, {"known": False, "freeze": True}).aligned


def test_a_loss_of_another_scale_is_one_source(tmp_path: Path) -> None:
    """It was two: the loss, at the first module, and what its backward pass starts from, without a cause."""
    (source,) = turns(tmp_path, {}, {"scale": 3.0}).sources
    assert (source.phase, source.step, source.candidate.path) == (Phase.LOSS, 1, "")
    assert source.cause.name == "loss_scaled"


class Averaging(rows.Module):
    def __init__(self) -> None:
        self.first, self.norm = rows.Linear(SIZE, SIZE), rows.BatchNorm(SIZE)

    def forward(self, x: Any) -> Any:
        return self.norm(self.first(x))


def test_a_setting_that_shows_in_an_output_and_in_buffers_is_one_source(tmp_path: Path) -> None:
    np.random.seed(0)
    model = Averaging()
    for name, training in (("a", True), ("b", False)):
        model.norm.running_mean.data[...] = 0
        model.norm.running_var.data[...] = 1
        model.norm.train(training)
        with padiff.record(model, tmp_path / name) as recorder:
            for x in batches()[:1]:
                model(rows.Tensor(x))
                recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path) == (Phase.FORWARD, "norm")


@pytest.mark.parametrize("side", [0, 1])
def test_weights_that_one_script_changes_between_steps_are_the_cause(tmp_path: Path, side: int) -> None:
    """It goes on from a checkpoint in a narrower type, say: the first call with them had no reason."""
    np.random.seed(0)
    models = Tower(), Tower()
    same(*models)
    for number, model in enumerate(models):
        with padiff.record(model, tmp_path / "ab"[number]) as recorder:
            for step, x in enumerate(batches()[:2]):
                if step and number == side:
                    next(iter(model.parameters())).data *= np.float32(1.01)
                y = model(rows.Tensor(x))[0]
                (y * y).mean().backward()
                recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.step, source.cause.name) == (Phase.FORWARD, 1, "changed_between_steps")
    assert source.cause.parameters["side"] == ("reference", "candidate")[side]


class Carrying(rows.Module):
    """A layer, to whose output a state is added that a script carries from step to step."""

    def __init__(self) -> None:
        self.layer = rows.Linear(SIZE, SIZE)

    def forward(self, x: Any, state: Any = None) -> Any:
        y = self.layer(x)
        return y if state is None else y + state


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_state_that_one_script_does_not_carry_is_named(tmp_path: Path, side: str) -> None:
    np.random.seed(0)
    models = Carrying(), Carrying()
    same(*models)
    for model, name, carry in zip(models, "ab", (side == "reference", side == "candidate"), strict=True):
        state = None
        with padiff.record(model, tmp_path / name) as recorder:
            for x in batches():
                out = model(rows.Tensor(x.copy()), state) if carry else model(rows.Tensor(x.copy()))
                state = detached(out)
                recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert source.step == 1
    assert any(str(one).startswith(f"the {side}'s call is given state") for one in source.evidence)


class Heads(rows.Module):
    """A layer, and two heads on what it gives, which a script may call one by one."""

    def __init__(self) -> None:
        self.body, self.norm = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE)
        self.one, self.other = rows.Linear(SIZE, 3), rows.Linear(SIZE, 2)

    def forward(self, x: Any) -> Any:
        inner = functional.tanh(self.norm(self.body(x)))
        return self.one(inner), self.other(inner)


@pytest.mark.parametrize("by_one", [False, True])
@pytest.mark.parametrize("head", ["one", "other"])
def test_a_loss_of_one_head_is_one_source_at_that(tmp_path: Path, head: str, by_one: bool) -> None:
    """What comes to their input is the sum of what both send: it was a source at the other one, or at each layer."""
    np.random.seed(0)
    models = Heads(), Heads()
    same(*models)
    for model, name, scale in zip(models, "ab", (1.0, 3.0), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            for x in batches():
                if by_one and name == "b":
                    inner = functional.tanh(model.norm(model.body(rows.Tensor(x))))
                    outs = model.one(inner), model.other(inner)
                else:
                    outs = model(rows.Tensor(x))
                weights = [np.float32(scale if head == own else 1.0) for own in ("one", "other")]
                loss = (outs[0] * outs[0]).mean() * weights[0] + (outs[1] * outs[1]).mean() * weights[1]
                loss.backward()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert source.what.kind == "output_gradient", str(report)
    assert source.candidate.path == (head if by_one else ""), str(report)


class Block(rows.Module):
    """A layer that is given what all are given, too; wrong, it lets no gradient through to that."""

    def __init__(self, wrong: bool) -> None:
        self.query, self.key, self.wrong = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), wrong

    def forward(self, x: Any, memory: Any) -> Any:
        key = functional.tanh(self.key(memory))
        return x + functional.tanh(self.query(x)) * (detached(key) if self.wrong else key)


class Decoder(rows.Module):
    """Blocks, which returns what it goes on with inside."""

    def __init__(self, wrong: int | None = None) -> None:
        self.encoder = rows.Linear(SIZE, SIZE)
        self.blocks = rows.ModuleList(*(Block(n == wrong) for n in range(3)))

    def forward(self, x: Any) -> Any:
        memory = self.encoder(x)
        inner = []
        for block in self.blocks:
            x = block(x, memory)
            inner.append(x)
        return x, memory, inner[:2]


@pytest.mark.parametrize("wrong", [0, 1, 2, "loss"])
def test_a_block_that_sends_no_gradient_is_one_source_where_outputs_are_used_inside(
    tmp_path: Path, wrong: int | str
) -> None:
    """What comes to such an output is the script's share and the blocks': it was a second source, of the loss."""
    np.random.seed(0)
    models = Decoder(), Decoder(wrong if isinstance(wrong, int) else None)
    same(*models)
    for model, name in zip(models, "ab", strict=True):
        factor = np.float32(2.0 if wrong == "loss" and name == "b" else 1.0)
        with padiff.record(model, tmp_path / name) as recorder:
            x, memory, (first, second) = model(rows.Tensor(batches()[0]))
            loss = (x * x).mean() + (memory * memory).mean() * factor + (first * first).mean() + (second * x).mean()
            loss.backward()
            recorder.step(float(loss.data))
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert source.candidate.path == (f"blocks.{wrong}" if isinstance(wrong, int) else ""), source
    assert source.phase is (Phase.BACKWARD if isinstance(wrong, int) else Phase.LOSS)


class Head(rows.Module):
    def __init__(self, leaves_out: bool = False) -> None:
        self.body, self.last, self.leaves_out = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), leaves_out

    def forward(self, x: Any, y: Any) -> Any:
        other = self.body(y)
        return self.last(self.body(x)), other if self.leaves_out else self.last(other)


def test_a_layer_that_one_model_calls_once_less_is_one_source(tmp_path: Path) -> None:
    """The gradients of its parameters were another one."""
    np.random.seed(0)
    models = Head(), Head(leaves_out=True)
    same(*models)
    for model, name in zip(models, "ab", strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            outs = model(*map(rows.Tensor, batches()[:2]))
            loss = (outs[0] * outs[0]).mean() + (outs[1] * outs[1]).mean()
            loss.backward()
            recorder.step(float(loss.data))
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path) == (Phase.FORWARD, ""), source


class Noisy(rows.Module):
    """A model that rounds otherwise."""

    def __init__(self, noise: float = 0.0) -> None:
        self.first, self.last, self.noise = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), noise

    def forward(self, x: Any) -> Any:
        y = self.last(functional.tanh(self.first(x)))
        return y * (1 + self.noise * np.cos(np.arange(SIZE))).astype(np.float32)


@pytest.mark.parametrize("step", [0.5, 0.50001])
def test_what_a_sampler_is_given_in_the_next_step_may_be_apart_by_what_the_model_gave(
    tmp_path: Path, step: float
) -> None:
    """It was `the inputs themselves differ`, where a script records each of its steps."""
    np.random.seed(0)
    models = Noisy(), Noisy(6e-7)
    same(*models)
    for model, name, share in zip(models, "ab", (0.5, step), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            x = batches()[0]
            for _ in range(4):
                x = x * np.float32(1 - share) + np.float32(4 * share) * model(rows.Tensor(x)).data
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.step, one.what.kind) for one in report.sources] == [(1, "input")] * (step != 0.5), str(report)
