"""Compare recorded runs whose scripts step otherwise: clipped gradients, schedules, calls behind the step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.adapter import optimizers
from padiff.report import Phase
from padiff.testing.toy import columns, functional, rows

from .test_compare import pair

Clip = Callable[[Any], None]


def by_norm(limit: float) -> Clip:
    """Return what scales all gradients to a norm."""

    def clip(optimizer: rows.SGD) -> None:
        held = [one for one in optimizer.parameters if one.grad is not None]
        norm = np.sqrt(sum(float(np.square(one.grad).sum()) for one in held))
        for one in held:
            one.step.grad = (one.grad * min(1.0, limit / norm)).astype(np.float32)

    return clip


def by_value(limit: float) -> Clip:
    """Return what cuts gradients off, element by element."""

    def clip(optimizer: rows.SGD) -> None:
        for one in optimizer.parameters:
            if one.grad is not None:
                one.step.grad = np.clip(one.grad, -limit, limit)

    return clip


def unclipped(optimizer: rows.SGD) -> None:
    """Leave gradients as they are."""


def trained(
    tmp_path: Path,
    clips: tuple[Clip, Clip],
    rates: tuple[Any, Any] = ((0.1,) * 3,) * 2,
    *,
    stepping: type[rows.SGD] = rows.SGD,
    theirs: type[rows.SGD] | None = None,
    known: bool = True,
    **options: Any,
) -> padiff.Report:
    """Record scripts that set their rate between forward and step, and clip."""
    kinds = stepping, theirs or stepping
    for model, name, clip, rate, kind in zip(pair(), "ab", clips, rates, kinds, strict=True):
        optimizer, rng = kind(model.parameters(), 1.0), np.random.default_rng(1)
        home = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, tmp_path / name, optimizer=optimizer if known else None, **options) as recorder:
            for step in range(3):
                y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
                optimizer.lr = rate[step]
                (y * y).mean().backward()
                clip(optimizer)
                optimizer.step()
                optimizer.clear()
                recorder.step()
        assert "step" not in vars(optimizer)
    return padiff.compare(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
def test_clipping_on_one_side_is_the_cause(tmp_path: Path, values: Any) -> None:
    report = trained(tmp_path, (by_norm(0.1), unclipped), values=values)
    (source,) = report.sources
    assert (source.phase, source.step) == (Phase.UPDATE, 0)
    assert source.cause.name == "optimizer_settings"
    shares = source.cause.parameters["gradients"]
    assert shares["candidate"] == {"least": 1.0, "most": 1.0, "limit": None}
    assert shares["reference"]["least"] == shares["reference"]["most"] < 0.5
    assert "times what arrived in the reference, as they arrived in the candidate" in str(source.cause)


def test_another_clipping_is_told_by_what_it_does(tmp_path: Path) -> None:
    (source,) = trained(tmp_path, (by_norm(0.1), by_value(0.01))).sources
    shares = source.cause.parameters["gradients"]
    assert shares["candidate"]["limit"] == pytest.approx(0.01)
    assert shares["candidate"]["least"] < shares["candidate"]["most"]
    assert "no element beyond 0.01 in the candidate" in str(source.cause)


class Decayed(rows.SGD):
    """One that decays matrices beside its step, which nobody hears of."""

    times = 1.0

    def step(self) -> None:
        for one in self.parameters:
            decay = 0.1 * self.lr if one.data.ndim > 1 else 0.0
            one.data[...] = one.data * np.float32(1 - decay) - self.lr * self.times * one.grad


class Longer(Decayed):
    times = 1.5


def test_a_multiple_at_what_is_not_decayed_alone_is_no_source_of_its_own(tmp_path: Path) -> None:
    """The step of biases is a multiple, that of the weights beside their decay is none."""
    (source,) = trained(tmp_path, (unclipped, unclipped), stepping=Decayed, theirs=Longer, known=False).sources
    assert (source.phase, source.what.kind) == (Phase.UPDATE, "updates")


def test_equal_clipping_raises_no_alarm(tmp_path: Path) -> None:
    report = trained(tmp_path, (by_norm(0.1), by_norm(0.1)))
    assert report.aligned, str(report)


def slices(folder: Path, model: Any, cleared: str) -> None:
    """Record steps of two slices each, whose gradients are ``cleared`` behind a step, or in front of each slice."""
    optimizer, rng = rows.SGD(model.parameters(), 0.1), np.random.default_rng(1)
    home = rows if isinstance(model, rows.Module) else columns
    with padiff.record(model, folder) as recorder:
        for _ in range(3):
            for _ in range(2):
                if cleared == "between":
                    optimizer.clear()
                y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
                (y * y).mean().backward()
            by_norm(0.2)(optimizer)
            optimizer.step()
            if cleared == "behind":
                optimizer.clear()
            recorder.step()


@pytest.mark.parametrize(
    ("cleared", "step", "words"),
    [
        ("never", 1, "added to those of the step before (which were not cleared) in the candidate"),
        ("between", 0, "those of the last backward pass alone (the ones before were cleared) in the candidate"),
    ],
)
def test_gradients_that_are_cleared_at_the_wrong_place_are_named(
    tmp_path: Path, cleared: str, step: int, words: str
) -> None:
    for model, name, how in zip(pair(), "ab", ("behind", cleared), strict=True):
        slices(tmp_path / name, model, how)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.step) == (Phase.UPDATE, step)
    assert words in str(source.cause)


def test_a_rate_is_that_of_the_step_itself(tmp_path: Path) -> None:
    """It is set between forward and step, and was read one step late."""
    (source,) = trained(tmp_path, (unclipped, unclipped), ((0.1, 0.1, 0.05), (0.1, 0.05, 0.05))).sources
    assert source.step == 1
    assert source.cause.parameters == {"lr": {"reference": "0.1", "candidate": "0.05"}}


def test_settings_that_do_not_show_are_noted(tmp_path: Path) -> None:
    report = trained(tmp_path, (unclipped, unclipped), ((0.1, 0.1, 0.1), (0.1, 0.1, 0.1000001)))
    assert report.aligned, str(report)
    (note,) = (note for note in report.notes if note.kind == "optimizer_setting")
    assert note.data == {"name": "lr", "reference": "0.1", "candidate": "0.1000001"}
    ours, theirs = (type("SGD", (rows.SGD,), {"clip": switch}) for switch in (False, True))
    report = trained(tmp_path / "a switch", (unclipped, unclipped), stepping=ours, theirs=theirs)
    assert report.aligned, str(report)
    (note,) = (note for note in report.notes if note.kind == "optimizer_setting")
    assert note.data == {"name": "clip", "reference": "False", "candidate": "True"}
    report = trained(tmp_path / "more", (unclipped, unclipped), ((0.1,) * 3, (0.1, 0.10003, 0.1)))
    assert [one.step for one in report.sources] == [1], str(report)
    assert not [note for note in report.notes if note.kind == "optimizer_setting"]


@pytest.mark.parametrize(("known", "rate"), [(True, 0.100003), (False, 0.10005), (False, 0.10003)])
def test_a_step_that_is_slightly_longer_is_no_rounding(tmp_path: Path, known: bool, rate: float) -> None:
    """A decay behind the step in place of before it, an epsilon: small, and the same in every step."""
    report = trained(tmp_path, (unclipped, unclipped), ((0.1,) * 3, (rate,) * 3), known=known)
    (source,) = report.sources
    assert (source.phase, source.step) == (Phase.UPDATE, 0)
    assert "is 1 times" not in str(source.cause)


class Own(rows.SGD):
    """A class of which nobody knows how it steps, which steps as the other one does."""


class Strays(rows.SGD):
    """Adds something from its second step on."""

    steps = 0

    def step(self) -> None:
        super().step()
        self.steps += 1
        for tensor in self.parameters if self.steps > 1 else ():
            tensor.data[...] = tensor.data + 0.01 * np.sin(np.arange(tensor.data.size)).reshape(tensor.data.shape)


def twice(optimizer: rows.SGD) -> None:
    optimizer.step()


@pytest.mark.parametrize("theirs", [rows.SGD, Own])
def test_how_often_an_optimizer_steps_is_the_cause(tmp_path: Path, theirs: type[rows.SGD]) -> None:
    """It was told as a rate that no setting tells, and beside another class as that."""
    (source,) = trained(tmp_path, (unclipped, twice), theirs=theirs).sources
    assert (source.phase, source.cause.name) == (Phase.UPDATE, "optimizer_settings")
    assert source.cause.parameters == {"steps": {"reference": "1", "candidate": "2"}}


def test_a_class_of_the_script_is_no_cause_beside_another_setting(tmp_path: Path) -> None:
    (source,) = trained(tmp_path, (unclipped,) * 2, ((0.1, 0.1, 0.1), (0.1, 0.2, 0.1)), theirs=Own).sources
    assert (source.step, list(source.cause.parameters)) == (1, ["lr"])


def test_a_class_that_stepped_alike_before_is_not_verified(tmp_path: Path) -> None:
    (source,) = trained(tmp_path, (unclipped,) * 2, theirs=Strays).sources
    assert (source.step, source.cause) == (1, None)
    assert "unverified_optimizer_settings" in [one.kind for one in source.evidence]


def test_a_rate_of_nothing_is_the_cause(tmp_path: Path) -> None:
    """A warm-up that begins at zero: the optimizer steps all parameters, by nothing."""
    for name, rates in (("theirs", ((0.1,) * 3, (0.0, 0.1, 0.1))), ("ours", ((0.0, 0.1, 0.1), (0.1,) * 3))):
        (source,) = trained(tmp_path / name, (unclipped, unclipped), rates).sources
        assert list(source.cause.parameters) == ["lr"], str(source)


def test_a_rate_in_float32_is_no_cause(tmp_path: Path) -> None:
    """An optimizer that holds its rate in float32 says 0.03333333 where the other says 0.0333333333, or 0.033333335."""
    rates = ((1 / 30,) * 3, (float(f"{1 / 30:.7g}"),) * 3)
    read, scheduled = optimizers.plain(np.float32(1 / 30)), (0.00505, 0.0050499993)
    pairs = {"right": rates, "read": (rates[0], (read,) * 3), "scheduled": tuple((rate,) * 3 for rate in scheduled)}
    for name, told in pairs.items():
        report = trained(tmp_path / name, (unclipped, unclipped), told)
        assert report.aligned, str(report)
        assert not [note for note in report.notes if note.kind == "optimizer_setting"]
    (source,) = trained(tmp_path, (by_norm(0.1), unclipped), rates).sources
    assert list(source.cause.parameters) == ["gradients"]


class Signs(rows.SGD):
    """Steps by the signs of gradients: as far, however long they are."""

    def step(self) -> None:
        for tensor in self.parameters:
            if tensor.grad is not None:
                tensor.data[...] = tensor.data - self.lr * np.sign(tensor.grad)


@pytest.mark.parametrize("own", [{}, {"clip": "an object that clips"}])
def test_clipping_is_told_where_no_step_shows_it(tmp_path: Path, own: dict[str, str]) -> None:
    """Some frameworks' optimizers clip themselves, and say so; for others the script does."""
    theirs = type("Signs", (Signs,), own)
    report = trained(tmp_path, (by_norm(0.1), unclipped), stepping=Signs, theirs=theirs)
    (source,) = report.sources
    assert (source.phase, source.step) == (Phase.UPDATE, 0)
    assert source.cause.parameters["gradients"]["candidate"] == {"least": 1.0, "most": 1.0, "limit": None}
    report = trained(tmp_path / "right", (by_norm(0.1), by_norm(0.1)), stepping=Signs, theirs=theirs)
    assert report.aligned, str(report)


