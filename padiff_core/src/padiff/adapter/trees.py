"""What most frameworks' models have in common: a tree of modules that hold tensors, and hooks around their calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from padiff.adapter._adapter import Adapter
from padiff.adapter._listening import Hook, Listener
from padiff.adapter._model import Model
from padiff.adapter._module import Module, Parameter
from padiff.adapter._tensor import Tensor
from padiff.adapter.dtypes import COMPLEX, wider
from padiff.adapter.restoring import Attributes
from padiff.errors import InputError, LiftError, UnwatchableModel
from padiff.pytree import map_leaves

__all__ = ["TensorParameter", "TreeModel", "qualified_name", "walk"]

Array = NDArray[Any]
Children = Callable[[Any], Iterable[tuple[str, Any]]]
Trouble = tuple[str, str]
"""What keeps something from being compared, as the end of a sentence, and what to do about it."""


def qualified_name(native: Any) -> str:
    """Return the qualified name of an object's class."""
    return f"{type(native).__module__}.{type(native).__qualname__}"


def walk(root: Any, children: Children) -> Iterator[tuple[str, Any]]:
    """Yield every object with every path under which it hangs, parents first; a cycle is gone round once."""
    todo: list[tuple[str, Any, tuple[int, ...]]] = [("", root, ())]
    while todo:
        path, native, above = todo.pop()
        yield path, native
        found = list(children(native))
        if found:
            within = (*above, id(native))
            for name, child in reversed(found):
                if child is not None and id(child) not in within:
                    todo.append((f"{path}.{name}" if path else name, child, within))


