"""Judge code that takes random numbers by their distribution: at a batch of two, one seed tells little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.forcing import Bench
from padiff.judging._forced._distributions import differ
from padiff.judging._forced._question import TOGETHER_AT_SIGHT, Question
from padiff.judging._forced._randomness import Randomness
from padiff.judging._forced._replays import PairReplays
from padiff.testing.toy import columns, rows
from padiff.testing.toy.adapter import ToyAdapter

X = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
Code = Callable[[Any], Any]


def drop_path(p: float, *, scale: float | None = None, axes: int = 1) -> Code:
    """Return what drops samples, tokens (two ``axes``) or elements (three), and scales up what is left."""

    def dropped(x: Any) -> Any:
        kept = np.random.random_sample(x.shape[:axes] + (1,) * (3 - axes)) >= p
        return x * type(x)(kept.astype(np.float32) / np.float32(scale or 1 - p))

    return dropped


def noise(size: float) -> Code:
    return lambda x: x + type(x)((np.random.standard_normal(x.shape) * size).astype(np.float32))


def uniform(size: float) -> Code:
    return lambda x: x + type(x)((np.random.uniform(-(3**0.5), 3**0.5, x.shape) * size).astype(np.float32))


def unseen(size: float, seed: int) -> Code:
    """Return what adds noise of a generator of its own, which nobody seeds and whose state nobody sees."""
    own = np.random.default_rng(seed)
    return lambda x: x + type(x)((own.standard_normal(x.shape) * size).astype(np.float32))


def nothing(x: Any) -> Any:
    return x


class Rows(rows.Module):
    """Add a branch to what comes in, with code behind its layer and before it."""

    def __init__(self, behind: Code, before: Code = nothing) -> None:
        self.first, self.branch, self.last = rows.Linear(4, 8), rows.Linear(8, 8), rows.Linear(8, 3)
        self.behind, self.before = behind, before

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.last(x + self.behind(self.branch(self.before(x))))


class Columns(columns.Layer):
    """Do the same in the other dialect."""

    def __init__(self, behind: Code, before: Code = nothing) -> None:
        self.first, self.branch, self.last = columns.Dense(4, 8), columns.Dense(8, 8), columns.Dense(8, 3)
        self.behind, self.before = behind, before

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.last(x + self.behind(self.branch(self.before(x))))


def compared(ours: tuple[Code, ...], theirs: tuple[Code, ...], seed: int) -> padiff.Report:
    np.random.seed(seed)
    return padiff.diff(Rows(*ours), Columns(*theirs), (X,), seed=seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("code", [drop_path(0.5), drop_path(0.1), noise(0.1)], ids=["half", "tenth", "noise"])
def test_what_both_sides_draw_alike_is_no_fault(code: Code, seed: int) -> None:
    report = compared((code,), (code,), seed)
    assert report.aligned, report


WRONG = {
    "not scaled up": (drop_path(0.5), drop_path(0.5, scale=1.0)),
    "scaled by 5 % more": (drop_path(0.3), drop_path(0.3, scale=0.7 / 1.05)),
    "at another rate": (drop_path(0.1), drop_path(0.3)),
    "elements for samples": (drop_path(0.3), drop_path(0.3, axes=3)),
    "tokens for samples": (drop_path(0.3), drop_path(0.3, axes=2)),
    "on the candidate only": (nothing, drop_path(0.1)),
    "on the reference only": (drop_path(0.1), nothing),
    "louder": (noise(0.1), noise(0.12)),
    "uniform numbers for normal ones": (noise(0.3), uniform(0.3)),
    "louder by 3 % of the same numbers": (noise(0.1), noise(0.103)),
    "beside a share of 0.05 %": (noise(0.1), lambda x: noise(0.1)(x * 1.0005)),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", WRONG)
def test_what_is_drawn_otherwise_is_named_where_it_is(name: str, seed: int) -> None:
    ours, theirs = WRONG[name]
    report = compared((ours,), (theirs,), seed)
    assert [(found.candidate.path, found.between) for found in report.sources] == [("", ("branch", "last"))], report


def sent_twice(code: Code) -> Code:
    """Return what gives the same, and sends twice the gradient back."""
    return lambda x: code(x * 2.0 - type(x)(x.data))


@pytest.mark.parametrize("seed", [0, 2])
def test_a_gradient_that_chance_hides_is_named(seed: int) -> None:
    """Often both samples are dropped, and nothing is sent back on either side; where it shows it was told twice."""
    report = compared((drop_path(0.7),), (sent_twice(drop_path(0.7)),), seed)
    assert [(found.candidate.path, found.phase.value) for found in report.sources] == [("", "backward")], report


@pytest.mark.parametrize(
    "sides", [(nothing, drop_path(0.5)), (drop_path(0.5), nothing)], ids=["candidate", "reference"]
)
def test_what_one_side_alone_draws_is_settled_by_few_replays(
    sides: tuple[Code, Code], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other side takes no random number: no distribution has to tell that they differ (100 replays, and more)."""
    seen: list[Any] = []
    run = Bench.run
    monkeypatch.setattr(Bench, "run", lambda *a, **k: (seen.append(a[1]), run(*a, **k))[1])
    report = compared(sides[:1], sides[1:], 0)
    assert len(report.sources) == 1, report
    assert len(seen) < 30, len(seen)


