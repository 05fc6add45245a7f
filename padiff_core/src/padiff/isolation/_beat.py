"""Show, on a page that two processes share, that a worker is at work, and in which module: no message can tell then."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

_PAGE = 4096
_HEAD = struct.Struct("!QH")  # how often it was written, length of the path


class Beat:
    """The page, which the worker writes and its parent reads."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._file = (
            tempfile.TemporaryFile(prefix="padiff-")  # noqa: SIM115  closed with the process
            if descriptor is None
            else os.fdopen(descriptor, "r+b")
        )
        self._file.truncate(_PAGE)
        self.descriptor = self._file.fileno()
        self._page = mmap.mmap(self.descriptor, _PAGE)
        self._count, self._last = 0, (0, "")

    def show(self, path: str) -> None:
        """Write that a module begins to run, or goes on."""
        self._count += 1
        text = path.encode(errors="replace")[: _PAGE - _HEAD.size]
        self._page[_HEAD.size : _HEAD.size + len(text)] = text
        _HEAD.pack_into(self._page, 0, self._count, len(text))

    def read(self) -> tuple[int, str]:
        """Return how often it was written, and the path of the module that runs; empty for the model itself."""
        if self._file.closed:
            return self._last
        count, length = _HEAD.unpack_from(self._page)
        return count, self._page[_HEAD.size : min(_HEAD.size + length, _PAGE)].decode(errors="replace")

    def close(self) -> None:
        """Let go of the page; what was written last can be read still."""
        self._last = self.read()
        self._page.close()
        self._file.close()
