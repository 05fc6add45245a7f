"""Compare recorded scripts that average weights themselves, and such whose optimizers compute otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.judging._optimizer_step import contrast, rate_between
from padiff.report import Phase
from padiff.testing.toy import columns, rows

SIZE = 6
STAYS = "it stays as it was in the candidate, and does not in the reference"
Change = Callable[[Any], None]


def net(home: Any, linear: Any, norm: Any) -> type:
    class Net(home):
        def __init__(self) -> None:
            self.first, self.norm, self.last = linear(SIZE, SIZE), norm(SIZE), linear(SIZE, SIZE)

        def forward(self, x: Any) -> Any:
            return self.last(self.norm(self.first(x)))

    class Averaged(home):
        """A model, and an average of it that nobody calls."""

        def __init__(self) -> None:
            self.net, self.average = Net(), Net()
            for ours, theirs in zip(self.net.parameters(), self.average.parameters(), strict=True):
                theirs.data[...] = ours.data

        def forward(self, x: Any) -> Any:
            return self.net(x)

    return Averaged


Averaged, Port = (
    net(rows.Module, rows.Linear, rows.BatchNorm),
    net(columns.Layer, columns.Dense, columns.BatchNormalization),
)


def buffers(module: Any) -> list[Any]:
    norm = module.norm
    return (
        [norm.running_mean, norm.running_var]
        if hasattr(norm, "running_var")
        else [norm.moving_mean, norm.moving_variance]
    )


class Signs(rows.SGD):
    """Steps as far, however long gradients are: those that are rounding alone move a bias in front of a norm."""

    rounds = 1
    """Which way rounding goes."""

    def step(self) -> None:
        for tensor in self.parameters:
            if tensor.grad is not None:
                rounded = (tensor.grad != 0) & (np.abs(tensor.grad) < 1e-7)
                way = np.where(rounded, self.rounds, np.sign(tensor.grad))
                tensor.data[...] = tensor.data - self.lr * way.astype(np.float32)


def train(
    model: Any,
    folder: Path,
    *,
    keep: float = 0.9,
    early: bool = False,
    copied: bool = True,
    known: bool = True,
    convention: bool = False,
    signs: bool = False,
    evaluated: bool = False,
    parts: bool = False,
    rate: float = 0.1,
    **options: Any,
) -> None:
    """Record steps behind each of which, or before, a script averages the weights and copies the buffers.

    It calls the model, or those of its ``parts`` that it trains.
    """
    home = rows if isinstance(model, rows.Module) else columns
    optimizer, rng = (Signs if signs else rows.SGD)(model.net.parameters(), rate), np.random.default_rng(1)
    if signs and convention:
        optimizer.rounds = -1

    def average() -> None:
        for ours, mean in zip(model.net.parameters(), model.average.parameters(), strict=True):
            mean.data[...] = mean.data * np.float32(keep) + ours.data * np.float32(1 - keep)
        for ours, mean in zip(buffers(model.net), buffers(model.average), strict=True):
            mean.data[...] = ours.data if copied else mean.data

    model.train()
    with padiff.record(model, folder, optimizer=optimizer if known else None, **options) as recorder:
        for _ in range(3):
            variance = buffers(model.net)[1]
            before = variance.data.copy()
            y = (model.net if parts else model)(home.Tensor(rng.standard_normal((15, SIZE), dtype=np.float32)))
            if convention:  # without Bessel's correction
                kept = before * 0.9
                variance.data[...] = kept + (variance.data - kept) * (14 / 15)
            (y * y * np.linspace(0, 1, SIZE, dtype=np.float32)).mean().backward()
            if early:
                average()
            optimizer.step()
            optimizer.clear()
            if not early:
                average()
            if evaluated:
                model.average.train(False)
                model.average(home.Tensor(rng.standard_normal((15, SIZE), dtype=np.float32)))
            recorder.step()


def compared(folder: Path, port: type = Averaged, ours: Any = (), **how: Any) -> padiff.Report:
    np.random.seed(0)
    models = Averaged(), port()
    padiff.transfer(*models)
    for model, name, own in zip(models, "ab", (dict(ours), how), strict=True):
        train(model, folder / name, **own)
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ({"keep": 0.99}, "average_keeps", "keeps 0.9 of itself in the reference, 0.99 in the candidate"),
        ({"keep": 0.99, "signs": True}, "average_keeps", "keeps 0.9 of itself in the reference, 0.99 in the candidate"),
        ({"early": True}, "not_stepped", STAYS),
        ({"early": True, "rate": 1e-5, "signs": True}, "not_stepped", STAYS),  # some by little more than rounding
    ],
)
def test_weights_that_no_optimizer_steps_are_the_scripts(tmp_path: Path, fault: Any, cause: str, words: str) -> None:
    """It was called a rate, or an optimizer that leaves them out, and three sources where rounding moved some."""
    (source,) = compared(tmp_path, Averaged, {n: fault[n] for n in ("signs", "rate") if n in fault}, **fault).sources
    assert (source.phase, source.step, source.candidate.path) == (Phase.UPDATE, 0, "average")
    assert source.cause.name == cause
    assert words in str(source.cause)
    assert "changed_by_script" in {one.kind for one in source.evidence}


@pytest.mark.parametrize("values", ["tensors", "sketch"])
@pytest.mark.parametrize("evaluated", [True, False])
def test_averages_of_what_rounding_alone_moves_are_averages(tmp_path: Path, evaluated: bool, values: Any) -> None:
    """An average of a bias in front of a norm was a source, in which rounding makes a whole step."""
    how = {"signs": True, "evaluated": evaluated, "values": values}
    report = compared(tmp_path, Port, how, convention=True, **how)
    assert report.aligned, str(report)


def test_what_an_average_makes_of_another_step_is_no_source(tmp_path: Path) -> None:
    """Of weights that an average hardly moves, or not as it is known to, some were sources of their own."""
    how = {"keep": 1 - 1e-5, "parts": True}
    (source,) = compared(tmp_path, Averaged, how, **how, rate=0.5).sources
    assert (source.phase, source.step, source.candidate.path) == (Phase.UPDATE, 0, "net")
    assert list(source.cause.parameters) == ["lr"]


def test_averages_that_rounding_tells_apart_keep_as_much(tmp_path: Path) -> None:
    """Of short steps each parameter tells another share: 0.99, and 0.9901."""
    how = {"rate": 0.001, "keep": 0.99}
    (source,) = compared(tmp_path, Averaged, how, **{**how, "keep": 0.98}).sources
    assert (source.candidate.path, source.cause.name) == ("average", "average_keeps")


PARTS = {"signs": True, "port": Port, "convention": True, "parts": True}


@pytest.mark.parametrize("how", [{}, {"signs": True, "port": Port, "convention": True}, {"parts": True}, PARTS])
def test_buffers_that_no_call_changes_are_one_source_at_home(tmp_path: Path, how: Any) -> None:
    """They were two, both at the model itself; and none where the script calls the other part of it."""
    known = {name: True for name in ("signs", "parts") if name in how}
    assert compared(tmp_path / "right", ours=known, **how).aligned
    (source,) = compared(tmp_path, ours=known, copied=False, **how).sources
    assert (source.phase, source.candidate.path, source.what.name) == (Phase.BUFFER, "average.norm", "2 buffers")


def test_buffers_that_a_script_forgets_are_told_where_an_evaluation_reads_them(tmp_path: Path) -> None:
    """Behind a step in which rounding moved weights the runs were aligned, whatever the evaluation gave."""
    how = {"signs": True, "evaluated": True}
    (source,) = compared(tmp_path, Averaged, how, copied=False, **how).sources
    assert (source.phase, source.candidate.path) == (Phase.FORWARD, "average.norm")
    assert any(one.kind == "weights_changed" and len(one.figures["names"]) == 2 for one in source.evidence)
    (source,) = compared(tmp_path / "port", Port, how, copied=False, convention=True, **how).sources
    assert (source.phase, source.candidate.path) == (Phase.BUFFER, "average.norm")


@pytest.mark.parametrize("values", ["tensors", "sketch"])
@pytest.mark.parametrize("copied", [True, False])
def test_copies_of_running_variances_may_differ_as_these_do(tmp_path: Path, values: Any, copied: bool) -> None:
    report = compared(tmp_path, Port, copied=copied, convention=True)
    assert report.aligned is copied, str(report)
    assert {one.candidate.path for one in report.sources} == (set() if copied else {"average.norm"})


class Encoder(rows.Module):
    """A layer, and its moving average, which the forward moves before it is called, or the script between two steps."""

    def __init__(self) -> None:
        self.net, self.mean, self.keep, self.shrinks = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), 0.9, 1.0
        self.by_script = False
        for ours, theirs in zip(self.net.parameters(), self.mean.parameters(), strict=True):
            theirs.data[...] = ours.data

    def move(self) -> None:
        for ours, theirs in zip(self.net.parameters(), self.mean.parameters(), strict=True):
            moved = theirs.data * np.float32(self.keep) + ours.data * np.float32(1 - self.keep)
            theirs.data[...] = moved * np.float32(self.shrinks)

    def forward(self, x: Any) -> Any:
        if not self.by_script:
            self.move()
        return self.net(x), type(x)(self.mean(x).data)


@pytest.mark.parametrize(
    ("change", "by_script"),
    [({}, True), ({"keep": 0.99}, False), ({"keep": 0.99}, True), ({"shrinks": 0.5}, False)],
)
def test_weights_that_a_forward_moves_are_told_where_it_calls_with_them(
    tmp_path: Path, change: dict[str, float], by_script: bool
) -> None:
    """Nothing said that they are other weights by then: a layer differed, with equal inputs and weights before.

    Where a script moves them in front of the call, that was the cause. An optimizer may hold what is frozen, too.
    """
    np.random.seed(0)
    models = Encoder(), Encoder()
    padiff.transfer(*models)
    for name, value in {**change, "by_script": by_script}.items():
        setattr(models[1], name, value)
    for model, name in zip(models, "ab", strict=True):
        for parameter in model.mean.parameters():
            parameter.requires_grad = False
        held = model if name == "a" else model.net
        optimizer, rng = rows.SGD(held.parameters(), 0.1), np.random.default_rng(1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for _ in range(3):
                if model.by_script:
                    model.move()
                out, mean = model(rows.Tensor(rng.standard_normal((5, SIZE), dtype=np.float32)))
                (out * mean).mean().backward()
                optimizer.step()
                optimizer.clear()
                recorder.step()
    sources = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    if not change:
        assert not sources
        return
    (source,) = sources
    where = 0 if "shrinks" in change else 1  # the average of what is equal is equal
    assert (source.phase, source.step, source.candidate.path) == (Phase.FORWARD, where, "mean")
    if "keep" in change:
        assert source.cause.parameters == {"reference": 0.9, "candidate": 0.99}
    else:
        (evidence,) = (one for one in source.evidence if one.kind == "weights_changed")
        assert set(evidence.figures["names"]) == {"weight", "bias"}


class Ratio(rows.SGD):
    """Steps each parameter as far as it is long: a ratio of norms, but where ``trusted`` is not."""

    trusted, fresh, decay = True, False, 1.0

    def step(self) -> None:
        for number, tensor in enumerate(self.parameters):
            if tensor.grad is not None:
                past = 0 if self.fresh else self.velocities.get(tensor, 0)
                move = self.velocities[tensor] = 0.5 * past + tensor.grad
                times = np.linalg.norm(tensor.data) / np.linalg.norm(move) if self.trusted else 1.0
                tensor.data[...] = tensor.data - np.float32(self.lr * self.decay ** (number // 2)) * times * move


class Scalar(rows.Module):
    def __init__(self) -> None:
        self.first, self.second, self.third = (rows.Linear(SIZE, SIZE) for _ in range(3))
        self.gain = rows.parameter(1)

    def forward(self, x: Any) -> Any:
        return self.third(self.second(self.first(x).tanh()).tanh()) * self.gain


def stepped(folder: Path, *, trusted: bool = True, known: bool = True, **how: Any) -> padiff.Report:
    """Compare scripts whose candidate's optimizer steps otherwise, by ``how``: it trusts no ratio, forgets its past."""
    np.random.seed(0)
    models = Scalar(), Scalar()
    padiff.transfer(*models)
    for model, name, own in zip(models, "ab", ({}, how), strict=True):
        optimizer, rng = Ratio(model.parameters(), 0.01), np.random.default_rng(1)
        optimizer.trusted, optimizer.decay = own.get("trusts", trusted), own.get("decay", 0.8)
        with padiff.record(model, folder / name, optimizer=optimizer if known else None) as recorder:
            for number in range(3):
                y = model(rows.Tensor(rng.standard_normal((5, SIZE), dtype=np.float32)))
                optimizer.fresh = number >= own.get("fresh", 9)
                (y * y).mean().backward()
                optimizer.step()
                optimizer.clear()
                model.gain.data[...] = np.minimum(model.gain.data, own.get("most", np.inf))
                recorder.step()
    return padiff.compare(folder / "a", folder / "b")


