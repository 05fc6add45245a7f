"""Name a model that another process builds and runs, and have that process run for a diff."""

from __future__ import annotations

import os
import sys
import sysconfig
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import attrs

from padiff import recording
from padiff.adapter import Model
from padiff.errors import InputError, PadiffError, WorkerError
from padiff.isolation._greeting import check
from padiff.isolation._process import Process, interpreter
from padiff.isolation._proxies import RemoteAdapter, RemoteModel
from padiff.isolation._session import Session
from padiff.isolation._standin import StandIn
from padiff.plugins import adapter_for

__all__ = ["Remote", "operating", "remote", "served", "wrapped"]

PathLike = str | os.PathLike[str]


@attrs.define(eq=False)
class _Running:
    """Hold a process, and the model in it once that is built."""

    process: Process
    session: Session | None = None
    adapter: RemoteAdapter | None = None
    native: StandIn | None = None

    @property
    def usable(self) -> bool:
        return self.session is None or (self.session.usable and self.process.alive)

    def close(self) -> None:
        if self.session is None:
            self.process.end()
        else:
            self.session.close()


class Remote:
    """Stand for a model in a process of its own; see `remote`.

    The process starts at the first use, and serves until `close`, until the ``with`` block is left, or until nothing
    refers to this object any more; over several diffs the model keeps its state. Once the process has died, the next
    use starts another one, with a new model.
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
        self.target = _named(target)
        self.python = interpreter(python)
        self.timeout = timeout
        """Seconds without an answer after which the process counts as hanging; None waits for ever."""
        self._given = tuple(args), dict(kwargs or {})
        self._cwd = None if cwd is None else _absolute(cwd)
        self._env = env
        self._path = [_absolute(folder) for folder in path]
        self._running: _Running | None = None
        self._end = weakref.finalize(self, lambda: None)

    def launch(self) -> None:
        """Start the process where none runs; do not wait for it."""
        if self._running is not None and self._running.usable:
            return
        self.close()
        self._running = _Running(Process(self.python, cwd=self._cwd, env=self._env))
        self._end = weakref.finalize(self, self._running.close)

    def start(self) -> RemoteAdapter:
        """Start the process where none runs, and build the model in it; return its adapter.

        Raises `WorkerError` where that fails, and the adapters' errors where no adapter there takes the model.
        """
        self.launch()
        assert self._running is not None
        if self._running.adapter is None:
            try:
                self._build(self._running)
            except BaseException:
                self._running.process.end()
                self.close()
                raise
        assert self._running.session is not None
        assert self._running.adapter is not None
        self._running.session.timeout = self.timeout
        return self._running.adapter

    def _build(self, running: _Running) -> None:
        running.process.connection.settimeout(self.timeout)
        check(running.process, running.process.greeting())
        session = running.session = Session(running.process, self.target)
        session.timeout = self.timeout
        try:
            about = session.request("build", self.target, *self._given, [*self._path, *_importable(self._cwd)])
        except PadiffError as error:
            if session.failed is not None:
                raise
            msg = f"in the worker ({self.python}), {error}"
            raise type(error)(msg) from error
        running.adapter = RemoteAdapter(session, about)
        running.native = session.object(about["native"])

    def model(self) -> Model:
        """Return the model, wrapped."""
        adapter = self.start()
        assert self._running is not None
        return adapter.wrap(self._running.native)

    def call(self, target: str, *args: Any, **kwargs: Any) -> Any:
        """Call what ``target`` names there with the model, then what is given; return plain data, tensors as arrays.

        ``remote.call("my_port:save", "weights.npz")`` keeps what a diff has copied to the model.
        """
        session = self.start().session
        return session.request("use", session.object(session.request("named", target)), args, kwargs)

    def load(self, target: str) -> Any:
        """Return what ``target`` names there, or what it returns without arguments: plain data, tensors as arrays."""
        return self.start().session.request("load", target)

    def rest(self) -> dict[str, int]:
        """Give back shared memory that nothing needs; return what the process still holds for this one."""
        session = None if self._running is None else self._running.session
        return session.rest() if session is not None and session.usable else {}

    @property
    def failed(self) -> str | None:
        """Return why the process can no longer be used, where that is not what was asked for."""
        session = None if self._running is None else self._running.session
        return None if session is None else session.failed

    @property
    def pid(self) -> int | None:
        """Return the number of the process, or None where none runs."""
        return self._running.process.pid if self._running is not None and self._running.usable else None

    def close(self) -> None:
        """End the process, and with it the model there; harmless where none runs."""
        self._running = None
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


def remote(
    target: str,
    python: PathLike | None = None,
    *,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    cwd: PathLike | None = None,
    env: Mapping[str, str] | None = None,
    path: Iterable[PathLike] = (),
    timeout: float | None = None,
) -> Remote:
    """Name a model that lives in a process of its own, for either side of `padiff.diff`.

    ``target`` is ``"package.module:build"`` or ``"path/file.py:build"``: a function that returns the model, called
    there with ``args`` and ``kwargs``, or the model itself. ``python`` is the interpreter to run it: a path, or the
    folder of an environment; this one by default. It needs ``padiff-core`` and the adapter of the model's framework.
    The process runs in ``cwd``, with ``env`` added to its environment; modules are looked for in ``path``, in the
    working directory, and where this process was told to look before Python's own places. ``timeout`` is how many
    seconds may pass without an answer; without it a forward may take as long as it likes.

    Raises `InputError` for what is no such name, `WorkerError` where there is no such interpreter. Whatever else is
    wrong shows at the first use.
    """
    return Remote(target, python, args=args, kwargs=kwargs, cwd=cwd, env=env, path=path, timeout=timeout)


@contextmanager
def served(*models: Any) -> Iterator[None]:
    """Have the processes of the remote ones among models start side by side, and rest afterwards.

    Raises `WorkerError` on leaving where one ended meanwhile, whatever became of the errors that this gave.
    """
    distant = list(dict.fromkeys(model for model in models if isinstance(model, Remote)))
    for one in distant:
        one.launch()
    try:
        yield
        for one in distant:
            if one.failed is not None:
                raise WorkerError(one.failed)
    finally:
        for one in distant:
            with suppress(WorkerError):  # what was asked for is done, or its own error tells more
                one.rest()


def wrapped(model: Any) -> Model:
    """Return a model, a native or a remote one, as its adapter sees it."""
    return model.model() if isinstance(model, Remote) else adapter_for(model).wrap(model)


def _named(target: Any) -> str:
    """Return the name of a model's builder; raise `InputError` where it is no name."""
    if isinstance(target, str) and all(target.rpartition(":")[::2]):
        return target
    hint = "Hint: padiff.remote('package.module:build') or padiff.remote('path/file.py:build')."
    if isinstance(target, str):
        msg = f"padiff.remote() got {target!r}, which names no function: there is no colon.\n"
        msg += hint
        raise InputError(msg)
    name = getattr(target, "__qualname__", None)
    if name is not None and callable(target):
        hint = f"Hint: name it, so that the other process imports it: padiff.remote('{target.__module__}:{name}')."
        msg = f"padiff.remote() got {name} itself, which lives in this process.\n"
        msg += hint
        raise InputError(msg)
    msg = f"padiff.remote() got a {type(target).__module__}.{type(target).__qualname__}; expected a name.\n"
    msg += hint
    raise InputError(msg)


def _absolute(path: PathLike) -> str:
    return os.path.abspath(os.path.expanduser(os.fspath(path)))


def _importable(cwd: str | None) -> list[str]:
    """Return where this process looks for modules before Python's own places: what a user has put there."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    found = [cwd or os.getcwd()]
    for entry in sys.path:
        if entry in own or entry.endswith(".zip"):
            break
        found.append(os.path.abspath(entry))
    return list(dict.fromkeys(found))


def operating(model: Model) -> Model:
    """Return a model, a native or a remote one, of which its operations are heard too.

    Raises `InputError` where its adapter does not offer that.
    """
    adapter = model.adapter
    if "operations" not in adapter.capabilities:
        msg = f"operations were to be compared, and the {adapter.name} adapter does not offer that.\n"
        msg += "Hint: leave operations=True out; modules are compared as ever."
        raise InputError(msg)
    return model.operating() if isinstance(model, RemoteModel) else recording.operating(model)
