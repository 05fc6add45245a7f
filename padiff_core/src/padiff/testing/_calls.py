"""Specify what is reported to a listener, and what it can change."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from padiff.adapter import Module
from padiff.pytree import leaves, map_leaves
from padiff.testing import _models as models
from padiff.testing._harness import Harness, needs, randoms
from padiff.testing._log import Log

_OUTPUTS = pytest.mark.parametrize("make", models.OUTPUTS.values(), ids=models.OUTPUTS)


class CallTests(Harness):
    """Report every call of every module, in execution order, with its own arguments and results."""

    feature: ClassVar[str] = "calls"

    def nested(self) -> Any:
        """Return a model of two levels."""
        inner = self.module(models.chain, first=self.linear(4, 3), second=self.linear(3, 4))
        return self.module(models.chain, first=inner, second=self.linear(4, 2))

    def watched(self, native: Any, *args: Any, log: Log | None = None, **kwargs: Any) -> tuple[Log, Any]:
        """Run a native model under a log; return the log and the output."""
        model, log = self.wrap(native), log or Log()
        with model.attach(log):
            return log, model.run(args, kwargs)

    def test_modules_come_once_parents_first(self) -> None:
        """modules() lists the tree by dotted paths in the order of registration, the root under the empty path."""
        model = self.wrap(self.nested())
        assert list(model.modules()) == ["", "first", "first.first", "first.second", "second"]
        for path, module in model.modules().items():
            assert module.path == path
            assert module is model.modules()[path], "modules() gives another wrapper each time: keep them"

    def test_calls_are_reported_in_execution_order(self) -> None:
        """A call is entered before those inside it and left after them."""
        log, _ = self.watched(self.nested(), self.native(randoms(2, 4)))
        inside = [("enter", "first.first"), ("leave", "first.first"), ("enter", "first.second")]
        first = [("enter", "first"), *inside, ("leave", "first.second"), ("leave", "first")]
        assert log.events == [("enter", ""), *first, ("enter", "second"), ("leave", "second"), ("leave", "")]

    def test_execution_order_is_not_registration_order(self) -> None:
        """What counts is the order in which forward calls the children."""
        native = self.module(models.chain, second=self.linear(3, 2), first=self.linear(4, 3))
        assert list(self.wrap(native).modules()) == ["", "second", "first"]
        log, _ = self.watched(native, self.native(randoms(2, 4)))
        assert log.calls == ["", "first", "second"]

    def test_a_listener_gets_the_models_own_wrappers(self) -> None:
        """The module that a listener is told of is the one that modules() lists, around the user's own object."""
        native = self.nested()
        model, log = self.wrap(native), Log()
        with model.attach(log):
            model.run((self.native(randoms(2, 4)),), {})
        assert all(module is model.modules()[path] for path, module in log.modules.items())
        assert log.modules[""].native is native
        assert log.modules["second"].native is native.second

    def test_a_module_called_twice_is_reported_twice(self) -> None:
        """Each call of a shared module is reported, under the module's first path."""
        log, _ = self.watched(self.module(models.twice, first=self.linear(3, 3)), self.native(randoms(2, 3)))
        assert log.calls == ["", "first", "first"]

    def test_a_module_under_two_names_is_one(self) -> None:
        """A module that hangs in the tree twice has one path, the first, and is watched once."""
        shared = self.linear(3, 3)
        native = self.module(models.chain, first=shared, second=shared)
        assert list(self.wrap(native).modules()) == ["", "first"]
        log, _ = self.watched(native, self.native(randoms(2, 3)))
        assert log.calls == ["", "first", "first"]

    def test_keywords_arrive_as_keywords(self) -> None:
        """Positional and keyword arguments, tensors or not, reach the listener as the model was called."""
        x, shift = self.native(randoms(2, 3)), self.native(np.ones((2, 3), np.float32))
        native = self.module(models.with_keywords, first=self.linear(3, 3))
        log, output = self.watched(native, x, scale=2.0, shift=shift)
        args, kwargs = log.inputs[""]
        assert len(args) == 1
        assert sorted(kwargs) == ["scale", "shift"]
        assert kwargs["scale"] == 2.0
        np.testing.assert_allclose(self.values(output), self.values(log.outputs["first"]) * 2 + 1, rtol=1e-6)

    @_OUTPUTS
    def test_outputs_arrive_as_they_were_returned(self, make: Callable[[Any, Any], Any]) -> None:
        """Whatever holds the tensors, the listener gets that very container and finds each tensor in it."""

        def forward(made: Any, x: Any) -> Any:
            return make(made.first(x), x)

        native = self.module(models.one, first=self.module(forward, first=self.linear(3, 3)))
        log, output = self.watched(native, self.native(randoms(2, 3)))
        inner = log.outputs["first"]
        assert type(inner) is type(output)
        expected = [path for path, _ in leaves(make(1.5, 2.5), lambda value: isinstance(value, float))]
        assert [path for path, _ in leaves(inner, self.adapter.is_tensor)] == expected

    @_OUTPUTS
    def test_outputs_can_be_replaced(self, make: Callable[[Any, Any], Any]) -> None:
        """What leave returns is what the caller gets instead, in whatever container."""

        def forward(made: Any, x: Any) -> Any:
            return make(made.first(x), x)

        def zeros(module: Module, output: Any) -> Any:
            if module.path != "first":
                return None
            return map_leaves(
                output, self.adapter.is_tensor, lambda _, leaf: self.native(np.zeros_like(self.values(leaf)))
            )

        native = self.module(models.one, first=self.module(forward, first=self.linear(3, 3)))
        _, output = self.watched(native, self.native(randoms(2, 3)), log=Log(leave=zeros))
        found = [self.values(leaf) for _, leaf in leaves(output, self.adapter.is_tensor)]
        assert found
        assert not any(value.any() for value in found), "the caller got the old output"

    def test_arguments_can_be_replaced(self) -> None:
        """What enter returns is what the module gets instead, positional and by keyword."""

        def enter(module: Module, args: Any, kwargs: Any) -> Any:
            return (args, {"scale": 5.0}) if module.path == "" else ((args[0] - args[0],), kwargs)

        native = self.module(models.with_keywords, first=self.linear(3, 2))
        log, output = self.watched(native, self.native(randoms(2, 3)), log=Log(enter))
        first = self.values(log.outputs["first"])
        assert (first[0] == first[1]).all(), "the child got its old argument"
        np.testing.assert_array_equal(self.values(output), first * 5)

    def test_a_tensor_is_the_same_object_from_call_to_call(self) -> None:
        """What leaves one call is the object that enters the next: padiff follows tensors by identity."""
        native = self.module(
            models.chain,
            first=self.linear(3, 3),
            second=self.module(models.one, first=self.module(models.nothing)),
        )
        log, output = self.watched(native, self.native(randoms(2, 3)))
        passed = log.outputs["first"]
        for path in ("second", "second.first"):
            assert log.inputs[path][0][0] is passed, "hooks must hand on the model's own tensors, not new ones"
            assert log.outputs[path] is passed
        assert output is passed

    @needs("in-place")
    def test_what_was_seen_is_what_was_there_then(self) -> None:
        """A listener that takes numpy() keeps the value at that moment, though the model changes the tensor later."""
        suite = self

        def forward(made: Any, x: Any) -> Any:
            hidden = made.first(x)
            suite.add_in_place(hidden, 1.0)
            return made.second(hidden)

        seen: list[Any] = []
        versions: list[int] = []

        def keep(tensor: Any) -> None:
            seen.append(self.values(tensor))
            versions.append(self.adapter.tensor(tensor).version)

        log = Log(
            lambda module, args, kwargs: keep(args[0]) if module.path == "second" else None,
            lambda module, output: keep(output) if module.path == "first" else None,
        )
        native = self.module(forward, first=self.linear(3, 3), second=self.linear(3, 3))
        self.watched(native, self.native(randoms(2, 3)), log=log)
        np.testing.assert_allclose(seen[1], seen[0] + 1, rtol=1e-5, atol=1e-6)
        assert versions[1] > versions[0]
        assert log.outputs["first"] is log.inputs["second"][0][0]

    def test_a_closed_hook_reports_nothing_and_leaves_nothing(self) -> None:
        """After close, which may be called twice, the model runs as if it had never been watched."""
        native = self.nested()
        before = {path: _outline(module) for path, module in self.wrap(native).modules().items()}
        log, _ = self.watched(native, self.native(randoms(2, 4)))
        reported = list(log.events)
        hook = self.wrap(native).attach(log)
        hook.close()
        hook.close()
        self.wrap(native).run((self.native(randoms(2, 4)),), {})
        assert log.events == reported, "calls are reported after its hook was closed"
        for path, module in self.wrap(native).modules().items():
            changed = sorted(name for name, _ in _outline(module).items() ^ before[path].items())
            assert not changed, f"after close, {path!r} ({module.class_name}) is not as it was: {', '.join(changed)}"

    def test_two_listeners_are_told_the_same(self) -> None:
        """Listeners do not disturb one another."""
        one, two = Log(), Log()
        model = self.wrap(self.nested())
        with model.attach(one), model.attach(two):
            model.run((self.native(randoms(2, 4)),), {})
        assert one.events == two.events != []

    def test_a_class_of_any_base_is_watched(self) -> None:
        """A module that the table does not know is reported like any other, and has no kind."""
        log, _ = self.watched(self.module(models.residual, first=self.linear(3, 3)), self.native(randoms(2, 3)))
        assert log.calls == ["", "first"]
        assert log.modules[""].kind is None
        assert log.modules["first"].kind == "linear"

    def test_forward_is_what_users_write(self) -> None:
        """Module.forward is the bound method that users override; its definition is file and line."""
        module = self.wrap(self.module(models.with_keywords, first=self.linear(3, 3))).modules()[""]
        assert list(inspect.signature(module.forward).parameters) == ["x", "scale", "shift"]
        line = inspect.getsourcelines(models.with_keywords)[1]
        assert module.definition == (models.__file__, line)

    def test_the_frameworks_own_files_are_known(self) -> None:
        """The framework's linear layer lies in ``library``, and not in ``machinery``; the user's code in neither."""
        modules = self.wrap(self.module(models.one, first=self.linear(3, 3))).modules()
        definition = modules["first"].definition
        assert definition is not None
        file = definition[0]
        assert file.startswith(self.adapter.library), f"Adapter.library has no prefix of {file}"
        assert not file.startswith(self.adapter.machinery), f"Adapter.machinery must not cover {file}"
        assert not models.__file__.startswith((*self.adapter.library, *self.adapter.machinery))

    @needs("recomputation", "gradients")
    def test_recomputed_calls_are_reported_once(self) -> None:
        """What the framework runs again in the backward pass is no call of the model's own."""
        suite = self

        def forward(made: Any, x: Any) -> Any:
            return suite.recomputed(made.first, x)

        model, log = self.wrap(self.module(forward, first=self.linear(3, 3))), Log()
        x = self.native(randoms(2, 3), differentiable=True)
        with model.attach(log):
            model.run((x,), {}, lambda output: [(output, self.native(np.ones((2, 3), np.float32)))])
        assert log.calls == ["", "first"]
        assert self.held(model, "first", "weight").gradient() is not None, "no gradient came through recomputation"


def _outline(module: Module) -> dict[str, Any]:
    """Return a module's attributes, of containers (hooks among them) how much is in them.

    Other private attributes are left out: frameworks mark modules at their first call.
    """
    attributes = getattr(module.native, "__dict__", {})
    sizes = {name: len(value) for name, value in attributes.items() if isinstance(value, dict | list | tuple | set)}
    return {**{name: id(value) for name, value in attributes.items() if not name.startswith("_")}, **sizes}
