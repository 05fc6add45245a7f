"""Specify the backward pass: gradients are complete, can be replaced, and belong to the values that were there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from padiff.adapter import Hook, Model, Module, Tensor
from padiff.numerics import Array
from padiff.pytree import leaves, map_leaves
from padiff.testing import _models as models
from padiff.testing._harness import Harness, needs, randoms
from padiff.testing._log import Log


class Reported(list[Array]):
    """The gradients that a hook was given."""

    @property
    def only(self) -> Array:
        """Return the one gradient that was to come."""
        assert len(self) == 1, f"an input's on_gradient was called {len(self)} times; expected once, with the total"
        return self[0]


class GradientTests(Harness):
    """Run backward, and be given every gradient."""

    feature: ClassVar[str] = "gradients"
    requires: ClassVar[tuple[str, ...]] = ("gradients",)

    def backward(self, model: Model, x: Any, gradient: Array, log: Log | None = None) -> Any:
        """Run a model on one native input, and backward from a given gradient of its only output."""
        with model.attach(log or Log()):
            return model.run((x,), {}, lambda output: [(output, self.native(gradient))])

    def leaf(self, *shape: int) -> tuple[Any, Reported]:
        """Return a differentiable input, and what will be given its gradient."""
        native, seen = self.native(randoms(*shape), differentiable=True), Reported()
        self.adapter.tensor(native).on_gradient(lambda gradient: seen.append(gradient.numpy()))
        return native, seen

    def grader(self, seen: dict[str, Array], answer: Callable[[Tensor], Any] | None = None) -> Log:
        """Return a log that keeps the gradient of each module's output by path, and may answer it."""

        def leave(module: Module, output: Any) -> None:
            def keep(gradient: Tensor) -> Any:
                seen[module.path] = gradient.numpy()
                return answer(gradient) if answer and module.path == "first" else None

            for _, native in leaves(output, self.adapter.is_tensor):
                if self.adapter.tensor(native).differentiable:
                    self.adapter.tensor(native).on_gradient(keep)

        return Log(leave=leave)

    def test_a_leaf_is_differentiable_where_asked(self) -> None:
        """from_numpy gives a leaf that gradients reach, for floats only, and only where that was asked for."""
        for dtype, wanted in (("float32", True), ("float32", False), ("int32", True)):
            native = self.native(np.ones(2, dtype), differentiable=wanted)
            assert self.adapter.tensor(native).differentiable is (wanted and dtype == "float32")

    def test_gradients_of_parameters_are_right(self) -> None:
        """After a run with a given gradient, a linear layer's weight and bias have the gradients of the formula."""
        model, x, gradient = self.wrap(self.linear(4, 3)), randoms(5, 4), randoms(5, 3, seed=1)
        self.backward(model, self.native(x), gradient)
        for role, expected in (("weight", gradient.T @ x), ("bias", gradient.sum(0))):
            found = self.held(model, "", role).gradient()
            assert found is not None, f"Parameter.gradient() of the {role} is None after a backward pass"
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    def test_gradients_of_inputs_are_right(self) -> None:
        """A hook on an input is given the complete gradient of it."""
        model, gradient = self.wrap(self.module(models.residual, first=self.linear(3, 3))), abs(randoms(5, 3, seed=1))
        for parameter in model.parameters().values():  # none is negative: nothing cancels
            parameter.assign(abs(parameter.view()))
        x, seen = self.leaf(5, 3)
        self.backward(model, x, gradient)
        np.testing.assert_allclose(seen.only, gradient @ self.canonical(model, "first", "weight") + gradient, rtol=1e-4)

    def test_a_gradient_is_reported_once_and_complete(self) -> None:
        """Of a tensor that is used in several places a hook is given the sum over all of them, once."""
        seen: dict[str, Array] = {}
        log, gradient = self.grader(seen), randoms(5, 3, seed=1)
        model = self.wrap(self.module(models.square, first=self.linear(4, 3)))
        x, _ = self.leaf(5, 4)
        self.backward(model, x, gradient, log)
        hidden = self.values(log.outputs["first"])
        np.testing.assert_allclose(seen["first"], gradient * (2 * hidden + 3), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(seen[""], gradient)

    def test_a_gradient_can_be_replaced(self) -> None:
        """What the callback returns goes on through the network instead, and reaches parameters and inputs."""
        seen: dict[str, Array] = {}
        log = self.grader(seen, lambda gradient: self.native(np.full(gradient.shape, 7, np.float32)))
        model = self.wrap(self.module(models.square, first=self.linear(4, 3)))
        for parameter in model.parameters().values():  # none is negative: nothing cancels
            parameter.assign(abs(parameter.view()))
        x, at_x = self.leaf(5, 4)
        self.backward(model, x, randoms(5, 3, seed=1), log)
        expected = np.full((5, 3), 7, np.float32)
        np.testing.assert_allclose(at_x.only, expected @ self.canonical(model, "first", "weight"), rtol=1e-5)
        bias = self.held(model, "first", "bias").gradient()
        assert bias is not None
        np.testing.assert_allclose(bias, [35, 35, 35], rtol=1e-6)

    def test_a_closed_gradient_hook_is_silent(self) -> None:
        """After close, which may be called twice, the callback is never called."""
        x, reported = self.native(randoms(5, 3), differentiable=True), list[Any]()
        hook = self.adapter.tensor(x).on_gradient(reported.append)
        hook.close()
        hook.close()
        self.backward(self.wrap(self.linear(3, 3)), x, randoms(5, 3, seed=1))
        assert reported == [], "the callback was called after its hook was closed"

    @needs("operations")
    def test_a_hook_on_a_parameter_is_closed_too(self) -> None:
        """A parameter that a module's own code uses is a tensor: its hook gets the total, and nothing after close."""
        reported, hooks = [Reported(), Reported()], list[Hook]()

        def forward(made: Any, x: Any) -> Any:
            seen = reported[len(hooks)]
            hooks.append(self.adapter.tensor(bias.native).on_gradient(lambda gradient: seen.append(gradient.numpy())))
            return made.first(x) * bias.native

        model = self.wrap(self.module(forward, first=self.linear(4, 3)))
        bias = self.held(model, "first", "bias").parameter
        assert self.adapter.is_tensor(bias.native), "code of a module uses a parameter, and is_tensor does not know it"
        x, gradient = randoms(5, 4), randoms(5, 3, seed=1)
        values = self.canonical(model, "first", "bias")
        expected = (gradient * (x @ self.canonical(model, "first", "weight").T + 2 * values)).sum(0)
        for seen in reported:
            self.backward(model, self.native(x), gradient)
            hooks[-1].close()
            np.testing.assert_allclose(seen.only, expected, rtol=1e-4, atol=1e-5)
        assert len(reported[0]) == 1, "a hook on a parameter was called by a backward pass after it was closed"

    @pytest.mark.parametrize("make", models.OUTPUTS.values(), ids=models.OUTPUTS)
    def test_gradients_reach_into_containers(self, make: Callable[[Any, Any], Any]) -> None:
        """Each tensor that a module returns inside a container has a gradient that a hook is given."""

        def inside(made: Any, x: Any) -> Any:
            return make(made.first(x), made.second(x))

        def outside(made: Any, x: Any) -> Any:
            tensors = [leaf for _, leaf in leaves(made.first(x), self.adapter.is_tensor)]
            return sum(tensors[1:], start=tensors[0] * 2.0)

        seen: list[Array] = []

        def leave(module: Module, output: Any) -> None:
            for _, native in leaves(output, self.adapter.is_tensor) if module.path == "first" else ():
                self.adapter.tensor(native).on_gradient(lambda gradient: seen.append(gradient.numpy()))

        inner = self.module(inside, first=self.linear(3, 3), second=self.linear(3, 3))
        model = self.wrap(self.module(outside, first=inner))
        x, _ = self.leaf(5, 3)
        gradient = randoms(5, 3, seed=1)
        self.backward(model, x, gradient, Log(leave=leave))
        expected = [gradient * 2, gradient][: 1 if make(1, 2) == 1 else 2]
        for found, right in zip(sorted(seen, key=lambda a: -np.abs(a).sum()), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-6)

    @needs("in-place")
    def test_a_gradient_belongs_to_the_value_that_was_there(self) -> None:
        """A hook set before an in-place change is given the gradient of the value before it."""
        suite = self

        def forward(made: Any, x: Any) -> Any:
            hidden = made.first(x)
            suite.add_in_place(hidden, 1.0)
            return hidden * 3.0

        seen: dict[str, Array] = {}
        model = self.wrap(self.module(forward, first=self.linear(4, 3)))
        x, _ = self.leaf(5, 4)
        gradient = randoms(5, 3, seed=1)
        self.backward(model, x, gradient, self.grader(seen))
        np.testing.assert_allclose(seen["first"], gradient * 3, rtol=1e-6)

    def test_a_swapped_value_computes_and_its_gradient_passes_through(self) -> None:
        """Later code computes with the new bits; the gradient reaches the code before unchanged and complete."""
        values = randoms(5, 3, seed=2)

        def swap(module: Module, output: Any) -> Any:
            return self.adapter.tensor(output).swapped(values) if module.path == "first" else None

        model, gradient = self.wrap(self.module(models.square, first=self.linear(4, 3))), randoms(5, 3, seed=1)
        x, at_x = self.leaf(5, 4)
        output = self.backward(model, x, gradient, Log(leave=swap))
        np.testing.assert_allclose(self.values(output), values * values + values * 3, rtol=1e-5, atol=1e-6)
        sent = gradient * (2 * values + 3)
        expected = sent @ self.canonical(model, "first", "weight")
        np.testing.assert_allclose(at_x.only, expected, rtol=1e-4, atol=1e-5)

    @needs("in-place")
    def test_a_swapped_value_may_be_changed_in_place(self) -> None:
        """Code that changes what was put in works as on its own tensor, and the gradient still passes."""
        suite, values = self, randoms(5, 3, seed=2)

        def forward(made: Any, x: Any) -> Any:
            hidden = made.first(x)
            suite.add_in_place(hidden, 1.0)
            return hidden * hidden

        def swap(module: Module, output: Any) -> Any:
            return self.adapter.tensor(output).swapped(values) if module.path == "first" else None

        model, gradient = self.wrap(self.module(forward, first=self.linear(4, 3))), randoms(5, 3, seed=1)
        x, at_x = self.leaf(5, 4)
        output = self.backward(model, x, gradient, Log(leave=swap))
        np.testing.assert_allclose(self.values(output), (values + 1) ** 2, rtol=1e-5, atol=1e-6)
        expected = (gradient * 2 * (values + 1)) @ self.canonical(model, "first", "weight")
        np.testing.assert_allclose(at_x.only, expected, rtol=1e-4, atol=1e-5)
        assert (values == randoms(5, 3, seed=2)).all(), "the model's change in place reached the recorded array"

    def test_a_swapped_leaf_reports_to_the_leaf(self) -> None:
        """A value that stands in for an input sends its gradient to hooks on that input."""
        x, seen = self.leaf(5, 3)
        model, gradient = self.wrap(self.linear(3, 2)), randoms(5, 2, seed=1)
        self.backward(model, self.adapter.tensor(x).swapped(randoms(5, 3, seed=2)), gradient)
        np.testing.assert_allclose(seen.only, gradient @ self.canonical(model, "", "weight"), rtol=1e-4, atol=1e-5)

    def test_swapped_is_as_differentiable_as_the_tensor(self) -> None:
        """Where no gradient reaches the tensor, none reaches what stands in for it."""
        swapped = self.tensor(randoms(3)).swapped(randoms(3))
        assert not self.adapter.tensor(swapped).differentiable

    def test_inputs_can_be_swapped_in_containers(self) -> None:
        """What enter returns in place of nested arguments is computed with, and gradients pass."""

        def forward(made: Any, pair: Any) -> Any:
            return made.first(pair["x"]) + pair["y"][0]

        values = randoms(5, 3, seed=2)

        def enter(module: Module, args: Any, kwargs: Any) -> Any:
            if module.path:
                return None
            change = map_leaves(args, self.adapter.is_tensor, lambda _, leaf: self.adapter.tensor(leaf).swapped(values))
            return change, kwargs

        model, (x, at_x) = self.wrap(self.module(forward, first=self.linear(3, 3))), self.leaf(5, 3)
        y, at_y = self.leaf(5, 3)
        gradient = randoms(5, 3, seed=1)
        with model.attach(Log(enter)):
            output = model.run(({"x": x, "y": [y]},), {}, lambda output: [(output, self.native(gradient))])
        weight, bias = (self.canonical(model, "first", role) for role in ("weight", "bias"))
        np.testing.assert_allclose(self.values(output), values @ weight.T + bias + values, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(at_x.only, gradient @ weight, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(at_y.only, gradient)

    def test_runs_do_not_accumulate(self) -> None:
        """Each run drops the gradients of the one before; a run without a backward pass leaves none."""
        model, x = self.wrap(self.linear(4, 3)), self.native(randoms(5, 4))
        weight = self.held(model, "", "weight")
        found: list[Any] = []
        for _ in range(2):
            self.backward(model, x, randoms(5, 3, seed=1))
            found.append(weight.gradient())
        np.testing.assert_array_equal(found[0], found[1])
        model.run((x,), {})
        assert weight.gradient() is None

    def test_several_outputs_start_the_backward_pass_together(self) -> None:
        """Every pair that differentiate returns counts; tensors that no gradient can reach are left out."""
        model = self.wrap(self.module(models.branches, first=self.linear(4, 3), second=self.linear(4, 2)))
        gradients = randoms(5, 3, seed=1), randoms(5, 2, seed=2)

        def differentiate(output: Any) -> list[tuple[Any, Any]]:
            starts = [(tensor, self.native(gradient)) for tensor, gradient in zip(output, gradients, strict=True)]
            return [*starts, (self.native(randoms(1)), self.native(randoms(1)))]

        model.run((self.native(randoms(5, 4)),), {}, differentiate)
        for path, gradient in zip(("first", "second"), gradients, strict=True):
            found = self.held(model, path, "bias").gradient()
            assert found is not None
            np.testing.assert_allclose(found, gradient.sum(0), rtol=1e-5, atol=1e-5)

    def test_a_scalar_starts_with_one(self) -> None:
        """A gradient of None stands for 1: what a loss has."""

        def forward(made: Any, x: Any) -> Any:
            return x * x * 3.0

        model = self.wrap(self.module(forward))
        x, seen = self.native(np.float32(2.0), differentiable=True), list[Array]()
        self.adapter.tensor(x).on_gradient(lambda gradient: seen.append(gradient.numpy()))
        model.run((x,), {}, lambda output: [(output, None)])
        assert [float(gradient) for gradient in seen] == [12.0]

    def test_errors_of_a_gradient_callback_come_out(self) -> None:
        """What a callback raises in the backward pass reaches the caller of run unchanged."""
        error = KeyError("mine")

        def fail(_: Tensor) -> None:
            raise error

        x = self.native(randoms(5, 3), differentiable=True)
        hook: Hook = self.adapter.tensor(x).on_gradient(fail)
        with hook, pytest.raises(KeyError) as caught:
            self.backward(self.wrap(self.linear(3, 3)), x, randoms(5, 3, seed=1))
        assert caught.value is error

    def test_a_gradient_can_be_set(self) -> None:
        """set_gradient replaces or removes what the next step reads, and refuses another shape."""
        parameter = self.held(self.wrap(self.linear(4, 3)), "", "weight").parameter
        parameter.set_gradient(np.full(parameter.shape, 2.0, np.float32))
        found = parameter.gradient()
        assert found is not None
        assert (np.asarray(found) == 2).all()
        with pytest.raises(ValueError, match=re.escape(parameter.path)):
            parameter.set_gradient(np.ones(2, np.float32))
        parameter.set_gradient(None)
        assert parameter.gradient() is None