def called_again(model: Any, folder: Path, rate: float, *, late: bool = False, known: bool = True) -> None:
    """Record a step whose model is called again behind the optimizer's: an evaluation."""
    optimizer, rng = rows.SGD(model.parameters(), rate), np.random.default_rng(1)
    home = rows if isinstance(model, rows.Module) else columns
    model.train()
    with padiff.record(model, folder, optimizer=optimizer if known else None) as recorder:
        y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
        (y * y).mean().backward()
        if not late:
            optimizer.step()
        model.train(False)
        model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
        if late:
            optimizer.step()
        recorder.step()


@pytest.mark.parametrize("known", [False, True])
def test_calls_behind_the_step_follow_from_it(tmp_path: Path, known: bool) -> None:
    """The first call with other weights was called the source; without ``optimizer=`` no rate was the cause."""
    for model, name, rate in zip(pair(), "ab", (0.1, 0.2), strict=True):
        called_again(model, tmp_path / name, rate, known=known)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert source.phase is Phase.UPDATE, str(report)
    assert "lr: 0.1 in the reference, 0.2 in the candidate" in str(source.cause)


def test_an_optimizer_that_steps_later_is_the_cause(tmp_path: Path) -> None:
    for model, name, late in zip(pair(), "ab", (False, True), strict=True):
        called_again(model, tmp_path / name, 0.1, late=late)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert {str(one.cause) for one in report.sources} == {
        "the reference's optimizer steps before this call, the candidate's does not"
    }, str(report)


