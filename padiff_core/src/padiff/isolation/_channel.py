"""Exchange requests with another process over a socket: one side works, the other waits, and may be called back."""

from __future__ import annotations

import array
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from padiff.isolation._segment import Segment
from padiff.isolation._wire import Wire

__all__ = ["PROTOCOL", "Channel", "Gone", "Silent", "Unsendable"]

PROTOCOL = 1
"""The version of what two processes say to each other, after the first line."""

_HEADER = struct.Struct("!BQI")  # what it is, length of what follows, number of segments
_SEGMENT = struct.Struct("!QQ")  # name, size
_CHUNK = 1 << 16
_RIGHTS = socket.CMSG_LEN(64 * array.array("i").itemsize)

_ASK, _ANSWER, _FAIL = range(3)


class Gone(Exception):
    """Say that the other end closed the connection."""


class Silent(Exception):
    """Say that the other end gave no answer in time."""


class Unsendable(Exception):
    """Say that a message holds what cannot be sent; nothing of it was."""


class Channel:
    """Carry requests in both directions, each answered before the side that made it goes on.

    ``serve`` holds the functions that the other end may ask for, by name; ``notes`` those that need no answer. Notes
    are collected and go along with the next message. ``told`` turns an error into what the other end can raise again,
    and ``raised`` the other way round.
    """

    def __init__(
        self,
        connection: socket.socket,
        wire: Wire,
        serve: Mapping[str, Callable[..., Any]],
        notes: Mapping[str, Callable[..., Any]],
        told: Callable[[BaseException], Any],
        raised: Callable[[Any], BaseException],
    ) -> None:
        self.wire = wire
        self.connection = connection
        self._serve = serve
        self._own_notes = {"settle": wire.settle, "retire": wire.retire}
        self._notes = notes
        self.told = told
        self._raised = raised
        self._lock = threading.RLock()
        self._outbox: list[tuple[str, tuple[Any, ...]]] = []
        self._collectors: list[Callable[[], None]] = [self._return_loans]
        self._trouble: Exception | None = None

    def request(self, name: str, *arguments: Any) -> Any:
        """Ask the other end, answer what it asks meanwhile, and return its answer or raise its error.

        Raises `Gone` where the connection ends, `Silent` where the socket has a timeout and nothing comes, and
        `Unsendable` where the arguments hold what cannot be sent.
        """
        with self._lock:
            self._send(_ASK, (name, arguments))
            del arguments
            while True:
                kind, body = self._receive()
                if kind == _ASK:
                    self._answer(body)
                elif kind == _FAIL:
                    raise self._raised(body)
                else:
                    self._raise_trouble()
                    return body

    def note(self, name: str, *arguments: Any) -> None:
        """Tell the other end something with the next message."""
        self._outbox.append((name, arguments))

    def before_sending(self, collect: Callable[[], None]) -> None:
        """Call a function before each message, for the notes that it has to add."""
        self._collectors.append(collect)

    def answer_until_closed(self) -> None:
        """Answer requests until the other end closes the connection."""
        with contextlib.suppress(Gone):
            while True:
                self._answer(self._receive()[1])

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _answer(self, body: list[Any]) -> None:
        try:
            self._raise_trouble()
            # No name here may keep the arguments: what they hold is given back with the answer.
            self._send(_ANSWER, self._serve[body[0]](*body.pop()))
        except (Gone, Silent):
            raise
        except (Exception, SystemExit) as error:
            self._send(_FAIL, self.told(error))

    def _raise_trouble(self) -> None:
        """Raise what a note gave rise to."""
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble

    def _send(self, kind: int, body: Any) -> None:
        for collect in self._collectors:
            collect()
        notes, self._outbox = self._outbox, []
        try:
            data, segments = self.wire.pack(notes, body)
        except Exception as error:
            self._outbox[:0] = notes
            raise Unsendable(str(error)) from error
        names = b"".join(_SEGMENT.pack(segment.name, segment.size) for segment in segments)
        parts = [_HEADER.pack(kind, len(data), len(segments)), names, data]
        descriptors = array.array("i", [segment.descriptor for segment in segments])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
        try:
            sent = self.connection.sendmsg(parts, rights)
            if sent < sum(map(len, parts)):
                self.connection.sendall(b"".join(parts)[sent:])
        except OSError as error:
            raise _meaning(error) from error

    def _receive(self) -> tuple[int, Any]:
        """Return the next message; an argument that cannot be read here is an error for the next answer."""
        try:
            first, rights, _, _ = self.connection.recvmsg(_CHUNK, _RIGHTS)
            data = first if len(first) >= _HEADER.size else self._filled(first, _HEADER.size)
            kind, length, count = _HEADER.unpack_from(data)
            start = _HEADER.size + count * _SEGMENT.size
            data = data if len(data) == start + length else self._filled(data, start + length)
        except OSError as error:
            raise _meaning(error) from error
        messages = self.wire.unpack(memoryview(data)[start:], _segments(data[_HEADER.size : start], rights))
        for name, arguments in next(messages):
            try:
                (self._own_notes.get(name) or self._notes[name])(*arguments)
            except Exception as error:
                self._trouble = self._trouble or error
        try:
            body = next(messages)
        except Exception as error:
            if kind != _ASK:
                raise
            self._trouble = self._trouble or error
            body = ()
        return kind, list(body) if kind == _ASK else body

    def _filled(self, first: bytes, size: int) -> bytes:
        data = bytearray(first)
        while len(data) < size:
            more = self.connection.recv(max(_CHUNK, size - len(data)))
            if not more:
                raise Gone
            data += more
        return bytes(data)

    def _return_loans(self) -> None:
        returned = []
        while self.wire.returned:
            returned.append(self.wire.returned.pop())
        if returned:
            self.note("settle", returned)


def _segments(names: bytes, rights: list[tuple[int, int, bytes]]) -> list[Segment]:
    """Return the segments that came with a message."""
    descriptors = array.array("i")
    for _, _, data in rights:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return [
        Segment(name, size, descriptor, writable=False)
        for (name, size), descriptor in zip(_SEGMENT.iter_unpack(names), descriptors, strict=True)
    ]


def _meaning(error: OSError) -> Exception:
    """Return what a socket's error means."""
    return Silent() if isinstance(error, TimeoutError) else Gone()
