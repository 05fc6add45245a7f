"""Compare recorded scripts that make another loss of what equal models give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

from .test_recorded_scripts import SIZE, Tower, batches, same

ROWS, CLASSES = 6, 5
Loss = Callable[[Any], Any]


def targets(smooth: float = 0.0, wrong: int = 0) -> Any:
    found = np.full((ROWS, CLASSES), smooth / CLASSES, np.float32)
    found[np.arange(ROWS), (np.arange(ROWS) + (np.arange(ROWS) < wrong)) % CLASSES] += 1 - smooth
    return found


def squares(wanted: Any, weights: Any = None) -> Loss:
    """Return what makes a loss: how far each row is from what is wanted, weighted."""
    each = np.full((ROWS, 1), 1 / ROWS, np.float32) if weights is None else np.asarray(weights, np.float32)[:, None]
    return lambda out: ((out - wanted) * (out - wanted) * each).sum()


@pytest.mark.parametrize(
    ("theirs", "kind", "words"),
    [
        (squares(targets(0.1)), "one_of_each_row", "targets that one side smooths?"),
        (squares(targets(wrong=1)), "in_part", "only at index 0 of axis 0, which has 6"),
        (squares(targets(), [0, 0.2, 0.2, 0.2, 0.2, 0.2]), "factor_of_each", "0 to 1.2 times the reference's"),
        (lambda out: (out * out).mean(), None, "other targets, weights, terms, or another reduction"),
    ],
)
def test_another_loss_says_how_it_sends_other_gradients(
    tmp_path: Path, theirs: Loss, kind: str | None, words: str
) -> None:
    """There was nothing but its two numbers, and the model's class as its place."""
    np.random.seed(0)
    models = rows.Linear(8, CLASSES), rows.Linear(8, CLASSES)
    padiff.transfer(*models)
    batch = np.random.default_rng(1).standard_normal((ROWS, 8), dtype=np.float32)
    for model, name, loss in zip(models, "ab", (squares(targets()), theirs), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            found = loss(model(rows.Tensor(batch)))
            found.backward()
            recorder.step(float(found.data))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert source.phase is Phase.LOSS
    assert [one.kind for one in source.evidence] == ["losses_of_runs", "sent_otherwise", *([kind] if kind else [])]
    assert words in str(source.evidence[-1])
    assert "compare how both scripts make the loss" in str(report)


@pytest.mark.parametrize("rate", [0.1, 0.2])
def test_a_loss_that_differs_in_its_number_alone_hides_no_step(tmp_path: Path, rate: float) -> None:
    """A script that tells a sum, and steps from the mean: the optimizer's step was not judged any more."""
    np.random.seed(0)
    models = Tower(), Tower()
    same(*models)
    for model, name, times, lr in zip(models, "ab", (1.0, 3.0), (0.1, rate), strict=True):
        optimizer = rows.SGD(model.parameters(), lr)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for x in batches():
                out = model(rows.Tensor(x.copy()))[0]
                loss = (out * out).mean()
                loss.backward()
                optimizer.step()
                optimizer.clear()
                recorder.step(float(loss.data) * times)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    first, *others = report.sources
    assert (first.phase, first.step) == (Phase.LOSS, 0)
    assert "no_gradient_differs" in {one.kind for one in first.evidence}
    assert [(one.phase, one.step, one.cause.name) for one in others] == [(Phase.UPDATE, 0, "optimizer_settings")] * (
        rate != 0.1
    )


@pytest.mark.parametrize("told", [True, False])
def test_a_penalty_on_weights_is_one_source(tmp_path: Path, told: bool) -> None:
    """Each gradient was a source, at its own module."""
    np.random.seed(0)
    models = Tower(), Tower()
    same(*models)
    for model, name, times in zip(models, "ab", (0.0, 0.01), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(batches()[0]))[0]
            loss = (y * y).mean()
            for one in model.parameters():
                loss = loss + (one * one).sum() * np.float32(times)
            loss.backward()
            recorder.step(float(loss.data) if told else None)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path) == (Phase.LOSS if told else Phase.BACKWARD, "")
    assert source.cause.parameters == {"of": "weights", "times": 0.02, "side": "candidate"}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("decay", "rate"), [(0.02, 0.1), (0.03, 0.1), (0.02, 0.15)])
