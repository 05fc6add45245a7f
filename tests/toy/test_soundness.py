"""Compare random ports: right ones are aligned, faults are named at their places, and nothing wrong ever passes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import padiff

from .generated import Plan, apart, faulty, numbers, plans, written
from .random_ports import Fate, fates

SEEDS = st.integers(0, 10**6)
QUIET = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}
SOME = settings(max_examples=12, **QUIET)


def compared(reference: Any, candidate: Any) -> padiff.Report:
    return padiff.diff(reference, candidate, (numbers(),))


def assert_sound(report: padiff.Report, reference: Any, candidate: Any) -> None:
    """Assert that what is called aligned computes the same, as the judge of these tests sees it."""
    if report.aligned:
        assert apart(reference, candidate) < 1e-6, f"a wrong pass:\n{report}"


@SOME
@given(plans(distinct=True), SEEDS, SEEDS)
def test_a_right_port_is_aligned(plan: Plan, one: int, other: int) -> None:
    """Other names, another order of definition, other modules around: with distinct shapes nothing is in doubt."""
    reference, candidate = written("rows", plan, one)[0], written("columns", plan, other, 1)[0]
    report = compared(reference, candidate)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied == len(candidate.parameters())
    assert apart(reference, candidate) < 1e-9


@SOME
@given(plans(distinct=True), SEEDS, SEEDS, SEEDS, SEEDS)
def test_a_fault_is_named_at_its_place(plan: Plan, one: int, other: int, where: int, which: int) -> None:
    """Its module is a source, or the one around it where the other side has no such module."""
    wrong = faulty(plan, where % len(plan.walk()), which)
    reference, (candidate, places) = written("rows", plan, one)[0], written("columns", wrong, other, 1)
    report = compared(reference, candidate)
    assert_sound(report, reference, candidate)
    named = {source.candidate.path for source in report.sources}
    around = {path.rsplit(".", n)[0] for place in places for path in place for n in range(path.count(".") + 1)}
    assert report.aligned or named & {*around, *set.union(*places), ""}, f"{places}\n{report}"


@SOME
@given(plans(), SEEDS, SEEDS, SEEDS, SEEDS)
def test_nothing_wrong_passes(plan: Plan, one: int, other: int, where: int, which: int) -> None:
    """Where shapes tell nothing apart, a port may be misjudged as wrong, and never as right."""
    wrong = faulty(plan, where % len(plan.walk()), which)
    reference, candidate = written("rows", plan, one)[0], written("columns", wrong, other, 1)[0]
    assert_sound(compared(reference, candidate), reference, candidate)


@SOME
@given(plans(), SEEDS, SEEDS, SEEDS, SEEDS)
def test_nothing_wrong_passes_with_the_time_first(plan: Plan, one: int, other: int, where: int, which: int) -> None:
    """A candidate that computes in (time, batch, features) is not right because nothing of it could be compared."""
    wrong = faulty(plan, where % len(plan.walk()), which)
    reference = written("rows", plan, one, ordered=True)[0]
    candidate = written("columns", wrong, other, 1, ordered=True, time_first=True)[0]
    assert_sound(compared(reference, candidate), reference, candidate)


@SOME
@given(plans(), SEEDS, SEEDS)
def test_a_right_port_of_layers_of_one_shape_is_aligned(plan: Plan, one: int, other: int) -> None:
    """Which layer is which follows from what it is called with, whatever it is called."""
    reference, candidate = written("rows", plan, one)[0], written("columns", plan, other, 1)[0]
    report = compared(reference, candidate)
    assert report.aligned, str(report)


def test_names_that_mislead_and_layers_of_one_shape_make_no_port_misjudged() -> None:
    """A sample of what ``python -m toy.random_ports`` tells of thousands."""
    assert not {Fate.ALARM, Fate.PASSED} & set(fates(range(40)).values())


def test_a_gradient_alone_tells_a_gelu_from_its_tanh_form_in_the_flat_ends() -> None:
    """One is a module, the other a function: the outputs are half an epsilon apart."""
    assert fates([31451]) == {31451: Fate.FOUND}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(6676, id="one of two norms takes what it gave"),
        pytest.param(11434, id="names cross the layers of two attentions in a row"),
        pytest.param(5466, id="the gradient of a key is nothing but rounding"),
        pytest.param(6180, id="a relu takes what it gives"),
        pytest.param(10527, id="a relu takes what it gives, inside of a module"),
        pytest.param(10852, id="two functions give the same, and get other gradients"),
        pytest.param(20649, id="a relu and a sum take what one relu gives"),
    ],
)
def test_a_right_port_that_was_called_wrong_once_is_aligned(seed: int) -> None:
    assert fates([seed]) == {seed: Fate.RIGHT}
