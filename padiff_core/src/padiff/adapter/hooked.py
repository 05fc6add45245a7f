"""Models whose modules run hooks around their calls: what torch, and frameworks that follow it, have in common."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, partial
from typing import Any, ClassVar, Protocol

from padiff.adapter._caches import Cache
from padiff.adapter._listening import Hook, Intercept, Listener
from padiff.adapter._memory import Extent
from padiff.adapter._module import Module
from padiff.adapter.dtypes import COMPLEX, wider
from padiff.adapter.frameworks import FrameworkAdapter
from padiff.adapter.restoring import Attributes, Keeper, machinery_of
from padiff.adapter.trees import TensorParameter, TreeModel, walk
from padiff.errors import InputError, LiftError
from padiff.numerics import difference
from padiff.paths import joined
from padiff.pytree import leaves, map_leaves


class State(Protocol):
    """A module of functions that put a model's tensors back as they were, and other storages under them."""

    def remembered(self, native: Any) -> Callable[[], None]:
        """Return what puts gradient, the very same object, and whether it is trained back as they are now."""

    def kept(self, native: Any) -> Callable[[], None]:
        """Return what puts the values back as they are now, bit for bit."""

    def cast(self, native: Any, dtype: str) -> Any:
        """Return a tensor with the values of another in a wider dtype, without its history."""

    def storage(self, native: Any) -> Any:
        """Return what holds a native tensor's values."""

    def hold(self, native: Any, storage: Any) -> None:
        """Put other values under a native tensor; a gradient of another dtype goes."""

    def computing_in(self, dtype: str) -> AbstractContextManager[Any]:
        """Let what a forward makes without naming a dtype be of this one within."""