@pytest.mark.parametrize("drawn", [nothing, drop_path(0.1)], ids=["nothing", "drawn"])
def test_where_no_generator_is_seen_a_whole_side_is_asked_once(drawn: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value was asked under eight seeds, and again behind each refinement."""
    monkeypatch.setattr(ToyAdapter, "random_state", lambda self: None)
    known: list[Randomness] = []
    initialize = Randomness.__init__
    monkeypatch.setattr(Randomness, "__init__", lambda self, *a: (known.append(self), initialize(self, *a))[1])
    report = compared((nothing, nothing), (lambda x: drawn(x) * 1.01, lambda x: x * 1.01), 0)
    assert sorted(found.between for found in report.sources) == [("branch", "last"), ("first", "branch")], report

    seen: list[int] = []

    def asked(*_: Any, seed: int, **condition: Any) -> None:
        seen.append(seed)
        raise RuntimeError  # the values that it would be fed are gone by now

    monkeypatch.setattr(Bench, "run", asked)
    again = Randomness(known[0]._bench, PairReplays(known[0]._bench, known[0]._replays.shared))
    root = known[0]._bench.alignment.pairs[0]
    value = Question(root, lambda run, ours: run.observed.value(root.reference.outputs[0]), TOGETHER_AT_SIGHT)
    again.samples(value, ours=False)
    assert bool(seen) is (drawn is not nothing), seen


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("factor", [1.01, 1.0001])
def test_a_fault_beside_what_is_drawn_is_named_at_its_own_place(factor: float, seed: int) -> None:
    drop = drop_path(0.3)
    report = compared((drop,), (drop, lambda x: x * factor), seed)
    assert ("first", "branch") in [found.between for found in report.sources], report


def test_what_a_generator_of_their_own_draws_on_both_sides_is_no_fault() -> None:
    report = compared((unseen(0.1, 5),), (unseen(0.1, 6),), 0)
    assert report.aligned, report


@pytest.mark.parametrize("size", [0.1, 0.13])
@pytest.mark.parametrize("turned", [False, True])
def test_what_varies_was_drawn_though_nobody_saw_it(size: float, turned: bool) -> None:
    """A generator of one's own, or compiled code: it counted as one value, where the other side gives several."""
    sides = noise(size), unseen(0.1, 6)
    report = compared(sides[turned:][:1], sides[1 - turned :][:1], 0)
    assert [found.between for found in report.sources] == [("branch", "last")] * (size != 0.1), report


def test_what_a_generator_of_its_own_draws_on_one_side_is_named() -> None:
    report = compared((nothing,), (unseen(0.1, 5),), 0)
    (source,) = report.sources
    assert source.cause is not None
    assert source.cause.name == "randomness", str(report)


def test_a_dropout_on_another_tensor_is_a_fault() -> None:
    drop = drop_path(0.3)
    assert not compared((drop,), (nothing, drop), 0).aligned


def test_two_samples_of_one_distribution_are_not_called_different() -> None:
    """Masks of two samples, of which few differ: what is hardest to tell."""
    rng = np.random.default_rng(0)

    def masks(p: float) -> Callable[[bool, range], list[Any]]:
        return lambda ours, seeds: [(rng.random(2) >= (0.2 if ours else p)).astype(float) for _ in seeds]

    assert not any(differ(masks(0.2), 1e-3) for _ in range(100))
    assert sum(differ(masks(0.7), 1e-3) for _ in range(10)) >= 9


class Noisy(rows.Module):
    """Add noise in front of a layer, and behind it."""

    def __init__(self) -> None:
        self.first, self.inner, self.last = rows.Linear(4, 8), rows.Linear(8, 8), rows.Linear(8, 3)
        self.inner.weight.data[:] = np.eye(8)

    def forward(self, x: Any) -> Any:
        return self.last(noise(0.5)(self.inner(noise(0.5)(self.first(x)))))


class NoisyOnce(columns.Layer):
    """Do so with the same noise both times, if it is at fault."""

    def __init__(self, *, fault: bool) -> None:
        self.first, self.inner, self.last = columns.Dense(4, 8), columns.Dense(8, 8), columns.Dense(8, 3)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        drawn = noise(0.5)(x) - x
        x = self.inner(x + drawn)
        return self.last(x + drawn if self.fault else noise(0.5)(x))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", [False, True])
def test_noise_that_is_used_twice_shows_in_the_whole_model_alone(fault: bool, seed: int) -> None:
    """Each value by itself is of the right distribution, and what stands behind is given the reference's."""
    np.random.seed(seed)
    report = padiff.diff(Noisy(), NoisyOnce(fault=fault), (X,), seed=seed)
    assert report.aligned is not fault, str(report)
    assert [(one.candidate.path, one.evidence[0].kind) for one in report.sources] == [("", "unexplained")] * fault
    assert ("are of two distributions" in str(report)) is fault


@pytest.mark.parametrize(("rate", "right"), [(0.0736842155456543, True), (0.074, False)])
def test_rates_that_float32_holds_alike_are_one_rate(rate: float, right: bool) -> None:
    """Two libraries' linspace make rates of stochastic depth that are 1e-7 apart: each was told as another setting."""
    reference = rows.Sequential(rows.Linear(4, 8), rows.Dropout(0.0736842080950737), rows.Linear(8, 3))
    candidate = columns.Stack(columns.Dense(4, 8), columns.Drop(1 - rate), columns.Dense(8, 3))
    report = padiff.diff(reference, candidate, X)
    assert report.aligned is right, str(report)
    assert [source.candidate.path for source in report.sources] == ([] if right else ["1"])
