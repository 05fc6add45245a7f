"""Plant one fault in code that goes different ways in its calls: whichever lines show it, it is one source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
ROWS = (rows.Module, rows.Linear, rows.parameter, rows.ModuleList)
COLUMNS = (columns.Layer, columns.Dense, columns.weight, columns.Layers)


def heads(kit: Any, *, shift: bool) -> Any:
    """Return a model of two layers of several heads, which puts those of one side by side, and takes the mean else."""
    base, linear, parameter, _ = kit

    class Heads(base):
        def __init__(self, wide: bool) -> None:
            self.wide, self.layer = wide, linear(6, 6)
            self.shift = parameter(6 if wide else 3)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.layer(x)).reshape(3, 2, 3)
            if self.wide:
                y = y.reshape(3, 6)
            else:
                y = y.mean(1)
            return y + self.shift if shift else y

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two, self.last = Heads(wide=True), Heads(wide=False), linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.last(self.two(F.sigmoid(self.one(x))))

    return Model()


def test_what_is_left_out_behind_a_branch_is_one_source() -> None:
    """It was one for each way: it is placed where the value is made that is handed on instead."""
    assert padiff.diff(heads(ROWS, shift=True), heads(COLUMNS, shift=True), X).aligned
    report = padiff.diff(heads(ROWS, shift=True), heads(COLUMNS, shift=False), X)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)
    assert "cause      add(_, _) in the reference only" in str(report), str(report)


def squashing(kit: Any, eps: float) -> Any:
    """Return a model of two kinds of modules that call one function on what their own matrices make."""
    base, linear, parameter, _ = kit

    def squash(x: Any) -> Any:
        size = (x * x).sum(-1, keepdims=True)
        return x * size / (size + eps)

    class First(base):
        def __init__(self) -> None:
            self.layer = linear(6, 6)

        def forward(self, x: Any) -> Any:
            return squash(self.layer(x))

    class Second(base):
        def __init__(self) -> None:
            self.weight = parameter(6)

        def forward(self, x: Any) -> Any:
            return squash(F.tanh(x) * self.weight)

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two, self.last = First(), Second(), linear(6, 2)

        def forward(self, x: Any) -> Any:
            return self.last(self.two(self.one(x)))

    return Model()


def test_a_number_of_a_function_that_modules_without_layers_call_too_is_one_source() -> None:
    report = padiff.diff(squashing(ROWS, 0.5), squashing(COLUMNS, 0.7), X)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)


def wrapped(kit: Any, *, own: bool, slip: bool = False) -> Any:
    """Return a model whose blocks do in a module of their ``own`` on one side what they do themselves on the other."""
    base, linear, _, modules = kit

    def made(q: Any, k: Any, v: Any) -> Any:
        """Return what takes more operations than are told as one difference, of which each may be another."""
        for _ in range(4):
            q = F.silu(q - k * 2.0) if slip else F.tanh(q + k)
            k = F.gelu(k * q) if slip else F.sigmoid(k - q)
        return (q - k) * v

    class Mix(base):
        def __init__(self) -> None:
            self.q, self.k, self.v, self.out = (linear(6, 6) for _ in range(4))

        def forward(self, x: Any) -> Any:
            return self.out(made(self.q(x), self.k(x), self.v(x)))

    class Block(base):
        def __init__(self) -> None:
            if own:
                self.mix, self.up = Mix(), linear(6, 6)
            else:
                self.q, self.k, self.v, self.out, self.up = (linear(6, 6) for _ in range(5))

        def forward(self, x: Any) -> Any:
            y = self.mix(x) if own else self.out(made(self.q(x), self.k(x), self.v(x)))
            return x + F.tanh(self.up(x + y))

    class Model(base):
        def __init__(self) -> None:
            self.blocks = modules(Block(), Block())

        def forward(self, x: Any) -> Any:
            for one in self.blocks:
                x = one(x)
            return x

    return Model()


@pytest.mark.parametrize("slip", [False, True])
def test_lines_of_modules_that_the_candidate_alone_has_are_one_source_without_a_cause(slip: bool) -> None:
    """It was one for each block: calls without counterpart did not count as places where these lines run."""
    report = padiff.diff(wrapped(ROWS, own=False), wrapped(COLUMNS, own=True, slip=slip), X)
    assert report.aligned is not slip, str(report)
    assert report.aligned or str(report).startswith("not aligned: 1 source in 2 places"), str(report)
