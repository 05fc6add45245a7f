"""Load what a SPEC names: ``module:attribute`` or ``path/file.py:attribute``."""

from __future__ import annotations
import __future__

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from padiff.errors import InputError, PadiffError, did_you_mean
from padiff.garbage import collecting_later


class SpecError(PadiffError):
    """A SPEC that names nothing that can be used."""


def load(spec: str) -> Any:
    """Return what a SPEC names, not called."""
    source, _, attribute = spec.rpartition(":")
    if not source or not attribute:
        msg = f"cannot read the SPEC {spec!r}.\nHint: write module:attribute or path/file.py:attribute."
        raise SpecError(msg)
    with collecting_later():  # a framework comes along, most of which stays
        module = guarded(spec, _from_file if source.endswith(".py") else _from_path, source)
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        names = sorted(name for name in vars(module) if not name.startswith("_"))
        own = [name for name in names if _is_own(module, vars(module)[name])] or names
        there = ", ".join(own[:12]) + (", ..." if len(own) > 12 else "")
        hint = " ".join(filter(None, (did_you_mean(attribute, names), f"it has {there or 'no public names'}.")))
        msg = f"{source} has no attribute {attribute!r}.\nHint: {hint}"
        raise SpecError(msg) from None


def _is_own(module: types.ModuleType, value: Any) -> bool:
    """Return whether a module's value is its own, and not imported by it."""
    if isinstance(value, type | types.FunctionType):
        return value.__module__ == module.__name__
    return not isinstance(value, types.ModuleType | __future__._Feature)


def called(spec: str) -> Any:
    """Return what a SPEC names, or, where that is a function or class, what it returns without arguments."""
    value = load(spec)
    if not isinstance(value, _CALLED):
        return value
    needed = _needed(value)
    if needed:
        msg = f"{spec} needs arguments: {', '.join(needed)}.\n"
        raise SpecError(msg + "Hint: name a function without arguments that passes them.")
    return guarded(spec, value)


def loss_of(spec: str, side: int) -> Any:
    """Return the loss that a SPEC names: a function with parameters itself, else what it holds or returns.

    Of a pair it is the one of that side, 0 for the reference's and 1 for the candidate's.
    """
    value = load(spec)
    if not callable(value) or isinstance(value, type) or not parameters(value):
        value = called(spec)
    value = _of_side(value, side)
    if not callable(value):
        msg = f"{spec} is a {type(value).__qualname__}; expected a loss, a function of the model's output.\n"
        raise SpecError(msg + "Hint: name the function itself, or a pair of them.")
    return value


def optimizer_of(spec: str, side: int, model: Any) -> Any:
    """Return the optimizer that a SPEC names: a function of the model returns it, anything else is taken as it is.

    Of a pair it is the one of that side, 0 for the reference's and 1 for the candidate's.
    """
    value = _of_side(load(spec), side)
    if not isinstance(value, _CALLED):
        return value
    needed = _needed(value)
    if len(needed) > 1:
        msg = f"{spec} needs {', '.join(needed)}; expected a function of one argument, the model.\n"
        raise SpecError(msg + "Hint: return the optimizer of that model's parameters from it.")
    return guarded(spec, value, model) if needed else value


def _of_side(value: Any, side: int) -> Any:
    return value[side] if isinstance(value, tuple | list) and len(value) == 2 else value


_CALLED = (
    type,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    functools._lru_cache_wrapper,
)


def parameters(value: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a callable, without ``*args`` and ``**kwargs``; none where it hides them."""
    try:
        found = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return {}
    return {name: p for name, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _needed(value: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that must be given."""
    return [name for name, parameter in parameters(value).items() if parameter.default is parameter.empty]


def guarded(spec: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the user's code; what it raises becomes one sentence, with the traceback behind it."""
    try:
        return function(*args, **kwargs)
    except PadiffError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{spec} {raised(error, _MACHINERY)}.\nHint: --traceback shows where it came from."
        raise SpecError(msg) from error


_MACHINERY = (os.path.dirname(__file__), importlib.__file__, "<frozen ")


def raised(error: BaseException, machinery: tuple[str, ...]) -> str:
    """Return what an exception said, and where in files other than these, as the end of a sentence."""
    text = ": ".join(filter(None, [type(error).__qualname__, " ".join(str(error).split())]))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(machinery)]
    return f"raised {text}" + (f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else "")


def _from_path(name: str) -> types.ModuleType:
    _importable(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        msg = f"there is no module {error.name!r}, neither in {os.getcwd()} nor where Python looks.\n"
        msg += f"Hint: a file is named with its ending: {name.replace('.', '/')}.py:attribute."
        raise SpecError(msg) from None


def _from_file(source: str) -> types.ModuleType:
    path = Path(source).resolve()
    if not path.is_file():
        msg = f"there is no file {path}.\nHint: a path is taken from the working directory, {os.getcwd()}."
        raise SpecError(msg)
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    _importable(os.getcwd())
    _importable(str(path.parent))
    return _executed(path)


def _executed(path: Path) -> types.ModuleType:
    """Import a file under its own name, unless that is another module's."""
    name = path.stem
    found = PathFinder.find_spec(name)
    if name in sys.modules or (found is not None and found.origin != str(path)):
        name = f"_{name}_{len(sys.modules)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def builder_name(target: Any) -> str:
    """Return the name of a model's builder; raise `InputError` where it is no name."""
    if isinstance(target, str) and all(target.rpartition(":")[::2]):
        return target
    name = getattr(target, "__qualname__", None)
    hint = "padiff.remote('package.module:build') or padiff.remote('path/file.py:build')"
    if isinstance(target, str):
        seen = f"{target!r}, which names no function: there is no colon"
    elif name is not None and callable(target):
        seen = f"{name} itself, which lives in this process"
        hint = f"name it, so that the other process imports it: padiff.remote('{target.__module__}:{name}')"
    else:
        seen = f"a {type(target).__module__}.{type(target).__qualname__}; expected a name"
    msg = f"padiff.remote() got {seen}.\nHint: {hint}."
    raise InputError(msg)


def referred(given: Any, what: str) -> str:
    """Return ``module:function`` for a function that a module holds; a string is such a name already.

    Raises `InputError` for whatever lives in this process only: a lambda, a method, an optimizer.
    """
    if isinstance(given, str):
        return given
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        cls = type(given)
        seen = f"is a {cls.__module__}.{cls.__qualname__}, which lives in this process; the model is remote"
    elif module == "__main__":
        seen = f"{name} is defined in the running script, which a remote model's process cannot import"
    elif _found(module, name) is given:
        return f"{module}:{name}"
    else:
        seen = f"{module}.{name} is no function that another process could import by its name"
    msg = f"the {what} {seen}.\nHint: define a function in a module and name it: {what}='package.module:function'."
    raise InputError(msg)


def _found(module: str, name: str) -> Any:
    try:
        return functools.reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None


def importable(cwd: str | None) -> list[str]:
    """Return where this process looks for modules before Python's own places: what a user has put there."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    found = [cwd or os.getcwd()]
    for entry in sys.path:
        if entry in own or entry.endswith(".zip"):
            break
        found.append(os.path.abspath(entry))
    return list(dict.fromkeys(found))
