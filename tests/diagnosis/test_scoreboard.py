"""Run a sample of the scoreboard (benchmarks/diagnosis.py) on the toy framework, and one case of each real pair."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from .architectures import ARCHITECTURES, inputs
from .bugs_operators import BUGS
from .cases import Case, Outcome, apart, named, ran
from .kits import kit
from .rewrites import LAYOUTS, rewritten
from .rewrites_modules import REWRITES
from .scores import wilson
from .sources import parsed, planted

PAIR = ("rows", "columns")


def outcome(case: Case) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mutant may divide by zero
        return ran(case)


def test_there_is_enough_to_draw_from() -> None:
    assert len(BUGS) >= 60
    assert len(REWRITES) + len(LAYOUTS) >= 15
    assert len(ARCHITECTURES) >= 10


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_rewrite_computes_the_same(architecture: str) -> None:
    """What changes nothing changes nothing: all rewrites of a source, one by one, with the same weights by name."""
    source, arrays = parsed(ARCHITECTURES[architecture][0]), inputs(architecture, 0)
    for name in ("commuted", "divisions", "negations", "temporaries", "methods_apart", "softmax_by_hand", "upcasts"):
        found = []
        for rewrites in ([], [name]):
            one = kit("rows")
            model = planted(rewritten(source, rewrites, 1), []).build(one)
            one.disturb(model, np.random.default_rng(0))
            found.append(one.wholly(model, arrays))
        assert apart(*found) < 1e-9, name


@pytest.mark.parametrize("seed", range(12))
def test_nothing_wrong_passes(seed: int) -> None:
    for kind in ("bug", "several", "mutant"):
        found = outcome(Case(kind, PAIR, seed))
        assert found.verdict not in ("wrong pass", "error"), f"{found.name}\n{found.text}"


def test_right_ports_are_called_right() -> None:
    found = [outcome(Case("clean", PAIR, seed)) for seed in range(25)]
    wrong = [one for one in found if one.verdict != "right"]
    assert len(wrong) <= 2, "\n".join(f"{one.name}\n{one.text}" for one in wrong)


@pytest.mark.parametrize("pair", ["torch-paddle", "mindspore-torch"])
def test_the_language_is_the_same_in_real_frameworks(pair: str) -> None:
    reference, candidate = pair.split("-")
    right = outcome(Case("clean", (reference, candidate), 1, architecture="mixer"))
    wrong = outcome(Case("bug", (reference, candidate), 2, architecture="mixer"))
    assert right.verdict == "right", right.text
    assert wrong.verdict in ("found", "does not run"), wrong.text


def test_a_case_follows_from_its_name() -> None:
    case = Case("bug", PAIR, 7, "bfloat16", "vit")
    assert named(case.name) == case
    assert outcome(case).bugs == outcome(case).bugs


def test_a_share_has_an_interval() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(100, 100) == pytest.approx((0.9630, 1.0), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
