"""Read what other tools saved: torch's .pt files, numpy's .npy files and dictionaries; nothing in them is executed."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np

from padiff.codec import DTYPES, Malformed, refuse
from padiff.errors import InputError
from padiff.numerics import Array
from padiff.trace.readers._pickles import Made, Named, Stored, unpickled

Found = TypeVar("Found")

_STORAGES: dict[str, np.dtype[Any]] = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
    "ComplexFloatStorage": np.dtype(np.complex64),
    "ComplexDoubleStorage": np.dtype(np.complex128),
}
_LARGEST_RECORDS = 1 << 20
"""Bytes of the pickle in a .pt file, at most: it holds a shape, and no values."""

_LARGEST_DICTIONARY = 1 << 34
"""Bytes of a dictionary of arrays, at most: these lie in the pickle itself."""
_DEEPEST, _MOST = 8, 1 << 16
_NUMBERS = re.compile(r"(b1|[iu][1248]|f[248]|c8|c16)")
_ARRAYS = {Named(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}
_SCALARS = {Named(f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")}

_REPEATED = 1 << 16
"""How often an expanded tensor may show an element of its storage, at most."""


def read_tensor(path: Path) -> Array:
    """Return the tensor that a file holds; raise `InputError` where it cannot be read, or holds anything else."""
    return _read(path, _npy if path.suffix == ".npy" else _pt)


def read_arrays(path: Path) -> dict[str, Any]:
    """Return the dictionary of arrays, or of such dictionaries, that a .npy file holds; raise as `read_tensor`."""
    return _read(path, _dictionary)


def _read(path: Path, read: Callable[[Path], Found]) -> Found:
    try:
        if path.is_symlink():
            refuse("it is a link")
        return read(path)
    except (Malformed, OSError, zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, EOFError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        msg = f"{path} cannot be read: {said}.\nHint: dump it again; do not trust this one."
        raise InputError(msg) from error


def _npy(path: Path) -> Array:
    found: Array = np.load(path, allow_pickle=False, mmap_mode="r")
    return np.asarray(found)


def _dictionary(path: Path) -> dict[str, Any]:
    """Return the dictionary that numpy pickled, as an array of one object."""
    with path.open("rb") as file:
        known: Any = np.lib.format
        read = {(1, 0): known.read_array_header_1_0, (2, 0): known.read_array_header_2_0}.get(known.read_magic(file))
        shape, _, dtype = read(file) if read is not None else ((), False, None)
        if dtype != np.dtype(object) or shape != ():
            refuse(f"it holds {dtype}{list(shape)}, and no dictionary of arrays")
        held = _Pickled(unpickled(file.read(), _LARGEST_DICTIONARY)).objects()
    if len(held) != 1 or not isinstance(held[0], dict):
        refuse("it holds no dictionary of arrays")
    return _named(held[0], 0)


def _named(found: dict[Any, Any], deep: int) -> dict[str, Any]:
    if deep > _DEEPEST or len(found) > _MOST:
        refuse(f"it is nested more than {_DEEPEST} deep, or holds more than {_MOST} names")
    return {str(k): _named(v, deep + 1) if isinstance(v, dict) else _Pickled(v).array() for k, v in found.items()}


class _Pickled:
    """An array as numpy pickles it: what would make it, and what it then holds."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def _state(self) -> tuple[Any, ...]:
        """Return shape, dtype, whether the first axis runs fastest, and the elements."""
        made = self._made
        if isinstance(made, Made) and made.function in _SCALARS and isinstance(made.args, tuple):
            return (), *made.args[:1], False, *made.args[1:]
        state = made.state if isinstance(made, Made) and made.function in _ARRAYS else None
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[1], tuple):
            refuse("it holds what is no array")
        return state[1:]

    def objects(self) -> list[Any]:
        """Return the elements of an array of objects."""
        elements = self._state()[3]
        return elements if isinstance(elements, list) else []

    def array(self) -> Array:
        """Return an array of numbers."""
        shape, dtype, turned, raw = self._state()
        kind = _dtype_of(dtype)
        if kind is None or not isinstance(raw, bytes) or not all(type(one) is int and one >= 0 for one in shape):
            refuse("it holds an array of what is no number")
        if len(raw) != math.prod(shape) * kind.itemsize:
            refuse(f"it holds {len(raw)} bytes for an array of {kind.name}{list(shape)}")
        flat = np.frombuffer(raw, kind)
        found: Array = flat.reshape(shape, order="F" if turned is True else "C")
        return found if kind.isnative else found.astype(kind.newbyteorder("="))


