"""How a value that differs is like the reference's: what one would look for who prints both."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import padiff
from padiff.judging._forced import _cause_search
from padiff.judging._likeness import likeness
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
    "half detached": lambda x, y: (x, y * 0.5 + detached(y) * 0.5),
}
"""What code makes of an input and of what a layer gives, before it adds the two."""


def block(base: Any, linear: Any, code: str) -> Any:
    """Return a model of a layer, a block with a residual connection, and a head."""

    class Block(base):
        def __init__(self) -> None:
            self.linear, self.after = linear(8, 8), linear(8, 8)

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            y = F.sigmoid(y) if code == "sigmoid" else y if code == "no activation" else F.tanh(y)
            skip, y = CODE.get(code, CODE[""])(x, y)
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
        ("offset", "the candidate's is the reference's +0.25, in every element"),
        ("sigmoid", "tanh of the output of linear in the reference, sigmoid of it in the candidate"),
        ("no activation", "tanh of the output of linear in the reference, no function of it in the candidate"),
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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("half", "the candidate's is 0.5 times the reference's"),
        ("no skip", "what the candidate's lacks is the input x"),
        ("cut behind", "no gradient comes to it in the candidate"),
        ("detached skip", "what the candidate's lacks is the gradient of the output: a path that is detached?"),
        ("half detached", "the candidate's is 0.5 times the reference's"),
    ],
)
def test_recorded_runs_say_so_too(tmp_path: Path, code: str, said: str) -> None:
    """A gradient of which the code around adds up the parts was told at the library's own layer."""
    source = recorded_source(tmp_path, code, "tensors", "tensors")
    assert str(source.evidence[0]).startswith(said), source


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ("added", "unread", "no gradient comes to it in the candidate: not used there, or detached"),
        ("unread", "added", "no gradient comes to it in the reference: not used there, or detached"),
        ("added", "twice", "the candidate's is 2 times the reference's"),
    ],
)
def test_a_bias_of_zeros_whose_gradient_alone_differs_says_how(reference: str, candidate: str, said: str) -> None:
    """A new model begins with zeros: that a port never adds them shows in no value."""

    class Head(rows.Module):
        def __init__(self, how: str) -> None:
            self.linear, self.bias, self.how = rows.Linear(8, 8), rows.parameter(8), how
            self.bias.data[...] = 0

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return y if self.how == "unread" else y + self.bias * (2 if self.how == "twice" else 1)

    (source,) = padiff.diff(Head(reference), Head(candidate), TOKENS).sources
    assert source.what.name == "bias"
    assert str(source.evidence[0]).startswith(said)


@pytest.mark.parametrize("kept", [("tensors", "sketch"), ("sketch", "tensors")])
def test_values_that_one_run_kept_as_sketches_are_like_nothing(tmp_path: Path, kept: tuple[str, str]) -> None:
    """One that is not there whole is no zeros: only a gradient may not have come."""
    source = recorded_source(tmp_path, "half", *kept)
    assert source.evidence[0].kind == "leap", source


def recorded_source(tmp_path: Path, code: str, *kept: Any) -> padiff.Finding:
    models = block(rows.Module, rows.Linear, ""), block(columns.Layer, columns.Dense, code)
    padiff.transfer(*models, TOKENS)
    for model, side, name, values in zip(models, (rows, columns), "ab", kept, strict=True):
        with padiff.record(model, tmp_path / name, values=values) as recorder:
            out = model(side.Tensor(TOKENS.copy()))
            (out * out).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert source.candidate.path == "block", str(report)
    return source


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


