"""Be the side of a diff whose model lives in a worker: pass on, as messages, what a side is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.forcing import Ask, Check, Fed, ForceRequest, Given, Replayed, ReplayRequest, Side
from padiff.import_string import referred
from padiff.isolation._session import Session
from padiff.recording import Task, Turns
from padiff.trace import Description, Trace, ValueStore

__all__ = ["RemoteSide"]

Array = NDArray[Any]


class RemoteSide:
    """A side whose model lives in a worker; what it sends are records, and arrays in shared memory."""

    def __init__(self, session: Session, about: Description, number: int = 0) -> None:
        self._session = session
        self.about = about
        self._number = number

    @classmethod
    def begun(cls, session: Session, *, operations: bool) -> RemoteSide:
        """Return a worker's model as the side of a diff that begins; with ``operations`` these are traced too."""
        found: Description = session.request("begin", operations, answer=Description)
        environment = {**found.environment, "process": session.process.python}
        return cls(session, attrs.evolve(found, environment=environment))

    def _ask(self, name: str, *arguments: Any, answer: Any) -> Any:
        return self._session.request(name, self._number, *arguments, answer=answer)

    def prepare(self, loss: Any, optimizer: Any, *, index: int) -> Given:
        """Take the loss and the optimizer that a user gave: names, or functions that a module holds."""
        given = {"loss": loss, "optimizer": optimizer}
        names = [None if value is None else referred(value, what) for what, value in given.items()]
        found: Given = self._ask("prepare", *names, index, answer=Given)
        return found

    def takes(self, optimizer: Any) -> bool:
        """Return False: an optimizer of this process is none of the worker's."""
        return False

    def check_dtype(self, dtype: str) -> None:
        """Raise `InputError` where the framework has no tensors of a dtype."""
        self._ask("pass_on", "check_dtype", dtype, answer=None)

    def find(self, native: Any) -> None:
        """Return None: no live object of this process is one of the model's modules."""

    def shared(self, other: Side) -> list[str]:
        """Return nothing: no parameter lies in two processes."""
        return []

    def record(self, task: Task, store: ValueStore, *, values: bool = True) -> Trace:
        """Run the model freely and return its trace, whose values lie in the worker's shared memory."""
        found: Trace = self._ask("record", task, values, answer=Trace)
        return found

    @contextmanager
    def force(self, request: ForceRequest, ask: Ask | None = None) -> Iterator[Fed]:
        """Run the model with each matched call fed from the reference; ``ask`` is asked here."""
        kind = tuple[Fed, dict[int, tuple[Array, Array]]]
        found, judged = self._ask("force", request, ask is not None, answer=kind)

        def answered(index: int, check: Check) -> Check:
            if ask is None or index not in judged:
                return check
            said = ask(check.spot.owner, check.difference, *judged[index])
            return attrs.evolve(check, close=said.close, measured=said.measured)

        with self._until_left():
            checks = [answered(index, check) for index, check in enumerate(found.checks)]
            functions = {what: partial(self._ask, "left", what, answer=Array | None) for what in ("gradient", "buffer")}
            yield attrs.evolve(found, checks=checks, **functions)

    @contextmanager
    def _until_left(self) -> Iterator[None]:
        """Have the worker leave, on leaving, what it entered last."""
        try:
            yield
        finally:
            if self._session.usable:
                self._session.request("leave", answer=None)

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run one call by itself."""
        found: Replayed = self._ask("pass_on", "replay", request, answer=Replayed)
        return found

    def permuted(self, axes: Turns) -> RemoteSide:
        """Return the side, with some tensors read in another order of axes."""
        return RemoteSide(self._session, self.about, self._ask("permuted", axes, answer=int))

    def value(self, path: str) -> Array:
        """Return the value of a parameter or buffer as it is now."""
        found: Array = self._ask("pass_on", "value", path, answer=Array)
        return found

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite parameters or buffers in place."""
        self._ask("pass_on", "assign", dict(arrays), answer=None)

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        """Set the gradients of parameters, and let the optimizer take one step."""
        self._ask("pass_on", "step", dict(gradients), answer=None)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back, on leaving, what runs and steps change."""
        self._ask("preserved", answer=None)
        with self._until_left():
            yield

    def native(self, path: str) -> None:
        """Return None: the live module is another process's."""