def test_a_factor_of_each_parameter_by_itself_is_one_source(tmp_path: Path) -> None:
    """It was a source for each: a ratio of norms that one optimizer leaves out."""
    (source,) = stepped(tmp_path, trusts=False).sources
    assert (source.step, source.candidate.path, source.what.name) == (0, "", "7 parameters")
    assert source.cause.parameters["least"] < source.cause.parameters["most"]
    assert "computed for each parameter by itself" in str(source.cause)


def test_a_factor_of_each_layer_is_one_source(tmp_path: Path) -> None:
    """It was one for each: rates that decay from layer to layer, by another share."""
    (source,) = stepped(tmp_path, trusted=False, decay=0.7).sources
    assert (source.step, source.candidate.path) == (0, "")
    assert source.cause.parameters["least"] < source.cause.parameters["most"] < 1


@pytest.mark.parametrize("known", [True, False])
def test_what_an_optimizer_keeps_is_named_where_all_else_agrees(tmp_path: Path, known: bool) -> None:
    """A parameter of one element is a multiple of any other, and was a source beside those without a cause."""
    (source,) = stepped(tmp_path, trusted=False, fresh=1, known=known).sources
    assert (source.phase, source.step, source.what.name) == (Phase.UPDATE, 1, "7 parameters")
    assert source.cause is None
    assert ("same_settings" in {one.kind for one in source.evidence}) is known


