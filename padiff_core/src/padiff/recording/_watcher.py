"""Follow one run under hooks and build its tree of calls; what to do with the tensors is up to subclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from padiff.adapter import Adapter, Hook, Listener, Module, Tensor
from padiff.paths import joined, last
from padiff.progress import call_ended
from padiff.pytree import Memo, can_change, copied, exchanged, held_in, leaves
from padiff.recording._axes import order_of, read_as, weak
from padiff.recording._describe import module_record
from padiff.recording._frames import Stack
from padiff.recording._live import Live
from padiff.recording._order import Order
from padiff.trace import Call, Frame, Leaf, ModuleRecord, Slot


class Tokens:
    """Names of the tensors of a run: the same object, unchanged in place and read in one order, gets the same token.

    Holds no tensor alive where the framework allows weak references.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, Order | None], tuple[Callable[[], Any], int, int]] = {}
        self._next = 0

    def of(self, tensor: Tensor) -> tuple[int, bool]:
        """Return the tensor's token, and whether it is new."""
        identity, version = tensor.identity, tensor.version
        key = id(identity), order_of(tensor)
        known = self._known.get(key)
        if known is not None and known[0]() is identity and known[1] == version:
            return known[2], False
        self._next += 1
        self._known[key] = (weak(identity), version, self._next)
        return self._next, True


