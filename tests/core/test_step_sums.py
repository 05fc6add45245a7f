"""Hold the sums over two optimizers' steps to what they are said to be, element by element in float64."""

from __future__ import annotations

import numpy as np
import pytest

from padiff.judging._recorded._step_sums import step_sums
from padiff.numerics import SAME, epsilon_of

EPS = epsilon_of("float32")


@pytest.mark.parametrize("unsure", [0.0, 0.001, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(7,), (300, 401)])
def test_elements_whose_gradients_are_rounding_are_left_out(shape: tuple[int, ...], unsure: float) -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(shape, np.float32)
    sent = rng.choice([-1.0, 1.0], shape).astype(np.float32) * (1 + rng.random(shape, np.float32))
    chosen = rng.random(shape) < unsure
    other = np.where(chosen, -sent, sent * np.float32(1 + 1e-6))
    after = before - np.float32(0.01) * np.sign(sent), before - np.float32(0.01) * np.sign(other)
    found = step_sums((before, before), after, (sent, other), 1.0, EPS, apart=EPS)

    start, ours, theirs, first, second = (one.astype(np.float64) for one in (before, *after, sent, other))
    sure = np.abs(second - first) <= SAME(EPS) * np.abs(first)
    assert np.array_equal(sure, ~chosen)
    expected = {
        "apart": theirs - ours,
        "ours": ours - start,
        "before": start,
        "gradient": first,
        "noise": second - first,
    }
    for name, values in expected.items():
        assert getattr(found, name) == pytest.approx(float((values[sure] ** 2).sum()), rel=1e-4, abs=1e-12), name
    assert found.unsure_peak == pytest.approx(np.abs((theirs - ours)[~sure]).max(initial=0.0), rel=1e-5)
    assert found.peaks() == pytest.approx((np.abs(ours - start).max(), np.abs(start).max()), rel=1e-4)
    assert not found.exceeds(EPS, SAME(EPS))  # each step is as long as the other's


@pytest.mark.parametrize("far", [0.05, 0.2])
def test_a_step_that_is_far_too_long_exceeds(far: float) -> None:
    """Where the gradient is rounding, a step may be as long as the longest of the reference's, and no longer."""
    before, sent = np.ones(1000, np.float32), np.ones(1000, np.float32)
    sent[0] = 1e-6
    after = before - np.float32(0.01), before - np.float32(0.01)
    after[1][0] += np.float32(far)
    found = step_sums((before, before), after, (sent, sent * np.float32(1 + 1e-7)), 1.0, EPS, apart=EPS)
    assert found.exceeds(EPS, SAME(EPS)) is (far > 0.06)


@pytest.mark.parametrize("lost", [False, True])
def test_elements_that_agree_by_chance_are_no_surer(lost: bool) -> None:
    """What an optimizer keeps of earlier gradients is as far apart as all are: few that agree better tell no bound."""
    rng = np.random.default_rng(0)
    sent, kept = (rng.standard_normal(2000).astype(np.float32) for _ in range(2))
    other, else_kept = (one * (1 + 0.015 * rng.standard_normal(2000)).astype(np.float32) for one in (sent, kept))
    before = np.zeros(2000, np.float32)
    after = sent + np.float32(0.9) * kept, other + np.float32(0.0 if lost else 0.9) * else_kept
    known = (before, before), after, (sent, other), 1.0, EPS
    assert step_sums(*known, apart=0.015).exceeds(EPS, SAME(EPS)) is lost
    assert step_sums(*known, apart=EPS).exceeds(EPS, SAME(EPS))


@pytest.mark.parametrize(("zeros", "exceeds"), [(1, False), (20, True)])
def test_a_gradient_that_is_zero_among_rounding_is_rounding(zeros: int, exceeds: bool) -> None:
    """Of a bias of keys a sum may come to zero on both sides; of rows that no token looks up all are zero."""
    before, sent = np.zeros(60, np.float32), np.ones(60, np.float32)
    sent[:20] = 1e-9
    sent[:zeros] = 0.0
    after = before - np.float32(0.01), before - np.float32(0.01)
    after[1][:zeros] += np.float32(0.002)
    found = step_sums((before, before), after, (sent, sent * np.float32(1 + 1e-7)), 1.0, EPS, apart=EPS)
    assert found.exceeds(EPS, SAME(EPS)) is exceeds
