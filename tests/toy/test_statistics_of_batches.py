"""Compare the running statistics of a norm that several batches move, in one order or another."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows

REAL, FAKE = (np.random.default_rng(0).standard_normal((2, 6, 4)) + 1).astype(np.float32)


def discriminator(base: Any, linear: Any, norm: Any, *, fake_first: bool = False) -> Any:
    class Net(base):
        def __init__(self) -> None:
            self.layer, self.norm, self.out = linear(4, 4), norm(), linear(4, 1)

        def judged(self, x: Any) -> Any:
            return self.out(self.norm(self.layer(x)))

        def forward(self, real: Any, fake: Any) -> Any:
            if not fake_first:
                return self.judged(real), self.judged(fake)
            second = self.judged(fake)
            return self.judged(real), second

    return Net()


@pytest.mark.parametrize("momentum", [0.1, 0.003], ids=["often", "seldom"])
@pytest.mark.parametrize("fake_first", [False, True], ids=["right", "other order"])
def test_statistics_that_batches_move_in_another_order_are_others(momentum: float, fake_first: bool) -> None:
    """They are less far apart than what accumulates of rounding may be: in float64 it shows."""
    reference = discriminator(rows.Module, rows.Linear, partial(rows.BatchNorm, 4, momentum=momentum))
    norm = partial(columns.BatchNormalization, 4, keep=1 - momentum)
    candidate = discriminator(columns.Layer, columns.Dense, norm, fake_first=fake_first)
    report = padiff.diff(reference, candidate, (REAL, FAKE))
    assert report.aligned is not fake_first, str(report)
    assert [(source.what.kind, source.candidate.path) for source in report.sources] == [
        ("updated_buffer", "norm")
    ] * fake_first, str(report)
