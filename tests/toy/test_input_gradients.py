"""Judge the gradients that come out at the other end: those of a model's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

X = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
MASK = (X > 0).astype(np.float32)


class Rows(rows.Module):
    def __init__(self, detached: bool = False) -> None:
        self.layer, self.detached = rows.Linear(4, 4), detached

    def forward(self, x: Any, mask: Any) -> Any:
        x = type(x)(x.data.copy()) if self.detached else x
        return self.layer(x) * mask


class Columns(columns.Layer):
    def __init__(self, detached: bool = False, compared: bool = False) -> None:
        self.layer, self.detached, self.compared = columns.Dense(4, 4), detached, compared

    def forward(self, x: Any, mask: Any) -> Any:
        x = type(x)(x.data.copy()) if self.detached else x
        return self.layer(x) * (type(mask)((mask.data > 0).astype(mask.data.dtype)) if self.compared else mask)


@pytest.mark.parametrize(("ours", "theirs"), [(True, False), (False, True)])
def test_an_input_that_one_model_detaches_is_named(ours: bool, theirs: bool) -> None:
    """All parameters get their gradients, and what made the input gets none: 0.4 called it aligned."""
    report = padiff.diff(Rows(ours), Columns(theirs), (X, MASK))
    (source,) = report.sources
    assert (source.phase, source.what.kind, source.what.name) == ("backward", "input_gradient", "x")
    assert f"in the {'candidate' if ours else 'reference'} only" in str(source.evidence[0])


def test_a_mask_may_be_computed_with_or_compared() -> None:
    assert padiff.diff(Rows(), Columns(compared=True), (X, MASK)).aligned
    assert not padiff.diff(Rows(), Columns(compared=True), (X, MASK * 2)).aligned


class Handing(rows.Module):
    """A model that hands its module a mask of its own making."""

    def __init__(self) -> None:
        self.inner, self.head = Rows(), rows.Linear(4, 4)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.head(self.inner(x, mask * mask))


class Handed(columns.Layer):
    def __init__(self, detached: bool) -> None:
        self.inner, self.head, self.detached = Columns(compared=True), columns.Dense(4, 4), detached

    def forward(self, x: Any, mask: Any) -> Any:
        seen = type(x)(x.data.copy()) if self.detached else x
        return self.head(self.inner(seen, mask * mask))


def test_a_mask_that_a_model_makes_may_be_compared_too() -> None:
    """XLNet's masks by numbers against `where`: a gradient of 1e28 to one of them was a source."""
    assert padiff.diff(Handing(), Handed(False), (X, MASK)).aligned
    assert not padiff.diff(Handing(), Handed(True), (X, MASK)).aligned


def test_an_input_that_both_detach_has_no_gradient() -> None:
    assert padiff.diff(Rows(True), Columns(True), (X, MASK)).aligned


def cell(base: Any, linear: Any, detached: bool, scale: float = 1.0) -> Any:
    """Return a model of a cell that makes its first output of its second."""

    class Cell(base):
        def __init__(self) -> None:
            self.given, self.kept = linear(4, 4), linear(4, 4)

        def forward(self, x: Any, state: Any) -> Any:
            state = state * self.given(x).tanh() + x
            seen = type(state)(state.data.copy()) if detached else state
            return seen.tanh() * self.kept(x) * scale, state

    class Net(base):
        def __init__(self) -> None:
            self.cell, self.head = Cell(), linear(4, 4)

        def forward(self, x: Any) -> Any:
            hidden, state = self.cell(x, x)
            hidden, state = self.cell(hidden, state)
            return self.head(hidden) + state

    return Net()


@pytest.mark.parametrize("fault", [{"detached": True}, {"detached": False, "scale": 1.1}], ids=str)
def test_what_makes_one_output_of_another_is_named_for_both(fault: Any) -> None:
    """The gradient of the second output comes from the cell's own code too: 0.4 named the model around it as well."""
    report = padiff.diff(cell(rows.Module, rows.Linear, False), cell(columns.Layer, columns.Dense, **fault), (X,))
    assert {source.candidate.path for source in report.sources} == {"cell"}, report


