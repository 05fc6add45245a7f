"""Know one framework."""

from __future__ import annotations

import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import numpy as np

from padiff.adapter._info import offered_not
from padiff.adapter._listening import Hook
from padiff.adapter._model import Model
from padiff.adapter._module import class_names
from padiff.adapter._reduction import Reducer
from padiff.adapter._tensor import Tensor
from padiff.errors import NotOffered
from padiff.kinds import Habit, Rule
from padiff.numerics import Array, is_array

StepListener = Callable[[Iterable[tuple[Any, Any]]], None]
"""Takes what an optimizer steps with: native parameters, and the native gradient of each."""
AnyStepListener = Callable[[Any, Iterable[tuple[Any, Any]]], None]
"""Takes a native optimizer, too, in front of these."""


def host_random_state() -> Hashable:
    """Return the state of the generators of Python and numpy, to be compared: part of `Adapter.random_state`."""
    _, key, *rest = np.random.get_state()
    return random.getstate(), np.asarray(key).tobytes(), *map(str, rest)


class Adapter(ABC):
    """A framework, as padiff knows it.

    Subclasses fill the class attributes and the abstract methods. ``capabilities`` names those of `CAPABILITIES`
    that the adapter offers: `padiff.diff` does without the others and says so. ``table`` maps a class's qualified name
    (``module.qualname``) to its `Rule`; a subclass of it inherits the rule through the MRO. ``habits`` are rules for
    classes that have no one qualified name, and come after the table. ``machinery`` are
    path prefixes of files that only pass a call on (the module's ``__call__``, hooks, Sequential);
    ``library`` the prefixes of the framework's own files: neither is where a user's line is, if there is
    another.
    """

    name: ClassVar[str]
    capabilities: frozenset[str] = frozenset()
    table: Mapping[str, Rule]
    habits: Sequence[Habit] = ()
    machinery: tuple[str, ...] = ()
    library: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """Return path prefixes of the adapter's own files, whose frames are nobody's line.

        Here the folder of its class's package; of an adapter in a lone module, that file.
        """
        module = type(self).__module__
        file = getattr(sys.modules.get(module), "__file__", None)
        if not file:
            return ()
        return (os.path.join(os.path.dirname(file), ""),) if "." in module else (file,)

    @abstractmethod
    def wrap(self, model: Any) -> Model:
        """Wrap a native model.

        Raises `UnwatchableModel` where hooks on it would be ignored: say what to pass instead.
        """

    @abstractmethod
    def is_tensor(self, value: Any) -> bool:
        """Return whether the value is one of this framework's tensors."""

    @abstractmethod
    def tensor(self, native: Any) -> Tensor:
        """Wrap a native tensor."""

    @abstractmethod
    def from_numpy(self, array: Array, *, device: str = "cpu", differentiable: bool = False) -> Any:
        """Return a native tensor with a copy of the array, a leaf that collects hooks' gradients if asked."""

    def placed(self, array: Array, place: Any, *, differentiable: bool = False) -> Any:
        """Return a native tensor as `from_numpy` does, as one lay: ``place`` is its `Tensor.place`."""
        return self.from_numpy(array, device=place, differentiable=differentiable)

    def reducer(self) -> Reducer:
        """Return what computes few numbers of tensors where they lie; overridden for devices that are no host."""
        return Reducer()

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return what a reader of a report needs: under ``name`` the framework's version; devices, threads."""

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed every random generator that a model may use, and put their states back on leaving.

        Here those of Python and numpy; a framework with generators of its own adds them (``with super().seeded``).
        """
        python, numpy = random.getstate(), np.random.get_state()
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            np.random.set_state(numpy)
            random.setstate(python)

    def random_state(self) -> Hashable | None:
        """Return what changes whenever a model takes a random number, to be compared; None where that is not seen.

        `host_random_state` is the part of Python and numpy.
        """
        return None

    def is_optimizer(self, value: Any) -> bool:
        """Return whether the value is one of this framework's optimizers."""
        return False

    def step(self, optimizer: Any) -> None:
        """Let a native optimizer take one step and clear its gradients. A plain callable is simply called."""
        optimizer()

    def optimizer_settings(self, optimizer: Any) -> Mapping[str, Any]:
        """Return an optimizer's hyper-parameters under common names.

        ``class`` (lower-case family: sgd, adam, adamw, ...), ``lr``, ``weight_decay``, ``momentum``,
        ``nesterov``, ``beta1``, ``beta2``, ``eps``, as plain Python values; what the class does not have is
        left out. Empty for a plain callable.
        """
        return {}

    def optimizer_parameters(self, optimizer: Any) -> Iterable[tuple[Any, Mapping[str, Any]]]:
        """Yield each native parameter that an optimizer steps, with its own hyper-parameters: those of its group.

        Under the names of `optimizer_settings`; ``lr`` is the effective rate. Nothing where that is not known.
        """
        return ()

    def on_step(self, optimizer: Any, called: StepListener) -> Hook:
        """Call a function each time that an optimizer steps, before it does, with the gradients that it uses.

        Those behind a clipping that the optimizer does itself. Here it is never called.
        """
        return Hook()

    def on_any_step(self, called: AnyStepListener) -> Hook:
        """Call a function each time that whichever optimizer of the framework steps, with that one and the gradients.

        As `on_step` does for one. Here it is never called.
        """
        return Hook()

    def rule(self, module: Any) -> Rule | None:
        """Return the first rule along the MRO of a native module's class, else that of the first habit it shows."""
        known = (self.table[name] for name in class_names(module) if name in self.table)
        return next(known, None) or next((habit.rule for habit in self.habits if habit.shown_by(module)), None)

    def as_module(self, function: Callable[..., Any]) -> Any:
        """Return a native module, without parameters, that calls a function: an operation that is run alone."""
        raise NotOffered(offered_not("an operation was to run alone", "operations"))

    def convert(self, value: Any, *, device: str, differentiable: bool = False) -> Any:
        """Return a leaf of the inputs as this framework's tensor where it is array-like, else as it is."""
        if is_array(value):
            array = np.asarray(value)
            return self.from_numpy(array, device=device, differentiable=differentiable)
        return value

    def ambient(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what enters again the mode in which the framework computes now: automatic casts (autocast).

        Asked for at each call of a module; calls are replayed in the mode in which they were made.
        """
        return nullcontext

    def casting(self) -> str | None:
        """Return the type to which automatic casts turn what products take now; None where none are on.

        Asked for at each recorded call. Overridden where layers may give another type than that all the same: here that
        of what they give tells.
        """
        return None

    def backward_pass(self) -> Hashable | None:
        """Return what tells the backward pass that runs from the one before; None where that is not seen.

        Asked for as gradients arrive. Here what arrives tells: a second gradient of one value is of another pass.
        """
        return None

    def narrowing(self) -> AbstractContextManager[None]:
        """Let functions that have no kernel for float64 compute in float32, of what is lifted to it within.

        Overridden where many have none. Here nothing happens: they raise what the framework raises.
        """
        return nullcontext()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the framework's own chatter (logs, warnings about padiff's hooks) down within the context."""
        yield
