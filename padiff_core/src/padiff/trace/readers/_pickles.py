"""Read pickles without executing anything: what a pickle would call and build comes back as plain records.

Python's own machine follows the opcodes; those that data do not need are refused, and so is a huge pickle. No class and
no function is looked up: a name stays a name, and to call it is to note that.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from padiff.codec import Malformed, refuse

_LARGEST = 1 << 26
"""Bytes of a pickle, at most, unless more is expected."""
_OF_DATA = re.compile(
    "PROTO|FRAME|STOP|NONE|NEWTRUE|NEWFALSE|MARK|MEMOIZE|REDUCE|BUILD|BINPERSID|INT|BININT[12]?|LONG[14]?|BINFLOAT|"
    "(SHORT_)?BIN(UNICODE|BYTES|STRING)8?|EMPTY_(TUPLE|LIST|DICT)|TUPLE[123]?|LIST|APPENDS?|SETITEMS?|"
    "(LONG_)?BIN(PUT|GET)|(STACK_)?GLOBAL"
)
"""The opcodes that data need."""
_WRONG = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, EOFError, struct.error)


class _Called:
    """What a pickle would call."""

    def __call__(self, *args: Any) -> Made:
        """Return what that would make."""
        return Made(self, args)


@attrs.frozen
class Named(_Called):
    """A class or function that a pickle names."""

    module: str
    name: str


@attrs.define(eq=False)
class Made(_Called):
    """What a pickle would make by calling something, and the state that it would then set."""

    function: Any
    args: Any
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.state = state


@attrs.frozen
class Stored:
    """What a pickle names that lies beside it."""

    name: Any


def _refused(name: str) -> Callable[[Any], None]:
    return lambda _: refuse(f"it holds the opcode {name}, which data do not need")


class _Machine(pickle._Unpickler):
    """What follows a pickle, with names in place of what they name."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        ord(one.code): pickle._Unpickler.dispatch[ord(one.code)] if _OF_DATA.fullmatch(one.name) else _refused(one.name)
        for one in pickletools.opcodes
    }

    def find_class(self, module: str, name: str) -> Named:
        """Return a name as it is."""
        return Named(module, name)

    def persistent_load(self, pid: Any) -> Stored:
        """Return a name as it is."""
        return Stored(pid)


def unpickled(data: bytes, largest: int = _LARGEST) -> Any:
    """Return what a pickle holds: plain data, and records of what it would make; raise `Malformed` for any other."""
    if len(data) > largest:
        refuse(f"it takes {len(data)} bytes")
    try:
        return _Machine(io.BytesIO(data)).load()
    except (*_WRONG, pickle.UnpicklingError) as error:
        msg = f"it is no whole pickle ({type(error).__name__})"
        raise Malformed(msg) from error