def test_a_limit_of_one_number_is_no_factor_of_its_step(tmp_path: Path) -> None:
    """It was: one number is a multiple of any other. Gradients and settings agree, and the script limits it."""
    (source,) = stepped(tmp_path, trusted=False, most=-5.0).sources
    assert (source.phase, source.step, source.what.name) == (Phase.UPDATE, 0, "gain")
    assert source.cause is None
    assert "what a script makes of the weights besides" in str(source.evidence[-1])


ADAM = {"class": "adam", "lr": 0.1, "eps_place": "added to the root", "bias_correction": True}


@pytest.mark.parametrize(
    ("theirs", "times", "cause", "names"),
    [
        ({"eps_place": "before"}, None, "optimizer_settings", {"eps_place"}),
        ({"eps_place": "before"}, 2.0, "step_scaled", {"times"}),
        ({"bias_correction": False}, 2.0, "optimizer_settings", {"bias_correction"}),
        ({"eps_place": "before", "lr": 0.2}, 2.0, "optimizer_settings", {"lr"}),
        ({"group1.eps_place": "before", "lr": 0.2}, 2.0, "optimizer_settings", {"lr"}),
        ({"eps_place": "before", "lr": 0.2}, None, "optimizer_settings", {"lr", "eps_place"}),
        ({"bias_correction": False, "lr": 0.2}, 2.0, "optimizer_settings", {"lr"}),
        ({"bias_correction": False, "lr": 0.2}, 6.3, "optimizer_settings", {"lr", "bias_correction"}),
        ({"eps_place": "before", "beta1": 0.2}, None, "optimizer_settings", {"beta1"}),
        ({"class": "other", "eps_place": None}, None, "optimizer_settings", {"class"}),
        ({"class": "other", "eps_place": None}, 2.0, "optimizer_settings", {"class"}),
        ({"class": "other", "beta1": 0.2}, None, "optimizer_settings", {"beta1"}),
        ({"class": "adamw", "beta1": 0.2}, None, "optimizer_settings", {"class", "beta1"}),
        ({"steps": 2}, 2.0, "optimizer_settings", {"steps"}),
    ],
)
def test_rules_of_frameworks_are_told_where_no_setting_differs(theirs: Any, times: Any, cause: str, names: Any) -> None:
    found = contrast(ADAM, {**ADAM, **theirs}, times)
    assert found is not None
    assert (found.name, set(found.parameters)) == (cause, names)


