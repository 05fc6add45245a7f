"""Specify how a model runs and that it comes back as it was."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest

from padiff.adapter import Model
from padiff.errors import LiftError
from padiff.numerics import Array
from padiff.pytree import leaves
from padiff.recording import Task, record
from padiff.testing import _models as models
from padiff.testing._harness import Harness, needs, randoms
from padiff.testing._log import Log
from padiff.trace import temporary_store


def fingerprint(model: Model) -> dict[str, Any]:
    """Return all that padiff promises to put back: values, gradients, modes, what is trainable."""
    gradients = {path: parameter.gradient() for path, parameter in model.parameters().items()}
    return {
        "values": {path: parameter.view().tobytes() for path, parameter in model.parameters().items()},
        "dtypes": {path: parameter.dtype for path, parameter in model.parameters().items()},
        "gradients": {path: None if value is None else np.array(value).tobytes() for path, value in gradients.items()},
        "trainable": {path: parameter.trainable for path, parameter in model.parameters().items()},
        "training": {path: module.training for path, module in model.modules().items()},
        "attributes": {path: _plain(module.native) for path, module in model.modules().items()},
    }


def _assert_same(after: dict[str, Any], before: dict[str, Any], who: str) -> None:
    """Assert that two fingerprints are the same, and name the paths where they are not."""
    wrong = {
        what: sorted(path for path in {**old, **after[what]} if after[what].get(path) != old.get(path))
        for what, old in before.items()
    }
    found = {what: paths for what, paths in wrong.items() if paths}
    assert not found, f"{who} did not put back {found}"


def _plain(native: Any) -> dict[str, Any]:
    """Return the public attributes of an object, of what is no number or text only that it is there."""
    attributes = {name: value for name, value in getattr(native, "__dict__", {}).items() if not name.startswith("_")}
    return {name: value if isinstance(value, int | str) else None for name, value in attributes.items()}


class StateTests(Harness):
    """Run a model, and put back what the run changed."""

    feature: ClassVar[str] = "restoration"

    def rich(self) -> Any:
        """Return a model with all that the adapter offers: buffers, random numbers."""
        offered = self.adapter.capabilities
        children = {"first": self.linear(4, 3), "last": self.linear(3, 2)}
        if "buffers" in offered:
            children["norm"] = self.batch_norm(3)
        if "randomness" in offered:
            children["drop"] = self.dropout(0.5)

        def forward(made: Any, x: Any) -> Any:
            made.calls = made.calls + 1 if hasattr(made, "calls") else 1
            hidden = made.first(x)
            for name in ("norm", "drop"):
                hidden = getattr(made, name)(hidden) if name in children else hidden
            return made.last(hidden)

        return self.module(forward, **children)

    def run(self, model: Model, x: Array) -> Any:
        """Run a model, and backward where that is offered."""
        if "gradients" not in self.adapter.capabilities:
            return model.run((self.native(x),), {})
        return model.run((self.native(x, differentiable=True),), {}, lambda output: [(output, self.ones_like(output))])

    def ones_like(self, native: Any) -> Any:
        """Return a native tensor of ones."""
        return self.native(np.ones_like(self.values(native)))

    # Running ------------------------------------------------------------------------------------------------

    def test_a_linear_layer_computes_what_its_parameters_say(self) -> None:
        """Read through the table, weight and bias give the output by the formula: the layout is the catalogue's."""
        for n_in, n_out in ((4, 3), (3, 3)):
            model, x = self.wrap(self.linear(n_in, n_out)), randoms(5, n_in)
            weight, bias = (self.canonical(model, "", role) for role in ("weight", "bias"))
            assert weight.shape == (n_out, n_in), "the canonical weight of a linear layer is (out, in): transpose it"
            found = self.values(model.run((self.native(x),), {}))
            np.testing.assert_allclose(found, x @ weight.T + bias, rtol=1e-4, atol=1e-5)

    def test_watching_changes_no_bit(self) -> None:
        """Outputs and gradients have the same bits with and without recording."""
        native, x = self.rich(), randoms(6, 4)
        model, found = self.wrap(native), list[Any]()
        for listener in (None, Log()):
            watched = model.attach(listener) if listener else nullcontext()
            with self.adapter.seeded(3), model.preserved(), watched:
                output = self.values(self.run(model, x)).tobytes()
                found.append((output, fingerprint(model)["gradients"], fingerprint(model)["values"]))
        assert found[0] == found[1]

    def test_recording_gives_the_bits_that_a_plain_call_gives(self) -> None:
        """The model, called by its user's own code, gives the outputs that padiff records."""
        native, x = self.module(models.residual, first=self.linear(3, 3)), randoms(5, 3)
        plain = self.values(native(self.native(x))).tobytes()
        with temporary_store() as store:
            task = Task((x,), {}, backward="gradients" in self.adapter.capabilities)
            trace = record(self.wrap(native), task, store)
            assert trace.outputs[0].tobytes() == plain
            assert [call.path for call in trace.calls] == ["", "first"]

    def test_exceptions_of_the_model_come_out_unchanged(self) -> None:
        """What forward raises is what run raises, the hooks can be closed, and the next run works."""
        error = ZeroDivisionError("mine")

        def fail(made: Any, x: Any) -> Any:
            raise error

        native = self.module(models.chain, first=self.linear(3, 3), second=self.module(fail))
        model, log = self.wrap(native), Log()
        with pytest.raises(ZeroDivisionError) as caught, model.attach(log), model.preserved():
            self.run(model, randoms(2, 3))
        assert caught.value is error, "run must not wrap what the model raises"
        reported = list(log.events)
        assert ("enter", "second") in reported
        assert ("leave", "second") not in reported
        with pytest.raises(ZeroDivisionError):
            self.run(model, randoms(2, 3))
        assert log.events == reported, "the hooks are still there after an exception"

    def test_exceptions_of_a_listener_come_out_unchanged(self) -> None:
        """What a listener raises stops the run and reaches its caller; afterwards the model runs."""
        error = KeyError("mine")

        def fail(*_: Any) -> Any:
            raise error

        model = self.wrap(self.module(models.one, first=self.linear(3, 3)))
        for log in (Log(fail), Log(leave=fail)):
            with pytest.raises(KeyError) as caught, model.attach(log):
                self.run(model, randoms(2, 3))
            assert caught.value is error
        assert self.values(self.run(model, randoms(2, 3))).shape == (2, 3)

    def test_a_caught_exception_does_not_disturb_the_rest(self) -> None:
        """A forward that catches what its child raised goes on, and later calls are reported."""

        def fail(made: Any, x: Any) -> Any:
            msg = "caught below"
            raise RuntimeError(msg)

        def cautious(made: Any, x: Any) -> Any:
            try:
                return made.first(x)
            except RuntimeError:
                return made.second(x)

        log, model = Log(), self.wrap(self.module(cautious, first=self.module(fail), second=self.linear(3, 3)))
        with model.attach(log):
            self.run(model, randoms(2, 3))
        assert log.calls == ["", "first", "second"]
        assert log.events[-2:] == [("leave", "second"), ("leave", "")]

    # Coming back --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("fails", [False, True], ids=["after success", "after an exception"])
    def test_preserved_puts_back_what_a_run_changes(self, fails: bool) -> None:
        """Gradients, buffers, modes and plain attributes come back, bit for bit, also after an exception."""
        model = self.wrap(self.rich())
        self.run(model, randoms(6, 4))
        before = fingerprint(model)
        objects = {path: id(parameter.native) for path, parameter in model.parameters().items()}
        try:
            with model.preserved():
                self.run(model, randoms(6, 4, seed=1))
                model.native.fresh = "attribute"
                if "modes" in self.adapter.capabilities:
                    self.set_training(model.native, not model.modules()[""].training)
                assert fingerprint(model) != before
                if fails:
                    raise KeyError
        except KeyError:
            assert fails
        _assert_same(fingerprint(model), before, "preserved()")
        assert {path: id(parameter.native) for path, parameter in model.parameters().items()} == objects

    @needs("buffers")
    def test_a_run_changes_buffers_and_preserved_puts_them_back(self) -> None:
        """Running statistics move in a run, parameters do not; on leaving both are as they were."""
        model = self.wrap(self.module(models.one, first=self.batch_norm(3)))
        before = fingerprint(model)["values"]
        with model.preserved():
            self.run(model, randoms(6, 3) * 3 + 1)
            moved = {path for path, value in fingerprint(model)["values"].items() if value != before[path]}
            assert moved, "batch_norm() gives a layer whose statistics move in a run"
            assert all(model.parameters()[path].buffer for path in moved), "what a run moves is a buffer"
        assert fingerprint(model)["values"] == before

    @needs("modes")
    def test_modes_are_seen_and_put_back_module_by_module(self) -> None:
        """Module.training follows the native module's own mode, also where a child has another than its parent."""
        native = self.module(models.chain, first=self.linear(3, 3), second=self.linear(3, 3))
        self.set_training(native, True)
        self.set_training(native.second, False)
        model = self.wrap(native)
        expected = {"": True, "first": True, "second": False}
        assert {path: module.training for path, module in model.modules().items()} == expected
        with model.preserved():
            self.set_training(native, False)
            assert not model.modules()["first"].training
        assert {path: module.training for path, module in model.modules().items()} == expected

    @needs("modes")
    def test_evaluate_holds_until_preserved_puts_the_modes_back(self) -> None:
        """evaluate puts the model and all below it into evaluation mode; on leaving each has the mode that it had."""
        native = self.module(models.chain, first=self.linear(3, 3), second=self.linear(3, 3))
        self.set_training(native, True)
        self.set_training(native.second, False)
        model = self.wrap(native)
        before = fingerprint(model)
        with model.preserved():
            model.evaluate()
            assert not any(module.training for module in model.modules().values())
            self.run(model, randoms(2, 3))
        _assert_same(fingerprint(model), before, "evaluate() within preserved()")

    @needs("freezing")
    def test_a_frozen_parameter_is_not_trainable_and_stays_so(self) -> None:
        """trainable follows the framework's own switch; a run leaves it, and preserved puts it back."""
        model = self.wrap(self.module(models.one, first=self.linear(3, 3)))
        frozen = self.held(model, "first", "bias").parameter
        with model.preserved():
            self.freeze(frozen.native)
            assert not self.held(model, "first", "bias").parameter.trainable
            if "gradients" in self.adapter.capabilities:
                self.run(model, randoms(2, 3))
                assert self.held(model, "first", "bias").gradient() is None
                assert self.held(model, "first", "weight").gradient() is not None
        assert self.held(model, "first", "bias").parameter.trainable

    @needs("gradients")
    def test_preserved_puts_back_the_gradients_that_were_there(self) -> None:
        """A gradient that the user had stays, to the bit; where there was none there is none again."""
        model = self.wrap(self.linear(4, 3))
        weight, bias = (self.held(model, "", role).parameter for role in ("weight", "bias"))
        weight.set_gradient(np.full(weight.shape, 7, np.float32))
        bias.set_gradient(None)
        with model.preserved():
            self.run(model, randoms(5, 4))
            assert bias.gradient() is not None
        found = weight.gradient()
        assert found is not None
        assert (np.asarray(found) == 7).all()
        assert bias.gradient() is None

    # Wider --------------------------------------------------------------------------------------------------

    @needs("float64")
    @pytest.mark.parametrize("fails", [False, True], ids=["after success", "after an exception"])
    def test_lifted_runs_in_float64_and_back_bit_for_bit(self, fails: bool) -> None:
        """Inside, every floating parameter is float64 and so is the output; outside, all is as it was."""
        model, x = self.wrap(self.module(models.residual, first=self.linear(3, 3))), randoms(5, 3).astype(np.float64)
        plain = self.values(self.run(model, x.astype(np.float32)))
        before = fingerprint(model)
        objects = {path: id(parameter.native) for path, parameter in model.parameters().items()}
        try:
            with model.preserved(), model.lifted("float64"):
                assert {parameter.dtype for parameter in model.parameters().values()} == {"float64"}
                wide = self.values(self.run(model, x))
                assert wide.dtype == np.float64
                weight, bias = (self.canonical(model, "first", role) for role in ("weight", "bias"))
                np.testing.assert_allclose(wide, x @ weight.T + bias + x, rtol=1e-13, atol=1e-13)
                if fails:
                    raise KeyError
        except KeyError:
            assert fails
        _assert_same(fingerprint(model), before, "lifted() and preserved()")
        assert {path: id(parameter.native) for path, parameter in model.parameters().items()} == objects
        assert self.values(self.run(model, x.astype(np.float32))).tobytes() == plain.tobytes()

    @needs("float64")
    def test_lifted_modules_take_what_code_makes_in_a_narrower_type(self) -> None:
        """Code that makes a value of no input names its own type still: a layer takes it, as before the lift."""
        model, x = self.wrap(self.linear(3, 3)), randoms(5, 3)
        with model.preserved(), model.lifted("float64"):
            wide, weight = self.values(model.run((self.native(x),), {})), self.canonical(model, "", "weight")
            right = x.astype(np.float64) @ weight.T + self.canonical(model, "", "bias")
            np.testing.assert_allclose(wide, right, rtol=1e-13, atol=1e-13)

    @needs("float64")
    def test_lifting_elsewhere_is_an_error_that_says_so(self) -> None:
        """A type that nothing can be lifted to is a LiftError, and the model is as it was."""
        model = self.wrap(self.linear(2, 2))
        before = fingerprint(model)
        with pytest.raises(LiftError, match="int64"), model.lifted("int64"):
            pass
        assert fingerprint(model) == before

    # Chance -------------------------------------------------------------------------------------------------

    def test_seeding_covers_python_and_numpy_and_is_undone(self) -> None:
        """Within, the generators of Python and numpy repeat; on leaving, also by an exception, they go on as before."""

        def draw() -> tuple[float, float]:
            return random.random(), float(np.random.rand())

        states = random.getstate(), np.random.get_state()
        expected = draw()
        random.setstate(states[0])
        np.random.set_state(states[1])
        found = []
        for seed in (7, 7, 2**40 + 5):
            with self.adapter.seeded(seed):
                found.append(draw())
        with pytest.raises(ZeroDivisionError), self.adapter.seeded(8):
            _ = draw()[0] / 0
        assert found[0] == found[1] != found[2]
        assert draw() == expected

    @needs("randomness")
    def test_seeding_repeats_what_modules_draw_and_is_undone(self) -> None:
        """A dropout gives the same mask under the same seed, another under another, and the user's next one after."""
        model, x = self.wrap(self.module(models.one, first=self.dropout(0.5))), np.ones((8, 8), np.float32)

        def draw() -> bytes:
            return self.values(model.run((self.native(x),), {})).tobytes()

        with self.adapter.seeded(1):
            first = draw()
            expected = draw()
        with self.adapter.seeded(1):
            assert draw() == first, "seeded must reach the generator that dropout draws from"
            with pytest.raises(ZeroDivisionError), self.adapter.seeded(2):
                _ = 1 / int(draw() == first)
            assert draw() == expected, "seeded must put the generator back, also after an exception"

    @needs("devices")
    def test_models_on_accelerators_say_so(self) -> None:
        """An input on an accelerator is computed with there, and comes back."""
        assert self.accelerator is not None
        model = self.wrap(self.module(models.nothing))
        native = self.adapter.from_numpy(randoms(2, 3), device=self.accelerator)
        output = model.run((native,), {})
        found = [self.adapter.tensor(leaf).device for _, leaf in leaves(output, self.adapter.is_tensor)]
        assert found == [self.accelerator]
