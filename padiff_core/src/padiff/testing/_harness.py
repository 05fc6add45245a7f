"""Give the suite what a subclass fills in, and leave out what its adapter does not offer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray

from padiff.adapter import CAPABILITIES, Adapter, AdapterInfo, Model, Parameter, Tensor
from padiff.kinds import Part
from padiff.numerics import Array
from padiff.plugins import adapters, load

Test = TypeVar("Test", bound=Callable[..., Any])

FACTORIES = {
    "in-place": "add_in_place",
    "buffers": "batch_norm",
    "modes": "set_training",
    "randomness": "dropout",
    "freezing": "freeze",
    "optimizers": "sgd",
    "recomputation": "recomputed",
    "compilation": "compiled",
    "operations": "rectified",
}
"""Capability -> the method of a subclass without which it cannot be tested."""


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Mark a test of these capabilities: it is collected where the adapter offers them all."""

    def mark(test: Test) -> Test:
        test.__dict__["needs"] = capabilities
        return test

    return mark


def lacks(capability: str) -> Callable[[Test], Test]:
    """Mark a test of what happens without a capability: it is collected where the adapter does not offer it."""

    def mark(test: Test) -> Test:
        test.__dict__["lacks"] = capability
        return test

    return mark


def randoms(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


class Harness(ABC):
    """What a subclass fills in.

    Required are ``name``, `linear` and `module`. The methods below them are each required for a capability that the
    adapter offers (`padiff.Adapter.capabilities`); tests of what it does not offer are not collected.
    """

    name: ClassVar[str]
    """The adapter's name, as its plugin announces it."""
    dtypes: ClassVar[str | tuple[str, ...]] = "bool int32 int64 float32 float64"
    """Every dtype of numpy and ml_dtypes that the framework holds, by name: a tuple, or one text."""
    accelerator: ClassVar[str | None] = None
    """A device of this machine other than ``cpu``, to test ``devices`` on; without one these tests are not run."""

    unmakeable: ClassVar[Mapping[str, str]] = {}
    """Class in the adapter's table -> why no example of it can be made on one machine (it needs a cluster)."""

    later: ClassVar[Mapping[str, str]] = {}
    """Class in the adapter's table -> the version of the framework that brought it: an older one need not have it."""

    info: ClassVar[AdapterInfo]
    adapter: ClassVar[Adapter]

    @abstractmethod
    def linear(self, n_in: int, n_out: int) -> Any:
        """Return the framework's linear layer, with a bias and random weights."""

    @abstractmethod
    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        """Return a native module with these children as attributes.

        ``forward`` is a plain function that takes ``self`` and becomes the method that users of the framework
        override; it calls children as ``self.child(x)``.
        """

    def examples(self) -> Iterable[Any]:
        """Return an instance of each class in the adapter's table that cannot be made of a few small numbers."""
        return [self.linear(2, 3)]

    def add_in_place(self, tensor: Any, number: float) -> None:
        """Add a number to a native tensor in place (``in-place``)."""
        raise NotImplementedError

    def batch_norm(self, features: int) -> Any:
        """Return a batch norm over the last of two axes, with running statistics (``buffers``)."""
        raise NotImplementedError

    def set_training(self, module: Any, training: bool) -> None:
        """Put a native module and all below it into training or evaluation (``modes``)."""
        raise NotImplementedError

    def dropout(self, p: float) -> Any:
        """Return a dropout layer that is active (``randomness``)."""
        raise NotImplementedError

    def freeze(self, parameter: Any) -> None:
        """Take a native parameter out of training (``freezing``)."""
        raise NotImplementedError

    def sgd(self, model: Any, lr: float) -> Any:
        """Return plain stochastic gradient descent over a native model's parameters (``optimizers``)."""
        raise NotImplementedError

    def recomputed(self, module: Any, x: Any) -> Any:
        """Call a native module so that the framework runs it again in the backward pass (``recomputation``)."""
        raise NotImplementedError

    def compiled(self, model: Any) -> Any:
        """Return the model in a form on which Python hooks would be ignored (``compilation``)."""
        raise NotImplementedError

    def rectified(self, tensor: Any) -> Any:
        """Return the relu of a native tensor, by the framework's function of that name (``operations``)."""
        raise NotImplementedError

    # For the tests ------------------------------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Load the adapter, and leave out the tests of what it does not offer."""
        super().__init_subclass__(**kwargs)
        if not isinstance(getattr(cls, "name", None), str):
            return
        cls.info = _announced(cls.name)
        cls.adapter = load(cls.info)
        for name, test, home in _tests(cls):
            if not cls._is_for(test, home):
                setattr(cls, name, None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test that takes one of the `ranges` over all of its values."""
        for argument, values in self.ranges().items():
            if argument not in metafunc.fixturenames:
                continue
            names = [value if isinstance(value, str) else type(value).__name__ for value in values]
            metafunc.parametrize(argument, values, ids=names)

    @classmethod
    def held_dtypes(cls) -> list[str]:
        """Return `dtypes` one by one."""
        return cls.dtypes.split() if isinstance(cls.dtypes, str) else list(cls.dtypes)

    @classmethod
    def is_older(cls, version: str) -> bool:
        """Return whether the installed framework is older than a version."""

        def numbers(text: str) -> list[int]:
            return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]

        return numbers(cls.adapter.environment()[cls.name]) < numbers(version)

    def ranges(self) -> dict[str, list[Any]]:
        """Return, by argument, what tests run over; rooms add theirs."""
        return {}

    @classmethod
    def _is_for(cls, test: Any, home: type) -> bool:
        offered = cls.adapter.capabilities - ({"devices"} if cls.accelerator is None else set())
        wanted = {*getattr(test, "needs", ()), *home.__dict__.get("requires", ())}
        lacking: str | None = getattr(test, "lacks", None)
        return offered >= wanted and lacking not in cls.adapter.capabilities

    def native(self, array: Any, *, differentiable: bool = False) -> Any:
        """Return a native tensor with a copy of the array."""
        return self.adapter.from_numpy(np.asarray(array), differentiable=differentiable)

    def tensor(self, array: Any) -> Tensor:
        """Return a wrapped tensor with a copy of the array."""
        return self.adapter.tensor(self.native(array))

    def values(self, native: Any) -> Array:
        """Return a native tensor's values."""
        return self.adapter.tensor(native).numpy()

    def wrap(self, native: Any) -> Model:
        """Wrap a native model."""
        return self.adapter.wrap(native)

    def held(self, model: Model, path: str, role: str) -> Held:
        """Return what holds a role of the module at a path, as the adapter's table says."""
        module = model.modules()[path]
        assert module.rule is not None, f"the table has no rule for {module.class_name}"
        part = module.rule.units_of(module.native)[""].roles[role]
        full = f"{path}.{part.parameter}" if path else part.parameter
        known = {name: parameter for parameter in model.parameters().values() for name in parameter.paths}
        assert full in known, f"the table places {role!r} of {path!r} in {full!r}; there are {', '.join(known)}"
        return Held(known[full], part)

    def canonical(self, model: Model, path: str, role: str) -> Array:
        """Return a copy of the values of a role in the catalogue's layout."""
        held = self.held(model, path, role)
        return np.array(held.part.read(held.parameter.view()))


def _tests(cls: type) -> Iterator[tuple[str, Any, type]]:
    """Yield each test of a class by name, with the class that defines it."""
    for name in dir(cls):
        if name.startswith("test_"):
            home = next(base for base in cls.__mro__ if name in base.__dict__)
            yield name, home.__dict__[name], home


@attrs.frozen
class Held:
    """A parameter, and where a role lies in it."""

    parameter: Parameter
    part: Part

    def gradient(self) -> Array | None:
        """Return a copy of the gradient in the catalogue's layout."""
        gradient = self.parameter.gradient()
        return None if gradient is None else np.array(self.part.read(gradient))


def _announced(name: str) -> AdapterInfo:
    found = {info.name: info for info in adapters()}
    if name in found:
        return found[name]
    msg = (
        f"no installed plugin announces an adapter {name!r}; there are {', '.join(found) or 'none'}.\n"
        "Hint: pip install -e the distribution whose entry point in the group 'padiff' names the plugin."
    )
    raise LookupError(msg)


assert set(FACTORIES) <= set(CAPABILITIES)