@pytest.mark.parametrize(("times", "noise", "told"), [(0.9999, 1e-4, False), (0.9999, 1e-6, True), (2.0, 1e-4, True)])
def test_a_factor_explains_nothing_where_as_much_is_left(times: float, noise: float, told: bool) -> None:
    """One parameter's step happened to be nearly the other's times something: it was a source of its own."""
    step, other = np.random.default_rng(0).standard_normal((2, 100))
    found = rate_between((step, times * step + noise * other), np.zeros(100, np.float32), told=True)
    assert (found is not None) is told


def test_a_decay_that_nobody_tells_is_one_source(tmp_path: Path) -> None:
    """A bias in front of a norm, which rounding alone moves on the other side, was called one that is not stepped."""
    np.random.seed(0)
    models = Averaged().net, Averaged().net
    padiff.transfer(*models)
    step = rows.SGD.step
    for model, name, decay in zip(models, "ab", (0.0, 0.01), strict=True):
        optimizer, rng = rows.SGD(model.parameters(), 0.1, weight_decay=decay), np.random.default_rng(1)
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(rng.standard_normal((15, SIZE), dtype=np.float32)))
            (y * y).mean().backward()
            step(optimizer)
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.what.name, source.cause) == ("6 parameters", None)


def test_weights_that_are_changed_within_a_step_are_told_where_it_calls_again(tmp_path: Path) -> None:
    """A layer differed, with equal inputs and equal weights before: one side's script goes up by another radius."""
    np.random.seed(0)
    models = Averaged().net, Averaged().net
    padiff.transfer(*models)
    for model, name, radius in zip(models, "ab", (0.05, 0.1), strict=True):
        optimizer, x = (
            rows.SGD(model.parameters(), 0.1),
            np.random.default_rng(1).standard_normal((15, SIZE), np.float32),
        )
        with padiff.record(model, tmp_path / name) as recorder:
            for times in (radius, 0.0):
                y = model(rows.Tensor(x))
                (y * y).mean().backward()
                for one in model.parameters() if times else ():
                    one.data[...] = one.data + np.float32(times) * one.grad
            optimizer.step()
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path, source.candidate.call) == (Phase.FORWARD, "first", 1)
    assert "changed_within_step" in {one.kind for one in source.evidence}


class Faster(Averaged):
    """Statistics of another momentum, of the model and of its average, to which the script copies them."""

    def __init__(self) -> None:
        super().__init__()
        self.net.norm.momentum = self.average.norm.momentum = 0.3


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_momentum_of_a_model_and_of_its_average_is_one_source(tmp_path: Path, evaluated: bool) -> None:
    """It was two: of one buffer here, and of the two that the script copies."""
    report = compared(tmp_path, Faster, {"evaluated": evaluated}, evaluated=evaluated)
    assert {one.cause.name for one in report.sources} == {"settings"}, report
    assert "not aligned: 1 source" in str(report).splitlines()[0], report