class Chain(rows.Module):
    def __init__(self) -> None:
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.two(functional.tanh(self.one(x)))


class Twice(columns.Layer):
    def __init__(self) -> None:
        self.one, self.two = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return self.two(self.two(functional.tanh(self.one(x))))


def test_gradients_of_a_module_that_is_called_once_more_are_no_source_of_their_own() -> None:
    report = padiff.diff(Chain(), Twice(), (X,))
    assert not report.aligned
    assert not [source for source in report.sources if source.what.kind == "parameter_gradient"], report


class Tail(rows.Module):
    def __init__(self) -> None:
        self.layer = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class CutTail(columns.Layer):
    def __init__(self) -> None:
        self.layer = columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(type(x)(x.data.copy()))


def test_what_a_module_cuts_off_is_named_there_and_not_at_the_input_too() -> None:
    report = padiff.diff(
        rows.Sequential(Tail(), rows.Linear(4, 4)), columns.Stack(CutTail(), columns.Dense(4, 4)), (X,)
    )
    assert [source.candidate.path for source in report.sources] == ["0"], report


def towers(base: Any, linear: Any, text_first: bool, slope: float = 1.0) -> Any:
    """Return a model of two outputs, one of which is the other, transposed."""

    class Towers(base):
        def __init__(self) -> None:
            self.image, self.text = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            image, text = self.image(x), self.text(x)
            if not text_first:
                scores = image @ text.transpose(1, 0)
                return scores, scores.transpose(1, 0)
            scores = text @ image.transpose(1, 0) * slope
            return scores.transpose(1, 0), scores

    return Towers()


def contrastive(weight: float) -> Any:
    return lambda scores: (scores[0] * scores[0]).sum() + (scores[1].tanh() * weight).sum()


def test_of_two_outputs_either_may_be_made_of_the_other() -> None:
    """CLIP's scores of images and of texts: the gradient of the first holds that of the second on one side alone."""
    ours = towers(rows.Module, rows.Linear, False)
    loss = contrastive(1.0)
    report = padiff.diff(ours, towers(columns.Layer, columns.Dense, True), (X,), loss=(loss, loss))
    assert report.aligned, report
    report = padiff.diff(ours, towers(columns.Layer, columns.Dense, True, 1.1), (X,), loss=(loss, loss))
    assert [source.what.kind for source in report.sources] == ["output"], report
    report = padiff.diff(ours, towers(columns.Layer, columns.Dense, True), (X,), loss=(loss, contrastive(1.1)))
    assert "loss" in {str(source.phase) for source in report.sources}, report


def masked(base: Any, linear: Any, early: bool, slope: float = 1.0) -> Any:
    """Return a model that makes numbers of a mask in its blocks, or once for all of them."""

    class Block(base):
        def __init__(self) -> None:
            self.given, self.out = linear(4, 4), linear(4, 4)

        def forward(self, x: Any, mask: Any) -> Any:
            added = mask if early else mask.reshape(3, 1, 4) * 3.0
            y = self.given(x).reshape(3, 1, 4) * slope + added
            return x + self.out(functional.softmax(y, -1).reshape(3, 4))

    class Net(base):
        def __init__(self) -> None:
            self.first, self.second = Block(), Block()

        def forward(self, x: Any, mask: Any) -> Any:
            mask = mask.reshape(3, 1, 4) * 3.0 if early else mask
            return self.second(self.first(x, mask), mask)

    return Net()


def test_the_gradient_of_a_mask_is_no_source_behind_a_fault_that_sends_it() -> None:
    """The blocks are given what the reference's are not: its gradient is not put right, and the model was named."""
    ours = masked(rows.Module, rows.Linear, False)
    assert padiff.diff(ours, masked(columns.Layer, columns.Dense, True), (X, X)).aligned
    report = padiff.diff(ours, masked(columns.Layer, columns.Dense, True, 1.5), (X, X))
    assert [source.candidate.path for source in report.sources] == ["first", "second"], report


