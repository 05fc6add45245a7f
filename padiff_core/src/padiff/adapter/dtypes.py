"""Know a framework's dtypes by the names of numpy's and of ml_dtypes'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from padiff.errors import InputError
from padiff.numerics import numpy_dtype

__all__ = ["COMPLEX", "FLOAT8", "PLAIN", "Dtypes", "is_inexact", "numpy_dtype", "wider"]

_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
PLAIN = (*_INTEGERS, "float16", "float32", "float64", "complex64", "complex128")
FLOAT8 = tuple(name for name in dir(ml_dtypes) if name.startswith("float8_"))
COMPLEX = {"float32": "complex64", "float64": "complex128"}
"""The dtype of complex numbers whose parts are of a floating one."""


def is_inexact(dtype: str | np.dtype[Any]) -> bool:
    """Return whether a dtype is floating or complex, so that gradients exist."""
    return (numpy_dtype(dtype) if isinstance(dtype, str) else dtype).kind in "fcV"


def wider(name: str, target: str) -> str | None:
    """Return the dtype that is lifted to when ``target`` is asked for; None where it stays: integers, wide ones."""
    if not is_inexact(name):
        return None
    wide = COMPLEX[target] if name.startswith("complex") else target
    return wide if numpy_dtype(wide).itemsize > numpy_dtype(name).itemsize else None


class Dtypes:
    """The dtypes of a framework: attributes of ``home`` that are called as numpy's or ml_dtypes' are."""

    def __init__(self, framework: str, home: Any, names: Iterable[str] = (*PLAIN, "bfloat16", *FLOAT8)) -> None:
        self._framework = framework
        self._natives = {name: getattr(home, name) for name in names if hasattr(home, name)}
        self._names = {native: name for name, native in self._natives.items()}

    def name(self, native: Any) -> str:
        """Return the name of a native dtype; raises `InputError` where numpy has no such thing."""
        try:
            return self._names[native]
        except KeyError:
            msg = f"{native} has no counterpart in numpy or ml_dtypes\nHint: use tensors of another dtype"
            raise InputError(msg) from None

    def of(self, tensor: Any) -> str:
        """Return the name of a native tensor's dtype."""
        return self._names.get(tensor.dtype) or self.name(tensor.dtype)

    def inexact(self, tensor: Any) -> bool:
        """Return whether a native tensor's dtype is floating or complex, so that gradients exist."""
        return is_inexact(self.of(tensor))

    def native(self, name: str) -> Any:
        """Return the native dtype of that name; raises `InputError` where the framework has none."""
        try:
            return self._natives[name]
        except KeyError:
            known = ", ".join(sorted(self._natives))
            msg = f"{self._framework} has no dtype for numpy's {name}\nHint: convert it to one of {known}"
            raise InputError(msg) from None
