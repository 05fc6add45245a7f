"""Follow one run's dataflow: which parameters' values reach which, through whatever operations stand in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import attrs

from padiff.adapter import Hook, Listener, Model, Module, Parameter, Tensor, handed_on
from padiff.kinds import CATALOGUE, VIEWS, computes, is_in_place, short_name
from padiff.numerics import fingerprint
from padiff.paths import parent
from padiff.pytree import leaves
from padiff.recording._axes import weak
from padiff.recording._contracted import matrices_of, summed_axis
from padiff.trace import INPUT, Flow, Source, called, from_input, joint, to_output

_EVEN = frozenset({"add", "mul", "concat", "maximum", "minimum", "stack"})
"""Operations of which the order of the operands tells nothing."""
_PASSED_ON = VIEWS | {"dropout", "flatten", "sequential", "unfold"}
"""Operations that tell nothing of how a value was used."""
_AS_SEEN = {"einsum": "matmul", "tensordot": "matmul"}
"""Operations that others may compute just as well."""
_LAYERS = {"matmul", *CATALOGUE}
"""Operations that are a layer of the parameters that they are given: a module of that kind tells nothing of them."""


@attrs.frozen
class _Made:
    """What a tensor was made of: values of holders that data went through, or parameters alone."""

    sources: frozenset[Source] = frozenset()
    holders: frozenset[str] = frozenset()

    @property
    def whole(self) -> frozenset[Source]:
        """Return both as sources."""
        return self.sources | {(holder, frozenset()) for holder in self.holders}


_CONSTANT = _Made()


def refused(error: Exception) -> Flow:
    """Return no dataflow, and why."""
    return Flow({}, refused=f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")


class Follower(Listener):
    """A listener that knows of each tensor what it was made of, beside another one, of which what it runs is no part.

    Where it cannot go on following, the run goes on, and its `flow` says why.
    """

    def __init__(self, model: Model, listener: Listener) -> None:
        self.takes: dict[str, set[Source]] = {}
        self.gives: frozenset[Source] = frozenset()
        self.contracted: dict[str, int] = {}
        self._listener = listener
        self._refused: Flow | None = None
        self._adapter = model.adapter
        self._made: dict[int, tuple[Callable[[], Any], _Made]] = {}
        """Of tensors, by the identity of objects that are looked at before they are believed."""
        self._last: frozenset[Source] = frozenset()
        self._kept = model
        parameters = model.parameters()
        self._held = {id(one.native): path for path, one in parameters.items()}
        self._owners = {parent(path) for one in parameters.values() for path in one.paths}
        self._parents = {parent(path) for path in model.modules() if path}
        self._closed: dict[Module, bool] = {}
        self._open: list[Module] = []
        self._deep = 0
        """How many calls are open that are not looked into."""
        self._thread = threading.get_ident()
        self._intercepting = Hook()

    @property
    def flow(self) -> Flow:
        """Return the dataflow of the run that ended, or why it could not be followed."""
        takes = {key: frozenset(sources) for key, sources in self.takes.items()}
        return self._refused or Flow(takes, self.gives, self.contracted)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Listen to the model within."""
        try:
            with self._kept.attach(self):
                yield
        finally:
            self.close()

    def close(self) -> None:
        """Intercept nothing any longer: a call that raised did not end."""
        self._intercepting.close()

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Begin a call."""
        self._deep += 1
        try:
            changed = self._listener.enter(module, args, kwargs)
        finally:
            self._deep -= 1
        self._guarded(self._begun, module, changed or (args, kwargs))
        return changed

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """End a call."""
        self._guarded(self._left, module, (args, kwargs), output)
        self._deep += 1
        try:
            return self._listener.leave(module, args, kwargs, output)
        finally:
            self._deep -= 1

    def fail(self, module: Module) -> None:
        """Forget a call that made nothing."""
        if not self._refused:
            self._deep -= self._is_closed(self._open.pop())
        self._listener.fail(module)

    def _guarded(self, note: Callable[..., None], *given: Any) -> None:
        if self._refused:
            return
        try:
            note(*given)
        except Exception as error:  # what cannot be followed is matched without, and reported
            self._refused = refused(error)

    def _begun(self, module: Module, given: Any) -> None:
        """Name what the model is given; what a closed module does is its own.

        Functions are intercepted while the model runs, where its adapter can.
        """
        if not module.path:
            self._open.clear()  # one before it may have raised
            self._deep = 0
        if not self._open:
            self._intercepting.close()
            for tensor in self._tensors(given):
                if self._known(tensor) is None:
                    self._put(tensor, _Made(frozenset({(INPUT, from_input(tensor.read(fingerprint)))})))
            if "operations" in self._adapter.capabilities:
                self._intercepting = self._kept.intercept_operations(self.intercept)
        self._open.append(module)
        self._deep += self._is_closed(module)

    def _left(self, module: Module, given: Any, output: Any) -> None:
        while True:
            last = self._open.pop()
            self._deep -= self._is_closed(last)
            if last.native is module.native:
                break
        if not self._open:
            self._intercepting.close()
        if not self._deep:
            self._deep += 1
            self._ended(module, given, output)
            self._deep -= 1

    def _ended(self, module: Module, given: Any, output: Any) -> None:
        taken = [self._of(tensor).whole for tensor in self._tensors(given)]
        sources = frozenset().union(*taken)
        if self._is_closed(module):
            self._close(module, sources, output)
        else:
            for tensor in self._tensors(output):
                if self._known(tensor) is None:
                    self._put(tensor, _Made(sources))
        if not self._open:
            for place, tensor in enumerate(self._tensors(output)):
                self.gives |= {(key, names | to_output(place)) for key, names in self._of(tensor).whole}

    def _close(self, module: Module, sources: frozenset[Source], output: Any) -> None:
        assert module.rule is not None
        # What holds nothing (a norm without weights) is no place: called twice, it would tie what is apart.
        if module.rule.units_of(module.native) and not self._is_bare(module):
            key = called(module.path)
            self.takes.setdefault(key, set()).update(sources)
            made = _Made(frozenset({(key, frozenset())}))
        else:
            made = _Made(_through(sources, module.rule.kind))
        for tensor in self._tensors(output):
            self._put(tensor, made)

    def intercept(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, and note what it makes of what."""
        if self._refused or self._deep or not self._open or threading.get_ident() != self._thread:
            return handed_on(function, args, kwargs)
        sets = name.endswith("__setitem__")
        name = name.removesuffix(".__get__")  # x.T
        if not (sets or computes(name)):
            return handed_on(function, args, kwargs)
        self._deep += 1
        try:
            made: list[_Made] = []
            # One number says which, as code could: the weights of an expert are not made of what its router gave.
            given = list(self._tensors((args, kwargs)))
            operation = _AS_SEEN.get(short_name(name), short_name(name))
            taken = given[:1] + [one for one in given[1:] if one.shape or operation != "getitem"]
            self._guarded(lambda: made.append(self._combined([self._of(tensor) for tensor in taken], operation)))
            output = handed_on(function, args, kwargs)
            changed = sets or is_in_place(name) or bool(kwargs.get("inplace")) or kwargs.get("out") is not None
            self._guarded(self._noted, given, [*self._tensors(output), *(given[:1] if sets else ())], changed, *made)
            self._guarded(self._contracted, given, [*self._tensors(output)])
            return output
        finally:
            self._deep -= 1

    def _noted(self, given: list[Tensor], found: list[Tensor], changed: bool, made: _Made) -> None:
        natives = {id(tensor.identity) for tensor in given}
        for tensor in found:
            if changed or id(tensor.identity) not in natives:
                self._put(tensor, made)

    def _contracted(self, given: list[Tensor], found: list[Tensor]) -> None:
        """Note which axis of a matrix, or of stacked ones, an operation sums with data, a bias behind it or not."""
        made = [(tensor, self._of(tensor).holders) for tensor in given] if self._matrices and len(found) == 1 else []
        data = [tensor for tensor, holders in made if not holders]
        if len(data) != 1:
            return
        used = {path: tensor.shape for tensor, holders in made for path in self._matrices.keys() & holders}
        used = {path: shape for path, shape in used.items() if matrices_of(self._matrices[path].shape, shape)}
        if len(used) != 1 or used.keys() <= self.contracted.keys():
            return
        ((path, shape),) = used.items()
        biases = [tensor for tensor, holders in made if holders]
        axis = summed_axis(self._matrices[path], shape, data[0], found[0], biases)
        if axis is not None:
            self.contracted[path] = axis

    def _combined(self, given: list[_Made], name: str) -> _Made:
        """Return what an operation makes; data that meets parameters goes on as theirs."""
        if len(given) == 1 and name in _PASSED_ON:
            return given[0]
        holders = frozenset().union(*(one.holders for one in given))
        sources = frozenset().union(*(one.sources for one in given))
        if holders and not sources:
            return _Made(frozenset(), holders)
        for holder in sorted(holders):
            self.takes.setdefault(holder, set()).update(sources)
        if holders:
            made = frozenset((holder, frozenset[str]()) for holder in holders)
            return _Made(made if name in _LAYERS else _through(made, name))
        keys = [{key for key, _ in one.sources} for one in given]
        if set().union(*keys) in keys:
            return _Made(_through(sources, name))
        return _Made(frozenset({(self._joined(given, name), frozenset())}))

    def _joined(self, given: list[_Made], name: str) -> str:
        """Return the holder that an operation is whose operands come from different ones."""
        key = joint(name, len(self.takes))
        self.takes[key] = set()
        for place, one in enumerate(given):
            use = name if name in _EVEN else f"{name} {place}"
            self.takes[key].update(_through(one.sources, use))
        return key

    def _is_closed(self, module: Module) -> bool:
        """Return whether a module is not looked into: the catalogue says all of it."""
        known = self._closed.get(module)
        if known is None:
            rule = module.rule
            units = rule is not None and bool(rule.units_of(module.native))
            known = self._closed[module] = units or (rule is not None and self._is_bare(module))
        return known

    def _is_bare(self, module: Module) -> bool:
        """Return whether a module holds neither parameters nor modules."""
        return module.path not in self._owners and module.path not in self._parents

    def _tensors(self, value: Any) -> Iterable[Tensor]:
        for _, native in leaves(value, self._adapter.is_tensor):
            yield self._adapter.tensor(native)

    def _known(self, tensor: Tensor) -> _Made | None:
        path = self._held.get(id(tensor.native))
        if path is not None:
            return _Made(frozenset(), frozenset({path}))
        known = self._made.get(id(tensor.identity))
        return known[1] if known is not None and known[0]() is tensor.identity else None

    def _of(self, tensor: Tensor) -> _Made:
        known = self._known(tensor)
        if known is not None:
            return known
        # Made by code that nothing intercepts: a view of a parameter, or else the order of the run tells best of what.
        extent = tensor.extent()
        path = None if extent is None else self._lies.get(extent[0])
        if path is not None:
            return _Made(frozenset(), frozenset({path}))
        return _Made(self._last) if tensor.differentiable else _CONSTANT

    @cached_property
    def _lies(self) -> dict[int, str]:
        """Return where the parameters lie."""
        extents = ((path, one.extent()) for path, one in self._kept.parameters().items())
        return {extent[0]: path for path, extent in extents if extent is not None}

    @cached_property
    def _matrices(self) -> dict[str, Parameter]:
        """Return the parameters that may be matrices, of which no layer's rule says which way they lie."""
        closed = {path for path, module in self._kept.modules().items() if self._is_closed(module)}
        found = self._kept.parameters().items()
        return {path: one for path, one in found if parent(path) not in closed and len(one.shape) > 1}

    def _put(self, tensor: Tensor, made: _Made) -> None:
        self._made[id(tensor.identity)] = weak(tensor.identity), made
        if made.sources:
            self._last = made.sources


def _through(sources: frozenset[Source], name: str) -> frozenset[Source]:
    return sources if name in _PASSED_ON else frozenset((key, names | {name}) for key, names in sources)