def test_a_penalty_on_weights_may_be_what_the_other_optimizer_decays(
    tmp_path: Path, turned: bool, decay: float, rate: float
) -> None:
    """Scripts that make the same steps were a source: their gradients differ."""
    np.random.seed(0)
    models = Tower(), Tower()
    same(*models)
    for side, (model, name) in enumerate(zip(models, "ab", strict=True)):
        penalized = turned != bool(side)
        lr = rate if side else 0.1
        optimizer = rows.SGD(model.parameters(), lr, 0.9, 0.0 if penalized else decay)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for x in batches():
                y = model(rows.Tensor(x.copy()))[0]
                loss = (y * y).mean()
                for one in model.parameters() if penalized else ():
                    loss = loss + (one * one).sum() * np.float32(0.01)
                optimizer.clear()
                loss.backward()
                optimizer.step()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    right = (decay, rate) == (0.02, 0.1)
    assert report.aligned is right, str(report)
    assert len(report.sources) == (not right), str(report)
    told = [note.data for note in report.notes if note.kind == "decay_in_loss"]
    assert told == [{"side": padiff.report.SIDES[not turned], "times": 0.02}] * right, str(report)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_gradients_that_are_not_finite_are_no_penalty(tmp_path: Path) -> None:
    """The comparison ended in an error."""
    np.random.seed(0)
    models = Tower(), Tower()
    same(*models)
    for model, name, spoilt in zip(models, "ab", (False, True), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(batches()[0]))[0]
            loss = (y * y).mean()
            for one in model.parameters() if spoilt else ():
                loss = loss + (one * np.float32(0)).sqrt().sum()
            loss.backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert {source.phase for source in report.sources} == {Phase.BACKWARD}, str(report)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [("", None), ("code", (Phase.FORWARD, "output")), ("loss", (Phase.LOSS, "loss"))],
)
def test_a_script_may_make_its_loss_of_an_output_in_another_shape(
    tmp_path: Path, side: int, fault: str, kind: Any
) -> None:
    """What a model gives was owed in the reference's shape, though the script alone takes it."""

    class Model(rows.Module):
        def __init__(self, *, flat: bool, times: float) -> None:
            self.layer, self.flat, self.times = rows.Linear(8, 1), flat, np.float32(times)

        def forward(self, x: Any) -> Any:
            y = self.layer(x) * self.times
            return y.reshape(-1) if self.flat else y

    np.random.seed(0)
    models = Model(flat=side == 0, times=1), Model(flat=side == 1, times=1.01 if fault == "code" else 1)
    padiff.transfer(*models)
    batch = np.random.default_rng(1).standard_normal((ROWS, 8), dtype=np.float32)
    for model, name in zip(models, "ab", strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            out, wanted = model(rows.Tensor(batch)), batch[:, :1]
            if fault != "loss" or name == "a":
                wanted = wanted.reshape(out.shape)
            else:  # each is held to all that are wanted
                wanted = np.full(out.shape, wanted.mean(), np.float32)
            loss = ((out - wanted) * (out - wanted)).mean()
            loss.backward()
            recorder.step(float(loss.data))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.what.kind) for one in report.sources] == ([kind] if kind else []), str(report)
    assert report.aligned is not bool(fault)


