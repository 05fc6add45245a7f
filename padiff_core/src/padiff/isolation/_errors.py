"""Carry errors from the worker to its parent, where they are raised again under their names."""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import traceback

import attrs

from padiff import errors
from padiff.errors import PadiffError, RemoteError
from padiff.recording import core_line

_HIDDEN = (os.path.dirname(errors.__file__) + os.sep, os.path.dirname(importlib.__file__) + os.sep, "<frozen ")


@attrs.frozen
class ErrorRecord:
    """An error of the worker's, as plain data."""

    text: str
    trace: str
    padiff: str | None
    """The name of the class, of padiff's own errors."""
    module: str = "builtins"
    name: str = "Exception"
    base: str = "Exception"
    """The nearest of Python's own classes that it is derived from."""
    line: str | None = None
    """``file:line`` of the user's code that raised it."""
    core: str | None = None
    """``file:line`` of padiff's own code, where that raised it itself."""
    cause: ErrorRecord | None = None


def traceback_of(error: BaseException, hidden: tuple[str, ...] = ()) -> str:
    """Return an error's traceback and those of its causes, without padiff's own frames and those of ``hidden``."""
    found = traceback.TracebackException.from_exception(error)
    own = (*_HIDDEN, *hidden)
    one: traceback.TracebackException | None = found
    while one is not None:
        kept = [frame for frame in one.stack if not frame.filename.startswith(own)]
        one.stack = traceback.StackSummary.from_list(kept)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "".join(found.format()).rstrip()


def error_record(error: BaseException, line: str | None, hidden: tuple[str, ...] = ()) -> ErrorRecord:
    """Return what the parent needs to raise an error again."""
    text, trace, mro = str(error), traceback_of(error, hidden), type(error).__mro__
    if isinstance(error, PadiffError):
        name = next(cls.__name__ for cls in mro if cls.__module__ == errors.__name__)
        cause = None if error.__cause__ is None else error_record(error.__cause__, line, hidden)
        return ErrorRecord(text, trace, name, cause=cause)
    base = next((cls.__name__ for cls in mro if cls.__module__ == "builtins"), "Exception")
    own = type(error)
    return ErrorRecord(text, trace, None, own.__module__, own.__qualname__, base, line, core_line(error))


def raised_again(found: ErrorRecord, where: str) -> Exception:
    """Return the error that a worker recorded; ``where`` names the worker."""
    error: Exception
    if found.padiff is None:
        error = _class_like(found.module, found.name, found.base)(found.text, found.line, found.core)
    else:
        own = getattr(errors, found.padiff, None)
        error = (own if isinstance(own, type) and issubclass(own, PadiffError) else PadiffError)(found.text)
    error.add_note(f"\nIn {where}:\n{found.trace}")
    if found.cause is not None:
        error.__cause__ = raised_again(found.cause, where)
    return error


class _Distant(RemoteError):
    """An error of another process: one text, whatever arguments the error that it is derived from has."""

    def __init__(self, text: str, line: str | None = None, core: str | None = None) -> None:
        Exception.__init__(self)
        self.args = (text,)
        self.line, self.core = line, core

    def __str__(self) -> str:
        return str(self.args[0])


@functools.lru_cache(maxsize=256)
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
