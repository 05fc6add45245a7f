"""Intercept a framework's functions: for frameworks that cannot be asked for what they run.

A function is reached by many names: in its namespace, as a method of the tensor class, imported into the user's module,
kept as an attribute of a module. All of them lead through a detour until the hook is closed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from padiff.adapter._listening import Hook, Intercept, handed_on
from padiff.kinds import computes

_FUNCTIONS = types.FunctionType, types.BuiltinFunctionType
_INHERITED = object()
_METHODS = types.MethodDescriptorType, types.WrapperDescriptorType


class Detour:
    """A framework's functions, and what leads calls of them to whoever intercepts them.

    ``namespaces`` maps a prefix of full names (``paddle.nn.functional``) to a module or a class; a function that
    several of them hold goes by the first. ``called`` maps classes whose objects are called like functions, and define
    that themselves, to the prefix of their full names, which end as the class does.
    """

    def __init__(self, namespaces: Mapping[str, Any], called: Mapping[type, str] | None = None) -> None:
        self._intercepts: list[Intercept] = []
        self._roots = {prefix.partition(".")[0] for prefix in namespaces}
        self._by_function: dict[int, tuple[Any, Callable[..., Any]]] = {}
        self._places: list[_Place] = []
        for prefix, namespace in namespaces.items():
            # A method that a module holds is a tool of the framework's, and none of its functions.
            sorts = (*_FUNCTIONS, *_METHODS) if isinstance(namespace, type) else _FUNCTIONS
            for name in filter(computes, dir(namespace)):
                function = inspect.getattr_static(namespace, name, None)
                if isinstance(function, sorts):
                    self._wrapper(f"{prefix}.{name}", function)  # the first prefix names it
                    self._places.append(_Place(namespace, name, functools.partial(self._wrapper, f"{prefix}.{name}")))

        for cls, prefix in (called or {}).items():
            self._places.append(_Place(cls, "__call__", functools.partial(self._caller, prefix)))

    def open(self, intercept: Intercept, modules: Iterable[Any] = ()) -> Hook:
        """Lead calls to ``intercept`` until the hook is closed; what it calls, to what was opened before it.

        ``modules`` are native modules that will run: functions that they keep as attributes, and that the files of
        their classes have imported, lead there too.
        """
        first = not self._intercepts
        self._intercepts.append(intercept)
        with Hook(self._intercepts.pop).opening() as hook:
            if first:
                for place in self._places:
                    hook.add(place.opened())
            for holder in self._holders(modules):
                for name, function in list(self._held(holder)):
                    holder[name] = self._by_function[id(function)][1]
                    hook.add(functools.partial(holder.__setitem__, name, function))
        return hook

    def _holders(self, modules: Iterable[Any]) -> Iterator[MutableMapping[str, Any]]:
        """Yield the namespaces that the code of modules reads, but for the framework's own files."""
        homes = {}
        for one in modules:
            yield one.__dict__
            for cls in type(one).__mro__:
                if cls.__module__.partition(".")[0] not in self._roots and cls.__module__ in sys.modules:
                    homes[cls.__module__] = vars(sys.modules[cls.__module__])
        yield from homes.values()

    def _held(self, holder: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in holder.items():
            known = self._by_function.get(id(value))
            if known is not None and known[0] is value:
                yield name, value

    def _wrapper(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        known = self._by_function.get(id(getattr(function, "__wrapped__", None))) or self._by_function.get(id(function))
        if known is not None and function in known:
            return known[1]
        intercepts = self._intercepts

        @functools.wraps(function)
        def led(*args: Any, **kwargs: Any) -> Any:
            return _lead(intercepts, len(intercepts), function, name, args, kwargs)

        self._by_function[id(function)] = function, led
        return led

    def _caller(self, prefix: str, call: Callable[..., Any]) -> Callable[..., Any]:
        intercepts = self._intercepts

        @functools.wraps(call)
        def led(one: Any, *args: Any, **kwargs: Any) -> Any:
            if not intercepts:
                return call(one, *args, **kwargs)
            name = f"{prefix}.{type(one).__name__}"
            return _lead(intercepts, len(intercepts), _Bound(call, one), name, args, kwargs)

        return led


class _Place:
    """A name in a namespace, and what wraps the function that it holds when the detour is opened."""

    def __init__(self, namespace: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]) -> None:
        self._namespace, self._name, self._wrap = namespace, name, wrap
        self._function: Any = None
        """What stood there when it was opened last: a user may put a function of their own in its place."""

    def opened(self) -> Callable[[], None]:
        """Put what leads elsewhere in the function's place; return what puts the function back."""
        function = self._namespace.__dict__.get(self._name, _INHERITED)
        own = function is not _INHERITED
        if not own:
            # `inspect.getattr_static` takes 20 times as long.
            holders = self._namespace.__mro__ if isinstance(self._namespace, type) else ()
            held = (holder.__dict__[self._name] for holder in holders if self._name in holder.__dict__)
            function = next(held, None) or inspect.getattr_static(self._namespace, self._name)
        if function is not self._function:
            self._function, self._led = function, self._wrap(function)
        setattr(self._namespace, self._name, self._led)
        if own:
            return functools.partial(setattr, self._namespace, self._name, function)
        return functools.partial(delattr, self._namespace, self._name)


def _lead(
    intercepts: Sequence[Intercept],
    depth: int,
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function through so many of what intercepts it, the last of them first."""
    if depth == 0:
        return function(*args, **kwargs)
    below = function if depth == 1 else _Below(intercepts, depth - 1, function, name)
    return intercepts[depth - 1](below, name, args, kwargs)


class _Below:
    """A function as it is to one that intercepts it above others; the same to a dict as the function."""

    def __init__(self, intercepts: Sequence[Intercept], depth: int, function: Callable[..., Any], name: str) -> None:
        self._intercepts, self._depth, self._function, self._name = intercepts, depth, function, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        depth = min(self._depth, len(self._intercepts))  # kept, it may be called when these are closed
        return _lead(self._intercepts, depth, self._function, self._name, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return self._function == (other._function if isinstance(other, _Below) else other)

    def __hash__(self) -> int:
        return hash(self._function)


class _Bound:
    """An object as it is called without the detour; the same to a dict for any that was made alike.

    A model may make one whenever it runs: ``ops.Softmax(axis=-1)(x)``.
    """

    def __init__(self, call: Callable[..., Any], one: Any) -> None:
        self._call = call
        self._one = one

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return handed_on(self._call, (self._one, *args), kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bound) and other._call is self._call and _made_alike(other._one, self._one)

    def __hash__(self) -> int:
        return hash((self._call, type(self._one)))


def _made_alike(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    try:
        return bool(vars(one) == vars(other))
    except (TypeError, ValueError):
        return False  # an array among its attributes
