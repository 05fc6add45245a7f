"""Judge blocks that add what they are given themselves, against such that leave this to the code around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


class Feed(rows.Module):
    def __init__(self) -> None:
        self.norm, self.one, self.two = rows.LayerNorm(4), rows.Linear(4, 8), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.two(F.silu(self.one(self.norm(x))))


class Mix(rows.Module):
    def __init__(self) -> None:
        self.norm, self.fc = rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(self.norm(x))


class Block(rows.Module):
    def __init__(self) -> None:
        self.before, self.mix, self.after, self.norm = Feed(), Mix(), Feed(), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = x + self.before(x) * 0.5
        x = x + self.mix(x)
        return self.norm(x + self.after(x) * 0.5)


class Feeding(columns.Layer):
    def __init__(self, faulty: str) -> None:
        self.norm, self.one, self.two = columns.LayerNormalization(4), columns.Dense(4, 8), columns.Dense(8, 4)
        self.faulty = faulty

    def forward(self, x: Any) -> Any:
        y = self.one(self.norm(x))
        y = self.two(F.relu(y) if self.faulty == "activation" else F.silu(y))
        return x + (y if self.faulty == "half" else y * 0.5)


class Mixing(columns.Layer):
    def __init__(self) -> None:
        self.norm, self.fc = columns.LayerNormalization(4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.fc(self.norm(x))


class Residual(columns.Layer):
    def __init__(self, faulty: str) -> None:
        self.before, self.mix, self.after = Feeding(faulty), Mixing(), Feeding(faulty)
        self.norm = columns.LayerNormalization(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.after(self.mix(self.before(x))))


@pytest.mark.parametrize("faulty", ["", "activation", "half"])
def test_a_block_that_adds_its_input_is_no_source_beside_one_that_is_wrong(faulty: str) -> None:
    report = padiff.diff(rows.Sequential(Block(), Block()), columns.Stack(Residual(faulty), Residual(faulty)), X)
    named = {source.candidate.path for source in report.sources}
    assert named == ({f"{i}.{name}" for i in (0, 1) for name in ("before", "after")} if faulty else set()), str(report)
    assert len(report.sources) == len(named), str(report)


class Ending(columns.Layer):
    """A block that ends without its last function."""

    def __init__(self, faulty: bool) -> None:
        self.norm, self.fc, self.faulty = columns.LayerNormalization(4), columns.Dense(4, 4), faulty

    def forward(self, x: Any) -> Any:
        y = x + self.fc(self.norm(x))
        return y if self.faulty else F.relu(y)


class Ended(rows.Module):
    def __init__(self) -> None:
        self.norm, self.fc = rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.fc(self.norm(x)))


class Tail(rows.Module):
    def __init__(self) -> None:
        self.body, self.head = rows.Sequential(Ended(), Ended()), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).mean(1))


class TailOf(columns.Layer):
    def __init__(self) -> None:
        self.body, self.head = columns.Stack(Ending(faulty=False), Ending(faulty=True)), columns.Dense(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).mean(1))


def test_what_a_block_gives_that_another_hands_on_is_its_own() -> None:
    report = padiff.diff(Tail(), TailOf(), X)
    (source,) = report.sources
    assert (source.reference.path, source.candidate.path, source.what.kind) == ("body.1", "body.1", "output"), report


class Styled(rows.Module):
    def __init__(self) -> None:
        self.fc, self.shift = rows.Linear(4, 4), rows.parameter(4)

    def forward(self, x: Any, noise: Any) -> Any:
        return F.tanh(self.fc(x) + noise + self.shift)


class Coloured(rows.Module):
    """A layer that adds a coarser image itself."""

    def __init__(self) -> None:
        self.fc, self.shift = rows.Linear(4, 3), rows.parameter(3)

    def forward(self, x: Any, coarse: Any = None) -> Any:
        y = self.fc(x) + self.shift
        return y if coarse is None else y + F.concat([coarse, coarse], 1)


class Images(rows.Module):
    def __init__(self) -> None:
        self.one, self.two, self.first, self.second = Styled(), Styled(), Coloured(), Coloured()

    def forward(self, x: Any, noise: Any) -> Any:
        x = self.one(x, noise)
        coarse = self.first(x)
        return self.second(self.two(F.concat([x, x], 1), F.concat([noise, noise * 2.0], 1)), coarse)


class Styling(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.fc, self.shift, self.slope = columns.Dense(4, 4), columns.weight(4), slope

    def forward(self, x: Any, noise: Any) -> Any:
        return F.tanh(self.fc(x) + noise + self.shift) * self.slope


class Colouring(columns.Layer):
    def __init__(self) -> None:
        self.fc, self.shift = columns.Dense(4, 3), columns.weight(3)

    def forward(self, x: Any) -> Any:
        return self.fc(x) + self.shift


class Painted(columns.Layer):
    """The same, which adds the coarser image behind that layer."""

    def __init__(self, slope: float, louder: float) -> None:
        self.l0, self.l1, self.r0, self.r1 = Styling(slope), Styling(slope), Colouring(), Colouring()
        self.louder = louder

    def forward(self, x: Any, noise: Any) -> Any:
        x = self.l0(x, noise)
        coarse = self.r0(x)
        x = self.l1(F.concat([x, x], 1), F.concat([noise, noise * self.louder], 1))
        return F.concat([coarse, coarse], 1) + self.r1(x)


@pytest.mark.parametrize(("slope", "louder", "told"), [(1.0, 2.0, set()), (1.01, 2.0, {"l0", "l1"}), (1.0, 2.1, {""})])
def test_a_block_that_adds_more_is_no_source_behind_code_that_is_wrong(
    slope: float, louder: float, told: set[str]
) -> None:
    """Its weights were exchanged with those of one that gives another shape, which cannot be put in for it."""
    inputs = X, np.random.default_rng(1).standard_normal((2, 5, 4)).astype(np.float32)
    report = padiff.diff(Images(), Painted(slope, louder), inputs)
    assert {source.candidate.path for source in report.sources} == told, str(report)
    assert len(report.sources) == len(told), str(report)


class Around(rows.Module):
    """A norm around what a layer does with two inputs, of which the second has a norm of its own."""

    def __init__(self, fn: Any, beside: bool) -> None:
        self.fn, self.norm, self.context = fn, rows.LayerNorm(4), rows.LayerNorm(4) if beside else None

    def forward(self, x: Any, context: Any = None) -> Any:
        return self.fn(self.norm(x)) if self.context is None else self.fn(self.norm(x), self.context(context))


class Cross(rows.Module):
    """What is made of a first input and a second one, of which one layer makes two halves."""

    def __init__(self) -> None:
        self.q, self.kv, self.out = rows.Linear(4, 4), rows.Linear(4, 8), rows.Linear(4, 4)

    def forward(self, x: Any, context: Any) -> Any:
        both = self.kv(context)
        return self.out(F.tanh(self.q(x)) * F.sigmoid(both[..., :4]) + both[..., 4:])


class Reader(rows.Module):
    """What reads a context, goes on with what it read, and adds each block's input itself."""

    def __init__(self) -> None:
        self.read, self.reads = Around(Cross(), beside=True), Around(rows.Linear(4, 4), beside=False)
        self.feed, self.answer = Around(rows.Linear(4, 4), beside=False), Around(Cross(), beside=True)
        self.query, self.head = rows.parameter(2, 5, 4), rows.Linear(4, 3)

    def forward(self, x: Any, context: Any) -> Any:
        x = self.read(x, context) + x
        for _ in range(2):
            x = self.reads(x) + x
            x = self.feed(x) + x
        return self.head(self.answer(self.query, x) + self.query)


