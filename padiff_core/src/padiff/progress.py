"""Show how far long work has come: on stderr, on a terminal alone, and only once it has lasted a second.

Whoever works names its phases and counts its steps with `phase` and `advance`, which do nothing where nothing is shown.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Progress:
    """What follows how far the work has come; here it shows nothing."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Begin a phase of ``total`` steps; the one before is over.

        Without a total it is taken to be as long as the first phase that counted its steps: the calls of one model tell
        how many the other makes.
        """

    def advance(self, n: int = 1) -> None:
        """Count ``n`` more steps of the phase as done."""

    def call_ended(self) -> None:
        """Count a call of a model, where calls are what the phase counts: not where its total was given."""


class _Shown(Progress):
    """A progress on one transient line for the current phase, from ``delay`` seconds on.

    Only a counter moves at each step; rich is imported, and draws in a thread of its own, after the delay.
    """

    def __init__(self, stream: TextIO, delay: float) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._name = ""
        self._total: int | None = None
        self._done = 0
        self._of_calls = True
        self._usual: int | None = None
        """How many steps the first phase took that counted them."""
        self._closed = False
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._timer = threading.Timer(delay, self._open)
        self._timer.daemon = True
        self._timer.start()

    def phase(self, name: str, total: int | None = None) -> None:
        with self._lock:
            self._usual = self._usual or self._done or None
            self._name, self._total, self._done = name, self._usual if total is None else total, 0
            self._of_calls = total is None
            if self._bar is not None:
                self._follow()

    def advance(self, n: int = 1) -> None:
        with self._lock:
            self._done += n
            if self._total is not None and self._done > self._total:
                self._total = None  # the phase is longer than it was taken to be
                if self._bar is not None:
                    self._follow()
            elif self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done)

    def call_ended(self) -> None:
        if self._of_calls:
            self.advance()

    def close(self) -> None:
        """Wipe the line."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with self._lock:
            if self._closed:
                return
            # What the models print goes where it always went: their streams are not replaced.
            console = Console(file=self._stream)
            bar = Bar(
                *columns,
                TimeElapsedColumn(),
                console=console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            bar.start()
            self._bar = bar
            self._follow()

    def _follow(self) -> None:
        """Let the line show the current phase."""
        assert self._bar is not None
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(self._name, total=self._total, completed=self._done)


_SILENT = Progress()
_current: ContextVar[Progress] = ContextVar("padiff_progress", default=_SILENT)
_silenced: ContextVar[bool] = ContextVar("padiff_progress_silenced", default=False)


@contextmanager
def silenced() -> Iterator[None]:
    """Show no progress within the context."""
    token = _silenced.set(True)
    try:
        yield
    finally:
        _silenced.reset(token)


@contextmanager
def shown(stream: TextIO | None = None, *, delay: float = 1.0) -> Iterator[Progress]:
    """Give a progress that is shown on ``stream`` (stderr) if that is a terminal, and else a silent one."""
    out = sys.stderr if stream is None else stream
    if _silenced.get() or not out.isatty() or os.environ.get("TERM") == "dumb":
        yield _SILENT
        return
    progress = _Shown(out, delay)
    token = _current.set(progress)
    try:
        yield progress
    finally:
        _current.reset(token)
        progress.close()


def phase(name: str, total: int | None = None) -> None:
    """Begin a phase of the progress that is shown, if any is; see `Progress.phase`."""
    _current.get().phase(name, total)


def advance() -> None:
    """Count one more step of the phase, if any is shown."""
    _current.get().advance()


def call_ended() -> None:
    """Count one more call of a model, if any is shown; see `Progress.call_ended`."""
    _current.get().call_ended()
