"""Specify parameters: found by path, assigned in place, stepped by optimizers."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np
import pytest

from padiff.testing import _models as models
from padiff.testing._harness import Harness, needs, randoms


class ParameterTests(Harness):
    """Find every parameter once, read it, and write to it where the model itself will see it."""

    feature: ClassVar[str] = "parameters"

    def test_parameters_have_dotted_paths(self) -> None:
        """Each parameter hangs under its module's path, in the native shape and dtype."""
        inner = self.module(models.one, first=self.linear(4, 3))
        model = self.wrap(self.module(models.chain, first=inner, second=self.linear(3, 2)))
        found = model.parameters()
        expected = {
            self.held(model, path, role).parameter.path
            for path in ("first.first", "second")
            for role in ("weight", "bias")
        }
        assert set(found) == expected
        for path, parameter in found.items():
            assert (parameter.path, parameter.paths) == (path, (path,))
            assert path.rpartition(".")[0] in model.modules()
            assert parameter.view().shape == parameter.shape
            assert parameter.view().dtype.name == parameter.dtype == "float32"
            assert parameter.trainable
            assert not parameter.buffer
        assert model.device == "cpu"

    def test_a_model_without_parameters_has_none(self) -> None:
        """No parameter is an empty mapping, and such a model lies on the cpu."""
        model = self.wrap(self.module(models.nothing))
        assert dict(model.parameters()) == {}
        assert model.device == "cpu"

    def test_a_shared_parameter_is_one_and_names_all_its_paths(self) -> None:
        """What hangs in the tree twice is listed once, under its first path, and knows the others."""
        shared = self.linear(3, 3)
        model = self.wrap(self.module(models.chain, first=shared, second=self.module(models.one, first=shared)))
        assert len(model.parameters()) == len(self.wrap(shared).parameters())
        for path, parameter in model.parameters().items():
            name = path.rpartition(".")[2]
            assert parameter.paths == (f"first.{name}", f"second.first.{name}")

    def test_assigning_reaches_the_model(self) -> None:
        """The model computes with what was assigned, in place: the native object stays the same."""
        model = self.wrap(self.linear(4, 3))
        weight = self.held(model, "", "weight")
        native, values = weight.parameter.native, np.zeros(weight.parameter.shape, np.float32)
        weight.part.write(values, randoms(3, 4, seed=5))
        weight.parameter.assign(values)
        assert self.held(model, "", "weight").parameter.native is native
        assert weight.parameter.view().tobytes() == values.tobytes()
        x, bias = randoms(5, 4), self.canonical(model, "", "bias")
        found = self.values(model.run((self.native(x),), {}))
        np.testing.assert_allclose(found, x @ randoms(3, 4, seed=5).T + bias, rtol=1e-4, atol=1e-5)

    def test_assigning_converts_the_dtype_and_copies(self) -> None:
        """A float64 array becomes the parameter's own dtype; the array may change afterwards."""
        parameter = self.held(self.wrap(self.linear(4, 3)), "", "weight").parameter
        values = np.full(parameter.shape, 0.1)
        parameter.assign(values)
        values[:] = 9
        assert parameter.dtype == "float32"
        assert (parameter.view() == np.float32(0.1)).all()

    def test_assigning_never_broadcasts(self) -> None:
        """An array of another shape is a ValueError that names the parameter, and nothing is written."""
        parameter = self.held(self.wrap(self.module(models.one, first=self.linear(4, 3))), "first", "weight").parameter
        before = parameter.view().tobytes()
        for shape in ((1,), (1, *parameter.shape[1:]), parameter.shape[::-1]):
            with pytest.raises(ValueError, match=re.escape(parameter.path)):
                parameter.assign(np.ones(shape, np.float32))
        assert parameter.view().tobytes() == before

    @needs("buffers")
    def test_buffers_are_told_from_parameters(self) -> None:
        """Running statistics are buffers, which no gradient reaches; they can be read and assigned."""
        model = self.wrap(self.module(models.one, first=self.batch_norm(3)))
        for role in ("running_mean", "running_var"):
            held = self.held(model, "first", role)
            assert held.parameter.buffer, f"{held.parameter.path} is a running statistic: buffer=True"
            assert not held.parameter.trainable
            held.parameter.assign(np.full(held.parameter.shape, 2, np.float32))
            assert (self.canonical(model, "first", role) == 2).all()
        assert not self.held(model, "first", "weight").parameter.buffer

    @needs("optimizers")
    def test_optimizers_are_told_from_other_things(self) -> None:
        """The framework's optimizers are known as such; their classes, functions and lists are not."""
        optimizer = self.sgd(self.linear(2, 2), 0.5)
        assert self.adapter.is_optimizer(optimizer)
        others: tuple[Any, ...] = (None, 1, [], type(optimizer), lambda: None)
        for other in others:
            assert not self.adapter.is_optimizer(other)

    @needs("optimizers")
    def test_optimizers_settings_have_common_names(self) -> None:
        """The hyper-parameters are plain values under the names that all frameworks share."""
        found = self.adapter.optimizer_settings(self.sgd(self.linear(2, 2), 0.5))
        assert (found["class"], found["lr"]) == ("sgd", pytest.approx(0.5))
        assert all(isinstance(value, int | float | str | bool | None) for value in found.values())
        assert dict(self.adapter.optimizer_settings(lambda: None)) == {}

    @needs("optimizers", "gradients")
    def test_a_step_uses_assigned_values_and_set_gradients(self) -> None:
        """From an assigned weight and a set gradient, one step of plain SGD gives the formula, and clears gradients."""
        native = self.linear(4, 3)
        model, optimizer = self.wrap(native), self.sgd(native, 0.5)
        weight, bias = (self.held(model, "", role).parameter for role in ("weight", "bias"))
        kept: Any = np.array(bias.view())
        weight.assign(np.full(weight.shape, 3, np.float32))
        weight.set_gradient(np.full(weight.shape, 2, np.float32))
        bias.set_gradient(None)
        model.step(optimizer)
        assert (self.held(model, "", "weight").parameter.view() == 2).all(), "3 - 0.5 * 2 is 2"
        np.testing.assert_array_equal(self.held(model, "", "bias").parameter.view(), kept)
        assert self.held(model, "", "weight").gradient() is None, "step() clears the gradients"

    def test_a_function_steps(self) -> None:
        """In place of an optimizer a user may give a plain function; it is called."""
        steps: list[int] = []
        self.adapter.step(lambda: steps.append(1))
        assert steps == [1]