class CrossOf(columns.Layer):
    def __init__(self) -> None:
        self.q, self.k, self.v, self.out = (columns.Dense(4, 4) for _ in range(4))

    def forward(self, x: Any, context: Any) -> Any:
        return self.out(F.tanh(self.q(x)) * F.sigmoid(self.k(context)) + self.v(context))


class CrossBlock(columns.Layer):
    """The same with its residual inside."""

    def __init__(self, faulty: bool) -> None:
        self.ln, self.ln_context = columns.LayerNormalization(4), columns.LayerNormalization(4)
        self.mix, self.faulty = CrossOf(), faulty

    def forward(self, x: Any, context: Any) -> Any:
        return x + self.mix(self.ln(x), context if self.faulty else self.ln_context(context))


class PlainBlock(columns.Layer):
    def __init__(self) -> None:
        self.ln, self.fc = columns.LayerNormalization(4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.fc(self.ln(x))


class ReaderOf(columns.Layer):
    def __init__(self, faulty: bool) -> None:
        self.read, self.answer = CrossBlock(faulty), CrossBlock(faulty)
        self.one, self.two, self.head = PlainBlock(), PlainBlock(), columns.Dense(4, 3)
        self.query = columns.weight(2, 5, 4)

    def forward(self, x: Any, context: Any) -> Any:
        x = self.read(x, context)
        for _ in range(2):
            x = self.two(self.one(x))
        return self.head(self.answer(self.query, x))


@pytest.mark.parametrize("seed", range(4))
def test_a_norm_that_blocks_leave_out_is_one_source_though_all_blocks_end_elsewhere(seed: int) -> None:
    """Each block was matched with one that ends in front of its residual, and its own `add(_, _)` was a source."""
    np.random.seed(seed)
    rest = np.random.default_rng(1).standard_normal(X.shape).astype(np.float32)
    assert padiff.diff(Reader(), ReaderOf(faulty=False), (X, rest)).aligned
    report = padiff.diff(Reader(), ReaderOf(faulty=True), (X, rest))
    line = CrossBlock.forward.__code__.co_firstlineno + 1
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)
    assert {str(one.cause) for one in report.sources} == {"context(_) in the reference only"}, str(report)
    assert report.sources[0].candidate.location == f"{__file__}:{line}", str(report)
