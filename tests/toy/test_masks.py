"""Let masks be what they do: the numbers that drown what is masked are each framework's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.engine import record_once
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

from .test_compare import places

X = (np.random.default_rng(0).standard_normal((4, 4), dtype=np.float32),)
LEAST = float(np.finfo(np.float32).min)


def _mask(number: float, shift: int = 1) -> Any:
    return np.triu(np.full((4, 4), number, np.float32), shift)


def _layer(base: type, inner: Any, weight: Any, hidden: Any, factor: float) -> Any:
    """Return attention that makes its own bias, masked, where none is given, and hands it on: T5's."""

    def forward(self: Any, x: Any, bias: Any = None) -> Any:
        if bias is None:
            bias = x @ self.weight + rows.Tensor(hidden.astype(x.data.dtype))
        return x + F.softmax(self.inner(x) * 0.5 + bias * factor, -1) @ x, bias

    made = type("Attention", (base,), {"forward": forward})()
    made.inner, made.weight = inner, weight
    return made


def _model(base: type, *layers: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        x, bias = self.one(x)
        return self.two(x, bias)[0]

    model = type("Model", (base,), {"forward": forward})()
    model.one, model.two = layers
    return model


def _models(number: float, *, shift: int = 1, factor: float = 1.0) -> tuple[Any, Any]:
    ours = [_layer(rows.Module, rows.Linear(4, 4), rows.parameter(4, 4), _mask(LEAST), 1.0) for _ in range(2)]
    hidden = _mask(number, shift)
    theirs = [_layer(columns.Layer, columns.Dense(4, 4), columns.weight(4, 4), hidden, factor) for _ in range(2)]
    return _model(rows.Module, *ours), _model(columns.Layer, *theirs)


def _report(number: float, *, shift: int = 1, factor: float = 1.0) -> padiff.Report:
    return padiff.diff(*_models(number, shift=shift, factor=factor), X)


def _multiplying(base: type, linear: Any, sends: bool, factor: float = 1.0) -> Any:
    """Return a layer behind a mask that is given as an input, to which it sends its gradient or half of it."""

    class Masked(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any, mask: Any) -> Any:
            half = mask * np.float32(0.5) + type(x)(mask.data * np.float32(factor - 0.5))
            return self.linear(x * (mask if sends else half))

    return Masked()


def test_a_mask_that_is_given_is_owed_no_gradient() -> None:
    """One side asks where it is zero, and the other multiplies by it: that was a source."""
    mask = _mask(1.0)
    ours, given = _multiplying(rows.Module, rows.Linear, True), (*X, mask)
    assert padiff.diff(ours, _multiplying(columns.Layer, columns.Dense, False), given).aligned
    assert not padiff.diff(ours, _multiplying(columns.Layer, columns.Dense, False, 1.1), given).aligned
    for least in (0.5, 1.0):  # a gate, and nothing but ones
        given = (*X, np.maximum(mask, np.float32(least)))
        report = padiff.diff(ours, _multiplying(columns.Layer, columns.Dense, False), given)
        assert [source.phase for source in report.sources] == ["backward"], str(report)


@pytest.mark.parametrize("number", [-1e4, -1e9])
def test_another_number_that_drowns_the_same_is_no_fault(number: float) -> None:
    report = _report(number)
    assert report.aligned, str(report)
    assert "masks" in {note.kind for note in report.notes}


def test_a_mask_of_other_elements_is_found_where_it_is_made() -> None:
    report = _report(-1e4, shift=2)
    assert [source.candidate.path for source in report.sources] == ["one"], str(report)


def test_a_number_that_does_not_drown_is_found() -> None:
    report = _report(-2.0)
    assert [source.candidate.path for source in report.sources] == ["one"], str(report)


def test_a_mask_that_its_consumer_makes_small_is_found() -> None:
    """Both drown where it is added as it is; here it is a thousandth of it."""
    assert not _report(-1e4, factor=1e-3).aligned


def _scoring(base: type, linear: Any, number: float, *, shift: int = 1, factor: float = 1.0) -> Any:
    """Return a layer whose scores are returned, some of them masked."""

    class Scoring(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inner, self.last = linear(4, 8), linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.last(F.tanh(self.inner(x))) * np.float32(factor) + type(x)(_mask(number, shift))

    return Scoring()


def _told(y: Any) -> Any:
    return F.softmax(y, -1)[:, 0].sum()


@pytest.mark.parametrize("asked", [{"phase": "forward"}, {"loss": _told}], ids=["forward", "loss"])
@pytest.mark.parametrize("wrong", [{}, {"factor": 1.0001}, {"shift": 2}, {"number": LEAST}, {"number": -1e9}], ids=str)
def test_infinities_that_mask_what_is_returned_stand_where_they_are(wrong: dict[str, Any], asked: Any) -> None:
    """Pointers and routers return such; a diff was refused whatever was asked for."""
    ours = _scoring(rows.Module, rows.Linear, -np.inf)
    report = padiff.diff(ours, _scoring(columns.Layer, columns.Dense, **{"number": -np.inf, **wrong}), X, **asked)
    assert report.aligned is not bool(wrong), str(report)
    assert places(report) == [("", "forward")] * bool(wrong), str(report)


@pytest.mark.parametrize("numbers", [(LEAST, -np.inf), (-1e9, -1e4), (-1e4, -1e9)])
def test_another_number_that_masks_what_is_returned_is_a_fault(numbers: tuple[float, float], tmp_path: Path) -> None:
    """Nothing shows what it drowns: -Inf was aligned, infinitely far off, and others were seen in the end alone."""
    kinds = (rows.Module, rows.Linear), (columns.Layer, columns.Dense)
    models = [_scoring(*kind, number) for kind, number in zip(kinds, numbers, strict=True)]
    report = padiff.diff(*models, X)
    assert places(report) == [("", "forward")], str(report)
    assert {one.kind for source in report.sources for one in source.evidence} != {"unexplained"}, str(report)
    for model, name in zip(models, "ab", strict=True):
        record_once(model, X, tmp_path / name)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert places(report) == [("", "forward")], str(report)


def _handing(base: type, inner: Any, number: float) -> Any:
    """Return attention that is given a mask, and returned with it."""

    class Attention(base):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return F.softmax(x + mask, -1) @ x

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inner, self.attention = inner, Attention()

        def forward(self, x: Any) -> Any:
            mask = type(x)(_mask(number))
            return self.attention(self.inner(x), mask), mask

    return Model()


@pytest.mark.parametrize(("number", "by"), [(LEAST, None), (-1e9, "float64"), (-np.inf, "infinite")])
def test_a_mask_that_is_returned_beside_what_it_masks_is_compared(number: float, by: str | None) -> None:
    """Inside another number says the same. Of -Inf it was said that rounding explains it."""
    ours = _handing(rows.Module, rows.Linear(4, 4), LEAST)
    report = padiff.diff(ours, _handing(columns.Layer, columns.Dense(4, 4), number), X)
    assert report.aligned is (by is None), str(report)
    assert [one.figures["by"] for source in report.sources for one in source.evidence] == [by] * bool(by), str(report)
    assert ("NaN or Inf on one side alone" in str(report)) is (by == "infinite")


@pytest.mark.parametrize(("steps", "right"), [(1, True), (10_000, False)])
def test_a_loss_that_cancels_to_zero_is_no_infinity(steps: int, right: bool) -> None:
    """Relative to nothing what rounding leaves of it is infinite, and no number is."""

    def cancelling(steps: int) -> Any:
        def loss(y: Any) -> Any:
            total = (y.data * y.data).sum()
            return (y * y).sum() - type(y)(np.asarray(total + steps * np.spacing(total), y.data.dtype))

        return loss

    models = _scoring(rows.Module, rows.Linear, 0.0), _scoring(columns.Layer, columns.Dense, 0.0)
    report = padiff.diff(*models, X, loss=(cancelling(0), cancelling(steps)))
    assert report.aligned is right, str(report)
    assert "NaN or Inf on one side alone" not in str(report)


@pytest.mark.parametrize(("shift", "factor"), [(1, 1.0), (2, 1.0), (1, 1e-3)])
def test_recorded_runs_mask_alike_too(tmp_path: Path, shift: int, factor: float) -> None:
    """The bias is differentiable, and what its code made was called a source for the numbers that drown."""
    models = _models(-1e4, shift=shift, factor=factor)
    padiff.diff(*models, X)
    for model, name in zip(models, "ab", strict=True):
        record_once(model, X, tmp_path / name)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    if shift == factor == 1:
        assert report.aligned, str(report)
        assert "masks" in {note.kind for note in report.notes}
    else:
        assert places(report)[0] == ("one", "forward"), str(report)


class Hiding(rows.Module):
    """Attention that is told whom to hide."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.out = (rows.Linear(4, 4) for _ in range(4))

    def forward(self, x: Any, hidden: Any) -> Any:
        bias = rows.Tensor(np.where(hidden.data, -1e9, 0.0).astype(x.data.dtype))
        scores = self.q(x) @ self.k(x).transpose(1, 0) + bias
        return self.out(F.softmax(scores) @ self.v(x))


class Keeping(columns.Layer):
    """The same, packed, and told whom to keep."""

    def __init__(self, factor: float) -> None:
        self.qkv, self.out, self.factor = columns.Dense(4, 12), columns.Dense(4, 4), factor

    def forward(self, x: Any, kept: Any) -> Any:
        packed = self.qkv(x)
        k, q, v = (packed[..., 4 * i : 4 * i + 4] for i in range(3))
        bias = columns.Tensor(np.where(kept.data, 0.0, -1e9).astype(x.data.dtype))
        scores = q @ k.transpose(1, 0) * self.factor + bias
        return self.out(F.softmax(scores) @ v)


class Hider(rows.Module):
    def __init__(self) -> None:
        self.one, self.two = Hiding(), Hiding()

    def forward(self, x: Any, hidden: Any) -> Any:
        return self.two(self.one(x, hidden), hidden)


class Keeper(columns.Layer):
    def __init__(self, factor: float, hides: tuple[int, ...] = ()) -> None:
        self.one, self.two, self.hides = Keeping(factor), Keeping(1.0), hides

    def forward(self, x: Any, hidden: Any) -> Any:
        kept = columns.Tensor(~hidden.data)
        kept.data[[*self.hides]] = False
        return self.two(self.one(x, kept), kept)


def test_layers_are_laid_out_under_the_mask_of_their_own_side() -> None:
    """Fed with the reference's, which says the opposite, no order of queries, keys and values was right."""
    hidden = np.array([False, True, False, True])
    report = padiff.diff(Hider(), Keeper(1.0), (*X, hidden))
    assert report.aligned, str(report)
    (source,) = padiff.diff(Hider(), Keeper(1.1), (*X, hidden)).sources
    assert source.candidate.path == "one", str(source)


def test_a_mask_that_says_the_opposite_and_is_wrong_of_an_element_is_one_source() -> None:
    """Its takers were fed with the reference's as it is, and were sources, too: they read it the other way round."""
    hidden = np.array([False, True, False, True])
    (source,) = padiff.diff(Hider(), Keeper(1.0, hides=(2,)), (*X, hidden)).sources
    assert (source.candidate.path, source.what.name) == ("", "kept"), str(source)


class Forgetful(Hider):
    """Hide nobody."""

    def forward(self, x: Any, hidden: Any) -> Any:
        return super().forward(x, rows.Tensor(np.zeros_like(hidden.data)))


def test_a_mask_that_hides_nobody_says_nothing_in_reverse() -> None:
    """It differs of most where the right one hides most: its takers were fed with that in reverse, and were sources."""
    hidden = np.array([True, True, False, True])
    (source,) = padiff.diff(Hider(), Forgetful(), (*X, hidden)).sources
    assert (source.candidate.path, source.what.name) == ("", "hidden"), str(source)


def test_layers_that_are_right_in_several_orders_are_packed_as_the_others() -> None:
    """With these weights all rows behind the first layer are nearly alike, and float64 tells q from k."""
    hidden = np.array([False, True, False, True])
    np.random.seed(20)
    report = padiff.diff(Hider(), Keeper(1.0), (*X, hidden))
    assert report.aligned, str(report)
    np.random.seed(20)
    (source,) = padiff.diff(Hider(), Keeper(1.1), (*X, hidden)).sources
    assert source.candidate.path == "one", str(source)


def test_nearly_even_attention_is_laid_out_by_what_float64_shows() -> None:
    """The first order was right to an epsilon in float32, and a right port's gradients were an alarm."""
    hidden = np.array([False, True, False, True])
    report = padiff.diff(
        Hiding(), Keeping(1.0), (X[0] * np.float32(1e-3), hidden), candidate_inputs=(X[0] * np.float32(1e-3), ~hidden)
    )
    assert report.aligned, str(report)


class Biased(rows.Module):
    """Attention with a bias for each distance, and a mask beside it."""

    def __init__(self) -> None:
        self.mix, self.out = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any, bias: Any, hidden: Any) -> Any:
        masked = bias + rows.Tensor(np.where(hidden.data, -1e9, 0.0).astype(x.data.dtype))
        return x + self.out(F.softmax(self.mix(x) + masked) @ x)


class BiasedModel(rows.Module):
    def __init__(self) -> None:
        self.one, self.two, self.bias = Biased(), Biased(), rows.parameter(4, 4)

    def forward(self, x: Any, hidden: Any) -> Any:
        bias = self.bias * 2.0
        return self.two(self.one(x, bias, hidden), bias, hidden)


class BiasedOnce(columns.Layer):
    """The same, with a bias that is masked already."""

    def __init__(self, factor: float) -> None:
        self.mix, self.out, self.factor = columns.Dense(4, 4), columns.Dense(4, 4), factor

    def forward(self, x: Any, bias: Any) -> Any:
        return x + self.out(F.softmax(self.mix(x) * self.factor + bias) @ x)


class BiasedOnceModel(columns.Layer):
    def __init__(self, factor: float, scale: float) -> None:
        self.one, self.two, self.table = BiasedOnce(1.0), BiasedOnce(factor), columns.weight(4, 4)
        self.scale = scale

    def forward(self, x: Any, hidden: Any) -> Any:
        mask = columns.Tensor(np.where(hidden.data, -1e9, 0.0).astype(x.data.dtype))
        bias = self.table * self.scale + mask
        return self.two(self.one(x, bias), bias)


@pytest.mark.parametrize(("factor", "sources"), [(1.0, set()), (0.5, {"two"})])
def test_a_bias_that_is_masked_before_is_no_other_bias(factor: float, sources: set[str]) -> None:
    """Beside a fault in a layer, the bias that it was given was a source as well."""
    hidden = np.triu(np.ones((4, 4), bool), 1)
    report = padiff.diff(BiasedModel(), BiasedOnceModel(factor, 2.0), (X[0], hidden))
    assert {one.candidate.path for one in report.sources} == sources, str(report)
    turned = padiff.diff(BiasedOnceModel(1.0, 2.0), BiasedModel(), (X[0], hidden))
    assert turned.aligned, str(turned)


@pytest.mark.parametrize("scale", [2.5, -2.0])
@pytest.mark.parametrize(("factor", "others"), [(1.0, set()), (0.5, {"two"})])
def test_another_bias_that_is_masked_before_is_found_where_it_is_made(
    scale: float, factor: float, others: set[str]
) -> None:
    """The layers were given the reference's, which is not masked: each was a source as well."""
    hidden = np.triu(np.ones((4, 4), bool), 1)
    report = padiff.diff(BiasedModel(), BiasedOnceModel(factor, scale), (X[0], hidden))
    assert {one.candidate.path for one in report.sources} == {"", *others}, str(report)


class Unmasked(BiasedOnceModel):
    """A model whose layers are given a bias without a mask, and no mask beside it."""

    def forward(self, x: Any, hidden: Any) -> Any:
        bias = self.table * self.scale
        return self.two(self.one(x, bias), bias)


def test_a_mask_that_the_reference_has_nowhere_is_one_source() -> None:
    """The layers are given what the reference's are given: no mask."""
    hidden = np.triu(np.ones((4, 4), bool), 1)
    report = padiff.diff(Unmasked(1.0, 2.0), BiasedOnceModel(1.0, 2.5), (X[0], hidden))
    assert {one.candidate.path for one in report.sources} == {""}, str(report)
    assert padiff.Verdict.PRECISION not in {one.verdict for one in report.findings}, str(report)
