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


class PreNorm(rows.Module):
    def __init__(self) -> None:
        self.n1, self.n2 = rows.LayerNorm(8), rows.LayerNorm(8)
        self.a, self.up, self.down = rows.Linear(8, 8), rows.Linear(8, 16), rows.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        x = x + self.a(self.n1(x))
        return x + self.down(functional.gelu(self.up(self.n2(x))))


class PostNorm(columns.Layer):
    """The same, whose first norm stands behind the sum with what its layer gives."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = columns.LayerNormalization(8), columns.LayerNormalization(8)
        self.attention, self.fc1, self.fc2 = columns.Dense(8, 8), columns.Dense(8, 16), columns.Dense(16, 8)

    def forward(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


def test_what_one_end_tells_is_believed_where_more_of_the_dataflow_is_kept() -> None:
    """A norm behind a sum takes what the second one takes in the reference, and was taken for that in one block."""
    ours = rows.Sequential(rows.Linear(8, 8), *(PreNorm() for _ in range(3)), rows.LayerNorm(8), rows.Linear(8, 4))
    ends = columns.LayerNormalization(8), columns.Dense(8, 4)
    theirs = columns.Stack(columns.Dense(8, 8), *(PostNorm() for _ in range(3)), *ends)
    report = padiff.diff(ours, theirs, (X,))
    pairs = {(pair.reference, pair.candidate) for pair in report.mapping.modules}
    assert {(f"{block}.n{norm}", f"{block}.norm{norm}") for block in (1, 2, 3) for norm in (1, 2)} <= pairs, report
    assert {source.candidate.path for source in report.sources} == {"1", "2", "3"}, report
    assert str(report).startswith("not aligned: 2 sources in "), report