class HookedModule(Module):
    """A native module that knows its mode, and whose users write its ``body``."""

    body: ClassVar[str] = "forward"
    """The method that users override."""

    @property
    def training(self) -> bool:
        """Return whether it is in training mode."""
        return bool(self.native.training)

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the bound method that users override."""
        bound: Callable[..., Any] = getattr(self.native, self.body)
        return bound


class HookedModel(TreeModel):
    """A tree of modules that each hold their children and tensors, and run hooks around their calls.

    Subclasses say how to look into a native module (`children`, `tensors`); ``base`` is the framework's class of
    modules, ``state`` knows its tensors. `Attributes` says what ``tables`` and ``modes`` are.
    """

    adapter: FrameworkAdapter
    module: ClassVar[type[Module]] = HookedModule
    base: ClassVar[type]
    state: State
    tables: ClassVar[tuple[str, ...]] = ()
    modes: ClassVar[tuple[str, ...]] = ("training",)
    switches: ClassVar[tuple[str, ...]] = ("train", "eval")
    """What puts a native module into training mode, and into evaluation mode."""
    registers: ClassVar[tuple[str, str]] = ("register_forward_pre_hook", "register_forward_hook")
    """What registers hooks at a native module, behind those that are there already.

    One gets ``(native, args, kwargs)`` and returns None or ``(args, kwargs)``; the other gets the output too, and
    returns None or an output.
    """

    @abstractmethod
    def children(self, native: Any) -> Iterable[tuple[str, Any]]:
        """Return the modules that a native module holds, by name; what is None is left out."""

    @abstractmethod
    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the tensors that a native module holds, by name, and whether they are buffers."""

    def walk(self) -> Iterator[tuple[str, Any]]:
        """Yield every native module with every path under which it hangs, parents first."""
        return walk(self.native, self.children)

    def held(self) -> Iterator[tuple[str, Any, bool]]:
        """Yield every native tensor with every path under which it hangs, and whether it is a buffer."""
        for path, module in self.walk():
            for name, native, buffer in self.tensors(module):
                yield joined(path, name), native, buffer

    # Hooks --------------------------------------------------------------------------------------------------

    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls, but for those that recomputation repeats in the backward pass."""
        self.require_watchable()
        with Hook().opening() as hook:
            for module in (self._wrapped(*one) for one in self.natives()):
                ends = partial(self.enter, listener, module), partial(self.leave, listener, module)
                for name, end in zip(self.registers, ends, strict=True):
                    hook.add(self.register(module.native, name, end))
        return hook

    def register(self, native: Any, name: str, end: Callable[..., Any]) -> Callable[[], Any]:
        """Register a hook at a native module by the name of one of ``registers``; return what removes it."""
        remove: Callable[[], Any] = getattr(native, name)(end, with_kwargs=True).remove
        return remove

    def repeated(self) -> bool:
        """Return whether a call is not to be reported: in a backward pass recomputation alone calls modules."""
        return False

    def enter(self, listener: Listener, module: Module, _: Any, args: Any, kwargs: Any) -> Any:
        """Report that a call begins."""
        return None if self.repeated() else listener.enter(module, args, kwargs)

    def leave(self, listener: Listener, module: Module, _: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """Report that a call ended."""
        return None if self.repeated() else listener.leave(module, args, kwargs, output)

    def intercept_operations(self, intercept: Intercept) -> Hook:
        """Let ``intercept`` be called in place of the framework's functions until the hook is closed."""
        return self.adapter.operations.intercept_functions(self.native, intercept)

    # Back as it was -----------------------------------------------------------------------------------------

    def _attributes(self, natives: Iterable[tuple[str, Any]], keeper: Keeper | None = None) -> dict[str, Attributes]:
        return {
            path: Attributes(native, self.machinery(native), self.tables, self.modes, keeper)
            for path, native in natives
        }

    def machinery(self, native: Any) -> Collection[str]:
        """Return the names of the attributes of a native module that are the framework's own."""
        return machinery_of(self.base)

    def _keeper(self, parameters: Sequence[TensorParameter]) -> Keeper:
        """Return what keeps tensors that are no parameters or buffers, nor lie in their memory."""
        known = {id(parameter.native) for parameter in parameters}
        spans = cache(lambda: sorted(_extents(parameters)))  # where a tensor hangs at an attribute at all

        def keep(native: Any) -> tuple[Callable[[], bool], Callable[[], None]] | None:
            tensor = self.adapter.tensor(native)
            extent = tensor.extent()
            if id(native) in known or (extent is not None and _overlaps(extent, spans())):
                return None
            before, back, attached = tensor.numpy(), self.state.kept(native), self.state.remembered(native)

            def is_other() -> bool:
                now = self.adapter.tensor(native).view()
                return before.shape != now.shape or not difference(before, now).equal

            def restore() -> None:
                attached()
                if is_other():
                    back()

            return is_other, restore

        return Keeper(self.adapter.is_tensor, keep)

    def changing(self, parameters: Iterable[TensorParameter]) -> Iterable[TensorParameter]:
        """Return, of all parameters, those whose values a run may change: buffers."""
        return (parameter for parameter in parameters if parameter.buffer)

    @contextmanager
    def preserved(self) -> Iterator[Callable[[], list[str]]]:
        """Put back gradients, requires_grad, modes, plain attributes, and buffers bit for bit on leaving.

        Gives what tells the attributes of users' own modules that hold something else than they did.
        """
        parameters, natives = list(self.parameters().values()), list(self.natives())
        attributes = self._attributes(natives, self._keeper(parameters))
        with ExitStack() as stack:
            for one in attributes.values():
                stack.callback(one.restore)
            for parameter in parameters:
                stack.callback(self.state.remembered(parameter.native))
            for parameter in self.changing(parameters):
                stack.callback(self.state.kept(parameter.native))
            yield lambda: [
                joined(path, name)
                for path, native in natives
                if self.adapter.rule(native) is None
                for name in attributes[path].changed()
            ]

    def rebuild(self) -> list[str]:
        """Put modules with code of their own for a change of mode into training mode and back: see `Cache`."""
        natives = list(self.natives())
        caches = [(path, native, Cache(native, self.base, self.switches)) for path, native in natives]
        caches = [one for one in caches if one[2]]
        found = []
        with ExitStack() as stack:
            for _, native in natives if caches else ():
                modes = {name: vars(native)[name] for name in self.modes if name in vars(native)}
                stack.callback(vars(native).update, modes)
            for parameter in self.parameters().values() if caches else ():
                stack.callback(self.state.remembered(parameter.native))
            for path, native, cache in caches:
                for _, tensor, _ in self.tensors(native):
                    stack.callback(self.state.kept(tensor))  # weights may be merged and taken apart again
                attributes = Attributes(native, machinery_of(self.base), self.tables, self.modes)
                found += [joined(path, name) for name in cache.rebuilt(attributes, self._views)]
        return found

    def _views(self, value: Any) -> list[Any]:
        """Return the values of the tensors in an attribute, which is no parameter, module, or table of them."""
        wanted = (native for _, native in leaves(value, self.adapter.is_tensor))
        return [self.adapter.tensor(native).view() for native in wanted]

    def evaluate(self) -> None:
        """Put every module into evaluation mode."""
        for _, native in self.natives():
            native.training = False

    def liftable(self) -> Iterable[TensorParameter]:
        """Return the parameters that `lifted` holds in another dtype."""
        return self.parameters().values()

    def computing_in(self, dtype: str) -> AbstractContextManager[Any]:
        """Let what a forward makes without naming a dtype be of this one within."""
        return self.state.computing_in(dtype)

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
            for one in self._attributes(self.natives()).values():
                stack.callback(one.restore)
            done = {id(parameter.native) for parameter in self.liftable()}
            for parameter in self.changing(self.parameters().values()):
                if wider(parameter.dtype, dtype) is None:
                    stack.callback(self.state.kept(parameter.native))
            for parameter in self.liftable():
                wide = wider(parameter.dtype, dtype)
                if wide is not None:
                    stack.callback(self.state.remembered(parameter.native))
                    stack.callback(self._exchanged(parameter, wide))
            for _, native in self.natives():
                self._lift_attributes(native, dtype, done)
            stack.enter_context(self._widening(dtype))
            stack.enter_context(self.computing_in(dtype))
            yield

    def _widening(self, dtype: str) -> Hook:
        """Let modules with parameters of this type take it also where code makes a value of no input in a narrower one.

        Of their own type they took it before the lift, where such code (a table of angles) named that type.
        """
        adapter = self.adapter

        def narrow(value: Any) -> bool:
            if not adapter.is_tensor(value):
                return False
            tensor = adapter.tensor(value)
            return not tensor.differentiable and wider(tensor.dtype, dtype) == dtype

        def widen(_: Any, args: Any, kwargs: Any) -> Any:
            given = args, kwargs
            if not any(narrow(native) for _, native in leaves(given, adapter.is_tensor)):
                return None
            return map_leaves(given, narrow, lambda _, value: self.state.cast(value, dtype))

        with Hook().opening() as hook:
            for _, native in self.natives():
                held = (adapter.tensor(one).dtype for _, one, buffer in self.tensors(native) if not buffer)
                if dtype in held:
                    hook.add(self.register(native, self.registers[0], widen))
        return hook

    def _exchanged(self, parameter: TensorParameter, wide: str) -> Callable[[], None]:
        native, dtype = parameter.native, parameter.dtype
        try:
            old = self.state.storage(native)
            self.state.hold(native, self.state.storage(self.state.cast(native, wide)))
        except Exception as error:
            msg = f"{parameter.path!r} ({type(native).__qualname__}, {dtype}) cannot be held in {wide}: {error}"
            raise LiftError(msg) from error
        return partial(self.state.hold, native, old)

    def _lift_attributes(self, module: Any, dtype: str, done: Collection[int]) -> None:
        """Lift tensors that a module keeps as plain attributes, or in a list or dict of its own."""
        machinery, adapter = machinery_of(self.base), self.adapter

        def wanted(value: Any) -> bool:
            return adapter.is_tensor(value) and id(value) not in done

        def widened(_: str, value: Any) -> Any:
            wide = wider(adapter.tensor(value).dtype, dtype)
            return value if wide is None else self.state.cast(value, wide)

        for name, value in list(vars(module).items()):
            if name not in machinery:
                vars(module)[name] = map_leaves(value, wanted, widened)


def _extents(parameters: Iterable[TensorParameter]) -> Iterator[Extent]:
    """Yield where parameters lie; a lazy module's lie nowhere before its first run."""
    for parameter in parameters:
        with suppress(InputError):
            extent = parameter.extent()
            if extent is not None:
                yield extent


def _overlaps(extent: Extent, spans: list[Extent]) -> bool:
    """Return whether a range of memory shares bytes with one of several: sorted, and each apart from the others."""
    index = bisect_right(spans, (extent[1] - 1, extent[1])) - 1
    return index >= 0 and spans[index][1] > extent[0]
