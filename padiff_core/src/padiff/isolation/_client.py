"""Be the side of a diff whose model lives in a worker: pass on, as messages, what a side is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import attrs

from padiff.forcing import Assess, Check, Fed, ForceRequest, Given, Replayed, ReplayRequest, Side
from padiff.import_string import referred
from padiff.isolation._session import Session
from padiff.numerics import Array
from padiff.recording import Cuts, Orders, Task
from padiff.trace import Description, Flow, Trace, ValueStore, cut_description

T = TypeVar("T")

_MOST = 1 << 28
"""Bytes of values that are held here at once."""


@attrs.frozen
class _Values:
    """What lies at a model's parameters at one moment, read ahead: most readers go through all of them."""

    ask: Callable[[list[str]], Mapping[str, Array | None]]
    paths: list[str]
    held: dict[str, Array | None] = attrs.field(factory=dict)

    def __call__(self, path: str) -> Any:
        """Return what lies at a path, with those behind it in few messages."""
        if path not in self.held:
            if sum(array.nbytes for array in self.held.values() if array is not None) > _MOST:
                self.held.clear()
            behind = self.paths[self.paths.index(path) + 1 :] if path in self.paths else []
            self.held.update(self.ask([path, *(other for other in behind if other not in self.held)]))
        return self.held[path]


@attrs.frozen(eq=False)
class RemoteSide:
    """A side whose model lives in a worker; what it sends are records, and arrays in shared memory."""

    _session: Session
    about: Description
    _number: int = 0
    _values: dict[int, _Values] = attrs.field(factory=dict)
    """The values of this side and of those that read the same model otherwise, by their numbers."""

    @classmethod
    def begun(cls, session: Session, *, operations: bool, within: Collection[str] | None = None) -> RemoteSide:
        """Return a worker's model as the side of a diff that begins; with ``operations`` these are traced too."""
        paths = None if within is None else sorted(within)
        number, found = session.request("begin", operations, paths, answer=tuple[int, Description])
        environment = {**found.environment, "process": session.process.python}
        return cls(session, attrs.evolve(found, environment=environment), number)

    def _ask(self, name: str, *arguments: Any, answer: Callable[..., T] | None) -> T:
        found: T = self._session.request(name, self._number, *arguments, answer=answer)
        return found

    def _read(self, what: str, paths: Iterable[str]) -> _Values:
        kind = dict[str, Array | None]
        return _Values(partial(self._session.request, "read", self._number, what, answer=kind), list(paths))

    def prepare(self, loss: Any, optimizer: Any, *, index: int) -> Given:
        """Take the loss and the optimizer that a user gave: names, or functions that a module holds."""
        given = {"loss": loss, "optimizer": optimizer}
        names = [None if value is None else referred(value, what) for what, value in given.items()]
        return self._ask("prepare", *names, index, answer=Given)

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
        self._values.clear()
        return self._ask("record", task, values, answer=Trace)

    def flow(self, task: Task) -> Flow:
        """Run the model forward and return its dataflow."""
        found: Flow = self._session.request("pass_on", self._number, "flow", task, answer=Flow)
        return found

    @contextmanager
    def force(self, request: ForceRequest, assess: Assess | None = None) -> Iterator[Fed]:
        """Run the model with each matched call fed from the reference; ``assess`` is called here."""
        kind = tuple[Fed, dict[int, tuple[Array, Array]]]
        found, judged = self._session.request("force", self._number, request, assess is not None, answer=kind)

        def answered(index: int, check: Check) -> Check:
            if assess is None or index not in judged:
                return check
            answer = assess(check.spot.owner, check.difference, *judged[index])
            return attrs.evolve(check, close=answer.close, measured=answer.measured)

        with self._until_left():
            checks = [answered(index, check) for index, check in enumerate(found.checks)]
            paths = {flag: [p for p, x in self.about.parameters.items() if x.buffer is flag] for flag in (False, True)}
            gradient, buffer = self._read("gradient", paths[False]), self._read("buffer", paths[True])
            yield attrs.evolve(found, checks=checks, gradient=gradient, buffer=buffer)

    def led(self, request: ForceRequest) -> Trace:
        """Run the model forward as `force` does, and return the calls of that run."""
        return self._ask("pass_on", "led", request, answer=Trace)

    @contextmanager
    def _until_left(self) -> Iterator[None]:
        """Have the worker leave, on leaving, what it entered last."""
        try:
            yield
        finally:
            self._values.clear()
            if self._session.usable:
                self._session.request("leave", answer=None)

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run one call by itself."""
        return self._ask("pass_on", "replay", request, answer=Replayed)

    def permuted(self, axes: Orders, cuts: Cuts | None = None) -> RemoteSide:
        """Return the side, with some tensors read in another order of axes, and some rows of some parameters."""
        number = self._ask("permuted", axes, cuts or {}, answer=int)
        return RemoteSide(self._session, cut_description(self.about, cuts or {}), number, self._values)

    def value(self, path: str) -> Array:
        """Return the value of a parameter or buffer as it is now."""
        found: Array = self._values.setdefault(self._number, self._read("value", self.about.parameters))(path)
        return found

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite parameters or buffers in place."""
        self._values.clear()
        self._ask("pass_on", "assign", dict(arrays), answer=None)

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        """Set the gradients of parameters, and let the optimizer take one step."""
        self._values.clear()
        self._ask("pass_on", "step", dict(gradients), answer=None)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back, on leaving, what runs and steps change."""
        self._ask("preserved", answer=None)
        with self._until_left():
            yield

    def native(self, path: str) -> None:
        """Return None: the live module is another process's."""