def stepped_often(
    model: Any, folder: Path, clear: bool = True, times: float = 1.0, kind: Any = Signs, count: int = 3, **options: Any
) -> None:
    """Record a step in which the optimizer steps three times."""
    optimizer, rng = kind(model.parameters(), 0.05), np.random.default_rng(1)
    home = rows if isinstance(model, rows.Module) else columns
    with padiff.record(model, folder, optimizer=optimizer, **options) as recorder:
        for _ in range(count):
            y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
            ((y * y).mean() * np.float32(times)).backward()
            optimizer.step()
            if clear:
                optimizer.clear()
        recorder.step()


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
@pytest.mark.parametrize("clear", [True, False])
def test_several_steps_in_one_are_held_to_what_had_arrived_before_the_first(
    tmp_path: Path, clear: bool, values: Any
) -> None:
    """Gradients of later passes follow from weights that differ, and explained these: an alignment of nothing."""
    for model, name, how in zip(pair(), "ab", (True, clear), strict=True):
        stepped_often(model, tmp_path / name, clear=how, values=values)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is clear, str(report)
    assert {(one.phase, one.step) for one in report.sources} == (set() if clear else {(Phase.UPDATE, 0)})


def test_a_script_that_steps_more_often_within_a_step_is_told_by_that(tmp_path: Path) -> None:
    """Its batches were called micro-batches of one."""
    for model, name, count in zip(pair(), "ab", (2, 3), strict=True):
        stepped_often(model, tmp_path / name, count=count)
    causes = [str(one.cause) for one in padiff.compare(tmp_path / "a", tmp_path / "b").sources]
    assert causes == ["steps: 2 in the reference, 3 in the candidate"]


