"""Talk to one worker: make its objects known here, let it call back, and say what went wrong when it ends."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from padiff.errors import InputError, WorkerError
from padiff.isolation._channel import Channel, Gone, Silent, Unsendable
from padiff.isolation._errors import raised_again
from padiff.isolation._process import Process
from padiff.isolation._standin import Container, Identity, StandIn, TensorStandIn, class_named, reduced
from padiff.isolation._wire import Wire

__all__ = ["Session"]

_DOING = {
    "build": "built the model",
    "run": "ran the model",
    "call": "ran the loss",
    "use": "ran a function of yours",
    "step": "took an optimizer's step",
}
_HINTS = {
    "SIGKILL": "was it ended from outside, or for want of memory?",
    "SIGSEGV": "a native library failed; the last lines that it printed show where.",
    "SIGABRT": "a native library gave up; the last lines that it printed show why.",
}
_READING = frozenset(
    {"device", "described", "environment", "extent", "gradient", "is_optimizer", "modules", "numpy", "parameters"}
    | {"read", "readings", "view"}
)
"""Requests that change nothing."""
_AGAIN = "the next use of this remote model starts a new one."


class Session:
    """Hold the connection to one running worker."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.timeout: float | None = None
        self.failed: str | None = None
        """Why the worker can no longer be used, where that was not asked for."""
        self.closed = False
        self.generation = 0
        """Grows with every request that may change a parameter."""
        self.read: NDArray[Any] | None = None
        """The array that the worker was given last to compare with, until it goes on: it need not be sent again."""
        self.wants: str | None = None
        """What the listener of the run wants to read of every new tensor, by name."""
        self.dropped: list[tuple[int, int]] = []
        """Numbers of objects whose stand-ins are gone, with how often each was received."""
        self.running: list[str] = []
        """Paths of the modules that are running, the innermost last."""
        self._doing: list[str] = []
        self._standins: weakref.WeakValueDictionary[int, StandIn] = weakref.WeakValueDictionary()
        self._identities: dict[int, Identity] = {}
        self._fresh: list[TensorStandIn] = []
        self._callbacks: dict[int, Callable[..., Any]] = {}
        self._thrown: dict[int, BaseException] = {}
        self._numbers = itertools.count(1)
        wire = Wire(reduced, {}, trusted=False)
        serve, notes = {"callback": self._called_back}, {"gone": self._gone}
        self._channel = Channel(process.connection, wire, serve, notes, self._told, self.raised)
        self._channel.before_sending(self._tell_dropped)

    # Asking -------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Return whether the worker can be asked."""
        return not self.closed and self.failed is None

    def request(self, name: str, *arguments: Any) -> Any:
        """Ask the worker; raise what it raised, or `WorkerError` where it does not answer."""
        if self.failed is not None:
            raise WorkerError(self.failed)
        if self.closed:
            msg = f"the worker of {self.name} was closed, and with it what belonged to its model.\n"
            msg += f"Hint: {_AGAIN}"
            raise WorkerError(msg)
        if self.process.connection.gettimeout() != self.timeout:
            self.process.connection.settimeout(self.timeout)
        self.generation += name not in _READING
        self._doing.append(name)
        try:
            return self._channel.request(name, *arguments)
        except Unsendable as error:
            msg = f"an argument for {self.name} cannot be sent to its worker: {error}.\n"
            msg += "Hint: give arrays and plain Python values."
            raise InputError(msg) from error
        except Gone:
            raise self._failure(self._death) from None
        except Silent:
            raise self._failure(self._silence) from None
        except Exception:
            raise
        except BaseException:  # Ctrl-C: the worker waits in the midst of something
            self.end()
            raise
        finally:
            self._doing.pop()

    def note(self, name: str, *arguments: Any) -> None:
        """Tell the worker something with the next request; nobody, where it is gone."""
        if self.usable:
            self._channel.note(name, *arguments)

    @contextlib.contextmanager
    def context(self, name: str, *arguments: Any) -> Iterator[None]:
        """Hold a context of the worker's open."""
        number = self.request(name, *arguments)
        try:
            yield
        finally:
            if self.usable:
                self.request("leave", number)

    def rest(self) -> dict[str, int]:
        """Let both sides give back what no array needs; return what the worker still holds."""
        self._thrown.clear()
        self._channel.note("retire", self._channel.wire.trim())
        found: dict[str, int] = self.request("rest")
        return found

    def end(self) -> None:
        """End the worker at once."""
        self.closed = True
        self._ended()

    def close(self) -> None:
        """Let the worker go."""
        if not self.closed:
            self.closed = True
            self.process.dismiss()
            self._ended()

    # Callbacks ----------------------------------------------------------------------------------------------

    def callback(self, function: Callable[..., Any]) -> int:
        """Return a number under which the worker can call a function here."""
        number = next(self._numbers)
        self._callbacks[number] = function
        return number

    def forget(self, *numbers: int) -> None:
        """Take numbers of callbacks back."""
        for number in numbers:
            self._callbacks.pop(number, None)

    def unless_read(self, array: NDArray[Any]) -> NDArray[Any] | None:
        """Return an array to send, or None for the one that the worker has."""
        return None if array is self.read else array

    def _called_back(self, number: int, *arguments: Any) -> Any:
        try:
            return self._callbacks[number](*arguments)
        finally:
            self.read = None
            while self._fresh:  # the worker goes on, and may change them
                self._fresh.pop().told = None

    # What the worker names ----------------------------------------------------------------------------------

    def tensor(self, about: tuple[Any, ...]) -> TensorStandIn:
        """Return the stand-in of a tensor."""
        found = self._standins.get(about[0])
        if found is None:
            found = self._standins[about[0]] = TensorStandIn(self, about[0])
        assert isinstance(found, TensorStandIn)
        found._count += 1
        found.heard(*about[1:])
        found.identity = self._identities.setdefault(about[0], Identity())
        if found.told is not None:
            self._fresh.append(found)
        return found

    def object(self, named: tuple[int, str, str]) -> StandIn:
        """Return the stand-in of any other object."""
        found = self._standins.get(named[0])
        if found is None:
            found = self._standins[named[0]] = class_named(*named[1:])(self, named[0])
        found._count += 1
        return found

    def known(self, number: int) -> StandIn:
        """Return the stand-in of an object that is known."""
        return self._standins[number]

    def value(self, about: tuple[Any, ...]) -> Any:
        """Return what a described value is here: stand-ins, and containers of them."""
        kind, what = about[:2]
        if kind == "tensor":
            return self.tensor(what)
        if kind == "plain":
            return what
        if kind == "object":
            return self.object(what)
        steps, tensors = zip(*about[2], strict=True)
        return Container(self.object((what, "builtins", "object")), list(steps), [self.tensor(t) for t in tensors])

    def _gone(self, numbers: list[int]) -> None:
        for number in numbers:
            self._identities.pop(number, None)

    def _tell_dropped(self) -> None:
        dropped = []
        while self.dropped:
            dropped.append(self.dropped.pop())
        if dropped:
            self._channel.note("drop", dropped)

    # What went wrong ----------------------------------------------------------------------------------------

    def _told(self, error: BaseException) -> dict[str, Any]:
        number = next(self._numbers)
        self._thrown[number] = error
        return {"number": number, "text": str(error)}

    def raised(self, found: dict[str, Any]) -> BaseException:
        """Return an error that the worker told of, or the one of this process that came back."""
        if "yours" in found:
            return self._thrown.pop(found["yours"])
        return raised_again(found, f"the worker of {self.name} ({self.process.python}, process {self.process.pid})")

    def _failure(self, why: Callable[[], str]) -> WorkerError:
        """End the worker; return why as an error, a fresh one each time: errors hold on to what they went through."""
        if self.failed is None:
            self.failed = why()
            self._ended()
        return WorkerError(self.failed)

    def _ended(self) -> None:
        """Let go of the worker, and of all that is shared with it."""
        self.process.end()
        self._channel.wire.forget()
        self._callbacks.clear()
        self._identities.clear()

    def _where(self) -> str:
        doing = next((_DOING[name] for name in reversed(self._doing) if name in _DOING), "answered a request")
        inside = f", in module {self.running[-1]!r}" if self.running and self.running[-1] else ""
        return f"while it {doing}{inside}"

    def _death(self) -> str:
        ended = self.process.ended()
        hint = next((hint for name, hint in _HINTS.items() if name in ended), f"find out why; {_AGAIN}")
        who = f"the worker of {self.name} ({self.process.python}, process {self.process.pid})"
        return f"{who} {ended} {self._where()}.{self.process.last_words()}\nHint: {hint}"

    def _silence(self) -> str:
        position = self.process.position() or "  it did not tell"
        who = f"the worker of {self.name} ({self.process.python}, process {self.process.pid})"
        return (
            f"{who} gave no answer for {self.timeout:g} s {self._where()}. It was at:\n{position}\n"
            "Hint: what takes longer needs a larger timeout=, or None, which waits for ever."
        )
