"""Count what differs under a correspondence, to tell which of two is better."""

from __future__ import annotations

from padiff.numerics import ACCUMULATED, epsilon, epsilon_of, relative
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence

Errors = list[tuple[float, float]]


def differing(correspondence: Correspondence, evidence: Evidence) -> tuple[bool, int]:
    """Return whether the free runs differ, and how many values of the forced run do."""
    return not evidence.agrees(correspondence.axes), sum(map(wrong_of, errors_of(correspondence, evidence)))


def errors_of(correspondence: Correspondence, evidence: Evidence) -> tuple[Errors, Errors]:
    """Return the relative errors of the forced run's values and of its gradients, each with its type's epsilon."""
    forced = evidence.judged(correspondence).forced
    both: tuple[Errors, Errors] = [], []
    for check in forced.checks:
        both[check.backward].append((check.difference.rel_l2, epsilon_of(check.spot.reference.dtype)))
    of_state = [(relative(one.difference, one.scale), epsilon(one.reference.dtype)) for one in forced.gradients]
    return both[0], [*both[1], *of_state]


def wrong_of(errors: Errors) -> int:
    return sum(error > ACCUMULATED(eps) for error, eps in errors)
