"""Define all that an adapter implements: Adapter, Model, Module, Parameter, Tensor, Tape, Hook.

The core speaks to a framework through these classes alone. Values cross as numpy arrays in the framework's
own precision (bfloat16 and fp8 as ``ml_dtypes``); positions are dotted module paths, ``""`` for the root.
"""

from __future__ import annotations

import inspect
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter._memory import Extent, extent_of, shares_elements
from padiff.errors import InputError, LiftError, NotOffered
from padiff.import_string import loss_of, optimizer_of
from padiff.kinds import Habit, Rule

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "Adapter",
    "AdapterInfo",
    "Hear",
    "Hook",
    "Listener",
    "Model",
    "Module",
    "Parameter",
    "Tape",
    "Tensor",
]

API_VERSION = 1
"""The version of this interface; an adapter states the one that it was written for."""

CAPABILITIES: Mapping[str, str] = {
    "gradients": "the backward pass: gradients of parameters and of every tensor, seen and replaced",
    "float64": "a model held in float64 for a while, and put back",
    "in-place": "tensors that change in place: snapshots, versions, memory to write to",
    "buffers": "state that a run changes and no gradient reaches, such as running statistics",
    "modes": "training and evaluation",
    "randomness": "modules that draw random numbers: seeded, and the generators put back",
    "freezing": "parameters taken out of training",
    "optimizers": "steps of the framework's own optimizers",
    "recomputation": "calls that the framework repeats in the backward pass, heard once",
    "compilation": "compiled models, on which hooks would be ignored, refused",
    "devices": "tensors and models on accelerators",
    "operations": "functions, operators and tensor methods that a model's own code calls, heard one by one",
}
"""What an adapter may offer beyond the rest of the interface; `Adapter.capabilities` says which it does."""

Array = NDArray[Any]


def _offered_not(what: str, capability: str) -> str:
    msg = f"{what}, and its adapter does not offer {capability!r} (see Adapter.capabilities)."
    return f"{msg}\nHint: padiff.diff does without it; an adapter's author overrides this method."