class Judges(rows.Module):
    """A policy, and one that it is compared with, which its script calls first."""

    def __init__(self) -> None:
        self.policy, self.before = rows.Linear(8, CLASSES), rows.Linear(8, CLASSES)

    def forward(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("more", [0.0, 1e-3])
def test_a_loss_whose_terms_cancel_is_held_to_these_whichever_call_makes_them(tmp_path: Path, more: float) -> None:
    """Advantages add up to nothing: a right script's loss of 1e-8 was a source behind a call of a frozen model."""
    np.random.seed(0)
    models = Judges(), Judges()
    padiff.transfer(*models)
    batch = np.random.default_rng(1).standard_normal((ROWS, 8), dtype=np.float32)
    for model, name, wrong in zip(models, "ab", (0.0, more), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            model.before(rows.Tensor(batch))
            out = model.policy(rows.Tensor(batch))
            (out * np.float32(1)).sum().backward()
            recorder.step(1e-8 * (name == "b") + wrong)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.phase for one in report.sources] == [Phase.LOSS] * bool(more), report


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (0.004, True)])
def test_what_a_small_term_sends_is_no_other_way_to_the_same(tmp_path: Path, share: float, found: bool) -> None:
    """Gradients of the parameters agree but for a hundredth of a thousandth: such scripts were aligned."""
    np.random.seed(0)
    models = rows.Linear(8, CLASSES), rows.Linear(8, CLASSES)
    padiff.transfer(*models)
    batches = np.random.default_rng(1).standard_normal((2, ROWS, 8), dtype=np.float32)
    each = np.float32(1 + share * np.arange(CLASSES) / CLASSES)
    for model, name, weights in zip(models, "ab", (np.ones_like(each), each), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            large, small = (model(rows.Tensor(one)) for one in batches)
            ((large * large).sum() + (small * small * weights).sum() * np.float32(0.01)).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is not found, report
    assert [(one.phase, one.what.kind) for one in report.sources] == [(Phase.BACKWARD, "output_gradient")] * found


class Taught(rows.Module):
    """A network, and one that it is held to."""

    def __init__(self) -> None:
        self.net, self.teacher = rows.Linear(6, 3), rows.Linear(6, 3)

    def forward(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("swapped", [True, False])
def test_what_a_loss_makes_of_other_inputs_is_no_second_source(tmp_path: Path, swapped: bool) -> None:
    """The gradient of a small difference between two outputs is another one altogether, where both are given others."""
    np.random.seed(0)
    models = Taught(), Taught()
    padiff.transfer(*models)
    for model, name, turned in zip(models, "ab", (False, swapped), strict=True):
        model.teacher.weight.data[...] = model.net.weight.data
        model.teacher.bias.data[...] = model.net.bias.data
        rng = np.random.default_rng(3)
        optimizer = rows.SGD(model.net.parameters(), 0.1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            x, *noise = (rng.standard_normal((5, 6)).astype(np.float32) for _ in range(3))
            ours, theirs = ((x + one * np.float32(0.01)).astype(np.float32) for one in noise[:: -1 if turned else 1])
            known = model.net(rows.Tensor(rng.standard_normal((5, 6)).astype(np.float32)))
            off = model.net(rows.Tensor(ours)) - functional.detach(model.teacher(rows.Tensor(theirs)))
            ((off * off).mean() + (known * known).mean()).backward()
            optimizer.step()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.cause and one.cause.name for one in report.sources] == ["inputs"] * swapped, str(report)
    assert report.aligned is not swapped


class Quantized(rows.Module):
    """Gives an output and how far what it rounded is off, or of what the script makes that itself."""

    def __init__(self, *, judges: bool) -> None:
        self.first, self.last, self.judges = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), judges

    def forward(self, x: Any) -> Any:
        z = self.first(x)
        code = np.sign(z.data)
        y = self.last(z)
        return (y, ((z - code) * (z - code)).mean()) if self.judges else (y, z, rows.Tensor(code))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("weight", "tells"), [(1.0, True), (1.1, True), (1.0, False)])
def test_what_no_gradient_comes_to_is_no_output_without_counterpart(
    tmp_path: Path, turned: bool, weight: float, tells: bool
) -> None:
    """Codes that one model returns beside what it rounds, and the other makes its own term of, were a source."""
    np.random.seed(0)
    models = Quantized(judges=not turned), Quantized(judges=turned)
    same(*models)
    for model, name in zip(models, "ab", strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            for x in batches()[:2]:
                y, *rest = model(rows.Tensor(x.copy()))
                z, code = rest if len(rest) > 1 else (None, None)
                term = rest[0] if z is None else ((z - code.data) * (z - code.data)).mean()
                loss = (y * y).mean() + term * np.float32(weight if name == "b" else 1)
                loss.backward()
                recorder.step(float(loss.data) if tells else None)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (weight == 1 and tells), report
    if tells:
        assert [(one.phase, one.candidate.path) for one in report.sources] == [(Phase.LOSS, "")] * (weight != 1), report
        (note,) = (one for one in report.notes if one.kind == "untrained_output")
        assert note.data["side"] == padiff.report.SIDES[not turned]
