"""Match units whose place shows from one end alone, since the models differ on the way from the other."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, functional, rows

X = np.random.default_rng(0).standard_normal((3, 4, 8), dtype=np.float32)


def predicting(base: Any, linear: Any, norm: Any, early: bool, extra: bool) -> Any:
    """Return a model with two heads, the second of which is computed ``early``; and an ``extra`` layer in front."""

    class Net(base):
        def __init__(self) -> None:
            self.first, self.head, self.mix = linear(8, 8), linear(8, 5), linear(8, 8)
            self.one, self.two, self.three = norm(8), norm(8), norm(8)
            if extra:
                self.extra = linear(8, 8)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            x = x + functional.tanh(self.extra(x)) if extra else x + functional.tanh(x)
            if early:
                second = self.head(self.two(self.mix(functional.silu(self.one(x)))))
                return self.head(self.three(x)), second
            first = self.head(self.one(x))
            return first, self.head(self.three(self.mix(functional.silu(self.two(x)))))

    return Net()


def test_what_follows_tells_units_behind_a_difference_apart() -> None:
    """Fresh norms hold the same: taken in the order of the run, one was given the inputs of another."""
    ours = predicting(rows.Module, rows.Linear, rows.LayerNorm, False, True)
    theirs = predicting(columns.Layer, columns.Dense, columns.LayerNormalization, True, False)
    report = padiff.diff(ours, theirs, (X,))
    pairs = {(pair.reference, pair.candidate) for pair in report.mapping.modules}
    assert {("one", "three"), ("two", "one"), ("three", "two")} <= pairs, report
