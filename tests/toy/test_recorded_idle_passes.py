"""Compare recorded scripts of which one runs backward passes that lead to no step: to validate, to see what counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, functional, rows

from .test_compare import pair

SIZE = 6


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.first(x)))


def data(seed: int) -> Any:
    return rows.Tensor(np.random.default_rng(seed).standard_normal((5, SIZE)).astype(np.float32))


def train(
    folder: Path,
    model: Net,
    where: str,
    *,
    same: bool = False,
    parts: int = 1,
    rate: float = 0.1,
    times: float = 1.0,
    clip: float = 1.0,
    cleared: bool = True,
    sketch: bool = False,
) -> None:
    """Train on each batch, or its parts, and ask for the gradients of another one, or of the ``same``, ``where`` told.

    ``front`` of the loss, behind its ``back``ward pass, where a function gives gradients that are added to no others,
    or ``behind`` the step. What is not ``cleared`` is stepped with.
    """
    optimizer = rows.SGD(model.parameters(), rate)

    def ask(batch: Any) -> None:
        held = [(parameter, parameter.grad) for parameter in model.parameters()]
        y = model(batch)
        (y * y).sum().backward()
        for parameter, gradient in held if cleared else ():
            parameter.grad = gradient

    with padiff.record(model, folder, optimizer=optimizer, values="sketch" if sketch else "tensors") as recorder:
        for seed in range(2):
            other = data(seed if same else seed + 10)
            if where == "front":
                ask(other)
            for part in range(parts):
                y = model(data(seed + 100 * part))
                (y * y * y * np.float32(times)).mean().backward()
            if where == "back":
                ask(other)
            for parameter in model.parameters():
                parameter.grad = parameter.grad * np.float32(clip)
            optimizer.step()
            optimizer.clear()
            if where == "behind":
                ask(other)
            recorder.step()


def compared(folder: Path, ours: Any, theirs: Any) -> padiff.Report:
    np.random.seed(0)
    models = Net(), Net()
    padiff.transfer(*models)
    for model, name, how in zip(models, "ab", (ours, theirs), strict=True):
        train(folder / name, model, **how)
    return padiff.compare(folder / "a", folder / "b")


PLACES = [
    (ours, theirs)
    for ours in ("", "front", "back", "behind")
    for theirs in ("", "front", "back", "behind")
    if (ours == "behind") == (theirs == "behind") or "" in (ours, theirs)
]
EACH = pytest.mark.parametrize(("ours", "theirs"), PLACES)


@EACH
@pytest.mark.parametrize("how", [{}, {"same": True}, {"parts": 2}, {"clip": 0.5}, {"sketch": True}])
def test_passes_that_lead_to_no_step_are_none_of_it(tmp_path: Path, ours: str, theirs: str, how: Any) -> None:
    """They were micro-batches of the step, of which one side makes more."""
    report = compared(tmp_path, {"where": ours, **how}, {"where": theirs, **how})
    assert report.aligned, str(report)
    told = "unused_passes" in {note.kind for note in report.notes}
    assert told or "" not in (ours, theirs) or ours == theirs, str(report)


@EACH
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("fault", [{"rate": 0.2}, {"times": 1.5}])
def test_what_is_wrong_beside_them_is_one_source(
    tmp_path: Path, ours: str, theirs: str, *, same: bool, fault: Any
) -> None:
    report = compared(tmp_path, {"where": ours, "same": same}, {"where": theirs, "same": same, **fault})
    (source,) = report.sources
    assert source.step == 0
    assert source.is_caused_by("optimizer_settings") == ("rate" in fault), str(report)
    assert source.phase is (Phase.UPDATE if "rate" in fault else Phase.BACKWARD), str(report)


@pytest.mark.parametrize("where", ["front", "back"])
def test_a_pass_that_one_script_steps_with_is_told(tmp_path: Path, where: str) -> None:
    report = compared(tmp_path, {"where": where}, {"where": where, "cleared": False})
    assert len(report.sources) == 1, str(report)
    assert report.sources[0].phase is Phase.UPDATE
    assert not report.aligned
    report = compared(tmp_path / "alone", {"where": ""}, {"where": where, "cleared": False})
    assert not report.aligned
    assert len(report.sources) == 1, str(report)


class Pair(rows.Module):
    """A maker, and a critic of what it makes."""

    def __init__(self) -> None:
        self.maker, self.critic = Net(), rows.Linear(3, 1)

    def forward(self) -> Any:
        raise NotImplementedError


def compete(folder: Path, model: Pair, *, attached: bool, cleared: bool = True, times: float = 1.0) -> None:
    """Train the critic twice on what the maker makes, which may be ``attached`` to that, and then the maker."""
    critics, makers = rows.SGD(model.critic.parameters(), 0.1), rows.SGD(model.maker.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=[critics, makers]) as recorder:
        for seed in range(3):
            for turn in range(2):
                made = model.maker(data(2 * seed + turn))
                judged = model.critic(made if attached else functional.detach(made))
                critics.clear()
                (judged * judged).mean().backward()
                critics.step()
            if cleared:
                makers.clear()
            (model.critic(model.maker(data(seed + 20))) * np.float32(-times)).mean().backward()
            makers.step()
            makers.clear()
            recorder.step()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("fault", [{}, {"cleared": False}, {"times": 2.0}])
def test_what_one_network_is_sent_by_a_pass_that_steps_another(tmp_path: Path, turned: bool, fault: Any) -> None:
    """Inside of the maker a gradient that is cleared was a source."""
    np.random.seed(0)
    models = Pair(), Pair()
    padiff.transfer(*models)
    compete(tmp_path / "a", models[0], attached=turned)
    compete(tmp_path / "b", models[1], attached=not turned or "cleared" in fault, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (not fault), str(report)
    found = [(one.step, one.phase) for one in report.sources]
    phases = {"cleared": Phase.UPDATE if turned else Phase.BACKWARD, "times": Phase.BACKWARD}
    assert found == [(0, phases[name]) for name in fault], str(report)


@pytest.mark.parametrize("values", ["tensors", "sketch"])
@pytest.mark.parametrize("side", [0, 1])
def test_passes_are_told_of_layouts_that_are_two(tmp_path: Path, side: int, values: Any) -> None:
    """Of a sketch in the layout of its kind a few elements are others than those that the optimizer was given."""
    batches = np.random.default_rng(1).standard_normal((4, 5, 3, 6)).astype(np.float32)
    for number, (model, name) in enumerate(zip(pair(), "ab", strict=True)):
        home: Any = rows if isinstance(model, rows.Module) else columns
        optimizer = rows.SGD(model.parameters(), 0.1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer, values=values) as recorder:
            for x, other in zip(batches[:2], batches[2:], strict=True):
                for batch in (other, x) if number == side else (x,):
                    optimizer.clear()
                    y = model(home.Tensor(batch.copy()))
                    (y * y).mean().backward()
                optimizer.step()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert [note.data["sides"] for note in report.notes if note.kind == "unused_passes"] == [
        [padiff.report.SIDES[side]]
    ]


class Bent(Net):
    """A network whose inner code sends a little more than it computes: what kernels round, say."""

    times = 1.0

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        if self.times != 1:
            h = h * np.float32(self.times) + functional.detach(h) * np.float32(1 - self.times)
        return self.last(functional.tanh(h))


def attack(folder: Path, model: Bent, *, frozen: bool) -> None:
    """Ask for the gradient of the input, with the weights ``frozen``, or their gradients cleared; then train."""
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for seed in range(2):
            x = data(seed)
            x.requires_grad = True
            for parameter in model.parameters():
                parameter.requires_grad = not frozen
            y = model(x)
            (y * y).sum().backward()
            for parameter in model.parameters():
                parameter.requires_grad = True
            optimizer.clear()
            y = model(rows.Tensor((x.data + np.float32(0.1) * np.sign(x.grad)).astype(np.float32)))
            (y * y).mean().backward()
            optimizer.step()
            optimizer.clear()
            recorder.step()


@pytest.mark.parametrize(("times", "aligned"), [(1.0, True), (1.0005, True), (1.3, False)])
def test_gradients_inside_are_held_to_those_that_are_stepped_with(tmp_path: Path, times: float, aligned: bool) -> None:
    """One side clears gradients that the other never gets: what is harmless inside was a source."""
    np.random.seed(0)
    models = Bent(), Bent()
    padiff.transfer(*models)
    models[1].times = times
    for name, model, frozen in zip("ab", models, (False, True), strict=True):
        attack(tmp_path / name, model, frozen=frozen)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is aligned, str(report)
    assert len(report.sources) == (not aligned), str(report)
