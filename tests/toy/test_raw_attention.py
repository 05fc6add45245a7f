"""Port an attention of matrices that no rule speaks of, with positions of its own, and a mask in another spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
HIDDEN = np.triu(np.ones((5, 5), np.float32), 1)
POSITIONS = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)


def scores(q: Any, k: Any) -> Any:
    return q @ k.transpose(0, 1, 3, 2)


class Attention(rows.Module):
    """Matrices of (features, heads, size), in attributes, and what is added to queries before either product."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.r, self.o = (rows.parameter(8, 2, 4, scale=0.4) for _ in range(5))
        self.content_bias, self.position_bias = rows.parameter(2, 1, 4), rows.parameter(2, 1, 4)

    def forward(self, x: Any, hidden: Any) -> Any:
        q, k, v, r = (
            (y @ matrix.reshape(8, 8)).reshape(-1, 5, 2, 4).transpose(0, 2, 1, 3)
            for y, matrix in ((x, self.q), (x, self.k), (x, self.v), (rows.Tensor(POSITIONS[None]), self.r))
        )
        found = scores(q + self.content_bias, k) + scores(q + self.position_bias, r)
        found = F.softmax(found * 0.5 + hidden * -1e30) @ v
        return found.transpose(0, 2, 1, 3).reshape(-1, 5, 8) @ self.o.reshape(8, 8).transpose(1, 0)


class Block(rows.Module):
    def __init__(self) -> None:
        self.attention, self.norm, self.into = Attention(), rows.LayerNorm(8), rows.Linear(8, 8)

    def forward(self, x: Any, hidden: Any) -> Any:
        return self.into(self.norm(x + self.attention(x, hidden)))


class Model(rows.Module):
    def __init__(self) -> None:
        self.one, self.two = Block(), Block()

    def forward(self, x: Any) -> Any:
        hidden = rows.Tensor(HIDDEN)
        return self.two(self.one(x, hidden), hidden)


class Port(columns.Layer):
    """The same of layers; ``fault`` says what of it is another."""

    def __init__(self, fault: str) -> None:
        self.wq, self.wk, self.wv, self.wr, self.wo = (columns.Dense(8, 8, bias=False) for _ in range(5))
        self.position, self.content, self.fault = columns.weight(2, 1, 4), columns.weight(2, 1, 4), fault

    def heads(self, y: Any) -> Any:
        return y.reshape(-1, 5, 2, 4).transpose(0, 2, 1, 3)

    def forward(self, x: Any, bias: Any) -> Any:
        q, k, v = (self.heads(layer(x)) for layer in (self.wq, self.wk, self.wv))
        r = self.heads(self.wr(columns.Tensor(POSITIONS[None])))
        found = scores(q + self.content, k) + scores(q + self.position, r)
        found = F.softmax(found * (0.55 if self.fault == "scale" else 0.5) + bias) @ v
        return self.wo(found.transpose(0, 2, 1, 3).reshape(-1, 5, 8))


