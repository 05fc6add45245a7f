"""Talk to one worker, and say what went wrong when it ends, hangs, or says what no worker does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from padiff._version import __version__
from padiff.codec import Malformed, Unsendable, checker_of
from padiff.errors import InputError, WorkerError
from padiff.isolation._connection import ANSWER, ASK, FAIL, PROTOCOL, Connection, Gone, Silent
from padiff.isolation._errors import ErrorRecord, raised_again
from padiff.isolation._messages import codec
from padiff.isolation._process import Process
from padiff.plugins import FRAMEWORKS

_DOING = {
    "build": "built the model",
    "record": "ran the model",
    "force": "ran the model",
    "replay": "ran a part of the model",
    "use": "ran a function of yours",
    "step": "took an optimizer's step",
}
_HINTS = {
    "SIGKILL": "was it ended from outside, or for want of memory?",
    "SIGSEGV": "a native library failed; the last lines that it printed show where.",
    "SIGABRT": "a native library gave up; the last lines that it printed show why.",
}
_AGAIN = "the next use of this remote model starts a new one."


class Session:
    """The connection to one running worker."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.timeout: float | None = None
        self.failed: str | None = None
        """Why the worker can no longer be used, where that was not asked for."""
        self.closed = False
        self.ready = self.answered = False
        """Whether it has said that it is a worker; whether it has answered a request, be it with an error."""
        self._doing = ""
        self._beats = 0
        self._connection = Connection(process.connection, codec(owns=True))

    @property
    def usable(self) -> bool:
        """Return whether the worker can be asked."""
        return not self.closed and self.failed is None and self.process.alive

    def greet(self) -> None:
        """Wait for what the worker says of itself first; raise `WorkerError` where it cannot serve."""
        self.process.connection.settimeout(self.timeout)
        _check(self.process, self.process.greeting())
        self.ready = True

    def request(self, name: str, *arguments: Any, answer: Any = Any) -> Any:
        """Ask the worker for an ``answer`` of that type; raise what it raised, or `WorkerError` where it fails to."""
        if self.failed is not None:
            raise WorkerError(self.failed)
        if self.closed:
            msg = f"the worker of {self.name} was closed, and with it what belonged to its model.\n"
            msg += f"Hint: {_AGAIN}"
            raise WorkerError(msg)
        self.process.connection.settimeout(self.timeout)
        self._beats = self.process.beat.read()[0]
        self._doing = str(arguments[1]) if name == "pass_on" else name
        try:
            self._connection.send(ASK, (name, arguments, self._connection.codec.known.dropped()))
            kind, body = self._connection.receive(self._is_at_work)
            self.answered = True
            if kind == FAIL and type(body) is ErrorRecord:
                raise raised_again(body, self._who)
            if kind != ANSWER or not checker_of(answer)(body):
                msg = f"a {type(body).__name__} came where {answer} was expected"
                raise Malformed(msg)
            return body
        except Unsendable as error:
            msg = f"an argument for {self.name} cannot be sent to its worker: {error}.\n"
            msg += "Hint: give arrays and plain Python values."
            raise InputError(msg) from error
        except Gone:
            raise self._failure(self._death) from None
        except Silent:
            raise self._failure(self._silence) from None
        except Malformed as error:
            raise self._failure(partial(self._nonsense, str(error))) from None
        except KeyboardInterrupt:  # the worker is in the midst of something
            self.closed = True
            self.process.end()
            raise

    def close(self) -> None:
        """Let the worker go."""
        if not self.closed:
            self.closed = True
            (self.process.dismiss if self.ready else self.process.end)()

    def _is_at_work(self) -> bool:
        """Return whether the worker has begun or left a module since this was last asked."""
        before, self._beats = self._beats, self.process.beat.read()[0]
        return before != self._beats

    def _failure(self, why: Callable[[], str]) -> WorkerError:
        """End the worker; return why as an error."""
        self.failed = why()
        self.process.end()
        return WorkerError(self.failed)

    @property
    def _who(self) -> str:
        return f"the worker of {self.name} ({self.process.python}, process {self.process.pid})"

    @property
    def _where(self) -> str:
        doing = _DOING.get(self._doing, "answered a request")
        module = self.process.beat.read()[1] if doing.startswith("ran") else ""
        return f"while it {doing}{f', in module {module!r}' if module else ''}"

    def _death(self) -> str:
        ended = self.process.ended()
        hint = next((hint for name, hint in _HINTS.items() if name in ended), f"find out why; {_AGAIN}")
        return f"{self._who} {ended} {self._where}.{self.process.last_words()}\nHint: {hint}"

    def _silence(self) -> str:
        where = self._where  # asking for the position may wake it
        position = self.process.position() or "  it did not tell"
        return (
            f"{self._who} gave no answer for {self.timeout:g} s {where}. It was at:\n{position}\n"
            "Hint: what takes longer needs a larger timeout=, or None, which waits for ever."
        )

    def _nonsense(self, why: str) -> str:
        return (
            f"{self._who} sent what padiff cannot read {self._where}: {why}.{self.process.last_words()}\n"
            "Hint: the process was ended; does anything else there write to its socket?"
        )


def _check(process: Process, greeting: Mapping[str, Any]) -> None:
    """Raise `WorkerError` where an interpreter lacks padiff, or has one that this one cannot talk to."""
    if greeting.get("protocol") == PROTOCOL:
        return
    process.end()
    python, there, missing = process.python, greeting.get("padiff"), str(greeting.get("missing") or "")
    trouble = f"(Python {greeting.get('python')}):\n{str(greeting.get('trouble')).rstrip()}"
    install = f"{python} -m pip install"
    if missing == "padiff" or there is None:
        found = greeting.get("frameworks") or []
        adapters = [known.adapter for name, known in FRAMEWORKS.items() if known.adapter and name in found]
        what = " ".join(["padiff-core", *adapters])
        what += "" if adapters else ", and the adapter of its framework: padiff-torch, padiff-paddle, padiff-mindspore"
        msg = f"padiff is not installed in {python} (Python {greeting.get('python')}).\nHint: {install} {what}."
        if missing != "padiff":
            msg = f"padiff does not load in {python} {trouble}\n"
            msg += f"Hint: it needs Python 3.11 or newer; {install} --upgrade {what}."
    elif "protocol" in greeting or missing.startswith("padiff"):
        msg = f"padiff {there} in {python} and padiff {__version__} here cannot talk to each other.\n"
        msg += f"Hint: {install} padiff-core=={__version__}, and the adapters' same version."
    elif missing:
        msg = f"padiff {there} in {python} lacks {missing}.\nHint: {install} --upgrade padiff-core."
    else:
        msg = f"padiff {there} does not load in {python} {trouble}\nHint: {install} --upgrade padiff-core."
    raise WorkerError(msg)
