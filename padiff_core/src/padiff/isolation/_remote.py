"""Name a model that another process builds and runs, and have that process run for a diff."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from padiff.errors import PadiffError, WorkerError
from padiff.forcing import LocalSide, Side
from padiff.import_string import builder_name, importable
from padiff.isolation._client import RemoteSide
from padiff.isolation._process import Process, interpreter
from padiff.isolation._session import Session
from padiff.plugins import adapter_for
from padiff.recording import operating

PathLike = str | os.PathLike[str]


class Remote:
    """A model that lives in a process of its own, for either side of `padiff.diff`.

    ``target`` is ``"package.module:build"`` or ``"path/file.py:build"``: a function that returns the model, called
    there with ``args`` and ``kwargs``, or the model itself. ``python`` is the interpreter to run it: a path, or the
    folder of an environment; this one by default. It needs ``padiff-core`` and the adapter of the model's framework.
    The process runs in ``cwd``, with ``env`` added to its environment; modules are looked for in ``path``, in the
    working directory, and where this process was told to look before Python's own places. ``timeout`` is how many
    seconds may pass without an answer or a module's call; without it a forward may take as long as it likes.

    The process starts at the first use, and serves until `close`, until the ``with`` block is left, or until nothing
    refers to this object any more; over several diffs the model keeps its state. Once the process has died, the next
    use starts another one, with a new model.

    Raises `InputError` for what is no such name, `WorkerError` where there is no such interpreter. Whatever else is
    wrong shows at the first use.
    """

    def __init__(
        self,
        target: str,
        python: PathLike | None = None,
        *,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        cwd: PathLike | None = None,
        env: Mapping[str, str] | None = None,
        path: Iterable[PathLike] = (),
        timeout: float | None = None,
    ) -> None:
        self.target = builder_name(target)
        self.python = interpreter(python)
        self.timeout = timeout
        """Seconds without an answer after which the process counts as hanging; None waits for ever."""
        self._given = tuple(args), dict(kwargs or {})
        self._cwd = None if cwd is None else _absolute(cwd)
        self._env = env
        self._path = [_absolute(folder) for folder in path]
        self._session: Session | None = None
        self._end = weakref.finalize(self, lambda: None)

    def launch(self) -> Session:
        """Start the process where none runs; do not wait for it."""
        if self._session is None or not self._session.usable:
            self.close()
            self._session = Session(Process(self.python, cwd=self._cwd, env=self._env), self.target)
            self._end = weakref.finalize(self, self._session.close)
        return self._session

    def start(self) -> Session:
        """Start the process where none runs, and build the model in it; return the connection to it.

        Raises `WorkerError` where that fails, and the adapters' errors where no adapter there takes the model.
        """
        session = self.launch()
        session.timeout = self.timeout
        if not session.ready:
            try:
                session.greet()
                session.request("build", self.target, *self._given, [*self._path, *importable(self._cwd)], answer=None)
            except BaseException as error:
                answered = session.answered
                self.close()
                if not (answered and isinstance(error, PadiffError)):
                    raise
                msg = f"in the worker ({self.python}), {error}"
                raise type(error)(msg) from error
        return session

    def call(self, target: str, *args: Any, **kwargs: Any) -> Any:
        """Call what ``target`` names there with the model, then what is given; return plain data, tensors as arrays.

        ``remote.call("my_port:save", "weights.npz")`` keeps what a diff has copied to the model.
        """
        return self.start().request("use", target, args, kwargs)

    def load(self, target: str) -> Any:
        """Return what ``target`` names there, or what it returns without arguments: plain data, tensors as arrays."""
        return self.start().request("load", target)

    def rest(self) -> dict[str, int]:
        """Give back what no diff needs any more; return what the process still holds for this one."""
        if self.pid is None or self._session is None or not self._session.ready:
            return {}
        found: dict[str, int] = self._session.request("rest", answer=dict[str, int])
        return found

    @property
    def pid(self) -> int | None:
        """Return the number of the process, or None where none runs."""
        return self._session.process.pid if self._session is not None and self._session.usable else None

    def close(self) -> None:
        """End the process, and with it the model there; harmless where none runs."""
        self._session = None
        self._end()

    def __enter__(self) -> Remote:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self.close()

    def __repr__(self) -> str:
        """Return how it was made."""
        return f"padiff.remote({self.target!r}, python={self.python!r})"


remote = Remote


@contextmanager
def served(*models: Any) -> Iterator[bool]:
    """Have the processes of the remote ones among models start side by side, and rest afterwards; tell if any is.

    Raises `WorkerError` on leaving where one ended meanwhile, whatever became of the errors that this gave.
    """
    distant = list(dict.fromkeys(model for model in models if isinstance(model, Remote)))
    for one in distant:
        one.launch()
    try:
        yield bool(distant)
        for one in distant:
            if one._session is not None and one._session.failed is not None:
                raise WorkerError(one._session.failed)
    finally:
        for one in distant:
            with suppress(WorkerError):  # what was asked for is done, or its own error tells more
                one.rest()


def side_of(model: Any, *, operations: bool = False, within: Collection[str] | None = None) -> Side:
    """Return a model, of this process or a `Remote`, as a side of a diff that begins.

    Operations are compared in the code of all its modules, or of those ``within`` some paths.
    """
    if isinstance(model, Remote):
        return RemoteSide.begun(model.start(), operations=operations, within=within)
    wrapped = adapter_for(model).wrap(model)
    return LocalSide(operating(wrapped, within) if operations else wrapped)


def _absolute(path: PathLike) -> str:
    return os.path.abspath(os.path.expanduser(path))
