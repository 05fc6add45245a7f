"""Be the process of a remote model: import what its parent names, build the model, and serve it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from padiff.errors import PadiffError, WorkerError
from padiff.import_string import SpecError, called, guarded, load, loss_of, optimizer_of
from padiff.isolation._channel import PROTOCOL, Channel
from padiff.isolation._errors import Relayed, told, traceback_of
from padiff.isolation._pins import Pins
from padiff.isolation._server import Server
from padiff.isolation._sight import Sight
from padiff.isolation._wire import Wire
from padiff.plugins import FRAMEWORKS, adapter_for
from padiff.recording import line_of, package_of

__all__ = ["PROTOCOL", "main"]


def main(connection: socket.socket, life: int, dump: int) -> None:
    """Serve until the parent closes the connection; end at once when it is gone."""
    _end_with(life)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=dump)
    sys.argv = ["padiff"]
    Worker(connection).serve()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def _end_with(life: int) -> None:
    """End this process when the other end of a pipe is closed, whatever it is doing then.

    The kernel does it where it can send a signal for that; elsewhere a thread, once it gets its turn.
    """

    def wait() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        os.read(life, 1)
        os._exit(1)

    threading.Thread(target=wait, name="padiff-life", daemon=True).start()
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


class Worker:
    """Answer the parent: first how to build the model, then what the model's `Server` can do."""

    def __init__(self, connection: socket.socket) -> None:
        self._pins = Pins()
        self._sight: Sight | None = None
        self._native: Any = None
        self._homes: set[str] = set()
        self._operations: dict[str, Callable[..., Any]] = {
            "build": self._build,
            "function": self._function,
            "optimizer": self._optimizer,
            "named": self._named,
            "load": self._load,
        }
        revive: dict[str, Callable[..., Any]] = {"_native": self._pins.get, "_nested": self._filled}
        self._notes: dict[str, Callable[..., Any]] = {"drop": self._pins.drop}
        wire = Wire(_as_usual, revive, trusted=True)
        self._channel = Channel(connection, wire, self._operations, self._notes, self._told, _raised)
        self._channel.before_sending(self._tell_gone)

    def serve(self) -> None:
        """Answer until the connection is closed."""
        self._channel.answer_until_closed()

    # Requests -----------------------------------------------------------------------------------------------

    def _build(self, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], path: list[str]) -> dict[str, Any]:
        sys.path[:0] = [folder for folder in path if folder not in sys.path]
        with _traced(target):
            native = guarded(target, load(target), *args, **kwargs) if args or kwargs else called(target)
        try:
            adapter = adapter_for(native)
        except PadiffError as error:
            there = f"Hint: {sys.executable} -m pip install"
            raise type(error)(str(error).replace("Hint: pip install", there)) from error
        self._native = native
        self._homes = {package_of(module.native) for module in adapter.wrap(native).modules().values()}
        self._sight = Sight(adapter, self._pins)
        server = Server(self._channel, self._sight, native)
        for name in (name for name, value in vars(Server).items() if callable(value) and not name.startswith("_")):
            known = self._notes if name.endswith("_") else self._operations
            known[name.removesuffix("_")] = getattr(server, name)
        return server.root()

    def _function(self, target: str, side: int) -> Any:
        with _traced(target):
            function = loss_of(target, side)
        code = getattr(function, "__code__", None)
        return self._seen().object(function), (code.co_filename, code.co_firstlineno) if code else None

    def _optimizer(self, target: str, side: int) -> Any:
        with _traced(target):
            return self._seen().object(optimizer_of(target, side, self._native))

    def _named(self, target: str) -> Any:
        with _traced(target):
            return self._seen().object(load(target))

    def _load(self, target: str) -> Any:
        with _traced(target):
            return self._operations["neutral"](called(target))

    def _seen(self) -> Sight:
        assert self._sight is not None, "the model is built first"
        return self._sight

    # Notes, and what messages hold --------------------------------------------------------------------------

    def _tell_gone(self) -> None:
        gone = []
        while self._pins.gone:
            gone.append(self._pins.gone.pop())
        if gone:
            self._channel.note("gone", gone)

    def _filled(self, number: int, items: list[Any]) -> Any:
        return self._seen().filled(number, items)

    def _told(self, error: BaseException) -> dict[str, Any]:
        if self._sight is None:
            return told(error, None)
        adapter = self._sight.adapter
        return told(error, line_of(error, adapter, self._homes), (*adapter.machinery, *adapter.own))


def _as_usual(value: Any) -> Any:
    return NotImplemented


def _raised(found: dict[str, Any]) -> Relayed:
    return Relayed(found["number"], found["text"])


@contextlib.contextmanager
def _traced(target: str) -> Iterator[None]:
    """Let an error of the user's code show its whole traceback: it stands in a process that nobody sees."""
    try:
        yield
    except SpecError as error:
        cause = error.__cause__
        if cause is None:
            raise WorkerError(str(error)) from None
        text = str(error).partition("\nHint:")[0]
        msg = f"{text}\n{traceback_of(cause)}\nHint: {_hint(cause)}"
        raise WorkerError(msg) from cause


def _hint(cause: BaseException) -> str:
    name = cause.name if isinstance(cause, ModuleNotFoundError) and cause.name else ""
    root = name.partition(".")[0]
    if root in FRAMEWORKS:
        install = f"{sys.executable} -m pip install {FRAMEWORKS[root].distributions[0]}"
        return f"name a module that imports nothing that this interpreter lacks, or {install}."
    if root:
        return (
            f"{sys.executable} -m pip install {root}, or name the folder that it is in: remote(..., path=['folder'])."
        )
    return f"{sys.executable} is the interpreter that ran it; try it there without padiff."
