"""Be the process of a remote model: import what its parent names, build the model, and serve it as a side."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from padiff.adapter import Adapter
from padiff.codec import Segment, Unsendable
from padiff.errors import PadiffError, WorkerError
from padiff.forcing import Assessment, Fed, ForceRequest, Given, LocalSide
from padiff.import_string import SpecError, called, guarded, load
from padiff.isolation._beat import Beat
from padiff.isolation._connection import ANSWER, FAIL, Connection, Gone
from padiff.isolation._errors import error_record, traceback_of
from padiff.isolation._messages import codec
from padiff.numerics import Array
from padiff.plugins import FRAMEWORKS, adapter_for, set_environment
from padiff.pytree import map_leaves
from padiff.recording import Task, TrackedAdapter, internal_errors, line_of, operating, package_of
from padiff.trace import Description, SharedStore, Trace

_AT_ONCE = 1 << 25
"""Bytes that are sent along, unasked."""


def main(connection: socket.socket, life: int, dump: int, page: int) -> None:
    """Serve until the parent closes the connection; end at once when it is gone."""
    _end_with(life)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=dump)
    sys.argv = ["padiff"]
    Worker(connection, Beat(page))._serve()
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
    """What answers the parent; its public methods are the requests."""

    def __init__(self, connection: socket.socket, beat: Beat) -> None:
        self._beat = beat
        self._connection = Connection(connection, codec(owns=False))
        self._native: Any = None
        self._adapter: Adapter | None = None
        self._homes: Collection[str] = ()
        self._sides: list[LocalSide] = []
        self._open: list[ExitStack] = []
        self._fed: Any = None

    def _serve(self) -> None:
        """Answer until the connection is closed."""
        with contextlib.suppress(Gone):
            while True:
                _, (name, arguments, dropped) = self._connection.receive()
                self._connection.codec.known.drop(dropped)
                try:
                    with internal_errors():
                        answer = getattr(self, name)(*arguments)
                    self._connection.send(ANSWER, answer)
                    del answer
                except (Exception, SystemExit) as error:
                    if isinstance(error, Gone):
                        raise
                    self._connection.send(FAIL, self._record_of(error))
                del arguments  # what lies in it is given back

    def build(self, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], path: list[str]) -> None:
        """Build the model."""
        sys.path[:0] = [folder for folder in path if folder not in sys.path]
        set_environment()
        with _traced(target):
            native = guarded(target, load(target), *args, **kwargs) if args or kwargs else called(target)
        try:
            adapter = adapter_for(native)
        except PadiffError as error:
            there = f"Hint: {sys.executable} -m pip install"
            raise type(error)(str(error).replace("Hint: pip install", there)) from error
        gc.freeze()  # what frameworks hold for good is not looked through again after each diff
        self._native, self._adapter = native, TrackedAdapter(adapter, self._beat.show)
        self._homes = {package_of(module.native) for module in adapter.wrap(native).modules().values()}

    def use(self, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the user's on the model; return plain data, and tensors as arrays."""
        with _traced(target):
            function = load(target)
        return self._neutral(function(self._native, *args, **kwargs))

    def load(self, target: str) -> Any:
        """Return what a name means, or what it returns without arguments."""
        with _traced(target):
            return self._neutral(called(target))

    def _neutral(self, value: Any) -> Any:
        adapter = self._adapter
        assert adapter is not None
        return map_leaves(value, adapter.is_tensor, lambda _, native: adapter.tensor(native).view())

    def begin(self, operations: bool, within: list[str] | None) -> tuple[int, Description]:
        """Be a side anew, and describe the model as it is now; with ``operations`` these are traced too.

        ``within`` some modules that is one more side of the same diff.
        """
        assert self._adapter is not None
        if within is None:
            self._leave_all()
        model = self._adapter.wrap(self._native)
        self._sides.append(LocalSide(operating(model, within) if operations else model))
        return len(self._sides) - 1, self._sides[-1].about

    def pass_on(self, side: int, name: str, *arguments: Any) -> Any:
        """Ask a side what it answers as it is."""
        return getattr(self._sides[side], name)(*arguments)

    def prepare(self, side: int, loss: str | None, optimizer: str | None, index: int) -> Given:
        """Take the loss and the optimizer that a user named."""
        with _traced(loss or optimizer or ""):
            return self._sides[side].prepare(loss, optimizer, index=index)

    def record(self, side: int, task: Task, values: bool) -> Trace:
        """Run the model freely."""
        return self._sides[side].record(task, SharedStore(), values=values)

    def force(self, side: int, request: ForceRequest, judged: bool) -> tuple[Fed, dict[int, tuple[Array, Array]]]:
        """Run the model fed from the reference.

        With ``judged`` the values come along that the parent's own rule is to judge, by the index of their check.
        """
        values_of: list[tuple[Array, Array]] = []
        store = SharedStore()

        def assess(_: Any, __: Any, reference: Array, candidate: Array) -> Assessment:
            values_of.append((reference, store.get(store.put(candidate))))
            return Assessment(close=False)

        self._fed = self._enter(self._sides[side].force(request, assess if judged else None))
        marked = [index for index, check in enumerate(self._fed.checks) if check.close is not None]
        return self._fed, dict(zip(marked, values_of, strict=True))

    def read(self, side: int, what: str, paths: list[str]) -> dict[str, Array | None]:
        """Return each ``value``, or what the open forced run left: each ``gradient`` or ``buffer``.

        Only the first path was asked for. Of the others those come along that fit into one message; where one cannot
        be read, it says so when its turn comes.
        """
        read = getattr(self._sides[side] if what == "value" else self._fed, what)
        found, size = {paths[0]: read(paths[0])}, 0
        with contextlib.suppress(Exception):
            for path in paths[1:]:
                array = read(path)
                size += 0 if array is None else array.nbytes
                if size > _AT_ONCE:
                    break
                found[path] = array
        return found

    def permuted(self, side: int, axes: Any, cuts: Any) -> int:
        """Return the number of a side that reads some tensors in another order of axes, and parameters in part."""
        self._sides.append(self._sides[side].permuted(axes, cuts))
        return len(self._sides) - 1

    def preserved(self, side: int) -> None:
        """Begin what `leave` puts back."""
        self._enter(self._sides[side].preserved())

    def _enter(self, context: AbstractContextManager[Any]) -> Any:
        with ExitStack() as stack:
            found = stack.enter_context(context)
            self._open.append(stack.pop_all())
        return found

    def leave(self) -> None:
        """Leave what was entered last."""
        self._fed = None
        self._open.pop().close()

    def _leave_all(self) -> None:
        while self._open:
            self._open.pop().close()
        self._sides, self._fed = [], None

    def rest(self) -> dict[str, int]:
        """Give back what is not needed until the next diff; tell what is still held."""
        self._leave_all()
        gc.collect()
        return {"records": len(self._connection.codec.known), **Segment.mapped()}

    def _record_of(self, error: BaseException) -> Any:
        if isinstance(error, Unsendable):
            msg = f"what was to be returned cannot be sent: {error}.\nHint: return arrays and plain Python values."
            error = WorkerError(msg)
        adapter = self._adapter
        if adapter is None:
            return error_record(error, None)
        return error_record(error, line_of(error, adapter, self._homes), (*adapter.machinery, *adapter.own))


@contextlib.contextmanager
def _traced(target: str) -> Iterator[None]:
    """Let an error of the user's code show its whole traceback: it stands in a process that nobody sees."""
    try:
        yield
    except SpecError as error:
        cause = error.__cause__
        text = str(error).partition("\nHint:")[0]
        msg = str(error) if cause is None else f"{text}\n{traceback_of(cause)}\nHint: {_hint(cause)}"
        raise WorkerError(msg) from cause


def _hint(cause: BaseException) -> str:
    root = str(getattr(cause, "name", None) or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    install = f"{sys.executable} -m pip install"
    if root in FRAMEWORKS:
        known = FRAMEWORKS[root].distributions[0]
        return f"name a module that imports nothing that this interpreter lacks, or {install} {known}."
    if root:
        return f"{install} {root}, or name the folder that it is in: remote(..., path=['folder'])."
    return f"{sys.executable} is the interpreter that ran it; try it there without padiff."
