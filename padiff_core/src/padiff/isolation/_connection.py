"""Exchange messages with another process over a socket: each is one frame, with the shared memory that it names."""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from padiff.codec import Codec, Incoming, Malformed, Outgoing, Segment

PROTOCOL = 2
"""The version of what two processes say to each other, after the first line."""

ASK, ANSWER, FAIL = range(3)

_HEADER = struct.Struct("!BQI")  # kind, length of the text, number of segments
_CHUNK = 1 << 16
_LONGEST = 1 << 30
_MOST_SEGMENTS = 253
_RIGHTS = socket.CMSG_LEN(_MOST_SEGMENTS * array.array("i").itemsize)


class Gone(Exception):
    """The other end closed the connection."""


class Silent(Exception):
    """The other end gave no answer in time."""


class Connection:
    """One end of a connection to another process."""

    def __init__(self, end: socket.socket, codec: Codec) -> None:
        self.socket = end
        self.codec = codec

    def send(self, kind: int, body: Any) -> None:
        """Send a message; raise `Unsendable` where it holds what cannot be sent, `Gone` where nobody is there."""
        arrays = Outgoing()
        text = self.codec.encode(body, arrays)
        segments = arrays.segments()
        frame = _HEADER.pack(kind, len(text), len(segments)) + text
        descriptors = array.array("i", [segment.descriptor for segment in segments])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
        try:
            sent = self.socket.sendmsg([frame], rights)
            if sent < len(frame):
                self.socket.sendall(memoryview(frame)[sent:])
        except TimeoutError:
            raise Silent from None
        except OSError:
            raise Gone from None

    def receive(self, still: Callable[[], bool] = lambda: False) -> tuple[int, Any]:
        """Return the next message and its kind.

        Raises `Gone` where the connection ends, `Malformed` for what is no message, `Silent` where the socket has a
        timeout, nothing comes, and the other end is not ``still`` at work either.
        """
        first, rights, flags, _ = _patient(partial(self.socket.recvmsg, _CHUNK, _RIGHTS), still)
        segments = _mapped(rights)
        data = self._filled(bytearray(first), _HEADER.size, still)
        kind, length, count = _HEADER.unpack_from(data)
        if kind > FAIL or length > _LONGEST or count != len(segments) or flags & socket.MSG_CTRUNC:
            msg = f"a frame of kind {kind}, {length} bytes and {count} segments came with {len(segments)} of them"
            raise Malformed(msg)
        data = self._filled(data, _HEADER.size + length, still)
        if len(data) > _HEADER.size + length:
            msg = f"{len(data) - _HEADER.size - length} bytes came behind a frame"
            raise Malformed(msg)
        return kind, self.codec.decode(bytes(memoryview(data)[_HEADER.size :]), Incoming(segments))

    def _filled(self, data: bytearray, size: int, still: Callable[[], bool]) -> bytearray:
        while len(data) < size:
            more = _patient(partial(self.socket.recv, max(_CHUNK, min(size - len(data), 1 << 24))), still)
            if not more:
                raise Gone
            data += more
        return data


def _patient(read: Callable[[], Any], still: Callable[[], bool]) -> Any:
    while True:
        try:
            return read()
        except TimeoutError:
            if not still():
                raise Silent from None
        except OSError:
            raise Gone from None


def _mapped(rights: list[tuple[int, int, bytes]]) -> list[Segment]:
    """Return the segments that came with a message; raise `Malformed` where one is none."""
    descriptors, found, trouble = array.array("i"), [], ""
    for _, _, numbers in rights:
        descriptors.frombytes(numbers[: len(numbers) - len(numbers) % descriptors.itemsize])
    for descriptor in descriptors:
        try:
            found.append(Segment.received(descriptor))
        except (OSError, ValueError, OverflowError) as error:
            os.close(descriptor)
            trouble = str(error)
    if trouble:
        raise Malformed(trouble)
    return found