def test_a_gradient_in_front_of_a_step_follows_from_nothing_behind_it(tmp_path: Path) -> None:
    """There was no source: what the first pass started from was taken to follow from the last one's outputs."""
    for model, name, times in zip(pair(), "ab", (1.0, 2.0), strict=True):
        stepped_often(model, tmp_path / name, times=times, kind=rows.SGD)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path, source.what.kind) == (Phase.BACKWARD, "", "output_gradient")
    assert source.candidate.micro_batch == 0


class Heads(rows.Module):
    """Two heads, of which each step uses one."""

    def __init__(self) -> None:
        self.body, self.one, self.two = rows.Linear(6, 8), rows.Linear(8, 3), rows.Linear(8, 3)

    def forward(self, x: Any, second: bool) -> Any:
        return (self.two if second else self.one)(self.body(x))


@pytest.mark.parametrize("zeros", [False, True])
def test_what_steps_with_zeros_where_no_gradient_came_is_told_as_that(tmp_path: Path, zeros: bool) -> None:
    """Momentum goes on where a gradient is cleared to zeros, and not where it is taken away."""
    models = Heads(), Heads()
    padiff.transfer(*models)
    for name, model, cleared in zip("ab", models, (False, zeros), strict=True):
        optimizer = rows.SGD(model.parameters(), 0.1, momentum=0.9)
        with padiff.record(model, tmp_path / name) as recorder:
            for step in range(2):
                y = model(rows.Tensor(np.random.default_rng(step).standard_normal((5, 6), dtype=np.float32)), step == 0)
                (y * y).mean().backward()
                for one in model.parameters() if cleared else ():
                    one.step.grad = np.zeros_like(one.data) if one.grad is None else one.grad
                optimizer.step()
                optimizer.clear()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.candidate.path for one in report.sources] == ["two"] * zeros, str(report)
    assert ("no gradient comes to it in this step: the reference's optimizer leaves it" in str(report)) is zeros


