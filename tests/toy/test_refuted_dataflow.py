"""What the dataflow says otherwise is not tried where right values tell that nothing belongs so."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.parameters import UnitMatch, pair_parameters
from padiff.refinement import _dataflow
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
OTHER = {"a": "b", "b": "a"}


class Branches(rows.Module):
    """Two branches, and a layer in front of them."""

    def __init__(self, fault: str = "") -> None:
        self.front, self.a, self.b, self.fault = rows.Linear(4, 4), rows.Linear(4, 4), rows.Linear(4, 4), fault

    def forward(self, x: Any) -> Any:
        x = self.front(x)
        if self.fault == "gradient":
            x = x * 0.5 + type(x)(x.data) * 0.5
        y = F.tanh(self.a(x)) + self.b(x)
        return y * 1.1 if self.fault == "value" else y


def with_branches_exchanged(*given: Any, **asked: Any) -> Any:
    """Match the branches with each other's, as a misread dataflow does."""
    found = pair_parameters(*given, **asked)
    units = {one.candidate.module.path: one.candidate for one in found.matches}
    paths = {one: one.reference.module.path for one in found.matches}
    matches = [UnitMatch.of(one.reference, units[OTHER.get(path, path)]) for one, path in paths.items()]
    return attrs.evolve(found, matches=matches)


@pytest.mark.parametrize(
    ("fault", "constant", "tried"), [("gradient", False, False), ("gradient", True, True), ("value", False, True)]
)
def test_where_gradients_alone_are_wrong_right_values_tell_who_is_who(
    monkeypatch: pytest.MonkeyPatch, fault: str, constant: bool, tried: bool
) -> None:
    """A weight norm's convolutions were arranged in 1,200 replays behind a wrong gradient: 30 s of 36."""
    seen: list[Any] = []
    monkeypatch.setattr(_dataflow, "pair_parameters", with_branches_exchanged)
    monkeypatch.setattr(_dataflow, "_better", lambda known, other, _: seen.append(other) or known)
    reference, candidate = Branches(), Branches(fault)
    for layer in (reference.a, reference.b) if constant else ():  # then either branch may be either
        layer.weight.data[...], layer.bias.data[...] = 0.25, 0.0
    assert padiff.diff(reference, candidate, X).sources
    assert bool(seen) is tried
