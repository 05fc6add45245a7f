"""Recurrent cells of a library against linear layers whose results code of a port's own puts together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)


class Recurrent(rows.Module):
    """A cell that goes over a sequence forward, and one that goes backward."""

    def __init__(self) -> None:
        self.there, self.back, self.out = rows.LSTMCell(3, 4), rows.LSTMCell(3, 4), rows.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        zeros = x[:, 0, :1] * np.zeros(4, np.float32)
        states = []
        for cell, steps in ((self.there, range(5)), (self.back, reversed(range(5)))):
            h, c = zeros, zeros
            for step in steps:
                h, c = cell(x[:, step], (h, c))
            states.append(h)
        return self.out(F.concat(states))


class Step(columns.Layer):
    """A cell of two linear layers, or of one for each gate, some of them without a bias."""

    def __init__(self, *, apart: bool, fault: str = "", lacking: str = "") -> None:
        count, size = (4, 4) if apart else (1, 16)
        self.given = columns.Layers(*(columns.Dense(3, size, bias="x" not in lacking) for _ in range(count)))
        self.kept = columns.Layers(*(columns.Dense(4, size, bias="h" not in lacking) for _ in range(count)))
        self.fault = fault

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        gates = F.concat([one(x) + other(h) for one, other in zip(self.given, self.kept, strict=True)])
        i, f, g, o = (gates[:, 4 * n : 4 * n + 4] for n in range(4))
        c = F.sigmoid(f + 1.0 if self.fault == "forget" else f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * (c if self.fault == "tanh" else F.tanh(c)), c


class Loose(columns.Layer):
    """A cell of two matrices and a bias for each gate, in an order of its own; they are as wide as each other."""

    def __init__(self, width: int, fault: str = "") -> None:
        for gate in "ofig":
            setattr(self, f"w_{gate}", columns.weight(width, 4))
            setattr(self, f"u_{gate}", columns.weight(4, 4))
            setattr(self, f"b_{gate}", columns.weight(4))
        self.fault = fault

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        found = (
            x @ getattr(self, f"w_{gate}") + h @ getattr(self, f"u_{gate}") + getattr(self, f"b_{gate}")
            for gate in "ofig"
        )
        o, f, i, g = found
        c = F.sigmoid(f + 1.0 if self.fault == "forget" else f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * (c if self.fault == "tanh" else F.tanh(c)), c


class OnBoth(columns.Layer):
    """A cell of a layer for each gate, or of a matrix and a bias, on the state and the input side by side."""

    def __init__(self, width: int, fault: str = "", *, loose: bool = False) -> None:
        self.gates = columns.Layers(*(() if loose else (columns.Dense(4 + width, 4) for _ in "ofig")))
        for gate in "ofig" if loose else ():
            setattr(self, f"w_{gate}", columns.weight(4 + width, 4))
            setattr(self, f"b_{gate}", columns.weight(4))
        self.fault = fault

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        x = F.concat([h, x])
        found = [gate(x) for gate in self.gates] or [
            x @ getattr(self, f"w_{gate}") + getattr(self, f"b_{gate}") for gate in "ofig"
        ]
        o, f, i, g = found
        c = F.sigmoid(f + 1.0 if self.fault == "forget" else f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * (c if self.fault == "tanh" else F.tanh(c)), c


class ByHand(columns.Layer):
    def __init__(self, *, apart: bool, fault: str = "", lacking: str = "") -> None:
        self.forth, self.reverse = (Step(apart=apart, fault=one, lacking=lacking) for one in ("", fault))
        self.last = columns.Dense(8, 2)

    def forward(self, x: Any) -> Any:
        zeros = x[:, 0, :1] * np.zeros(4, np.float32)
        states = []
        for cell, steps in ((self.forth, range(5)), (self.reverse, reversed(range(5)))):
            h, c = zeros, zeros
            for step in steps:
                h, c = cell(x[:, step], h, c)
            states.append(h)
        return self.last(F.concat(states))


@pytest.mark.parametrize("turned", [False, True], ids=["cells", "layers"])
@pytest.mark.parametrize("apart", [False, True], ids=["packed", "each"])
@pytest.mark.parametrize(
    ("fault", "lacking"), [("", ""), ("forget", ""), ("tanh", ""), ("", "h"), ("forget", "h"), ("", "x")]
)
def test_a_cell_is_two_linear_layers(fault: str, lacking: str, apart: bool, turned: bool) -> None:
    """All parameters of such cells were left over, and the second bias where a port has one for both."""
    ours, theirs = Recurrent(), ByHand(apart=apart, fault=fault, lacking=lacking)
    report = padiff.diff(theirs, ours, X) if turned else padiff.diff(ours, theirs, X)
    at = "back" if turned else "reverse"
    assert {one.candidate.path for one in report.sources} == ({at} if fault else set()), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate


def last_of(x: Any, step: Any) -> Any:
    """Return the last state of a cell that goes over a sequence."""
    h = c = x[:, 0, :1] * np.zeros(4, np.float32)
    for time in range(5):
        h, c = step(x[:, time], h, c)
    return h


class One(rows.Module):
    def __init__(self, width: int) -> None:
        self.cell, self.out = rows.LSTMCell(width, 4), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.out(last_of(x, lambda x, h, c: self.cell(x, (h, c))))


class OfMatrices(columns.Layer):
    def __init__(self, cell: columns.Layer) -> None:
        self.cell, self.out = cell, columns.Dense(4, 2)

    def forward(self, x: Any) -> Any:
        return self.out(last_of(x, self.cell))


@pytest.mark.parametrize(
    ("made", "width"), [(Loose, 3), (Loose, 4), (OnBoth, 3), (OnBoth, 4), (partial(OnBoth, loose=True), 3)]
)
@pytest.mark.parametrize("fault", ["", "forget", "tanh"])
@pytest.mark.parametrize("turned", [False, True], ids=["cell", "matrices"])
def test_gates_may_have_matrices_of_their_own(turned: bool, fault: str, width: int, made: Any) -> None:
    """No rule speaks of them, so that all parameters were left over; so were they where a gate has one for both."""
    sides = One(width), OfMatrices(made(width, fault))
    x = np.random.default_rng(1).standard_normal((2, 5, width)).astype(np.float32)
    report = padiff.diff(*(sides[::-1] if turned else sides), x)
    assert {one.candidate.path for one in report.sources} == ({"cell"} if fault else set()), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate


class Layered(rows.Module):
    """Two cells, one behind the other: each packs its gates in two layers."""

    def __init__(self) -> None:
        self.lower, self.upper = (rows.ModuleList(*(rows.Linear(4, 16) for _ in range(2))) for _ in range(2))

    def forward(self, x: Any) -> Any:
        states = [[x[:, 0] * 0.0] * 2 for _ in range(2)]
        for step in range(5):
            y = x[:, step]
            for state, (given, kept) in zip(states, (self.lower, self.upper), strict=True):
                gates = given(y) + kept(state[0])
                i, f, g, o = (gates[:, 4 * n : 4 * n + 4] for n in range(4))
                c = F.sigmoid(f) * state[1] + F.sigmoid(i) * F.tanh(g)
                state[:] = y, _ = F.sigmoid(o) * F.tanh(c), c
        return y


class LayeredByGates(columns.Layer):
    """The same by the gates, in one module."""

    def __init__(self, fault: str) -> None:
        self.gates, self.fault = columns.Layers(*(columns.Dense(8, 4) for _ in range(8))), fault

    def forward(self, x: Any) -> Any:
        states = [[x[:, 0] * 0.0] * 2 for _ in range(2)]
        for step in range(5):
            y = x[:, step]
            for n, state in enumerate(states):
                o, f, i, g = (gate(F.concat([state[0], y])) for gate in list(self.gates)[4 * n : 4 * n + 4])
                c = F.sigmoid(f) * state[1] + F.sigmoid(i) * F.tanh(g)
                state[:] = y, _ = F.sigmoid(o) * (c if n and self.fault else F.tanh(c)), c
        return y


@pytest.mark.parametrize("fault", ["", "tanh"])
def test_cells_of_one_call_lie_alike(fault: str) -> None:
    """Each was tried beside one that lay otherwise, where one call shows what both give."""
    x = np.random.default_rng(1).standard_normal((2, 5, 4)).astype(np.float32)
    report = padiff.diff(Layered(), LayeredByGates(fault), x)
    assert report.aligned is not bool(fault), str(report)
    assert len(report.sources) == bool(fault)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate


@pytest.mark.parametrize("turned", [False, True], ids=["cells", "layers"])
def test_a_cell_without_any_bias_is_told(turned: bool) -> None:
    ours, theirs = Recurrent(), ByHand(apart=False, lacking="xh")
    report = padiff.diff(theirs, ours, X) if turned else padiff.diff(ours, theirs, X)
    assert [one.what.kind for one in report.sources] == ["parameter"] * 4, str(report)


@pytest.mark.parametrize(("share", "place"), [(0.5, []), (0.6, ["offset"] * 2)])
def test_values_that_were_converted_are_compared_as_sums(share: float, place: list[str]) -> None:
    """Whoever converts one bias to two may give both a half: the second one was to be zero."""
    ours, theirs = ByHand(apart=False, lacking="h"), ByHand(apart=False)
    padiff.transfer(ours, theirs, X)
    for cell in (theirs.forth, theirs.reverse):
        given, kept = cell.given[0].offset.data, cell.kept[0].offset.data
        kept[:] = 0.5 * given
        given *= share
    report = padiff.diff(ours, theirs, X, transfer=False)
    assert [one.what.name for one in report.sources if one.what.kind == "parameter"] == place, str(report)
    assert report.aligned is not bool(place)


@pytest.mark.parametrize("fault", ["", "forget"])
def test_recorded_gradients_tell_of_sums(fault: str, tmp_path: Path) -> None:
    """Nothing runs there: what is added up got one gradient."""
    ours, theirs = Recurrent(), ByHand(apart=False, fault=fault, lacking="h")
    padiff.transfer(ours, theirs, X)
    for model, side in ((ours, rows), (theirs, columns)):
        with padiff.record(model, tmp_path / side.__name__) as recorder:
            out = model(side.Tensor(X.copy()))
            (out * out).sum().backward()
            recorder.step()
    report = padiff.compare(tmp_path / rows.__name__, tmp_path / columns.__name__)
    assert {one.candidate.path for one in report.sources} == ({"reverse"} if fault else set()), str(report)
    assert not report.mapping.unmatched_parameters["reference"], str(report)


class Gated(rows.Module):
    """A step whose reset gate scales what is made of the state, and the bias there, or adds it outside."""

    def __init__(self, *, bias: bool = True, zero: bool = False) -> None:
        self.reset, self.given, self.kept = rows.Linear(3, 4), rows.Linear(3, 4), rows.Linear(4, 4, bias=bias)
        if bias and zero:
            self.kept.bias.data[:] = 0

    def forward(self, x: Any) -> Any:
        h = x[:, 0, :1] * np.zeros(4, np.float32)
        for step in range(5):
            h = F.tanh(self.given(x[:, step]) + F.sigmoid(self.reset(x[:, step])) * self.kept(h))
        return h


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("zero", [False, True])
def test_a_bias_in_a_gate_is_none_of_a_sum(zero: bool, phase: str) -> None:
    """A GRU keeps it apart, so that a port with one bias for both is another model, whatever it starts from."""
    report = padiff.diff(Gated(zero=zero), Gated(bias=False), X, phase=phase)
    assert "bias: present in the reference" in [str(one.cause).partition(",")[0] for one in report.sources], str(report)
    assert report.sources[0].candidate.path == "kept"


class Begun(rows.Module):
    """A cell that begins with states which are learned."""

    def __init__(self) -> None:
        self.cell, self.out = rows.LSTMCell(3, 4), rows.Linear(4, 2)
        self.h0, self.c0 = rows.parameter(4), rows.parameter(4)

    def forward(self, x: Any) -> Any:
        h, c = (F.concat([one.reshape(1, 4), one.reshape(1, 4)], 0) for one in (self.h0, self.c0))
        for step in range(5):
            h, c = self.cell(x[:, step], (h, c))
        return self.out(h)


class NamedOtherwise(columns.Cell):
    """A cell whose arguments have other names."""

    def forward(self, inputs: Any, states: tuple[Any, Any]) -> tuple[Any, Any]:
        return super().forward(inputs, states)


class BegunElsewhere(columns.Layer):
    """The same, its states in another order; or exchanged in each step but the first."""

    def __init__(self, fault: bool) -> None:
        self.out, self.cell, self.fault = columns.Dense(4, 2), NamedOtherwise(3, 4), fault
        self.init_c, self.init_h = columns.weight(1, 4), columns.weight(1, 4)

    def forward(self, x: Any) -> Any:
        states = F.concat([self.init_h, self.init_h], 0), F.concat([self.init_c, self.init_c], 0)
        for step in range(5):
            given = states[::-1] if self.fault and step else states
            states = self.cell(x[:, step], given)
        return self.out(states[0])


def test_states_that_are_learned_are_found_in_whatever_order_they_are_defined() -> None:
    """Copied into each other's place, they were taken for each other, as their values agreed: a right port differed."""
    report = padiff.diff(Begun(), BegunElsewhere(fault=False), (X,))
    assert report.aligned, str(report)
    report = padiff.diff(Begun(), BegunElsewhere(fault=True), (X,))
    (source,) = report.sources
    assert (source.what.kind, source.what.taker) == ("input", "cell"), str(report)