@pytest.mark.parametrize(
    ("rate", "momentum", "cause"),
    [(1.0, 0.9, None), (1.01, 0.9, "optimizer_settings"), (1.0, 0.8, "optimizer_settings")],
)
def test_what_rounding_made_of_earlier_gradients_is_kept_with_them(
    tmp_path: Path, rate: float, momentum: float, cause: str | None
) -> None:
    """A gradient of which rounding makes more comes first, and moments hold it behind steps by equal gradients."""
    models = rows.Linear(8, 3), rows.Linear(8, 3)
    padiff.transfer(*models)
    x = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    rounded = (1 + 6e-4 * np.random.default_rng(1).standard_normal((4, 3))).astype(np.float32)
    for name, model, by in zip("ab", models, (0.9, momentum), strict=True):
        optimizer = rows.SGD(model.parameters(), 1e-3 * (rate if name == "b" else 1), by)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for sign in (1.0, -0.7, -0.5):
                optimizer.clear()
                y = model(rows.Tensor(x)) * np.float32(sign)
                (y * rounded if name == "b" and sign == 1 else y).sum().backward()
                optimizer.step()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.cause and one.cause.name for one in report.sources] == [cause] * (cause is not None), str(report)
    assert report.aligned is (cause is None), report


class Centred(rows.Module):
    """A layer whose bias cancels: what it gives is centred over the batch, in one of two ways."""

    def __init__(self, *, other: bool) -> None:
        self.inner, self.other = rows.Linear(6, 1), other

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        count = np.float32(len(x.data))
        return (y * count - y.sum(0)) / count if self.other else y - y.sum(0) / count


class Adaptive(rows.SGD):
    """Adam, by hand."""

    def __init__(self, parameters: Any, lr: float, power: float = 0.5) -> None:
        super().__init__(parameters, lr)
        self.power, self.count = power, 0
        self.kept = [[np.zeros_like(one.data) for _ in range(2)] for one in self.parameters]

    def step(self) -> None:
        self.count += 1
        for one, (mean, square) in zip(self.parameters, self.kept, strict=True):
            mean[...] = 0.9 * mean + 0.1 * one.grad
            square[...] = 0.99 * square + 0.01 * one.grad**2
            length = (square / (1 - 0.99**self.count)) ** self.power + 1e-8
            one.data[...] = one.data - self.lr * mean / (1 - 0.9**self.count) / length


def _centred(folder: Path, seed: int, *settings: dict[str, float], kind: Any, told: bool) -> padiff.Report:
    """Compare two scripts that step by an optimizer of a kind, with settings of its own each; ``told`` to padiff."""
    np.random.seed(seed)
    models = Centred(other=False), Centred(other=True)
    padiff.transfer(*models)
    for model, name, own in zip(models, "ab", settings, strict=True):
        optimizer, rng = kind(model.parameters(), **{"lr": 0.01, **own}), np.random.default_rng(seed)
        with padiff.record(model, folder / name, optimizer=optimizer if told else None) as recorder:
            for _ in range(6):
                optimizer.clear()
                y = model(rows.Tensor(rng.standard_normal((5, 6)).astype(np.float32)))
                functional.sigmoid(y).sum().backward()
                optimizer.step()
                recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("power", [0.5, 0.45])
