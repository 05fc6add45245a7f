"""Hold the toy framework, in both dialects, to the interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import padiff
from padiff.testing import AdapterTests
from padiff.testing.toy import columns, functional, rows

from .announced import announced


class Toy(AdapterTests):
    """Fill in what both dialects have in common."""

    dtypes = "bool int32 int64 float16 float32 float64 bfloat16"
    base: Any

    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        made = type("Made", (self.base,), {"forward": forward})()
        vars(made).update(children)
        return made

    def add_in_place(self, tensor: Any, number: float) -> None:
        tensor.add_(number)

    def set_training(self, module: Any, training: bool) -> None:
        module.train(training)

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad = False

    def rectified(self, tensor: Any) -> Any:
        return functional.relu(tensor)


with announced():

    class TestRows(Toy):
        """Run the suite on the dialect of rows."""

        name = "toy"
        base = rows.Module

        def linear(self, n_in: int, n_out: int) -> Any:
            return rows.Linear(n_in, n_out)

        def examples(self) -> Iterable[Any]:
            return [rows.Linear(2, 3, bias=False), rows.Conv2d(2, 3, 3), rows.LayerNorm(3), rows.BatchNorm(3)]

        def batch_norm(self, features: int) -> Any:
            return rows.BatchNorm(features)

        def dropout(self, p: float) -> Any:
            return rows.Dropout(p)

        def sgd(self, model: Any, lr: float) -> Any:
            return rows.SGD(model.parameters(), lr)

    class TestColumns(Toy):
        """Run the suite on the dialect of columns."""

        name = "toy_t"
        base = columns.Layer

        def linear(self, n_in: int, n_out: int) -> Any:
            return columns.Dense(n_in, n_out)

        def examples(self) -> Iterable[Any]:
            return [columns.Dense(2, 3, bias=False), columns.Conv(2, 3, 3), columns.LayerNormalization(3)]

        def batch_norm(self, features: int) -> Any:
            return columns.BatchNormalization(features)

        def dropout(self, p: float) -> Any:
            return columns.Drop(1 - p)

        def sgd(self, model: Any, lr: float) -> Any:
            return columns.Descent(model.parameters(), lr)

    import padiff_toy_arrays

    class TestArrays(AdapterTests):
        """Run the suite on a framework whose tensors are numpy arrays."""

        name = "arrays"

        def linear(self, n_in: int, n_out: int) -> Any:
            return padiff_toy_arrays.Affine(n_in, n_out)

        def module(self, forward: Callable[..., Any], **children: Any) -> Any:
            made = type("Made", (padiff_toy_arrays.Layer,), {"compute": forward})()
            vars(made).update(children)
            return made


def test_arrays_are_compared_with_another_framework() -> None:
    """A model whose tensors are arrays stands against one of the toy framework: aligned, or a fault named."""

    def affine(small: float = 1e-5) -> Any:
        layers = {"one": padiff_toy_arrays.Affine(4, 8), "norm": padiff_toy_arrays.Scale(8, small)}
        made = type("Made", (padiff_toy_arrays.Layer,), {"compute": lambda self, x: self.norm(self.one(x))})()
        vars(made).update(layers)
        return made

    ours = rows.Sequential(rows.Linear(4, 8), rows.LayerNorm(8))
    x = (np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32),)
    assert padiff.diff(ours, affine(), x).aligned
    (source,) = padiff.diff(ours, affine(1e-2), x).sources
    assert (source.candidate.path, "eps" in str(source.cause)) == ("norm", True)
