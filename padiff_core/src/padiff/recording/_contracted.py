"""See which way a matrix is used: over which of its axes an operation sums it with data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from padiff.numerics import SAME, Array, epsilon, root_mean_square


def side_of(shape: Sequence[int]) -> int:
    """Return the rows of the square matrix that axes side by side, joined, make of a tensor; 0 where they make none."""
    sides = (math.prod(shape[:at]) for at in range(1, len(shape)))
    return next((side for side in sides if side > 1 and side * side == math.prod(shape)), 0)


def matrix_of(parameter: Sequence[int], used: Sequence[int]) -> Sequence[int] | None:
    """Return the shape of the matrix of a parameter that is ``used`` in some shape; None where that is none.

    It is the parameter itself, or of one that stacks matrices, used one by one or all at once, what the last axes are.
    """
    if side_of(parameter) or rectangle(parameter):
        return parameter
    if len(parameter) > 2 and side_of(parameter[-2:]) and tuple(used[-2:]) == tuple(parameter[-2:]):
        return parameter[-2:]
    sides = rectangle(used[-2:] if len(used) == len(parameter) else used)
    return parameter[-2:] if sides and sorted(sides) == sorted(parameter[-2:]) else None


def rectangle(shape: Sequence[int]) -> tuple[int, int] | None:
    """Return the rows and columns of a matrix of two axes, but for those of one element, that is not square."""
    lengths = [length for length in shape if length != 1]
    return (lengths[0], lengths[1]) if len(lengths) == 2 and lengths[0] != lengths[1] else None


def contracts_last_by_size(
    matrix: Sequence[int], data: Sequence[int], output: Sequence[int], *, stacked: int = 1
) -> bool | None:
    """Return what `contracts_last` does, of a matrix that is not square: the sizes alone tell.

    None where they fit neither way, or data keeps its shape: a bias of heads is added. Rows of as many numbers as one
    side has become rows of as many as the other has; of so many ``stacked`` matrices maybe the same rows for each.
    Four experts that double the rows of their own give as many numbers as if each halved all rows: axes tell then.
    """
    sides, taken, given = rectangle(matrix), math.prod(data), math.prod(output)
    if sides is None or not taken or tuple(data) == tuple(output):
        return None
    ways = {False: sides, True: sides[::-1]}
    fits = {
        last for last, (rows, columns) in ways.items() if given * rows in (taken * columns, taken * columns * stacked)
    }
    if len(fits) > 1:
        fits = {last for last in fits if ways[last][0] in data and ways[last][1] in output}
    return fits.pop() if len(fits) == 1 else None


def contracts_last(matrix: Array, data: Array, output: Array) -> bool | None:
    """Return whether an operation sums data with the last axes of a square matrix, as ``x @ w.T``, or with the first.

    Numbers tell, in whatever order of axes they are taken and given. None where neither makes them, or both may.
    """
    side = side_of(matrix.shape)
    floats = {array.dtype.kind for array in (matrix, data, output)} == {"f"}
    if not (floats and 0 < output.size == data.size):
        return None
    return _told_by_numbers(((rows, matrix.reshape(side, side)) for rows in _rows(data, side)), output)


def stack_contracts_last(matrices: Array, data: Array, output: Array) -> bool | None:
    """Return what `contracts_last` does, of square matrices stacked along the first axes.

    All of them are used at once, on the same rows or each on its own, or one by itself.
    """
    side, count = matrices.shape[-1], math.prod(matrices.shape[:-2])
    floats = {array.dtype.kind for array in (matrices, data, output)} == {"f"}
    if not floats or data.ndim < 2 or data.shape[-1] != side or not output.size:
        return None
    stack, places = matrices.reshape(count, side, side), math.prod(data.shape[:-2])
    ways: list[tuple[Array, Array]] = []
    if places in (1, count) and output.size * places == data.size * count:
        ways.append((data.reshape(places, -1, side).astype(np.float64), stack))
    elif output.size == data.size:
        ways += [(data.reshape(-1, side).astype(np.float64), one) for one in stack]
    return _told_by_numbers(ways, output)


def _told_by_numbers(ways: Iterable[tuple[Array, Array]], output: Array) -> bool | None:
    """Return whether rows of data make an output with squares, each summed with the last of its axes, or the first."""
    expected = _spread(output)
    bound = SAME(epsilon(output.dtype)) * expected[-1]
    found = {
        last
        for rows, squares in ways
        for last in (False, True)
        if np.allclose(_spread(rows @ (squares.swapaxes(-1, -2) if last else squares)), expected, rtol=0.0, atol=bound)
    }
    return found.pop() if len(found) == 1 else None


def _rows(data: Array, side: int) -> Iterator[Array]:
    """Yield data as rows of so many numbers, once for each of the axes side by side that may be summed."""
    for start, end in itertools.combinations(range(data.ndim + 1), 2):
        if math.prod(data.shape[start:end]) == side:
            axes = [*range(start), *range(end, data.ndim), *range(start, end)]
            yield data.transpose(axes).reshape(-1, side).astype(np.float64)


def _spread(values: Array) -> tuple[float, float, float]:
    """Return what tells numbers from others, in whatever order: the least, the largest, and the root mean square."""
    return float(values.min()), float(values.max()), root_mean_square(values)
