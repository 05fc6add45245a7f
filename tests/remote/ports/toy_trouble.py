"""Be a toy model that goes wrong while it runs, in the way that it was told: its worker starts fast."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

from padiff.testing.toy import rows


class Net(rows.Module):
    def __init__(self) -> None:
        self.body = rows.Linear(4, 4)
        self.head = Last()

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


class Last(rows.Module):
    way = ""

    def forward(self, x: Any) -> Any:
        return WAYS[self.way](x)


def _raise(x: Any) -> Any:
    msg = "this is missing"
    raise LookupError(msg)


def _print(x: Any) -> Any:
    print("said by the model")
    os.write(1, b"written to the descriptor\n")
    print("told on stderr", file=sys.stderr)
    return x


def _slow(x: Any) -> Any:
    time.sleep(0.5)
    return x


def _hold(x: Any) -> Any:
    ctypes.PyDLL(None).sleep(60)  # the interpreter's lock is held


WAYS = {
    "": lambda x: x,
    "raise": _raise,
    "kill": lambda x: os.kill(os.getpid(), signal.SIGKILL),
    "crash": lambda x: ctypes.string_at(0),
    "exit": lambda x: sys.exit(3),
    "leave": lambda x: os._exit(3),
    "hang": lambda x: time.sleep(60),
    "hold": _hold,
    "print": _print,
    "slow": _slow,
    "other": lambda x: x * 1.1,
}


def build(way: str = "") -> rows.Module:
    """Return the network."""
    net = Net()
    turn(net, way)
    return net


def hang(net: Any) -> None:
    """Never end."""
    time.sleep(60)


def fail(net: Any) -> None:
    """Let padiff's own code fail in this process, where it replays a call."""
    from padiff.forcing import _replay

    _replay._held_by = None  # type: ignore[assignment]


def hold(net: Any) -> None:
    """Never end, nor let another thread run."""
    _hold(None)


def turn(net: Any, way: str) -> None:
    """Make it go wrong in another way."""
    net.head.way = way
