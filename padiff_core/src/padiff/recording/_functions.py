"""Report the operations of a model's own code: functions, operators and tensor methods, as calls like any module's.

An operating model is the model itself, but these are reported to a listener too, as calls of modules of the call whose
code they stand in. A framework's own modules are not looked into. What each adapter does is to call back where one of
its functions is called; whose code that is, how the operation is called in any framework, and that one is not reported
inside of another, is decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from padiff.adapter import Adapter, Hook, Listener, Model, Module, handed_on
from padiff.adapter.delegating import DelegatingAdapter, DelegatingModel
from padiff.errors import InputError
from padiff.kinds import CATALOGUE, VIEWS, Rule, computes, is_in_place, short_name
from padiff.paths import joined
from padiff.pytree import leaves
from padiff.recording._frames import Origin, origin_of


class Operation(Module):
    """A function that the code of a module calls; ``native`` is a module of the framework that calls it."""

    operation = True

    def __init__(self, parent: Module, name: str, function: Callable[..., Any], native: Any, *, in_place: bool) -> None:
        short = short_name(name)
        super().__init__(joined(parent.path, short), native, Rule(short) if short in CATALOGUE else None)
        self.memory = "same" if in_place else "view" if short in VIEWS else "own"
        self._parent = parent
        self._name = name
        self._function = function

    @property
    def class_name(self) -> str:
        """Return the function's full name."""
        return self._name

    @property
    def training(self) -> bool:
        """Return whether the module whose code calls it is in training mode."""
        return self._parent.training

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the function."""
        return self._function

    @property
    def definition(self) -> None:
        """Return None: the line of an operation is where it is called."""
        return


def operating(model: Model, within: Collection[str] | None = None) -> Model:
    """Return a model of which its operations are traced too, or those in the code of the modules of some paths.

    Raises `InputError` where its adapter cannot.
    """
    adapter = model.adapter
    if "operations" not in adapter.capabilities:
        msg = f"operations were to be compared, and the {adapter.name} adapter does not offer that.\n"
        msg += "Hint: leave operations=True out; modules are compared as ever."
        raise InputError(msg)
    if within is None:
        return OperatingAdapter(model.adapter).model(model)
    modules = model.modules()
    return OperatingAdapter(model.adapter, [modules[path] for path in within if path in modules]).model(model)


def plain_model(model: Model) -> Model:
    """Return the model that an operating model is."""
    return model.inner if isinstance(model, _OperatingModel) else model


class OperatingAdapter(DelegatingAdapter):
    """An adapter whose models report their operations; it knows each of them again."""

    def __init__(self, inner: Adapter, within: Collection[Module] | None = None) -> None:
        super().__init__(inner)
        self._within = within
        """Modules of the whole model: in a part of it that runs by itself they have other paths."""
        self._asked = None if within is None else {id(module.native) for module in within}
        self._known: dict[tuple[int, str, Callable[..., Any]], Operation] = {}
        self._called: set[int] = set()
        """Identities of their native modules, which `_known` keeps alive."""
        self._users: dict[Any, bool] = {}

    def wrap(self, model: Any) -> Model:
        """Wrap a native model. In an operation that runs by itself there is none inside."""
        wrapped = self.inner.wrap(model)
        return wrapped if id(model) in self._called else self.model(wrapped)

    def model(self, model: Model) -> Model:
        """Return a model of the inner adapter's that reports its operations too."""
        return _OperatingModel(model, self)

    def operation(self, parent: Module, name: str, function: Callable[..., Any], *, in_place: bool) -> Operation:
        """Return the operation that a function is in the code of a module: the same one in every run."""
        key = id(parent.native), name, function
        known = self._known.get(key)
        if known is None:
            native = self.inner.as_module(function)
            known = self._known[key] = Operation(parent, name, function, native, in_place=in_place)
            self._called.add(id(native))
        return known

    def is_asked(self, module: Module) -> bool:
        """Return whether the code of a module is the user's, not the framework's, and one of those asked for."""
        if self._asked is not None and id(module.native) not in self._asked:
            return False
        code = getattr(module.forward, "__func__", module.forward)
        known = self._users.get(code)
        if known is None:
            definition = module.definition
            known = definition is not None and origin_of(definition[0], self.inner) is Origin.USER
            self._users[code] = known
        return known


class _OperatingModel(DelegatingModel):
    """A model that reports its operations too."""

    adapter: OperatingAdapter

    def attach(self, listener: Listener) -> Hook:
        """Report the calls of modules, and of operations in their code."""
        reporter = _Reporter(listener, self.adapter)
        with self.inner.attach(reporter).opening() as hook:
            hook.add(self.inner.intercept_operations(reporter.intercept).close)
        return hook


class OwnCode(Listener):
    """What passes on the calls of modules, and knows whether the model's own code runs just now.

    It does not outside of all calls, nor while padiff itself works: what that calls of a framework would be intercepted
    with the model's functions, as where it makes the tensors that a call is fed with.
    """

    def __init__(self, listener: Listener) -> None:
        self.opened: list[Module] = []
        self._listener = listener
        self._busy = False
        self._thread = threading.get_ident()

    @property
    def runs(self) -> bool:
        """Return whether a function that is called now is called by the model; those of a data loader are not."""
        return bool(self.opened) and not self._busy and threading.get_ident() == self._thread

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        self.opened.append(module)
        with self.aside():
            return self._listener.enter(module, args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        while self.opened.pop().native is not module.native:
            pass  # a model that catches an exception leaves calls open that never return
        with self.aside():
            return self._listener.leave(module, args, kwargs, output)

    def aside(self) -> _Aside:
        """Return a context within which it is not the model's own code that runs."""
        return _Aside(self)


class _Aside:
    """Not a generator: it is entered at every call of a function."""

    def __init__(self, code: OwnCode) -> None:
        self._code = code

    def __enter__(self) -> None:
        self._before, self._code._busy = self._code._busy, True

    def __exit__(self, *error: object) -> None:
        self._code._busy = self._before


class _Reporter(OwnCode):
    """What reports functions in a module's own code, too, as calls of operations."""

    def __init__(self, listener: Listener, adapter: OperatingAdapter) -> None:
        super().__init__(listener)
        self._adapter = adapter

    def intercept(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; as an operation where a module's own code calls it, with a tensor."""
        if not (self.runs and computes(name) and self._adapter.is_asked(self.opened[-1])):
            return handed_on(function, args, kwargs)
        if next(leaves((args, kwargs), self._adapter.is_tensor), None) is None:
            with self.aside():  # what it is made of is none of the user's code
                return handed_on(function, args, kwargs)
        in_place = is_in_place(name) or bool(kwargs.get("inplace"))
        with self.aside():
            operation = self._adapter.operation(self.opened[-1], name, function, in_place=in_place)
            args, kwargs = self._listener.enter(operation, args, kwargs) or (args, kwargs)
            try:
                output = handed_on(function, args, kwargs)
            except BaseException:
                self._listener.fail(operation)  # one may be meant: it ends a loop over a tensor
                raise
            given = self._listener.leave(operation, args, kwargs, output)
            return output if given is None else given
