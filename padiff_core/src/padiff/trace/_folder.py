"""Read and write the files of a directory: a local one, or one that fsspec reaches.

Both are plain data, so that another process can be told of them, and name files alike. Every method may raise
``OSError``, and `array` ``EOFError`` where a file is shorter. A file that is opened is not there until `finish`.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from padiff.errors import InputError
from padiff.numerics import Array

PathLike = str | os.PathLike[str]

_MAPPED = 1 << 18
"""Bytes from which on a value is shown where it lies, and not read."""
_LOCAL = ("file://", "local://")
_RANK = re.compile(r"rank-(\d{5,9})")


@attrs.frozen
class LocalFolder:
    """A directory of this machine; links in it are not followed."""

    root: Path

    @property
    def where(self) -> str:
        """Return its path."""
        return str(self.root)

    def at(self, name: str) -> str:
        """Return a file's path."""
        return os.path.join(self.root, name)

    def make(self) -> None:
        """Make it, and what is above."""
        self.root.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Return the names of all that is in it."""
        return os.listdir(self.root)

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file."""
        descriptor, there = self._descriptor(name)
        with open(descriptor, "rb") as file:
            if there > most:
                raise OSError(errno.EFBIG, f"it takes {there} bytes")
            return file.read(there)  # room for as much as is asked for is made first

    def array(self, name: str, start: int, size: int) -> Array:
        """Return bytes of a file, read-only; a large array lies where the file does, as long as it is held."""
        descriptor, there = self._descriptor(name)
        try:
            if start + size > there:
                raise EOFError(there)
            if size < _MAPPED:
                return np.frombuffer(os.pread(descriptor, size, start), np.uint8)
            before = start % mmap.ALLOCATIONGRANULARITY
            shown = mmap.mmap(descriptor, size + before, access=mmap.ACCESS_READ, offset=start - before)
            return np.frombuffer(shown, np.uint8, size, before)
        finally:
            os.close(descriptor)

    def _descriptor(self, name: str) -> tuple[int, int]:
        try:
            descriptor = os.open(self.at(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(errno.ELOOP, "it is a link") if error.errno == errno.ELOOP else error from None
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no file")
        return descriptor, about.st_size

    def write(self, name: str, content: bytes) -> None:
        """Write a file under another name, and rename it."""
        part = self._part(name)
        try:
            part.write_bytes(content)
            os.replace(part, self.root / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def opened(self, name: str) -> Any:
        """Return a file, which has another name until it is finished."""
        return open(self._part(name), "x+b", buffering=0)

    def finish(self, name: str, file: Any) -> None:
        """Rename a file that is written."""
        file.close()
        os.replace(self._part(name), self.root / name)

    def discard(self, name: str, file: Any) -> None:
        """Remove a file."""
        file.close()
        self._part(name).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self.at(name))

    def _part(self, name: str) -> Path:
        return self.root / f"{name}.part"


@attrs.frozen
class RemoteFolder:
    """A directory that fsspec reaches. What is written waits in a temporary file of this machine until it is whole."""

    url: str

    @property
    def where(self) -> str:
        """Return its URL."""
        return self.url

    def at(self, name: str) -> str:
        """Return a file's URL."""
        return f"{self.url}/{name}"

    def make(self) -> None:
        """Make it, where the file system knows of directories."""
        system, path = _system(self.url)
        system.makedirs(path, exist_ok=True)

    def names(self) -> list[str]:
        """Return the names of all that is in it."""
        system, path = _system(self.url)
        system.invalidate_cache(path)
        return [str(found).rstrip("/").rpartition("/")[2] for found in system.ls(path, detail=False)]

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file."""
        system, path = _system(self.url)
        there = int(system.size(f"{path}/{name}") or 0)
        if there > most:
            raise OSError(errno.EFBIG, f"it takes {there} bytes")
        return bytes(system.cat_file(f"{path}/{name}"))

    def array(self, name: str, start: int, size: int) -> Array:
        """Return bytes of a file, fetched."""
        system, path = _system(self.url)
        found = bytes(system.cat_file(f"{path}/{name}", start=start, end=start + size)) if size else b""
        if len(found) < size:
            raise EOFError(int(system.size(f"{path}/{name}") or 0))
        return np.frombuffer(found, np.uint8)

    def write(self, name: str, content: bytes) -> None:
        """Send a file."""
        system, path = _system(self.url)
        system.pipe_file(f"{path}/{name}", content)

    def opened(self, name: str) -> Any:
        """Return a temporary file."""
        return tempfile.NamedTemporaryFile("x+b", buffering=0, prefix="padiff-")

    def finish(self, name: str, file: Any) -> None:
        """Send a file that is written."""
        system, path = _system(self.url)
        try:
            system.put_file(file.name, f"{path}/{name}")
        finally:
            file.close()

    def discard(self, name: str, file: Any) -> None:
        """Remove the temporary file."""
        file.close()

    def remove(self, name: str) -> None:
        """Remove a file."""
        system, path = _system(self.url)
        system.rm_file(f"{path}/{name}")


Folder = LocalFolder | RemoteFolder


def is_url(path: PathLike) -> bool:
    """Return whether a path is a URL of fsspec's, such as ``s3://bucket/run``, and no local one."""
    return "://" in os.fspath(path)


def folder_of(path: PathLike) -> Folder:
    """Return the directory at a path; raise `InputError` for a URL that cannot be reached from here."""
    text = os.fspath(path)
    for start in _LOCAL:
        if text.startswith(start):
            return LocalFolder(Path(text.removeprefix(start)))
    if not is_url(text):
        return LocalFolder(Path(path))
    _system(text)
    return RemoteFolder(text.rstrip("/"))


def _system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path there."""
    protocol = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        msg = (
            f"{url} is a URL, and fsspec, which reaches it, is not installed.\n"
            "Hint: pip install 'padiff-core[remote]', or give a local directory."
        )
        raise InputError(msg) from error
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        msg = f"{url} cannot be reached: {error}.\nHint: install what fsspec asks for, or give a local directory."
        raise InputError(msg) from error
    except ValueError as error:
        msg = (
            f"{url} cannot be reached: fsspec knows no protocol {protocol!r}.\n"
            "Hint: give a local directory, or a URL such as s3://bucket/run."
        )
        raise InputError(msg) from error
    return system, str(path).rstrip("/")


def rank_folder(folder: PathLike, rank: int) -> str:
    """Return where a rank records to, below a local folder or a URL."""
    return f"{os.fspath(folder).rstrip('/')}/rank-{rank:05d}"


def rank_folders(folder: Path) -> dict[int, Path]:
    """Return where ranks recorded to, by rank, in order; links are not followed."""
    if not folder.is_dir():
        return {}
    named = ((_RANK.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(m[1]), path) for m, path in named if m and path.is_dir() and not path.is_symlink()))