@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_is_rounding_alone_makes_a_step_of_any_length(tmp_path: Path, seed: int, power: float) -> None:
    """Beside the epsilon that is added, too: in some step one side's was longer by far, and a source."""
    report = _centred(tmp_path, seed, *({"power": own} for own in (0.5, power)), kind=Adaptive, told=True)
    assert report.aligned is (power == 0.5), str(report)
    assert len(report.sources) == (power != 0.5), str(report)


class Lion(rows.SGD):
    """What steps by the sign of a mean of gradients, by hand, and decays weights beside."""

    def step(self) -> None:
        for one in self.parameters:
            mean = self.velocities.get(one, 0)
            one.data[...] = one.data * (1 - self.lr * self.weight_decay) - self.lr * np.sign(
                0.9 * mean + 0.1 * one.grad
            )
            self.velocities[one] = self.momentum * mean + (1 - self.momentum) * one.grad


@pytest.mark.parametrize("fault", [{}, {"lr": 0.05}, {"momentum": 0.5}, {"weight_decay": 0.0}])
@pytest.mark.parametrize("seed", range(3))
def test_signs_of_what_is_rounding_alone_are_no_second_source(
    tmp_path: Path, seed: int, fault: dict[str, float]
) -> None:
    settings = {"momentum": 0.99, "weight_decay": 1.0}
    report = _centred(tmp_path, seed, settings, {**settings, **fault}, kind=Lion, told=False)
    assert report.aligned is (not fault), str(report)
    assert [one.candidate.path for one in report.sources] == ["inner"] * bool(fault), str(report)


class Trusting(rows.SGD):
    """What makes the step of each parameter as long as a share of it, by hand: up to a limit."""

    limit = 1e9

    def step(self) -> None:
        for one in self.parameters:
            times = np.linalg.norm(one.data) / np.linalg.norm(one.grad)
            one.data[...] = one.data - self.lr * min(times, self.limit) * one.grad


def test_a_factor_of_each_of_two_parameters_is_one_source(tmp_path: Path) -> None:
    """Each was a source, with a factor of its own as its cause."""
    np.random.seed(0)
    models = rows.Linear(6, 4), rows.Linear(6, 4)
    padiff.transfer(*models)
    for model, name, limit in zip(models, "ab", (1e9, 1e-3), strict=True):
        optimizer, rng = Trusting(model.parameters(), 0.1), np.random.default_rng(1)
        optimizer.limit = limit
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(rng.standard_normal((5, 6)).astype(np.float32)))
            (y * y).sum().backward()
            optimizer.step()
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.cause.name, source.what.name) == ("step_scaled", "2 parameters")
    assert {"least", "most"} <= source.cause.parameters.keys()


@pytest.mark.parametrize("rate", [1.0, 1.001])
def test_steps_that_end_where_they_began_are_held_to_their_way(tmp_path: Path, rate: float) -> None:
    """Of the bias the second step takes nearly all back that the first made: what is left is rounded more."""
    np.random.seed(0)
    models = rows.Linear(6, 4), rows.Linear(6, 4)
    for side, (model, name) in enumerate(zip(models, "ab", strict=True)):
        rng = np.random.default_rng(3)
        for one in model.parameters():
            one.data[...] = 0
        optimizer = rows.SGD(model.parameters(), 0.1 * (rate if side else 1.0))
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            wanted = rng.standard_normal((5, 4)).astype(np.float32)
            for times in (1.0, -0.99997):
                optimizer.clear()
                y = model(rows.Tensor(rng.standard_normal((5, 6)).astype(np.float32)))
                y = y * np.float32(3) * wanted / np.float32(3) if side else y * wanted
                (y.sum() * np.float32(times)).backward()
                optimizer.step()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (rate == 1), str(report)
    assert [one.is_caused_by("optimizer_settings") for one in report.sources] == [True] * (rate > 1)
