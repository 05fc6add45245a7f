"""Carry errors from the worker to its parent, where they are raised again under their names."""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import traceback
from typing import Any

from padiff import errors
from padiff.errors import PadiffError, RemoteError

__all__ = ["Relayed", "raised_again", "told", "traceback_of"]

_HIDDEN = (os.path.dirname(errors.__file__) + os.sep, os.path.dirname(importlib.__file__) + os.sep, "<frozen ")


class Relayed(Exception):
    """Stand in the worker for an error that its parent raised while it was called back."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def traceback_of(error: BaseException, hidden: tuple[str, ...] = ()) -> str:
    """Return an error's traceback and those of its causes, without padiff's own frames and those of ``hidden``."""
    told = traceback.TracebackException.from_exception(error)
    own = (*_HIDDEN, *hidden)
    one: traceback.TracebackException | None = told
    while one is not None:
        kept = [frame for frame in one.stack if not frame.filename.startswith(own)]
        one.stack = traceback.StackSummary.from_list(kept)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "".join(told.format()).rstrip()


def told(error: BaseException, line: str | None, hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what the parent needs to raise an error again."""
    if isinstance(error, Relayed):
        return {"yours": error.number}
    known = {"text": str(error), "trace": traceback_of(error, hidden)}
    mro = type(error).__mro__
    if isinstance(error, PadiffError):
        return {**known, "padiff": next(cls.__name__ for cls in mro if cls.__module__ == errors.__name__)}
    base = next((cls.__name__ for cls in mro if cls.__module__ == "builtins"), "Exception")
    name = type(error).__module__, type(error).__qualname__
    return {**known, "name": name, "base": base, "line": line}


def raised_again(found: dict[str, Any], where: str) -> Exception:
    """Return the error that a worker told of; ``where`` names the worker."""
    if "padiff" in found:
        error: Exception = getattr(errors, found["padiff"])(found["text"])
    else:
        error = _class_like(*found["name"], found["base"])(found["text"], found["line"])
    error.add_note(f"\nIn {where}:\n{found['trace']}")
    return error


class _Distant(RemoteError):
    """Hold one text, whatever arguments the error that it is derived from has."""

    def __init__(self, text: str, line: str | None = None) -> None:
        Exception.__init__(self)
        self.args = (text,)
        self.line = line

    def __str__(self) -> str:
        return str(self.args[0])


@functools.cache
def _class_like(module: str, name: str, base: str) -> type[RemoteError]:
    """Return a class of that name, derived from the same error of Python's own, for whoever catches that."""
    own = getattr(builtins, base, None)
    spelled = {"__module__": module, "__qualname__": name}
    last = name.rpartition(".")[2]
    if isinstance(own, type) and issubclass(own, Exception) and own is not Exception:
        try:
            found = type(last, (_Distant, own), spelled)
            found("")
        except TypeError:  # an exception group, whose instances need arguments
            pass
        else:
            return found
    return type(last, (_Distant,), spelled)