def _names(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@attrs.frozen
class AdapterInfo:
    """Say which adapter knows which framework, before that framework is imported.

    ``roots`` are the top-level packages whose classes it understands; ``factory`` is
    ``"package.module:callable"``, imported on first use; ``load_before`` names frameworks that must not be
    imported earlier than this one. ``api`` is the version of this interface (`API_VERSION` then) that the adapter was
    written for, as a plain number, the first where it is left out: another one is refused.
    """

    name: str
    roots: frozenset[str] = attrs.field(converter=_names)
    factory: str
    load_before: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    api: int = 1


Hear = Callable[[Callable[..., Any], str, tuple[Any, ...], dict[str, Any]], Any]
"""Takes a function, its full name, and the arguments of a call of it; returns what the caller gets."""


class Hook:
    """Remove what was registered when closed; closing twice is harmless."""

    def __init__(self, *removers: Callable[[], Any]) -> None:
        self._removers = list(removers)

    def add(self, remover: Callable[[], Any]) -> None:
        """Take one more thing to undo."""
        self._removers.append(remover)

    def close(self) -> None:
        """Undo everything, last first."""
        while self._removers:
            self._removers.pop()()

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Tape:
    """Let a user's own script run backward: over one step of it, from the model's first call to `close`.

    As it stands it serves frameworks that record whatever they compute, and whose losses have a ``backward()``.
    """

    def begin(self) -> None:
        """Record what is computed from here on; said before every call of the model, so often more than once."""

    def backward(self, loss: Any) -> Any:
        """Run backward from a native loss, and return what the framework's own way returns.

        Gradients add up at `Parameter.gradient` as they do in the framework. Raises `InputError` where no backward
        pass can start there.
        """
        if not callable(getattr(loss, "backward", None)):
            msg = f"the loss is a {type(loss).__qualname__}, which has no backward().\n"
            msg += "Hint: give the tensor that the model's outputs led to."
            raise InputError(msg)
        return loss.backward()

    def close(self) -> None:
        """Stop recording; closing twice is harmless."""


class Tensor(ABC):
    """Wrap one native tensor; cheap to make, holds nothing but the native object.

    What is not abstract needs to be overridden for a capability only: ``device`` for ``devices``, ``version`` and
    ``writable`` for ``in-place``, ``differentiable`` and ``on_gradient`` for ``gradients``.
    """

    __slots__ = ("native",)

    def __init__(self, native: Any) -> None:
        self.native = native

    @property
    def identity(self) -> Any:
        """Return an object that lives as long as the native tensor, and is the same one for the same tensor.

        That is the native tensor itself, unless it lies in another process.
        """
        return self.native

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name: float32, bfloat16, int64, bool, float8_e4m3fn."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""

    @property
    def device(self) -> str:
        """Return where it lies: ``cpu``, ``cuda:0``, ``npu:1``."""
        return "cpu"

    @property
    def version(self) -> int:
        """Return a number that grows with every in-place change."""
        return 0

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it (and `on_gradient` can be called)."""
        return False

    @abstractmethod
    def numpy(self) -> Array:
        """Return a snapshot that later in-place changes do not touch: one copy, in the tensor's own dtype."""

    def view(self) -> Array:
        """Return the values without a copy where possible; read at once, never write or keep."""
        return self.numpy()

    def read(self, function: Callable[..., Any], *arrays: Array) -> Any:
        """Return ``function(*arrays, values)``, computed in the tensor's own process: a function of padiff or numpy."""
        return function(*arrays, self.view())

    def writable(self) -> Array | None:
        """Return an array over the tensor's own memory: writing to it changes the tensor, unseen by autograd.

        None where there is no such thing (the tensor is not on the host, or cannot be changed).
        """
        return None

    def extent(self) -> Extent | None:
        """Return the addresses of the memory that `overwrite` would write to, in the tensor's own process."""
        return extent_of(self.writable())

    def overwrite(self, array: Array) -> bool:
        """Write an array into the tensor's own memory; return False where there is none or elements share bytes."""
        target = self.writable()
        if target is None or not target.size or shares_elements(target):
            return False
        np.copyto(target, array, casting="unsafe")
        return True

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back in the backward pass with the complete gradient; a returned native value replaces it."""
        raise NotOffered(_offered_not("a tensor was asked for its gradient", "gradients"))

    @abstractmethod
    def swapped(self, array: Array) -> Any:
        """Return a native tensor with exactly the array's bits; gradients pass through to this one unchanged.

        ``array`` has this tensor's shape; it is converted to this tensor's dtype and device, and copied, so
        that an in-place change by the model never reaches it. Where this tensor is not differentiable,
        neither is the result.
        """


class Listener(ABC):
    """Hear about every call of every module, in execution order."""

    wants: Callable[..., Any] | None = np.asarray
    """What will be read of most tensors, as by `Tensor.read`: of another process it then comes along with each call."""
    frames: tuple[Any, ...] | None = None
    """The calling frames of the call that begins, where the model runs in another process; set before `enter`."""

    @abstractmethod
    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Hear that a call begins; a returned ``(args, kwargs)`` is what the module gets instead."""

    @abstractmethod
    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Hear that a call ended; a return value that is not None is what the caller gets instead."""


class Parameter(ABC):
    """Wrap one parameter or buffer of a model.

    What is not abstract needs to be overridden for a capability only: ``trainable`` for ``freezing``, ``gradient``
    and ``set_gradient`` for ``gradients``.
    """

    def __init__(self, path: str, native: Any, *, buffer: bool, paths: tuple[str, ...] = ()) -> None:
        self.path = path
        self.native = native
        self.buffer = buffer
        self.paths = paths or (path,)
        """Every path under which the same native object hangs: more than one where weights are tied."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Return the dtype's name, as `Tensor.dtype`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the native shape."""

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient; a buffer never does."""
        return not self.buffer

    @abstractmethod
    def view(self) -> Array:
        """Return the values, native layout, without a copy where possible; never write to it or keep it."""

    def extent(self) -> Extent | None:
        """Return the addresses of its values, in the parameter's own process."""
        return extent_of(self.view())

    @abstractmethod
    def assign(self, array: Array) -> None:
        """Overwrite the values in place: same shape, converted to the dtype, seen by optimizers too."""

    def gradient(self) -> Array | None:
        """Return the gradient (no copy where possible), dense, or None where there is none."""
        return None

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient that the next optimizer step reads, or remove it."""
        raise NotOffered(_offered_not(f"the parameter {self.path!r} was given a gradient", "gradients"))


class Module(ABC):
    """Wrap one node of a model's tree."""

    operation: bool = False
    """Whether it is no module of the model, but a function that a module's own code calls."""
    memory: str = "own"
    """Where what it gives lies: in memory of its ``own``, or in that of its input, as a ``view`` or the ``same``."""

    def __init__(self, path: str, native: Any, rule: Rule | None) -> None:
        self.path = path
        self.native = native
        self.rule = rule

    @property
    def kind(self) -> str | None:
        """Return the kind's name, or None outside the catalogue."""
        return self.rule.kind if self.rule else None

    @property
    def class_name(self) -> str:
        """Return the native class's qualified name."""
        return f"{type(self.native).__module__}.{type(self.native).__qualname__}"

    @property
    def training(self) -> bool:
        """Return whether the module is in training mode; False where there are no modes."""
        return False

    def is_a(self, cls: type | str) -> bool:
        """Return whether the module is of a class, or of a class of that name, qualified or bare."""
        if isinstance(cls, type):
            return isinstance(self.native, cls)
        names = ((one.__module__, one.__qualname__) for one in type(self.native).__mro__)
        return any(cls in (name, f"{module}.{name}") for module, name in names)

    @property
    @abstractmethod
    def forward(self) -> Callable[..., Any]:
        """Return the bound method that users override (forward, construct, ...)."""

    @property
    def definition(self) -> tuple[str, int] | None:
        """Return file and line where the module's forward is defined."""
        function = inspect.unwrap(self.forward)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code else None


class Model(ABC):
    """Wrap one model: its tree, its parameters, and how it runs."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        self.native = native
        self.adapter = adapter

    @abstractmethod
    def modules(self) -> Mapping[str, Module]:
        """Return every module once, by its first path, parents first, the root under ``""``."""

    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """Return every parameter and buffer once, by its first path; tied ones name all their paths."""

    @property
    def device(self) -> str:
        """Return where the parameters lie; ``cpu`` where there are none; several joined with commas."""
        return "cpu"

    @abstractmethod
    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls to the listener until the hook is closed.

        Calls that the framework repeats on its own in the backward pass (recomputation) are not reported.
        """

    def hear_operations(self, hear: Hear) -> Hook:
        """Let ``hear`` be called in place of the framework's functions on tensors, until the hook is closed.

        That is: its functions, the operators and the methods of its tensors, under names such as
        ``torch.nn.functional.relu`` and ``torch.Tensor.mul``. Functions that these call themselves may be reported as
        well, and so may those called outside of the model: the core tells them apart. ``hear`` returns what the caller
        gets, and has called the function unless that raised.
        """
        raise NotOffered(_offered_not("operations were to be compared", "operations"))

    @abstractmethod
    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns; return the output.

        That is a list of (native tensor, native gradient); a gradient of None stands for 1 (a scalar loss).
        Without it no gradient is computed, though the forward pass is the one of training code (grad mode
        on). Gradients of parameters are then at `Parameter.gradient`, those of inputs reach hooks on the
        inputs. Old parameter gradients are dropped first, so nothing accumulates over runs.
        """

    def tape(self) -> Tape:
        """Return what lets the user's own script run backward, over one step of it."""
        return Tape()

    @abstractmethod
    def preserved(self) -> AbstractContextManager[None]:
        """Put back, on leaving and also after an exception, what a run changes.

        That is: gradients (the very same objects), requires_grad, the mode and the plain attributes of every
        module, and the values of buffers, bit for bit. Parameter values are left alone: only an asked-for
        transfer or step changes them.
        """

    def evaluate(self) -> None:
        """Put every module into evaluation mode; `preserved`, within which this is said, puts the modes back.

        Here nothing happens: there are no modes (see the capability ``modes``).
        """
        return

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold all floating parameters and buffers in ``dtype`` within; put the old objects back after.

        Old values come back bit for bit, as the same storage. Raises `LiftError` where a move is impossible.
        """
        raise LiftError(_offered_not(f"{type(self.native).__qualname__} was to run in {dtype}", "float64"))

    def step(self, optimizer: Any) -> None:
        """Let a native optimizer take one step with the gradients at `Parameter.gradient`, and clear them.

        As the adapter's `step` does; overridden where an optimizer does not know its parameters and is told the model.
        """
        self.adapter.step(optimizer)

    def loss(self, given: Any, side: int) -> Any:
        """Return the loss that a user gave, as a function of this model's output; None where none was given.

        A string names it, or a pair of which ``side`` is the index: 0 for the reference, 1 for the candidate.
        """
        return loss_of(given, side) if isinstance(given, str) else given

    def optimizer(self, given: Any, side: int) -> Any:
        """Return the optimizer that a user gave; a string names it, or a function that makes it of the model."""
        return optimizer_of(given, side, self.native) if isinstance(given, str) else given


class Adapter(ABC):
    """Know one framework.

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

    def rule(self, module: Any) -> Rule | None:
        """Return the first rule along the MRO of a native module's class, else that of the first habit it shows."""
        for cls in type(module).__mro__:
            rule = self.table.get(f"{cls.__module__}.{cls.__qualname__}")
            if rule is not None:
                return rule
        return next((habit.rule for habit in self.habits if habit.shown_by(module)), None)

    def as_module(self, function: Callable[..., Any]) -> Any:
        """Return a native module, without parameters, that calls a function: an operation that is run alone."""
        raise NotOffered(_offered_not("an operation was to run alone", "operations"))

    def convert(self, value: Any, *, device: str, differentiable: bool = False) -> Any:
        """Return a leaf of the inputs as this framework's tensor where it is array-like, else as it is."""
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            return self.from_numpy(array, device=device, differentiable=differentiable)
        return value

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the framework's own chatter (logs, warnings about padiff's hooks) down within the context."""
        yield
