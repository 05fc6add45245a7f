"""Name a function so that another process finds it."""

from __future__ import annotations

import functools
import sys
from typing import Any

from padiff.errors import InputError

__all__ = ["referred"]


def referred(given: Any, what: str) -> str:
    """Return ``module:function`` for a function that a module holds; a string is such a name already.

    Raises `InputError` for whatever lives in this process only: a lambda, a method, an optimizer.
    """
    if isinstance(given, str):
        return given
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    hint = f"define a function in a module and name it: {what}='package.module:function'."
    if not isinstance(module, str) or not isinstance(name, str):
        cls = type(given)
        msg = (
            f"the {what} is a {cls.__module__}.{cls.__qualname__}, which lives in this process; the model is remote.\n"
        )
        msg += f"Hint: {hint}"
        raise InputError(msg)
    if module == "__main__":
        msg = f"the {what} {name} is defined in the running script, which a remote model's process cannot import.\n"
        msg += f"Hint: {hint}"
        raise InputError(msg)
    if _found(module, name) is not given:
        msg = f"the {what} {module}.{name} is no function that another process could import by its name.\n"
        msg += f"Hint: {hint}"
        raise InputError(msg)
    return f"{module}:{name}"


def _found(module: str, name: str) -> Any:
    try:
        return functools.reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
