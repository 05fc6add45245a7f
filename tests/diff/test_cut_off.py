"""Name where the gradient is cut off, and nothing that only lies before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint

import padiff
from padiff import Phase

X = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)


class Block(torch.nn.Module):
    def __init__(self, *, cut: bool = False) -> None:
        super().__init__()
        self.cut = cut
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = x + self.one(x)
        x = x.detach() if self.cut else x
        return x + self.two(torch.tanh(x))


class Model(torch.nn.Module):
    def __init__(self, cut: int | None = None) -> None:
        super().__init__()
        self.stem = torch.nn.Linear(4, 4)
        self.shift = torch.nn.Parameter(torch.randn(4))
        self.blocks = torch.nn.ModuleList([Block(cut=index == cut) for index in range(3)])

    def forward(self, x: Any) -> Any:
        x = self.stem(x) + self.shift
        for block in self.blocks:
            x = block(x)
        return x


CUT = "no gradient goes through detach(_) in the candidate only"


def test_a_stream_that_is_cut_off_is_named_where_it_is_cut() -> None:
    for cut in range(3):
        report = padiff.diff(Model(), Model(cut), (X,))
        sources = {(found.candidate.path, found.phase) for found in report.sources}
        assert sources == {(f"blocks.{cut}", padiff.Phase.BACKWARD)}, report
        assert {str(found.cause) for found in report.sources} == {CUT}, report


def test_a_parameter_that_is_cut_off_is_named_itself() -> None:
    class Frozen(Model):
        def forward(self, x: Any) -> Any:
            x = self.stem(x) + self.shift.detach()
            for block in self.blocks:
                x = block(x)
            return x

    report = padiff.diff(Model(), Frozen(), (X,))
    assert [(found.candidate.path, found.what) for found in report.sources] == [("", "gradient of shift")], report
    assert report.sources[0].cause == CUT, report


def test_a_sum_that_is_made_without_gradients_is_the_cause() -> None:
    class Ungraded(Block):
        def forward(self, x: Any) -> Any:
            x = x + self.one(x)
            with torch.no_grad():
                bent = torch.tanh(x)
            return x + self.two(bent)

    model = Model()
    model.blocks[1] = Ungraded()
    (source,) = padiff.diff(Model(), model, (X,)).sources
    assert source.cause == CUT.replace("detach", "tanh"), source


class Inner(torch.nn.Module):
    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.linear, self.cut = torch.nn.Linear(4, 4), cut

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return y.detach() if self.cut else y


class Outer(torch.nn.Module):
    """Alone on the way, or beside a stream that goes past it."""

    def __init__(self, *, cut: bool, beside: bool) -> None:
        super().__init__()
        self.before, self.inner, self.after = torch.nn.Linear(4, 4), Inner(cut=cut), torch.nn.Linear(4, 4)
        self.beside = beside

    def forward(self, x: Any) -> Any:
        x = self.before(x)
        y = torch.tanh(self.inner(x))
        return self.after(x + y if self.beside else y)


@pytest.mark.parametrize("cut", [(False, True), (True, False)], ids=["candidate", "reference"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_module_that_detaches_its_own_output_is_the_only_source(cut: tuple[bool, bool], beside: bool) -> None:
    """Before, what the reference cut off was blamed on the code around it, and on layers before.

    And by chance, once of 25 times, on the code around again: a replay read memory that nobody wrote.
    """
    report = padiff.diff(*(Outer(cut=one, beside=beside) for one in cut), (X,))
    assert [(found.candidate.path, found.phase) for found in report.sources] == [("inner", Phase.BACKWARD)], report
    assert "lets no gradient through" in " ".join(report.sources[0].evidence)
    assert padiff.diff(Outer(cut=True, beside=beside), Outer(cut=True, beside=beside), (X,)).aligned


@pytest.mark.parametrize("side", [0, 1])
def test_what_is_frozen_on_one_side_only_is_named_so(side: int) -> None:
    """Before, an embedding without gradients was blamed on the code that takes what it gives."""

    def model(*, frozen: bool) -> Any:
        made = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
        made[0].weight.requires_grad_(not frozen)
        return made

    report = padiff.diff(model(frozen=side == 0), model(frozen=side == 1), (np.arange(6).reshape(2, 3),))
    (found,) = report.sources
    assert (found.candidate.path, found.what) == ("0", "gradient of weight"), report
    assert found.cause is not None
    assert found.cause.startswith(f"weight is frozen in the {('reference', 'candidate')[side]}")
    assert padiff.diff(model(frozen=True), model(frozen=True), (np.arange(6).reshape(2, 3),)).aligned


class Checkpointed(torch.nn.Module):
    """Layers, all of them or each behind a checkpoint."""

    def __init__(self, reentrant: bool | None = None, *, whole: bool = False, wrong: float = 1.0) -> None:
        super().__init__()
        self.stem, self.layers = torch.nn.Linear(4, 4), torch.nn.ModuleList(Block() for _ in range(3))
        self.reentrant, self.whole, self.wrong = reentrant, whole, wrong

    def every(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x) if self.whole else self.again(layer, x)
        return x

    def again(self, function: Any, x: Any) -> Any:
        if self.reentrant is None:
            return function(x)
        return torch.utils.checkpoint.checkpoint(function, x, use_reentrant=self.reentrant)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        return self.again(self.every, x) if self.whole else self.every(x)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_recomputation_is_compared_as_any_other_code(reentrant: bool, whole: bool) -> None:
    """Before, the reentrant form was not aligned with the same layers as they are, and hid wrong gradients."""
    plain, other = Checkpointed(), Checkpointed(reentrant, whole=whole)
    assert padiff.diff(plain, other, (X,)).aligned
    assert padiff.diff(other, plain, (X,)).aligned

    class Wrong(Block):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 1.1

    other.layers[1] = Wrong()
    report = padiff.diff(plain, other, (X,))
    assert {(found.candidate.path, found.phase) for found in report.sources} == {("layers.1", Phase.FORWARD)}, report

    class WrongBackward(Block):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return y * 1.1 - (y * 0.1).detach()

    other.layers[1] = WrongBackward()
    report = padiff.diff(plain, other, (X,))
    assert {(found.candidate.path, found.phase) for found in report.sources} == {("layers.1", Phase.BACKWARD)}, report


@pytest.mark.parametrize("reentrant", [True, False])
def test_statistics_that_recomputation_updates_twice_are_told(reentrant: bool) -> None:
    """Before, they passed: replayed by itself, the norm is right."""

    def model(reentrant: bool | None) -> Any:
        made = Checkpointed(reentrant)
        made.layers[1] = torch.nn.BatchNorm1d(4)
        return made

    report = padiff.diff(model(None), model(reentrant), (X,))
    assert {(found.candidate.path, found.phase) for found in report.sources} == {("layers.1", Phase.BUFFER)}, report
    assert padiff.diff(model(reentrant), model(reentrant), (X,)).aligned


def test_a_gradient_where_the_reference_has_zeros_is_named() -> None:
    class Idle(Model):
        def forward(self, x: Any) -> Any:
            x = self.stem(x) + self.shift.detach() + 0 * self.shift
            for block in self.blocks:
                x = block(x)
            return x

    for ours, theirs in ((Idle(), Model()), (Model(), Idle())):
        report = padiff.diff(ours, theirs, (X,))
        assert [(found.candidate.path, found.what) for found in report.sources] == [("", "gradient of shift")], report


class _Signs(torch.autograd.Function):
    """Takes signs, and passes no gradient: what `backward` returns torch hands to hooks as None."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> None:
        return None


