"""What settling suspects rests on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from padiff.judging import epsilon

SMALL = [name for name in dir(ml_dtypes) if name.startswith(("bfloat16", "float8_"))]


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", *SMALL])
def test_every_floating_dtype_has_its_epsilon(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert 0 < epsilon(dtype) <= 1
    assert np.ones((), dtype) + np.asarray(epsilon(dtype), dtype) != 1


@pytest.mark.parametrize("name", ["bool", "int8", "uint64"])
def test_whole_numbers_are_exact(name: str) -> None:
    assert epsilon(np.dtype(name)) == 0
