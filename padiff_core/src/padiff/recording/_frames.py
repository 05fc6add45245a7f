"""Tell whose code a frame runs: the user's, the framework's, or padiff's own; read the frames of a call."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Collection
from enum import IntEnum
from types import FrameType
from typing import Any

import numpy as np

from padiff.adapter import Adapter, handed_on
from padiff.errors import RemoteError
from padiff.plugins import loaded
from padiff.trace import Frame

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MODELS = os.path.join(_HERE, "testing", "")
"""The conformance suite brings models: to an adapter these are a user's."""
_FOR_ADAPTERS = os.path.join(_HERE, "adapter", "")
_NUMPY = os.path.join(os.path.dirname(np.__file__), "")
_TOOLS = (_NUMPY, os.path.join(os.path.dirname(os.__file__), ""), "<frozen ")
"""Where Python's own library and numpy lie."""
_TYPED = ("<stdin>", "<string>", "<ipython-input-", "<python-input-", "<doctest ")
"""Names of what a user typed, where it comes from no file: into a prompt, a notebook's cell, ``python -c``."""
_DEEPEST = 12


class Origin(IntEnum):
    """Whose a file is; the larger, the nearer to the user."""

    OWN = 0
    """padiff's, or its adapter's."""
    MACHINERY = 1
    """The framework's, and only passes a call on."""
    LIBRARY = 2
    """The framework's."""
    USER = 3


def origin_of(file: str, adapter: Adapter) -> Origin:
    """Return whose a file is, in the eyes of one adapter."""
    if file.startswith((_HERE, *adapter.own)) and not file.startswith(_MODELS):
        return Origin.OWN
    if file.startswith((*adapter.machinery, "<")) and not file.startswith(_TYPED):
        return Origin.MACHINERY
    return Origin.LIBRARY if file.startswith(adapter.library) else Origin.USER


class Stack:
    """What reads the calling frames of a call that is reported, as they stand on this thread's stack."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._origins: dict[str, Origin] = {}

    def frames(self) -> tuple[Frame, ...]:
        """Return the frames between padiff's own, which were called back and which called: innermost first."""
        frames: list[Frame] = []
        origins = self._origins
        frame: FrameType | None = sys._getframe(1)
        inside = True
        while frame is not None and len(frames) < _DEEPEST:
            code = frame.f_code
            file = code.co_filename
            origin = origins.get(file)
            if origin is None:
                origin = origins[file] = origin_of(file, self._adapter)
            if origin is not Origin.OWN:
                inside = False
                if origin is not Origin.MACHINERY:
                    place = file, frame.f_lineno, code.co_name, code.co_firstlineno
                    frames.append(Frame(*place, origin is Origin.LIBRARY))
            elif not inside:
                break
            frame = frame.f_back
        return tuple(frames)


def package_of(value: Any) -> str:
    """Return the top-level package where a function, a class or an object's class is defined."""
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def line_of(error: BaseException, adapter: Adapter, homes: Collection[str]) -> str | None:
    """Return ``file:line`` of the user's innermost frame that an error went through.

    That is one in a package of ``homes``; where there is none, any that is no framework's; where there is
    none either, any but padiff's own. Another framework's frames, too, are not the user's: a line of torch
    that is left in a port. An error that another process raised brings its line along.
    """
    if isinstance(error, RemoteError):
        return error.line
    best: tuple[tuple[Origin, bool], str] | None = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        origin = min(origin_of(file, one) for one in (adapter, *loaded()))
        rank = origin, str(frame.f_globals.get("__name__", "")).partition(".")[0] in homes
        if origin is not Origin.OWN and (best is None or rank >= best[0]):
            best = rank, f"{file}:{line}"
    return None if best is None else best[1]


def own_line(error: BaseException, adapters: Collection[Adapter], *, core: bool = True) -> str | None:
    """Return ``file:line`` where padiff's own code, or an adapter's, raised an error; None where others did.

    The innermost frame tells, but for those of Python's own library and of numpy, which raise for whoever calls them.
    What `handed_on` calls is others' code; so is what ran in another process, which has told already. Without ``core``
    adapters alone count: the core also raises on purpose what is no `PadiffError`.
    """
    own = tuple(prefix for adapter in adapters for prefix in adapter.own)
    return _line_in(error, (*own, _HERE) if core else own, (_MODELS,))


def core_line(error: BaseException) -> str | None:
    """Return ``file:line`` where the core itself raised an error, not what it does for adapters; None where others did.

    Functions of a framework raise in the line of an adapter that calls them, for what they do not offer. An error that
    another process raised brings its line along.
    """
    if isinstance(error, RemoteError):
        return error.core
    return _line_in(error, (_HERE,), (_MODELS, _FOR_ADAPTERS))


def _line_in(error: BaseException, own: tuple[str, ...], others: tuple[str, ...]) -> str | None:
    if isinstance(error, (RemoteError, MemoryError)) or "OutOfMemory" in type(error).__name__:
        return None
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    while frames and frames[-1][0].co_filename.startswith(_TOOLS) and not is_installed(frames[-1][0].co_filename):
        frames.pop()
    if not frames or frames[-1][0] is handed_on.__code__:
        return None
    code, line = frames[-1]
    mine = code.co_filename.startswith(own) and not code.co_filename.startswith(others)
    return f"{code.co_filename}:{line}" if mine else None


def is_installed(file: str) -> bool:
    """Return whether a file lies below Python's library because it was installed there: no part of it, nor numpy's."""
    return "site-packages" in file and not file.startswith(_NUMPY)
