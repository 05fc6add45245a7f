"""Large matrices that lie crosswise are copied and compared in strips, to the same result."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest

from padiff.numerics import difference, in_order, is_crosswise, laid_out

SHAPES = [(300, 301), (257, 1025), (1025, 257), (4099, 17), (17, 4099)]


def _matrix(shape: tuple[int, int], dtype: object) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) * 9).astype(dtype)


def _crosswise(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.T).T


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", ml_dtypes.bfloat16])
def test_laid_out_keeps_every_element(shape: tuple[int, int], dtype: object) -> None:
    array = _matrix(shape, dtype)
    crosswise = _crosswise(array)
    assert is_crosswise(crosswise)
    assert not is_crosswise(array)
    copied = laid_out(crosswise)
    assert copied.flags.c_contiguous
    assert copied.dtype == array.dtype
    assert (copied == array).all()
    assert laid_out(array) is array


@pytest.mark.parametrize("size", [1 << 10, 1 << 14, 1 << 20])
def test_parts_come_in_order_however_an_array_lies(size: int) -> None:
    matrix, cube = _matrix((300, 701), "f4"), np.random.default_rng(0).standard_normal((7, 9, 50, 16))
    arrays = [
        matrix,
        _crosswise(matrix),
        _crosswise(matrix)[::2],
        cube.transpose(0, 2, 1, 3),
        np.array(3.0),
        matrix[:0],
    ]
    for array in [*arrays, _crosswise(matrix).astype(ml_dtypes.bfloat16, order="K")]:
        parts = [part.copy() for part in in_order(array, size)]
        assert all(part.size == size for part in parts[:-1])
        assert np.concatenate([*parts, array.ravel()[:0]]).tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f8", "f8"), ("f4", "f8"), ("c8", "c8"), (ml_dtypes.bfloat16, "f4")])
@pytest.mark.parametrize("ours", [True, False])
def test_the_difference_does_not_depend_on_the_layout(shape: tuple[int, int], dtypes: tuple, ours: bool) -> None:
    reference, candidate = (_matrix(shape, dtype) for dtype in dtypes)
    candidate[3, 5] += 7
    candidate[-1, -1] -= 2
    plain = attrs.asdict(difference(reference, candidate))
    turned = (_crosswise(reference), candidate) if ours else (reference, _crosswise(candidate))
    seen = attrs.asdict(difference(*turned))
    assert seen.pop("rel_l2") == pytest.approx(plain.pop("rel_l2"), rel=1e-4)
    assert seen.pop("scale") == pytest.approx(plain.pop("scale"), rel=1e-4)
    assert seen == plain


def test_equal_values_and_missing_numbers_are_seen_crosswise() -> None:
    array = _matrix((300, 301), "f4")
    assert difference(array, _crosswise(array)).equal
    holed = array.copy()
    holed[200, 200] = np.nan
    assert difference(array, _crosswise(holed)).nan_mismatch
    assert difference(holed, _crosswise(holed)).equal
