"""Report the calls of NNX modules, which have no hooks: their classes' ``__call__`` is replaced for a while.

Python looks ``__call__`` up on the class, so each class of the model gets a stand-in, and its own method back when the
last listener has gone. A stand-in speaks for instances of exactly its class: what a subclass's method calls with
``super()`` is part of that call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import attrs
from flax import nnx

from padiff.adapter import Hook, Listener, Module, UnwatchableModel, qualified_name
from padiff_flax import graph
from padiff_flax.tape import at_eager_level


@attrs.frozen(eq=False)
class _Audience:
    """A listener and the modules whose calls it wants, by the id of the native one."""

    listener: Listener
    modules: Mapping[int, Module]


_audiences: dict[type, list[_Audience]] = {}
"""Class whose ``__call__`` is replaced -> who listens."""


def attach(modules: Mapping[str, Module], listener: Listener) -> Hook:
    """Report the calls of these modules to a listener until the hook is closed."""
    audience = _Audience(listener, {id(module.native): module for module in modules.values()})
    hook = Hook()
    try:
        for cls in {type(module.native) for module in modules.values() if callable(module.native)}:
            _join(cls, audience)
            hook.add(functools.partial(_leave, cls, audience))
    except BaseException:
        hook.close()
        raise
    return hook


def _join(cls: type, audience: _Audience) -> None:
    if cls not in _audiences:
        _audiences[cls] = []
        _replace(cls)
    _audiences[cls].append(audience)


def _leave(cls: Any, audience: _Audience) -> None:
    _audiences[cls].remove(audience)
    if not _audiences[cls]:
        del _audiences[cls]
        own = cls.__dict__["__call__"].__wrapped__
        if own is _inherited(cls):
            del cls.__call__
        else:
            cls.__call__ = own


def _inherited(cls: type) -> Any:
    """Return the ``__call__`` that a class would have without one of its own, as it lies in its home."""
    return next((base.__dict__["__call__"] for base in cls.__mro__[1:] if "__call__" in base.__dict__), None)


def _replace(cls: Any) -> None:
    inherited = "__call__" not in cls.__dict__
    own = _inherited(cls) if inherited else cls.__dict__["__call__"]

    def stand_in(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        method = super(cls, self).__call__ if inherited else own.__get__(self, cls)
        # Under a transformation (scan, vmap, remat) values are symbols: what runs there is a step of its caller.
        if type(self) is not cls or not at_eager_level():
            return method(*args, **kwargs)
        reported = [(one.listener, one.modules[id(self)]) for one in _audiences[cls] if id(self) in one.modules]
        for listener, module in reported:
            args, kwargs = listener.enter(module, args, kwargs) or (args, kwargs)
        output = method(*args, **kwargs)
        for listener, module in reported:
            other = listener.leave(module, args, kwargs, output)
            output = output if other is None else other
        return output

    cls.__call__ = functools.wraps(own)(stand_in)


def require_watchable(native: Any) -> None:
    """Raise `UnwatchableModel` where calls or values could not be seen, and say what to pass instead."""
    name = qualified_name(native)
    if _is_compiled(native):
        raise UnwatchableModel(_compiled(f"the model ({name})"))
    if not isinstance(native, nnx.Module):
        msg = f"{name} is not a flax.nnx.Module.\n"
        msg += "Hint: pass the nnx.Module itself; a linen module is one in nnx.bridge.ToNNX."
        raise UnwatchableModel(msg)
    if not callable(native):
        msg = f"{name} has no __call__, so there is no forward pass to compare.\n"
        msg += "Hint: wrap it in an nnx.Module whose __call__ does what you want compared."
        raise UnwatchableModel(msg)
    for path, module in graph.modules(native):
        if hasattr(inspect.getattr_static(type(module), "__call__", None), "lower"):
            where = f"the submodule {path!r}" if path else "the model"
            raise UnwatchableModel(_compiled(f"the __call__ of {where} ({qualified_name(module)})"))
        for attribute, value in vars(module).items():
            if _is_compiled(value):
                raise UnwatchableModel(_compiled(f"the submodule {f'{path}.{attribute}'.lstrip('.')!r}"))
    for path, variable in graph.variables(native):
        if getattr(variable, "hijax", False) or getattr(variable, "ref", False):
            msg = f"the variable {path!r} of {name} is a mutable reference, whose uses leave no values to see.\n"
            msg += "Hint: build the model with nnx.var_defaults(hijax=False, ref=False)."
            raise UnwatchableModel(msg)


def _is_compiled(value: Any) -> bool:
    """Return whether a value is what jax.jit or nnx.jit made of a module."""
    return not isinstance(value, nnx.Module) and isinstance(getattr(value, "__wrapped__", None), nnx.Module)


def _compiled(what: str) -> str:
    msg = f"{what} is compiled: its modules would be called once, and without values."
    return f"{msg}\nHint: pass the model without nnx.jit or jax.jit; compile where it is used."