FUNCTIONS = {
    "gelu (erf)": torch.nn.functional.gelu,
    "gelu (tanh)": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "relu squared": lambda x: torch.relu(x) ** 2,
    "leaky_relu (slope 0.01)": torch.nn.functional.leaky_relu,
    "leaky_relu (slope 0.2)": lambda x: torch.nn.functional.leaky_relu(x, 0.2),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
    "mish": torch.nn.functional.mish,
    "elu": torch.nn.functional.elu,
    "selu": torch.nn.functional.selu,
    "hard_sigmoid": torch.nn.functional.hardsigmoid,
    "hard_swish": torch.nn.functional.hardswish,
    "softsign": torch.nn.functional.softsign,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize(("one", "other"), list(itertools.pairwise([*FUNCTIONS, "gelu (erf)"])))
def test_activations_are_recognised_by_what_they_make(one: str, other: str) -> None:
    x = 3 * torch.randn(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours, theirs = (FUNCTIONS[name](x).numpy() for name in (one, other))
    found = likeness(ours, theirs, [("input x", x.numpy())], 1e-6)
    assert str(found) == f"{one} of the input x in the reference, {other} of it in the candidate"


def branching(base: Any, linear: Any, cut: bool) -> Any:
    """Return a model whose code uses what a layer gives twice: as it is, and doubled, for a module that lets no
    gradient through."""

    class Inner(base):
        def __init__(self) -> None:
            self.one, self.two = linear(8, 8), linear(8, 8)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.one(x))
            return self.two(detached(y) if cut else y)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.inner, self.head = linear(8, 8), Inner(), linear(8, 3)

        def forward(self, x: Any) -> Any:
            x = F.tanh(self.first(x))
            return self.head(x + self.inner(x * 2))

    return Model()


def test_code_that_lacks_a_gradient_which_a_module_inside_cuts_is_no_source() -> None:
    """Of a U-Net whose block detaches something the code around it was one, too."""
    report = padiff.diff(
        branching(rows.Module, rows.Linear, False), branching(columns.Layer, columns.Dense, True), TOKENS
    )
    assert [source.candidate.path for source in report.sources] == ["inner"], str(report)


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


LAST, FIRST, ONES = np.zeros((2, 6, 8)), np.zeros((2, 6, 8)), (TOKENS[0] > 0).astype(np.float64)
LAST[:, -1], FIRST[:, 0], ONES[4:] = TOKENS[:2, 0], TOKENS[:2, 1], 1 - ONES[:4]
ALIKE = np.full((2, 8), 0.125)
SMALL, WIDE = 0.1 * TOKENS.astype(np.float64), TOKENS.astype(np.float64)
NEXT, AFTER = (np.triu(np.full((8, 8), -1e9), k) for k in (1, 2))


@pytest.mark.parametrize(
    ("ours", "theirs", "named", "said"),
    [
        pytest.param(LAST, FIRST, None, "None", id="shifted by what is empty"),
        pytest.param(ONES, 1 - ONES, None, "None", id="two masks with as many ones"),
        pytest.param(WIDE + NEXT, WIDE + AFTER, None, "None", id="a mask that is shifted alone"),
        pytest.param(WIDE + np.finfo(np.float64).min * (NEXT < 0), WIDE, None, "None", id="a mask without end"),
        pytest.param(WIDE, WIDE / 48.46653, None, "the candidate's is 0.0206328 times the reference's", id="a root"),
        pytest.param(WIDE, WIDE - WIDE**2, WIDE**2 + 1j, "None", id="a complex value"),
        pytest.param(ALIKE * 2, ALIKE, ALIKE, "the candidate's is 0.5 times the reference's", id="what is constant"),
        pytest.param(
            gelu_tanh(SMALL),
            SMALL / (1 + np.exp(-SMALL)),
            SMALL,
            "gelu (tanh) of the input in the reference, silu of it in the candidate",
            id="two functions that are alike",
        ),
    ],
)
def test_nothing_is_said_that_is_not_so(ours: Any, theirs: Any, named: Any, said: str) -> None:
    """Of values in bfloat16, which are held to less."""
    around = [] if named is None else [("input", named)]
    assert str(likeness(ours, theirs, around, 2.0**-13)) == said


def test_values_far_away_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a thousand values that differ was held against all that a thousand calls take and give."""
    looked: list[int] = []

    def counting(ours: Any, theirs: Any, named: Any, *more: Any, **options: Any) -> Any:
        named = list(named)
        looked.append(len(named))
        return likeness(ours, theirs, named, *more, **options)

    def loop(base: Any, linear: Any, factor: float) -> Any:
        class Loop(base):
            def __init__(self) -> None:
                self.layer = linear(8, 8)

            def forward(self, x: Any) -> Any:
                for _ in range(40):
                    x = x + F.tanh(self.layer(x)) * factor
                return x

        return Loop()

    monkeypatch.setattr(_cause_search, "likeness", counting)
    padiff.diff(loop(rows.Module, rows.Linear, 0.1), loop(columns.Layer, columns.Dense, 0.11), TOKENS)
    assert len(looked) >= 40
    assert max(looked) < 40


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_activations_are_recognised_in_narrow_types(dtype: torch.dtype) -> None:
    """What a layer gives by itself in float64 is not what the code was fed, which is rounded."""

    class Net(torch.nn.Module):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.up, self.down, self.function = torch.nn.Linear(32, 32), torch.nn.Linear(32, 4), function

        def forward(self, x: Any) -> Any:
            return self.down(self.function(self.up(x)))

    torch.manual_seed(0)
    reference, candidate = (Net(FUNCTIONS[name]).to(dtype) for name in ("gelu (tanh)", "silu"))
    (source,) = padiff.diff(reference, candidate, torch.randn(16, 32).to(dtype)).sources
    assert str(source.evidence[0]) == "gelu (tanh) of the output of up in the reference, silu of it in the candidate"
