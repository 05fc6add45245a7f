"""Cut in a module behind a layer what the other side's layer does not give: the layers are right beside any fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

IMAGES = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)


def network(base: Any, conv: Any, *, cut: bool, act: Callable[[Any], Any] = F.tanh) -> Any:
    """Return two blocks of two layers each, which pad, and cut what that adds in a module of its own, or do neither."""

    class Cut(base):
        def forward(self, x: Any) -> Any:
            return x[:, :, :-1, :-1] if base is rows.Module else x[:, :-1, :-1]

    class Layer(conv):
        """Pads at the end alone where nothing is cut."""

        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            whole = (slice(None),) * (2 if base is rows.Module else 1)
            return y if cut else y[(*whole, slice(None, -1), slice(None, -1))]

    class Block(base):
        def __init__(self) -> None:
            self.one, self.cut_one = Layer(3, 3, 2, padding=1), Cut()
            self.two, self.cut_two = Layer(3, 3, 2, padding=1), Cut()

        def forward(self, x: Any) -> Any:
            y = F.relu(self.cut_one(self.one(x)) if cut else self.one(x))
            y = act(self.cut_two(self.two(y)) if cut else self.two(y))
            return x + y

    class Net(base):
        def __init__(self) -> None:
            self.first, self.second, self.head = Block(), Block(), conv(3, 2, 1)

        def forward(self, x: Any) -> Any:
            x = x if base is rows.Module else x.transpose(0, 2, 3, 1)
            x = self.head(self.second(self.first(x)))
            return x if base is rows.Module else x.transpose(0, 3, 1, 2)

    return Net()


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("act", [F.tanh, F.sigmoid])
def test_a_fault_in_the_code_around_is_one_source(ours: bool, act: Callable[[Any], Any]) -> None:
    """Each layer was a source of its own, `output has another shape`."""
    reference = network(rows.Module, rows.Conv2d, cut=ours)
    report = padiff.diff(reference, network(columns.Layer, columns.Conv, cut=not ours, act=act), IMAGES)
    places = [] if act is F.tanh else ["first", "second"]
    assert [source.candidate.path for source in report.sources] == places, str(report)
    assert all(source.between == ("start", "end") for source in report.sources), str(report)