class PortedBlock(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.attn, self.ln, self.up = Port(fault), columns.LayerNormalization(8), columns.Dense(8, 8)

    def forward(self, x: Any, bias: Any) -> Any:
        return self.up(self.ln(x + self.attn(x, bias)))


class Ported(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.a, self.b, self.fault = PortedBlock(fault), PortedBlock(fault), fault

    def forward(self, x: Any) -> Any:
        bias = columns.Tensor((HIDDEN.T if self.fault == "mask" else HIDDEN) * np.float32(-1e30))
        return (self.a if self.fault == "again" else self.b)(self.a(x, bias), bias)


@pytest.mark.parametrize("fault", ["", "scale", "mask", "again"])
def test_matrices_in_attributes_are_told_apart_by_what_they_give(fault: str) -> None:
    """Two that are named ``k`` and ``v`` ended in an error, and ones where the port adds -1e30 were a source."""
    report = padiff.diff(Model(), Ported(fault), X)
    assert report.aligned == (not fault), str(report)
    if fault == "mask":
        assert any(str(one.what) == "input 'bias' of a" for one in report.sources), str(report)
    if fault == "again":  # of the block, not of each of its layers
        said = [one.figures for source in report.sources for one in source.evidence if one.kind == "another_layer"]
        assert said == [{"called": "a", "due": ["b"]}], str(report)


class Small(rows.Module):
    """All matrices are square, and what is added to queries, too: names alone could tell which is which."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.r, self.o = (rows.parameter(4, 4, scale=0.5) for _ in range(5))
        self.content_bias, self.position_bias = rows.parameter(2, 2), rows.parameter(2, 2)
        self.norm = rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        positions = rows.Tensor(POSITIONS[None, :, :4])
        q, k, v, r = (
            (y @ matrix).reshape(-1, 5, 2, 2).transpose(0, 2, 1, 3)
            for y, matrix in ((x, self.q), (x, self.k), (x, self.v), (positions, self.r))
        )
        content, position = (one.reshape(2, 1, 2) for one in (self.content_bias, self.position_bias))
        found = F.softmax((scores(q + content, k) + scores(q + position, r)) * 0.7) @ v
        return self.norm(found.transpose(0, 2, 1, 3).reshape(-1, 5, 4) @ self.o.transpose(1, 0) + x)


class SmallPort(columns.Layer):
    """The same of other names in another order, the other way round; nothing was loaded yet."""

    def __init__(self, fault: str) -> None:
        self.out, self.wr, self.wq, self.wk, self.wv = (columns.weight(4, 4, scale=0.0) for _ in range(5))
        self.b_r, self.b_k = columns.weight(2, 2, scale=0.0), columns.weight(2, 2, scale=0.0)
        self.ln, self.fault = columns.LayerNormalization(4), fault

    def forward(self, x: Any) -> Any:
        positions = columns.Tensor(POSITIONS[None, :, :4])
        q, k, v, r = (
            (y @ matrix.transpose(1, 0)).reshape(-1, 5, 2, 2).transpose(0, 2, 1, 3)
            for y, matrix in ((x, self.wq), (x, self.wk), (x, self.wv), (positions, self.wr))
        )
        content, position = (one.reshape(2, 1, 2) for one in (self.b_k, self.b_r))
        found = scores(q if self.fault == "bias" else q + content, k) + scores(q + position, r)
        found = F.softmax(found if self.fault == "scale" else found * 0.7) @ v
        found = found.transpose(0, 2, 1, 3).reshape(-1, 5, 4) @ self.out.transpose(1, 0)
        return self.ln(found if self.fault == "residual" else found + x)


class Twice(rows.Module):
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


class TwicePorted(columns.Layer):
    def __init__(self, first: Any, second: Any) -> None:
        self.a, self.b = first, second

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("", ""),
        ("scale", "mul(_, 0.7) in the reference only"),
        ("bias", "add(_, _) in the reference only"),
        ("residual", "add(_, _) in the reference only"),
    ],
)
def test_code_says_which_way_a_square_matrix_lies(fault: str, cause: str) -> None:
    """No order of so many was found, so right ones were a source; beside a fault nothing told how they lie."""
    port = TwicePorted(SmallPort(fault), SmallPort(fault))
    report = padiff.diff(Twice(Small(), Small()), port, X[:, :, :4])
    assert report.aligned == (not fault), str(report)
    assert {str(source.cause) for source in report.sources} == ({cause} if fault else set()), str(report)
    lying = {one.candidate: one.layout for one in report.mapping.parameters if one.candidate.startswith("a.")}
    assert {lying[f"a.{name}"] for name in ("wq", "wk", "wv", "wr")} == {"transposed"}
    assert lying["a.out"] == "as in the reference"


class Trilinear(rows.Module):
    """Attention both ways, with scores of layers and of a vector; what is made of it differs little in the end."""

    def __init__(self) -> None:
        self.w_c, self.w_q = (rows.Linear(8, 1, bias=False) for _ in range(2))
        self.w_m, self.head = rows.parameter(1, 1, 8), rows.Linear(16, 4)

    def forward(self, c: Any, q: Any) -> Any:
        found = self.w_c(c) + self.w_q(q).transpose(0, 2, 1) + (c * self.w_m) @ q.transpose(0, 2, 1)
        one, other = F.softmax(found), F.softmax(found.transpose(0, 2, 1))
        both = F.concat([one @ q, one @ (other @ c)], -1)
        return F.softmax(self.head(both) * 0.001)


class Scores(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.one, self.two, self.three = (
            columns.weight(8, 1),
            columns.weight(8, 1),
            columns.weight(1, 8),
        )
        self.fault = fault

    def forward(self, c: Any, q: Any) -> Any:
        found = (c * self.three) @ q.transpose(0, 2, 1)
        found = found + c @ self.one + (q @ self.two).transpose(0, 2, 1)
        one, other = F.softmax(found), F.softmax(found.transpose(0, 2, 1))
        other = one.transpose(0, 2, 1) if self.fault == "axis" else other * 0.9 if self.fault == "scale" else other
        return F.concat([one @ q, one @ (other @ c)], -1)


class TrilinearPort(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.scores, self.out = Scores(fault), columns.Dense(16, 4)

    def forward(self, c: Any, q: Any) -> Any:
        return F.softmax(self.out(self.scores(c, q)) * 0.001)


@pytest.mark.parametrize("fault", ["", "axis", "scale"])
def test_weights_stay_where_a_fault_shows_little_in_the_end(fault: str) -> None:
    """Exchanged they were as right in the outputs, which are nearly the same whatever is wrong."""
    np.random.seed(0)
    report = padiff.diff(Trilinear(), TrilinearPort(fault), (X, X[:, :3]))
    assert report.aligned == (not fault), str(report)
    assert len(report.sources) == bool(fault), str(report)
    held = {one.candidate: one.reference for one in report.mapping.parameters if one.candidate.startswith("scores.")}
    loose = {"one": "w_c.weight", "two": "w_q.weight", "three": "w_m"}
    assert held == {f"scores.{one}": (other,) for one, other in loose.items()}
