"""Read pickles without executing anything: what a pickle would call and build comes back as plain records.

The opcodes are followed one by one, over a table of those that data need; another one, a huge pickle, or a stack that
does not fit is refused. No class and no function is looked up: a name stays a name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

import attrs

from padiff.codec import Malformed, refuse

_LARGEST = 1 << 26
"""Bytes of a pickle, at most, unless more is expected."""


@attrs.frozen
class Named:
    """A class or function that a pickle names."""

    module: str
    name: str


@attrs.define(eq=False)
class Made:
    """What a pickle would make by calling something, and the state that it would then set."""

    function: Any
    args: Any
    state: Any = None


@attrs.frozen
class Stored:
    """What a pickle names that lies beside it."""

    name: Any


_MARK = object()


class _Machine:
    """The stack of a pickle, with names in place of what they name."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def marked(self) -> list[Any]:
        """Return what lies above the topmost mark, and take it off."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                found = self.stack[at + 1 :]
                del self.stack[at:]
                return found
        refuse("it has no mark")

    def taken(self, count: int) -> list[Any]:
        if count > len(self.stack):
            refuse("its stack is empty")
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def top(self, sort: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], sort):
            refuse(f"it fills what is no {sort.__name__}")
        return self.stack[-1]

    def fill(self, pairs: list[Any]) -> None:
        found = self.top(dict)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int | float | bytes | None):
                refuse(f"a {type(key).__name__} is a key")
            found[key] = value

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def build(self, state: Any) -> None:
        self.top(Made).state = state


def _keep(machine: _Machine, at: int) -> None:
    if not machine.stack:
        refuse("its stack is empty")
    machine.memo[at] = machine.stack[-1]


def _push(*values: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, arg: machine.stack.append(values[0] if values else arg)


def _global(machine: _Machine, names: list[str]) -> None:
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        refuse("it names what is no class")
    machine.stack.append(Named(*names))


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, arg: None),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
        _push(),
    ),
    **dict.fromkeys(
        ("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING"), _push()
    ),
    "NONE": _push(None),
    "NEWTRUE": _push(True),
    "NEWFALSE": _push(False),
    "MARK": _push(_MARK),
    "EMPTY_TUPLE": _push(()),
    "EMPTY_LIST": lambda m, arg: m.stack.append([]),
    "EMPTY_DICT": lambda m, arg: m.stack.append({}),
    "TUPLE": lambda m, arg: m.stack.append(tuple(m.marked())),
    "TUPLE1": lambda m, arg: m.stack.append(tuple(m.taken(1))),
    "TUPLE2": lambda m, arg: m.stack.append(tuple(m.taken(2))),
    "TUPLE3": lambda m, arg: m.stack.append(tuple(m.taken(3))),
    "LIST": lambda m, arg: m.stack.append(m.marked()),
    "APPEND": lambda m, arg: m.extend(m.taken(1)),
    "APPENDS": lambda m, arg: m.extend(m.marked()),
    "SETITEM": lambda m, arg: m.fill(m.taken(2)),
    "SETITEMS": lambda m, arg: m.fill(m.marked()),
    "BINPUT": _keep,
    "LONG_BINPUT": _keep,
    "MEMOIZE": lambda m, arg: _keep(m, len(m.memo)),
    "BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "LONG_BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "GLOBAL": lambda m, arg: _global(m, arg.split(" ")),
    "STACK_GLOBAL": lambda m, arg: _global(m, m.taken(2)),
    "REDUCE": lambda m, arg: m.stack.append(Made(*m.taken(2))),
    "BUILD": lambda m, arg: m.build(m.taken(1)[0]),
    "BINPERSID": lambda m, arg: m.stack.append(Stored(m.taken(1)[0])),
}


def unpickled(data: bytes, largest: int = _LARGEST) -> Any:
    """Return what a pickle holds: plain data, and records of what it would make; raise `Malformed` for any other."""
    if len(data) > largest:
        refuse(f"it takes {len(data)} bytes")
    machine = _Machine()
    try:
        for opcode, arg, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.taken(1)[0]
            step = _STEPS.get(opcode.name)
            if step is None:
                refuse(f"it holds the opcode {opcode.name}, which data do not need")
            step(machine, arg)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, UnicodeError, RecursionError) as error:
        msg = f"it is no whole pickle ({type(error).__name__})"
        raise Malformed(msg) from error
    refuse("it has no end")
