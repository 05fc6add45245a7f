"""How a value that differs is like the reference's: what one would look for who prints both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((3, 8, 8)).astype(np.float32)


def detached(value: Any) -> Any:
    return type(value)(value.data)


CODE = {
    "": lambda x, y: (x, y),
    "scale": lambda x, y: (x, y * 0.35355339059327373),
    "half": lambda x, y: (x, y * 0.5),
    "sign": lambda x, y: (x, y * -1),
    "offset": lambda x, y: (x, y + 0.25),
    "input": lambda x, y: (x, x),
    "no skip": lambda x, y: (x * 0, y),
    "twice the skip": lambda x, y: (x * 2, y),
    "a third of the skip": lambda x, y: (x * (1 / 3), y),
    "zeros": lambda x, y: (x, y * 0),
    "transposed": lambda x, y: (x, y.transpose(0, 2, 1)),
    "reversed": lambda x, y: (x, y[:, ::-1]),
    "reshaped": lambda x, y: (x, y.reshape(3, 2, 4, 8).transpose(0, 2, 1, 3).reshape(3, 8, 8)),
    "detached": lambda x, y: (x, detached(y)),
    "detached skip": lambda x, y: (detached(x), y),
    "cut behind": lambda x, y: (x, y),
    "half detached": lambda x, y: (x, y * 0.5 + detached(y) * 0.5),
}
"""What code makes of an input and of what a layer gives, before it adds the two."""


def block(base: Any, linear: Any, code: str) -> Any:
    """Return a model of a layer, a block with a residual connection, and a head."""

    class Block(base):
        def __init__(self) -> None:
            self.linear, self.after = linear(8, 8), linear(8, 8)

        def forward(self, x: Any) -> Any:
            skip, y = CODE[code](x, F.tanh(self.linear(x)))
            y = self.after(y)
            return skip + (detached(y) if code == "cut behind" else y)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.block, self.head = linear(8, 8), Block(), linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.block(self.first(x)))

    return Model()


def told(code: str) -> list[str]:
    reference, candidate = block(rows.Module, rows.Linear, ""), block(columns.Layer, columns.Dense, code)
    report = padiff.diff(reference, candidate, TOKENS)
    (source,) = report.sources
    assert source.candidate.path == "block", str(report)
    return [str(one) for one in source.evidence]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("scale", "the candidate's is 0.353553 (1/sqrt(8)) times the reference's"),
        ("half", "the candidate's is 0.5 times the reference's"),
        ("sign", "the same with the other sign"),
        ("offset", "the candidate's is +0.25 in every element"),
        ("input", "the candidate has the reference's input x there: another tensor, or two in another order"),
        ("no skip", "what the candidate's lacks is the input x"),
        ("twice the skip", "the candidate's has the input x in addition"),
        ("a third of the skip", "what the candidate's lacks is 0.666667 times the input x"),
        ("zeros", "nothing but zeros in the candidate"),
        ("transposed", "the candidate's is the reference's with axes 1 and 2 exchanged"),
        ("reversed", "the candidate's is the reference's, reversed along axis 1"),
        ("reshaped", "the same numbers in another order: a transpose, a reshape, another way to split heads?"),
        ("detached", "the candidate lets no gradient through to it (detached, or made without gradients)"),
        ("cut behind", "no gradient comes to it in the candidate: detached (detach, stop_gradient, no_grad) there?"),
        ("detached skip", "what the candidate's lacks is the gradient of the output: a path that is detached?"),
        ("half detached", "the candidate's is 0.5 times the reference's"),
    ],
)
def test_what_differs_says_how_it_is_like_the_references(code: str, said: str) -> None:
    assert told(code)[0].startswith(said), told(code)


def shifting(base: Any, linear: Any, code: str) -> Any:
    """Return a model whose code makes something of what a layer gives token by token."""

    class Model(base):
        def __init__(self) -> None:
            self.layer, self.head = linear(8, 8), linear(8, 3)

        def forward(self, x: Any) -> Any:
            y = self.layer(x).transpose(0, 2, 1)
            if code == "shifted":
                y = F.concat([y[:, :, :1], y[:, :, :-1]])
            elif code == "first token":
                y = F.concat([y[:, :, :1] * 1.5, y[:, :, 1:]])
            return self.head(y.transpose(0, 2, 1))

    return Model()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("shifted", "the candidate's is the reference's, shifted by +1 along axis 1"),
        ("first token", "only at index 0 of axis 1, which has 8"),
    ],
)
def test_a_difference_at_some_tokens_says_at_which(code: str, said: str) -> None:
    report = padiff.diff(shifting(rows.Module, rows.Linear, ""), shifting(columns.Layer, columns.Dense, code), TOKENS)
    (source,) = report.sources
    assert str(source.evidence[0]) == said, str(report)
