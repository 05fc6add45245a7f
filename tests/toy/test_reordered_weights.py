"""Weights that a port holds with their rows or columns in another order, and whose code goes with them, or does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)
HEADS, SIZE = 2, 4
TURN = np.random.default_rng(1).standard_normal((5, 1, SIZE // 2)).astype(np.float32)
WITHIN = np.concatenate([np.arange(head * SIZE, (head + 1) * SIZE).reshape(-1, 2).T.ravel() for head in range(HEADS)])
"""Of each head first what turned pairs hold first, then what they hold second."""
HIDDEN = np.array([5, 0, 3, 2, 4, 1])


def turned(x: Any, *, halves: bool) -> Any:
    """Return pairs turned, of neighbours or of what lies half a head apart, in one order."""
    first, second = (x[..., :2], x[..., 2:]) if halves else (x[..., 0::2], x[..., 1::2])
    return F.concat([first * np.cos(TURN) - second * np.sin(TURN), first * np.sin(TURN) + second * np.cos(TURN)])


class Turn(rows.Module):
    def forward(self, q: Any, k: Any) -> Any:
        return turned(q, halves=False), turned(k, halves=False)


class Net(rows.Module):
    """Attention with turned pairs, and layers whose one is the other's gate."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.turn = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 8), Turn()
        self.norm, self.both, self.inner, self.out = (
            rows.LayerNorm(8),
            rows.Linear(8, 12),
            rows.LayerNorm(6),
            rows.Linear(6, 2),
        )
        self.inner.weight.data[:] = 1  # as layers begin: the same in any order
        self.inner.bias.data[:] = 0

    def forward(self, x: Any) -> Any:
        q, k = self.turn(*(one(x).reshape(3, 5, HEADS, SIZE) for one in (self.q, self.k)))
        x = self.norm(x + F.attention(q.reshape(3, 5, 8), k.reshape(3, 5, 8), self.v(x), HEADS))
        both = self.both(x)
        return self.out(self.inner(F.sigmoid(both[..., :6]) * both[..., 6:]))


class TurnHalves(columns.Layer):
    def forward(self, q: Any, k: Any) -> Any:
        return turned(q, halves=True), turned(k, halves=True)


class Port(columns.Layer):
    """The same with halves, and the gate behind what it is the gate of."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.turn = columns.Dense(8, 8), columns.Dense(8, 8), columns.Dense(8, 8), TurnHalves()
        self.norm, self.both, self.inner, self.out = (
            columns.LayerNormalization(8, 1e-5),
            columns.Dense(8, 12),
            columns.LayerNormalization(6, 1e-5),
            columns.Dense(6, 2),
        )

    def forward(self, x: Any) -> Any:
        q, k = self.turn(*(one(x).reshape(3, 5, HEADS, SIZE) for one in (self.q, self.k)))
        x = self.norm(x + F.attention(q.reshape(3, 5, 8), k.reshape(3, 5, 8), self.v(x), HEADS))
        both = self.both(x)
        return self.out(self.inner(F.sigmoid(both[..., 6:]) * both[..., :6]))


def loaded(net: Net, **orders: Any) -> Port:
    """Return a port with a net's weights, converted as its code needs them, but for some."""
    port = Port()
    known = {"q": WITHIN, "k": WITHIN, "both": np.concatenate([HIDDEN + 6, HIDDEN]), **orders}
    for name in ("q", "k", "v", "norm", "both", "inner", "out"):
        ours, theirs = getattr(net, name), getattr(port, name)
        order = known.get(name, np.arange(len(ours.bias.data)))
        weight = ours.weight.data[:, HIDDEN] if name == "out" else ours.weight.data
        if weight.ndim > 1:
            theirs.kernel.data[:], theirs.offset.data[:] = weight[order].T, ours.bias.data[order]
        else:
            theirs.gamma.data[:], theirs.beta.data[:] = weight[order], ours.bias.data[order]
    return port


Fault = Callable[[Port], None]


def shifted(port: Port) -> None:
    port.k.offset.data[1] += 1


def of_inner(port: Port) -> None:
    port.inner.beta.data[2] += 1


def epsilon(port: Port) -> None:
    port.norm.epsilon = 0.1