class TensorParameter(Parameter):
    """A parameter or buffer that is one of its framework's tensors; ``tensor`` is the class that wraps these."""

    tensor: ClassVar[type[Tensor]]
    grad: ClassVar[str] = "grad"
    """The attribute of a native parameter that holds its gradient."""

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        return self.tensor(self.native).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the native shape."""
        return self.tensor(self.ready()).shape

    def view(self) -> Array:
        """Return the values in native layout, without a copy on the CPU."""
        return self.tensor(self.ready()).view()

    def gradient(self) -> Array | None:
        """Return the gradient, dense, or None."""
        found = getattr(self.native, self.grad)
        return None if found is None else self.tensor(found).view()

    def unready(self) -> Trouble | None:
        """Return why it has no values yet, and what to do; None where it has."""
        return None

    def ready(self) -> Any:
        """Return the native object; raises `InputError` where it has no values yet."""
        trouble = self.unready()
        if trouble:
            msg = f"{self.path!r} {trouble[0]}\nHint: {trouble[1]} before the diff"
            raise InputError(msg)
        return self.native

    @abstractmethod
    def remembered(self) -> Callable[[], None]:
        """Return what puts its gradient, the very same object, and whether it is trained back as they are now."""

    def kept(self) -> Callable[[], None]:
        """Return what puts its values back as they are now, bit for bit."""
        return partial(self.assign, np.array(self.view()))


class TreeModel(Model):
    """A model that is a tree of modules, of which each holds tensors and runs hooks around its calls.

    Subclasses say how to look into a native module (`children`, `tensors`), how to register hooks (`register`), and how
    to exchange a tensor's values (`cast`, `storage`, `hold`), or override what asks for these (`walk`, `held`,
    `attach`, `lifted`). ``module`` and ``parameter`` are the classes that wrap what is found. `Attributes` says what
    ``tables`` and ``modes`` are.
    """

    module: ClassVar[type[Module]]
    parameter: ClassVar[type[TensorParameter]]
    tables: ClassVar[tuple[str, ...]] = ()
    modes: ClassVar[tuple[str, ...]] = ("training",)
    called: ClassVar[str] = "submodule"
    """What the framework calls a module below the root."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        super().__init__(native, adapter)
        self._known: dict[int, Module] = {}
        self.require_watchable()

    # What is in the tree ------------------------------------------------------------------------------------

    def children(self, native: Any) -> Iterable[tuple[str, Any]]:
        """Return the modules that a native module holds, by name; what is None is left out. `walk` asks for it."""
        raise NotImplementedError

    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the tensors that a native module holds, by name, and whether they are buffers; for `held`."""
        raise NotImplementedError

    def walk(self) -> Iterator[tuple[str, Any]]:
        """Yield every native module with every path under which it hangs, parents first."""
        return walk(self.native, self.children)

    def natives(self) -> Iterator[tuple[str, Any]]:
        """Yield every native module once, with its first path, parents first."""
        seen: set[int] = set()
        for path, native in self.walk():
            if id(native) not in seen:
                seen.add(id(native))
                yield path, native

    def modules(self) -> Mapping[str, Module]:
        """Return every module once, by its first path; the wrappers stay the same from call to call."""
        return {path: self._wrapped(path, native) for path, native in self.natives()}

    def _wrapped(self, path: str, native: Any) -> Module:
        known = self._known.get(id(native))
        if known is None or known.native is not native or known.path != path:
            known = self._known[id(native)] = self.module(path, native, self.adapter.rule(native))
        return known

    def held(self) -> Iterator[tuple[str, Any, bool]]:
        """Yield every native tensor with every path under which it hangs, and whether it is a buffer."""
        for path, module in self.walk():
            for name, native, buffer in self.tensors(module):
                yield f"{path}.{name}" if path else name, native, buffer

    def parameters(self) -> Mapping[str, TensorParameter]:
        """Return every parameter and buffer once, module by module, in the order of registration."""
        found: dict[int, tuple[Any, bool, dict[str, None]]] = {}
        for path, native, buffer in self.held():
            found.setdefault(id(native), (native, buffer, {}))[2][path] = None
        wrapped = (self.wrap_parameter(native, buffer, tuple(paths)) for native, buffer, paths in found.values())
        return {parameter.path: parameter for parameter in wrapped}

    def wrap_parameter(self, native: Any, buffer: bool, paths: tuple[str, ...]) -> TensorParameter:
        """Return the wrapper of a parameter or buffer."""
        return self.parameter(paths[0], native, buffer=buffer, paths=paths)

    @property
    def device(self) -> str:
        """Return where the parameters and buffers lie."""
        places = {self.adapter.tensor(native).device for _, native, _ in self.held()}
        return ",".join(sorted(places)) or "cpu"

    # Hooks --------------------------------------------------------------------------------------------------

    def trouble(self, native: Any) -> Trouble | None:
        """Return what keeps hooks on a native module from running, and what to do; the root is asked first."""
        return None

    def require_watchable(self) -> None:
        """Raise `UnwatchableModel` where a module would not run its hooks, and say what to pass instead."""
        for path, native in self.natives():
            trouble = self.trouble(native)
            if trouble:
                name = qualified_name(native)
                where = f"the {self.called} {path!r} ({name})" if path else f"the model ({name})"
                msg = f"{where} {trouble[0]}\nHint: {trouble[1]}"
                raise UnwatchableModel(msg)

    def register(
        self, native: Any, enter: Callable[..., Any], leave: Callable[..., Any]
    ) -> Iterable[Callable[[], Any]]:
        """Register hooks, one by one, and yield what removes each, behind those that are registered already.

        ``enter(native, args, kwargs)`` returns None or ``(args, kwargs)``, ``leave(native, args, kwargs, output)`` None
        or an output.
        """
        raise NotImplementedError

    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls, but for those that recomputation repeats in the backward pass."""
        self.require_watchable()
        hook = Hook()
        try:
            for module in self.modules().values():
                enter, leave = partial(self.enter, listener, module), partial(self.leave, listener, module)
                for remove in self.register(module.native, enter, leave):
                    hook.add(remove)
        except BaseException:
            hook.close()
            raise
        return hook

    def repeated(self) -> bool:
        """Return whether a call happens within the backward pass, where only recomputation calls modules."""
        return False

    def enter(self, listener: Listener, module: Module, _: Any, args: Any, kwargs: Any) -> Any:
        """Report that a call begins."""
        return None if self.repeated() else listener.enter(module, args, kwargs)

    def leave(self, listener: Listener, module: Module, _: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """Report that a call ended."""
        return None if self.repeated() else listener.leave(module, args, kwargs, output)

    # Back as it was -----------------------------------------------------------------------------------------

    def machinery(self) -> Collection[str]:
        """Return the names of the attributes that the framework itself keeps on every module."""
        return ()

    def _attributes(self) -> list[Callable[[], None]]:
        names = self.machinery()
        return [Attributes(native, names, self.tables, self.modes).restore for _, native in self.natives()]

    def changing(self) -> Iterable[TensorParameter]:
        """Return the parameters whose values a run may change: buffers."""
        return (parameter for parameter in self.parameters().values() if parameter.buffer)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back gradients, requires_grad, modes, plain attributes, and buffers bit for bit on leaving."""
        with ExitStack() as stack:
            for restore in self._attributes():
                stack.callback(restore)
            for parameter in self.parameters().values():
                stack.callback(parameter.remembered())
            for parameter in self.changing():
                stack.callback(parameter.kept())
            yield

    def evaluate(self) -> None:
        """Put every module into evaluation mode."""
        for _, native in self.natives():
            native.training = False

    def liftable(self) -> Iterable[TensorParameter]:
        """Return the parameters that `lifted` holds in another dtype."""
        return self.parameters().values()

    def cast(self, native: Any, dtype: str) -> Any:
        """Return a tensor with the values of another in a wider dtype, without its history."""
        raise NotImplementedError

    def storage(self, native: Any) -> Any:
        """Return what holds a native tensor's values."""
        raise NotImplementedError

    def hold(self, native: Any, storage: Any) -> None:
        """Put other values under a native tensor; a gradient of another dtype goes."""
        raise NotImplementedError

    def computing_in(self, dtype: str) -> AbstractContextManager[Any]:
        """Let what a forward makes without naming a dtype be of this one within."""
        return nullcontext()

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold floating tensors in at least ``dtype``, the default dtype too; put the old storages back after.

        Objects stay the same, only their storage is exchanged: so tied parameters stay tied, and whoever holds one
        sees the wider values. Raises `LiftError` where a tensor cannot be moved.
        """
        if dtype not in COMPLEX:
            msg = f"a model cannot be lifted to {dtype!r}\nHint: lift to one of {', '.join(COMPLEX)}"
            raise LiftError(msg)
        return self._lifted(dtype)

    @contextmanager
    def _lifted(self, dtype: str) -> Iterator[None]:
        with ExitStack() as stack:
            for restore in self._attributes():
                stack.callback(restore)
            done = {id(parameter.native) for parameter in self.liftable()}
            for parameter in self.changing():
                if wider(parameter.dtype, dtype) is None:
                    stack.callback(parameter.kept())
            for parameter in self.liftable():
                wide = wider(parameter.dtype, dtype)
                if wide is not None:
                    stack.callback(parameter.remembered())
                    stack.callback(self._exchanged(parameter, wide))
            for _, native in self.natives():
                self._lift_attributes(native, dtype, done)
            stack.enter_context(self.computing_in(dtype))
            yield

    def _exchanged(self, parameter: TensorParameter, wide: str) -> Callable[[], None]:
        native, dtype = parameter.native, parameter.dtype
        try:
            old = self.storage(native)
            self.hold(native, self.storage(self.cast(native, wide)))
        except Exception as error:
            msg = f"{parameter.path!r} ({type(native).__qualname__}, {dtype}) cannot be held in {wide}: {error}"
            raise LiftError(msg) from error
        return partial(self.hold, native, old)

    def _lift_attributes(self, module: Any, dtype: str, done: Collection[int]) -> None:
        """Lift tensors that a module keeps as plain attributes, or in a list or dict of its own."""
        machinery, adapter = self.machinery(), self.adapter

        def wanted(value: Any) -> bool:
            return adapter.is_tensor(value) and id(value) not in done

        def widened(_: str, value: Any) -> Any:
            wide = wider(adapter.tensor(value).dtype, dtype)
            return value if wide is None else self.cast(value, wide)

        for name, value in list(vars(module).items()):
            if name not in machinery and (isinstance(value, list | tuple | dict) or adapter.is_tensor(value)):
                vars(module)[name] = map_leaves(value, wanted, widened)