class _Through(_Signs):
    """Takes signs, and passes the gradient straight through."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class Quantized(torch.nn.Module):
    def __init__(self, signs: Any) -> None:
        super().__init__()
        self.one, self.two, self.signs = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), signs

    def forward(self, x: Any) -> Any:
        return self.two(self.signs(self.one(x)))


def test_a_function_may_pass_no_gradient() -> None:
    for signs in (_Signs.apply, torch.sign):  # of which torch computes zeros
        report = padiff.diff(Quantized(_Signs.apply), Quantized(signs), (X,))
        assert report.aligned, report


def test_a_function_that_passes_no_gradient_is_named() -> None:
    for ours, theirs in ((_Through, _Signs), (_Signs, _Through)):
        report = padiff.diff(Quantized(ours.apply), Quantized(theirs.apply), (X,))
        (source,) = report.sources
        assert (source.phase, source.between) == (Phase.BACKWARD, ("one", "two")), report


class _Exchanged(torch.autograd.Function):
    """Hands on two tensors, and exchanges their gradients."""

    @staticmethod
    def forward(ctx: Any, one: Any, other: Any) -> Any:
        return one.clone(), other.clone()

    @staticmethod
    def backward(ctx: Any, one: Any, other: Any) -> Any:
        return other, one


class Scaled(torch.nn.Module):
    def __init__(self, exchange: bool) -> None:
        super().__init__()
        self.one, self.other = (torch.nn.Parameter(torch.randn(4)) for _ in range(2))
        self.linear, self.exchange = torch.nn.Linear(4, 4), exchange

    def forward(self, x: Any) -> Any:
        one, other = _Exchanged.apply(self.one, self.other) if self.exchange else (self.one, self.other)
        return self.linear(x * one) + other * torch.tanh(x)


def test_gradients_that_two_parameters_exchange_are_named() -> None:
    """All numbers are there, in both models: each parameter has its own all the same."""
    report = padiff.diff(Scaled(False), Scaled(True), (X,))
    assert {found.what for found in report.sources} == {"gradient of one", "gradient of other"}, report