def gated(base: Any, linear: Any, withheld: int = 2, slope: float = 1.0) -> Any:
    """Return a model whose blocks are given what is made once for all of them, but for one of these."""

    class Block(base):
        def __init__(self) -> None:
            self.inner, self.out = linear(4, 4), linear(4, 4)

        def forward(self, x: Any, moved: Any) -> Any:
            y = self.inner(x)
            return x + self.out(functional.tanh(y if moved is None else y + moved))

    class Net(base):
        def __init__(self) -> None:
            self.made, self.first, self.second = linear(4, 4), Block(), Block()

        def forward(self, x: Any) -> Any:
            moved = functional.sigmoid(self.made(x) * slope) * 2.0
            given = [None if number == withheld else moved for number in range(2)]
            return self.second(self.first(x, given[0]), given[1])

    return Net()


@pytest.mark.parametrize(("withheld", "path"), [(0, "first"), (1, "second")])
def test_what_a_call_is_not_given_sends_no_gradient_and_is_one_source(withheld: int, path: str) -> None:
    """A block that lacks the bias which the others get: what made that gets one gradient less, and was a source too."""
    ours, port = gated(rows.Module, rows.Linear), (columns.Layer, columns.Dense)
    assert padiff.diff(ours, gated(*port), (X,)).aligned
    report = padiff.diff(ours, gated(*port, withheld), (X,))
    assert [source.candidate.path for source in report.sources] == [path], report
    report = padiff.diff(ours, gated(*port, withheld, 1.5), (X,))
    assert sorted(source.candidate.path or "" for source in report.sources) == ["", path], report


class Parted(rows.Module):
    """A residual of which a part is given beside the output, scaled by what a layer makes of a parameter."""

    def __init__(self) -> None:
        self.code, self.made = rows.parameter(1, 3), rows.Linear(3, 8)
        self.first, self.last = rows.Linear(4, 4), rows.Linear(4, 2)

    def forward(self, x: Any, _: Any) -> Any:
        x = x + self.first(x)
        made = self.made(self.code)
        return self.last(functional.tanh(x * made[:, :4])), x * made[:, 4:]


class PartedByLayers(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.seed, self.fault = columns.weight(1, 3), fault
        self.scale, self.beside = columns.Dense(3, 4), columns.Dense(3, 4)
        self.out, self.inner = columns.Dense(4, 2), columns.Dense(4, 4)

    def forward(self, x: Any, _: Any) -> Any:
        def seen(value: Any, fault: str) -> Any:
            return type(value)(value.data.copy()) if self.fault == fault else value

        x = x + self.inner(x)
        scale = seen(self.scale(self.seed), "scale")
        return self.out(functional.tanh(x * scale)), seen(x, "beside") * self.beside(self.seed)


@pytest.mark.parametrize("fault", ["scale", "beside"])
def test_gradients_that_one_call_makes_otherwise_are_one_source(fault: str) -> None:
    """What goes back to the model's input, or into a packed layer, counted by itself beside what shows it."""
    report = padiff.diff(Parted(), PartedByLayers(fault), (X, MASK))
    assert len(report.sources) > 1, str(report)
    assert str(report).startswith("not aligned: 1 source in"), str(report)


def residual(base: Any, linear: Any, norm: Any, several: Any, *, detached: bool) -> Any:
    """Return a stack of residual blocks, whose norms may be given what is detached."""

    class Block(base):
        def __init__(self) -> None:
            self.norm, self.layer = norm(4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            return x + self.layer(self.norm(type(x)(x.data.copy()) if detached else x))

    return several(linear(4, 4), Block(), Block(), Block(), linear(4, 2))


def test_a_branch_that_every_block_detaches_is_one_value_in_each() -> None:
    """What the first block is given was told as a value of the code around, and nothing said where it is detached."""
    ours = residual(rows.Module, rows.Linear, rows.LayerNorm, rows.Sequential, detached=False)
    theirs = residual(columns.Layer, columns.Dense, columns.LayerNormalization, columns.Stack, detached=True)
    report = padiff.diff(ours, theirs, (X,))
    assert [source.candidate.path for source in report.sources] == ["1", "2", "3"], str(report)
    for source in report.sources:
        assert (source.what.kind, source.what.name, source.what.taker) == ("input_gradient", "x", ""), str(report)
        assert {"gradient_cut_to", "mistaken_gradient"} <= {one.kind for one in source.evidence}, str(report)
