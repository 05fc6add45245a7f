"""Specify how functions, operators and tensor methods are intercepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from padiff.engine import diff
from padiff.kinds import short_name
from padiff.recording import operating
from padiff.testing._harness import Harness, randoms
from padiff.testing._log import Log

Reported = list[tuple[str, tuple[Any, ...]]]


class OperationTests(Harness):
    """Report what a model's own code calls of the framework, as it is intercepted."""

    feature: ClassVar[str] = "operations"
    requires: ClassVar[tuple[str, ...]] = ("operations",)

    def counting(self, factor: float = 2.0) -> Any:
        """Return a model whose own code multiplies, adds and calls a function."""
        return self.module(lambda module, x: self.rectified(module.first(x) * factor + x), first=self.linear(4, 4))

    def listening(self, reported: Reported) -> Callable[..., Any]:
        """Return what writes down, under short names, what is called with a tensor."""

        def intercept(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if any(map(self.adapter.is_tensor, args)):
                reported.append((short_name(name), args))
            return function(*args, **kwargs)

        return intercept

    def halving(self, reported: Reported) -> Callable[..., Any]:
        """Return what writes down the same, and gives one half each in place of what a relu does."""
        listen = self.listening(reported)

        def intercept(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            output = listen(function, name, args, kwargs)
            return self.native(np.full((2, 4), 0.5, np.float32)) if short_name(name) == "relu" else output

        return intercept

    def test_operators_and_functions_are_reported(self) -> None:
        """An operator, a tensor method or a function is reported under its full name, with its arguments."""
        model, reported = self.wrap(self.counting()), Reported()
        with model.intercept_operations(self.listening(reported)):
            output = model.run((self.native(randoms(2, 4)),), {})
        names = [name for name, _ in reported]
        assert {"mul", "add", "relu"} <= set(names), f"reported were {', '.join(names) or 'none'}"
        assert names.index("mul") < names.index("add") < names.index("relu")
        given = [arg for name, args in reported if name == "mul" for arg in args if isinstance(arg, float)]
        assert 2.0 in given, "the plain argument is missing"
        assert (self.values(output) >= 0).all()

    def test_the_caller_gets_what_intercepting_returns(self) -> None:
        """What is returned in place of a function takes the place of what it gave."""
        model, x = self.wrap(self.counting()), randoms(2, 4)

        with model.intercept_operations(self.halving(Reported())):
            output = model.run((self.native(x),), {})
        assert (self.values(output) == 0.5).all()

    def test_what_intercepts_hands_on_to_what_did_before_it(self) -> None:
        """Of two that intercept, the later one calls through the earlier one: both see all functions."""
        model, earlier, later = self.wrap(self.counting()), Reported(), Reported()

        with model.intercept_operations(self.halving(earlier)), model.intercept_operations(self.listening(later)):
            output = model.run((self.native(randoms(2, 4)),), {})
        assert (self.values(output) == 0.5).all()
        assert {"mul", "add", "relu"} <= {name for name, _ in earlier}
        assert [name for name, _ in later] == [name for name, _ in earlier]

    def test_nothing_is_reported_before_and_after(self) -> None:
        """Closing the hook ends it, after an exception too, and the framework's functions are its own again."""
        model, reported, x = self.wrap(self.counting()), Reported(), self.native(randoms(2, 4))
        before = self.values(model.run((x,), {}))

        def interrupted() -> None:
            with model.intercept_operations(self.listening(reported)):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert np.array_equal(self.values(model.run((x,), {})), before)
        assert not reported

    def test_a_function_is_run_by_a_module(self) -> None:
        """as_module gives a module without parameters that calls the function with what it is given."""
        native = self.adapter.as_module(lambda x, factor=1.0: x * factor)
        model, log, x = self.wrap(native), Log(), randoms(2, 3)
        with model.attach(log):
            output = model.run((self.native(x),), {"factor": 3.0})
        assert not model.parameters()
        assert log.events == [("enter", ""), ("leave", "")]
        assert np.array_equal(self.values(output), x * np.float32(3.0))

    def test_operations_stand_among_the_calls_of_modules(self) -> None:
        """Each operation of the model's own code is reported once, in order, and none of the framework's own."""
        model, log = operating(self.wrap(self.counting())), Log()
        with model.attach(log):
            model.run((self.native(randoms(2, 4)),), {})
        assert log.calls == ["", "first", "mul", "add", "relu"]
        assert all(log.modules[path].operation == (path in ("mul", "add", "relu")) for path in log.calls)

    def test_a_wrong_operand_is_named(self) -> None:
        """A diff of two models of this framework names the operation that is called otherwise."""
        reference, candidate = self.counting(), self.counting(2.01)
        phase = "both" if "gradients" in self.adapter.capabilities else "forward"
        x = (randoms(2, 4),)
        assert diff(reference, self.counting(), x, operations=True, phase=phase).aligned
        report = diff(reference, candidate, x, operations=True, phase=phase)
        assert [source.candidate.path for source in report.sources] == ["mul"], str(report)
        assert "mul(_, 2.01)" in str(report.sources[0].cause)
