"""Write a run in a thread of its own, as values come; who records waits where more of them wait than may."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from padiff.numerics import Array
from padiff.trace._directory import PlacedStore
from padiff.trace._records import Trace
from padiff.trace._run_writer import RunWriter
from padiff.trace._shards import ShardReader
from padiff.trace._staging import Staged, Staging

_WAITING = 256 << 20
"""Bytes that may wait to be written."""
_ENOUGH = 4 << 20
"""Bytes for which the thread that writes is woken: each change of threads costs as much as writing a small value."""


class QueuedStore(PlacedStore):
    """A store whose values are on their way to a directory; they can be read once the step is finished."""

    def __init__(self, reader: ShardReader, background: Background) -> None:
        super().__init__(reader)
        self._background = background
        self._count = 0
        self._counting = threading.Lock()

    def put(self, array: Array, name: str = "") -> int:
        """Let a copy of an array be written; return its key."""
        staging = self._background.staging
        copied = staging.copy(array)

        def written(writer: RunWriter) -> Any:
            placed = writer.put(copied, name)
            staging.reuse(copied)
            return placed

        return self._queue(written, copied.size)

    def lend(self, array: Array, name: str = "") -> int:
        """Let an array be written from where it lies, which nobody changes until the step is finished."""
        return self._queue(lambda writer: writer.put(Staged.of(array), name), array.nbytes)

    def put_sum(self, keys: Sequence[int], name: str) -> int:
        """Let the sum of arrays that were put be written; return its key."""

        def added(writer: RunWriter) -> Any:
            arrays = [writer.read(self.places[key]) for key in keys]
            total = arrays[0].copy()
            for array in arrays[1:]:
                np.add(total, array, out=total)
            return writer.put(Staged.of(total), name)

        return self._queue(added, 0)

    def _queue(self, write: Callable[[RunWriter], Any], size: int) -> int:
        with self._counting:  # a backward pass may run in a thread of its own
            self._count += 1
            self._background.add(lambda writer: self.places.append(write(writer)), size)
            return self._count - 1


class Background:
    """A thread that writes a run."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self.staging = Staging(_WAITING)
        self._size = 0
        self._tasks: list[tuple[Callable[[RunWriter], Any], int]] = []
        self._changed = threading.Condition()
        self._hurry = self._closed = False
        """Whether what waits is to be written now, however little; whether nothing will follow."""
        self._error: BaseException | None = None
        self._busy = False
        self._thread = threading.Thread(target=self._work, name="padiff-record", daemon=True)
        self._thread.start()

    def store(self) -> QueuedStore:
        """Return an empty store for a step."""
        return QueuedStore(self._writer.reader, self)

    def add(self, task: Callable[[RunWriter], Any], size: int) -> None:
        """Let something be written; wait while too much waits already.

        What went wrong is not raised here, in the midst of a backward pass, but by `finish`.
        """
        with self._changed:
            while self._size and self._size + size > _WAITING and self._error is None:
                self._urge()
                self._changed.wait()
            if self._error is None:
                self._tasks.append((task, size))
                self._size += size
                if self._size >= _ENOUGH and not self._busy:
                    self._changed.notify_all()

    def finish(self, step: int, trace: Trace) -> None:
        """Write the records of a step; it is there for good when this returns."""
        self.add(lambda writer: writer.finish(step, trace), 0)
        self._wait()

    def discard(self) -> None:
        """Forget what was written of the open step."""
        self.add(lambda writer: writer.discard(), 0)

    def _wait(self) -> None:
        with self._changed:
            self._urge()
            while (self._tasks or self._busy) and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error

    def _urge(self) -> None:
        self._hurry = True
        self._changed.notify_all()

    def withdraw(self) -> None:
        """Forget the whole run, of which no step was finished."""
        self.add(lambda writer: writer.withdraw(), 0)

    def close(self) -> None:
        """End the thread, behind what still waits."""
        with self._changed:
            self._closed = True
            self._urge()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not (self._closed or (self._tasks and (self._hurry or self._size >= _ENOUGH))):
                    self._changed.wait()
                if not self._tasks:
                    return
                tasks, self._tasks = deque(self._tasks), []
                self._busy, self._hurry = True, False
            while tasks:
                task, size = tasks.popleft()
                try:
                    if self._error is None:
                        task(self._writer)
                except BaseException as error:  # told to whoever records, at the next word
                    self._error = error
                del task  # the array goes
                with self._changed:
                    self._size -= size
                    self._changed.notify_all()