@pytest.mark.parametrize("transfer", [False, True], ids=["loaded", "copied"])
@pytest.mark.parametrize(
    ("fault", "place"),
    [(None, ""), (epsilon, "norm"), (shifted, "k"), (of_inner, "inner")],
    ids=["right", "eps", "k", "inner"],
)
def test_code_that_goes_with_its_weights_is_right(fault: Fault | None, place: str, transfer: bool) -> None:
    net = Net()
    port = loaded(net)
    if fault is not None:
        fault(port)
    report = padiff.diff(net, port, X, transfer=transfer)
    mended = transfer and fault in (shifted, of_inner)  # what is copied is right again
    assert [finding.candidate.path for finding in report.sources] == ([] if fault is None or mended else [place])
    assert report.aligned is (fault is None or mended)
    note = next(note.text for note in report.notes if note.kind == "reordered")
    assert note.startswith("the candidate holds the reference's rows or columns in another order, and its code takes")
    assert "q.kernel" in note


@pytest.mark.parametrize("transfer", [False, True], ids=["loaded", "copied"])
def test_weights_in_an_order_that_the_code_does_not_take_are_the_source(transfer: bool) -> None:
    net, other = Net(), Net()
    for name in ("q", "k", "v", "norm", "both", "inner", "out"):
        order = WITHIN if name in "qk" else slice(None)
        ours, theirs = getattr(net, name), getattr(other, name)
        theirs.weight.data[:], theirs.bias.data[:] = ours.weight.data[order], ours.bias.data[order]
    report = padiff.diff(net, other, X, transfer=transfer)
    found = {(one.candidate.path, str(one.phase)) for one in report.sources}
    assert found == (set() if transfer else {("q", "parameter"), ("k", "parameter")})
    assert all("with its rows in another order (0, 2, 1, 3, " in str(one.cause) for one in report.sources)
    assert not any(note.kind == "reordered" for note in report.notes)


@pytest.mark.parametrize("wrong", [False, True])
def test_recorded_runs_tell_whether_the_code_goes_with_its_weights(wrong: bool, tmp_path: Path) -> None:
    net = Net()
    port = loaded(net, **({"q": np.arange(8), "k": np.arange(8)} if wrong else {}))
    for model, side, name in ((net, rows, "a"), (port, columns, "b")):
        with padiff.record(model, tmp_path / name) as recorder:
            (model(side.Tensor(X.copy())) * X[..., :2]).sum().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is not wrong
    assert [finding.candidate.path for finding in report.sources] == (["turn"] if wrong else [])


@pytest.mark.parametrize("own", [False, True], ids=["module", "own code"])
def test_a_port_that_turns_halves_of_what_the_reference_turns_in_pairs_is_told_so(own: bool) -> None:
    class Inline(Net):
        """A net that turns what it is told to turn in its own code, and not in a module."""

        halves = False

        def __init__(self) -> None:
            super().__init__()
            if own:
                self.turn = None

        def forward(self, x: Any) -> Any:
            q, k = (one(x).reshape(3, 5, HEADS, SIZE) for one in (self.q, self.k))
            q, k = (turned(one, halves=self.halves) for one in (q, k)) if own else self.turn(q, k)
            x = self.norm(x + F.attention(q.reshape(3, 5, 8), k.reshape(3, 5, 8), self.v(x), HEADS))
            return self.out(self.inner(self.both(x)[..., :6]))

    class OtherTurn(rows.Module):
        def forward(self, q: Any, k: Any) -> Any:
            return turned(q, halves=True), turned(k, halves=True)

    net, other = Inline(), Inline()
    other.halves = True
    if not own:
        other.turn = OtherTurn()
    (source,) = {str(one.cause) for one in padiff.diff(net, other, X).sources}
    assert source.startswith("right where the rows of q and k are in another order (0, 2, 1, 3, ")


@pytest.mark.parametrize("transfer", [False, True], ids=["loaded", "copied"])
@pytest.mark.parametrize("fault", [None, epsilon], ids=["right", "wrong"])
def test_weights_that_were_rounded_to_a_narrower_type_are_the_references(fault: Fault | None, transfer: bool) -> None:
    net = Net()
    port = loaded(net)
    for one in port.parameters():
        one.data = one.data.astype(np.float16)
    if fault is not None:
        fault(port)
    held = [held.data.copy() for held in port.parameters()]
    report = padiff.diff(net, port, X, candidate_inputs=X.astype(np.float16), transfer=transfer)
    assert all(np.array_equal(before, now.data) for before, now in zip(held, port.parameters(), strict=True))
    assert [finding.candidate.path for finding in report.sources] == ([] if fault is None else ["norm"])
    assert report.aligned is (fault is None)
