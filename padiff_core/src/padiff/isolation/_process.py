"""Start the process of a worker, pass on what it prints, tell how it ended, and leave none behind."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from padiff import errors
from padiff.errors import WorkerError
from padiff.isolation._beat import Beat
from padiff.plugins import FRAMEWORKS

_BOOT = str(Path(__file__).with_name("_boot.py"))
_NOISE = (f'File "{os.path.dirname(errors.__file__)}{os.sep}', 'File "<frozen importlib', "Extension modules: ")
"""Beginnings of the lines of a low-level traceback that say nothing of the user's code."""
_LAST_WORDS = 30
_LONGEST_GREETING = 1 << 20
_PATIENCE = 5.0
"""Seconds that a worker has for ending once nothing is asked of it, or for telling where it is."""


def interpreter(python: str | os.PathLike[str] | None) -> str:
    """Return the path of an interpreter: this process's own, a path, a name on ``PATH``, or an environment's folder.

    Raises `WorkerError` where there is none. Links are not followed: an environment's interpreter is one.
    """
    if python is None:
        return sys.executable
    given = os.path.expanduser(os.fspath(python))
    path = Path(os.path.abspath(given))
    if os.sep not in given and not path.exists() and (found := shutil.which(given)) is not None:
        return found
    inside = path / "bin" / "python"
    if inside.is_file():
        return str(inside)
    hint = "Hint: name the interpreter: padiff.remote(..., python='path/to/venv/bin/python')."
    if path.is_dir():
        msg = f"python={given!r} is a folder without bin/python, so it is no environment.\n"
    elif not path.is_file():
        msg = f"there is no interpreter {path}.\n"
        hint = f"Hint: python= is a path, taken from {os.getcwd()}, or a name on PATH."
    elif os.access(path, os.X_OK):
        return str(path)
    else:
        msg = f"{path} is no program that can be run.\n"
    raise WorkerError(msg + hint)


_running: weakref.WeakSet[Process] = weakref.WeakSet()


@functools.cache
def _children_let_go() -> None:
    """Have forks of this process close what they inherit of workers, which would else outlive it with them."""

    def let_go() -> None:
        for process in list(_running):
            process._close()

    os.register_at_fork(after_in_child=let_go)


class Process:
    """A running worker: its socket, its life line, what it printed last."""

    def __init__(self, python: str, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        self.python = python
        if os.name != "posix":
            msg = "remote models pass memory and sockets between processes as Unix does, which this system does not.\n"
            msg += "Hint: compare both models in one process."
            raise WorkerError(msg)
        if cwd is not None and not os.path.isdir(cwd):
            msg = f"there is no folder {cwd!r} for the worker to run in.\nHint: cwd= names an existing folder."
            raise WorkerError(msg)
        self.connection, theirs = socket.socketpair()
        reading, self._life = os.pipe()
        self._dump = tempfile.TemporaryFile(prefix="padiff-")  # noqa: SIM115  closed in end()
        self.beat = Beat()
        given = (theirs.fileno(), reading, self._dump.fileno(), self.beat.descriptor)
        environment = {**os.environ, **(env or {})}
        environment.pop("PYTHONHOME", None)
        try:
            self._popen = subprocess.Popen(
                [python, "-u", _BOOT, *map(str, given), *FRAMEWORKS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment,
                pass_fds=given,
                process_group=0,  # Ctrl-C is for the parent, which then ends its workers
            )
        except OSError as error:
            self._close()
            msg = f"{python} cannot be started: {error.strerror or error}.\nHint: is it a Python interpreter?"
            raise WorkerError(msg) from error
        finally:
            theirs.close()
            os.close(reading)
        _children_let_go()
        _running.add(self)
        self.pid = self._popen.pid
        self._owner = os.getpid()
        self._printed: collections.deque[str] = collections.deque(maxlen=_LAST_WORDS)
        self._pump = threading.Thread(target=self._pass_on, name="padiff-output", daemon=True)
        self._pump.start()

    def greeting(self) -> dict[str, Any]:
        """Return what the worker says of itself first; raise `WorkerError` where it says nothing, or what is wrong."""
        line = b""
        try:
            while not line.endswith(b"\n") and len(line) < _LONGEST_GREETING and (more := self.connection.recv(1)):
                line += more
        except TimeoutError:
            self.end()
            msg = f"{self.python} said nothing for {self.connection.gettimeout():g} s after its start.\n"
            msg += "Hint: give timeout= more seconds: importing a framework counts."
            raise WorkerError(msg) from None
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
        state = f"started with what no worker says, {line[:80]!r}" if line else f"{self.ended()} before it could start"
        self.end()
        msg = f"{self.python} {state}{'' if line else ' a worker'}.{self.last_words()}\n"
        msg += "Hint: is it a Python interpreter (3.11 or newer)?"
        raise WorkerError(msg)

    def ended(self) -> str:
        """Wait for the end, or bring it about; return how it came, as the end of a sentence."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._popen.wait(_PATIENCE)
        self.end()
        if status is None:
            return "closed its connection"
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-status).name}"
        return f"exited with status {abs(status)}"

    def last_words(self) -> str:
        """Return what it printed last, indented, after a line that says so; empty where it printed nothing."""
        return "\n  ".join(["\nIt printed last:", *self._printed]) if self._printed else ""

    def position(self) -> str:
        """Return where it is: the user's frames of each thread, innermost first; empty where it cannot tell."""
        dump = self._dump.fileno()
        os.lseek(dump, 0, os.SEEK_SET)
        os.ftruncate(dump, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        until, text, before = time.monotonic() + _PATIENCE, b"", None
        while time.monotonic() < until and (not text or text != before):
            time.sleep(0.05)
            before, text = text, os.pread(dump, 1 << 20, 0)  # not read(): its file's offset is the worker's too
        threads = text.decode(errors="replace").split("\n\n")
        frames = [line for thread in threads for line in thread.splitlines()[1:]]
        return "\n".join(line for line in frames if line.strip() and not line.lstrip().startswith(_NOISE))

    def end(self) -> None:
        """End it now, and wait until it has; what it printed is passed on. Harmless when it has ended."""
        if self._owner != os.getpid():
            return  # a fork of the process that started it
        self._close()
        self._popen.kill()
        self._popen.wait()
        self._pump.join(_PATIENCE)
        if self._popen.stdout is not None and not self._pump.is_alive():
            self._popen.stdout.close()

    def dismiss(self) -> None:
        """Let it go of its own accord: close the connection, and end it where that is not enough."""
        if self._owner != os.getpid():
            return
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_PATIENCE)
        self.end()

    @property
    def alive(self) -> bool:
        """Return whether it runs."""
        return self._popen.poll() is None

    def _close(self) -> None:
        self.connection.close()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        self._dump.close()
        self.beat.close()

    def _pass_on(self) -> None:
        assert self._popen.stdout is not None
        for line in io.TextIOWrapper(self._popen.stdout, encoding="utf-8", errors="replace"):
            if line.strip() and not line.lstrip().startswith(_NOISE):
                self._printed.append(line.rstrip("\n"))
            with contextlib.suppress(OSError, ValueError, AttributeError):  # whoever closed stderr wants none of it
                sys.stderr.write(line)
                sys.stderr.flush()