def _dtype_of(made: Any) -> np.dtype[Any] | None:
    """Return the dtype that numpy's pickle describes; None for one of anything but numbers."""
    if not isinstance(made, Made) or made.function != Named("numpy", "dtype") or not isinstance(made.args, tuple):
        return None
    name, order = made.args[0], made.state[1] if isinstance(made.state, tuple) and len(made.state) > 1 else "="
    if isinstance(name, Named):
        return DTYPES.get(name.name) if name.module == "ml_dtypes" else None
    known = isinstance(name, str) and _NUMBERS.fullmatch(name) and order in ("<", ">", "=", "|")
    return np.dtype(f"{order}{name}") if known else None


def _pt(path: Path) -> Array:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1 or archive.getinfo(names[0]).file_size > _LARGEST_RECORDS:
            refuse("it is no file of torch.save")
        folder = names[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            refuse("its bytes are in another order")
        made = _parameter(unpickled(archive.read(names[0])))
        tensor = _described(made)
        member = f"{folder}data/{tensor.storage}"
        if member not in archive.namelist():
            refuse(f"it lacks the values {tensor.storage!r}")
        if archive.getinfo(member).file_size > path.stat().st_size:
            refuse("its values are said to be larger than the file")
        raw = np.frombuffer(archive.read(member), np.uint8)
    return _strided(raw, tensor)


def _parameter(found: Any) -> Any:
    """Return the tensor of a parameter."""
    wrapped = isinstance(found, Made) and found.function == Named("torch._utils", "_rebuild_parameter")
    return found.args[0] if wrapped and isinstance(found.args, tuple) and found.args else found


class _Described(NamedTuple):
    """A tensor within its storage."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements."""
    dtype: np.dtype[Any]


def _described(made: Any) -> _Described:
    """Return what a pickled tensor tells of itself."""
    versions = {Named("torch._utils", f"_rebuild_tensor_v{n}") for n in (2, 3)}
    if not isinstance(made, Made) or made.function not in versions or not isinstance(made.args, tuple):
        refuse("it holds no tensor")
    stored, offset, shape, stride = made.args[:4] if len(made.args) >= 4 else (None,) * 4
    name = stored.name if isinstance(stored, Stored) else None
    if not isinstance(name, tuple) or len(name) != 5 or name[0] != "storage" or not isinstance(name[1], Named):
        refuse("its tensor has no storage")
    known: dict[str, np.dtype[Any]] = {**_STORAGES, **DTYPES}
    dtype = known.get(name[1].name)
    if made.function.name.endswith("v3") and len(made.args) >= 7 and isinstance(made.args[6], Named):
        dtype = known.get(made.args[6].name)
    plain = isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride)
    numbers = [name[4], offset, *shape, *stride] if plain else [None]
    if dtype is None or not all(type(one) is int and one >= 0 for one in numbers):
        refuse("its tensor is none that padiff knows")
    return _Described(str(name[2]), offset, shape, stride, dtype)


def _strided(raw: Array, tensor: _Described) -> Array:
    """Return a tensor of its storage, which must hold all of it."""
    dtype, shape = tensor.dtype, tensor.shape
    held = len(raw) // dtype.itemsize
    if 0 in shape:
        return np.zeros(shape, dtype)
    last = tensor.offset + sum((extent - 1) * step for extent, step in zip(shape, tensor.stride, strict=True))
    if last >= held or math.prod(shape) > _REPEATED * held:
        refuse(f"its storage of {held} elements does not hold a tensor of {list(shape)}")
    flat = raw[: held * dtype.itemsize].view(dtype)
    steps = tuple(step * dtype.itemsize for step in tensor.stride)
    return np.lib.stride_tricks.as_strided(flat[tensor.offset :], shape, steps, writeable=False)