class Watcher(Listener):
    """A listener that builds the tree of calls; subclasses see each call's tensors through `arrive` and `depart`.

    ``live`` knows the paths of the whole model where only a part of it, ``top``, runs.
    """

    def __init__(self, adapter: Adapter, live: Live | None = None, top: ModuleRecord | None = None) -> None:
        self.adapter = adapter
        self.calls: list[Call] = []
        self.tokens = Tokens()
        self.hooks = Hook()
        self.input_gradients: dict[int, NDArray[Any]] = {}
        """Index of a tensor in the arguments -> the gradient that reached it, behind every hook of the model."""
        self.results: list[Any] = []
        """What the outermost call gave, as its caller got it: native tensors, by output index."""
        self.live = live
        """What is live of the whole model, where that is known."""
        self._top = top
        self._stack: list[Call] = []
        self._modules: list[Module] = []
        """The modules of the open calls."""
        self._fed: dict[Call, set[int]] = {}
        """Open call -> the tokens of what it was fed in place of its inputs."""
        self._records: dict[tuple[Module, str | None], ModuleRecord] = {}
        self._ordinals: dict[str, int] = {}
        self._names: dict[Any, list[str]] = {}
        self._callers = Stack(adapter)

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """See the inputs; return native replacements by input index."""
        return {}

    def depart(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """See the outputs; return native replacements by output index."""
        return {}

    def opened(self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """See a call and its arguments, each tensor replaced by a `Slot`, before `arrive`."""

    def closed(self, call: Call, module: Module) -> None:
        """See a call's end, before `depart`."""

    @property
    def running(self) -> bool:
        """Return whether a call is under way: gradients that arrive then are of the model's own code (a penalty)."""
        return bool(self._stack)

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Open a call."""
        parent = self._stack[-1] if self._stack else None
        record = self._record_of(module, parent)
        ordinal = self._ordinals.get(record.path, 0)
        self._ordinals[record.path] = ordinal + 1
        frames: tuple[Frame, ...] = ()
        if parent is not None:
            frames = self._callers.frames()
        call = Call(len(self.calls), record, ordinal, parent, module.training, frames)
        self.calls.append(call)
        if parent is not None:
            parent.children.append(call)
        self._stack.append(call)
        self._modules.append(module)

        tensors: list[Tensor] = []

        def take(path: str, native: Any) -> Slot:
            tensor = self.adapter.tensor(native)
            tensors.append(tensor)
            call.inputs.append(self._leaf(path, tensor))
            return Slot(len(tensors) - 1)

        wanted, memo = self.adapter.is_tensor, Memo()
        paths = self._argument_paths(module, args)
        # Copies: what a call does to a cache that it was given must not show in what is kept of its arguments.
        kept = tuple(copied(value, wanted, take, path, memo) for value, path in zip(args, paths, strict=True))
        named = {name: copied(value, wanted, take, name, memo) for name, value in kwargs.items()}
        self.opened(call, module, kept, named)
        changed = self.arrive(call, tensors)
        if not changed:
            return None
        # Into the containers themselves: the caller's cache is to see what the call does to it.
        instead = (read_as(tensors[i], self.adapter, native) for i, native in changed.items())
        self._fed[call] = {self.tokens.of(tensor)[0] for tensor in instead}
        natives = iter([changed.get(i, tensor.native) for i, tensor in enumerate(tensors)])
        fed: tuple[Any, Any] = exchanged((args, kwargs), wanted, lambda _, native: next(natives))
        return fed

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Close a call."""
        call_ended()
        call = self._stack.pop()
        while self._modules.pop().native is not module.native:
            # A model that catches an exception leaves calls open that never return.
            call = self._stack.pop()
        self.closed(call, module)
        wanted = self.adapter.is_tensor
        tensors: list[Tensor] = []
        for path, native in leaves(output, wanted):
            tensor = self.adapter.tensor(native)
            tensors.append(tensor)
            call.outputs.append(self._leaf(path, tensor))
        returned = len(tensors)
        for leaf, tensor in self._left(call, module, args, kwargs, self._fed.pop(call, set())):
            tensors.append(tensor)
            call.outputs.append(leaf)
        changed = self.depart(call, tensors)
        natives = [changed.get(i, tensor.native) for i, tensor in enumerate(tensors)]
        if call.parent is None:
            self.results = natives
        if not changed:
            return None
        swaps = {id(tensors[i].native): natives[i] for i in range(returned, len(tensors))}
        if swaps:
            exchanged((args, kwargs), lambda value: id(value) in swaps, lambda _, native: swaps[id(native)])
        given = iter(natives)
        return exchanged(output, wanted, lambda path, native: next(given))

    def fail(self, module: Module) -> None:
        """Forget a call that made nothing."""
        call = self._stack.pop()
        self._modules.pop()
        self.calls.pop()
        self._ordinals[call.path] -= 1
        if call.parent is not None:
            call.parent.children.pop()

    def _left(
        self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], fed: set[int]
    ) -> Iterator[tuple[Leaf, Tensor]]:
        """Yield, as further outputs, what a call left in the lists, dicts and objects that it was given: in a cache."""
        wanted = self.adapter.is_tensor
        if module.operation or not any(not wanted(value) and can_change(value) for value in (*args, *kwargs.values())):
            return
        known = {leaf.token for leaf in (*call.inputs, *call.outputs)} | fed
        given = {**dict(zip(self._argument_paths(module, args), args, strict=True)), **kwargs}
        for path, native in held_in(given, wanted):
            tensor = self.adapter.tensor(native)
            leaf = self._leaf(path, tensor)
            if leaf.token not in known:
                known.add(leaf.token)
                yield leaf, tensor

    def _record_of(self, module: Module, parent: Call | None) -> ModuleRecord:
        """Return a module as plain data, under its path in the whole model."""
        if parent is None and self._top is not None:
            return self._top
        above = parent.path if module.operation and parent is not None else ""
        # What a module is, one run need not ask after another.
        known = self._records if self.live is None or module.operation else self.live.records
        key = module, above
        if key not in known:
            if module.operation:
                path = joined(above, last(module.path))
            else:
                path = module.path if self.live is None else self.live.path_of(module)
            known[key] = module_record(module, path)
        return known[key]

    def _leaf(self, path: str, tensor: Tensor) -> Leaf:
        token, new = self.tokens.of(tensor)
        leaf = Leaf(path, tensor.dtype, tensor.shape, token, tensor.differentiable)
        if new:
            self.meet(leaf, tensor)
        return leaf

    def open_call(self) -> Call | None:
        """Return the innermost call that has not returned yet."""
        return self._stack[-1] if self._stack else None

    def meet(self, leaf: Leaf, tensor: Tensor) -> None:
        """See a tensor for the first time in the run (or for the first time after an in-place change)."""

    def _argument_paths(self, module: Module, args: tuple[Any, ...]) -> list[str]:
        """Return what positional arguments are called; those that have no name, by their places."""
        function = getattr(module.forward, "__func__", module.forward)
        known = self._names if self.live is None or module.operation else self.live.names
        names = known.get(function)
        if names is None:
            names = known[function] = _positional(module.forward)
        return [*names[: len(args)], *(f"[{place}]" for place in range(len(names), len(args)))]


def _positional(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def fill(template: Any, natives: list[Any]) -> Any:
    """Return recorded arguments with each `Slot` replaced by the native tensor of its index."""
    return copied(template, lambda value: isinstance(value, Slot), lambda _, slot: natives[slot.index])
