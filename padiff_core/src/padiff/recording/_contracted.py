"""See which way a matrix is used: over which of its axes an operation sums it with data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from padiff.adapter import Parameter, Tensor
from padiff.numerics import SAME, Array, epsilon, root_mean_square

Ways = list[tuple[Sequence[int], int | None]]
"""The shapes of a matrix, and which axis of its parameter stacks it, if any."""


def summed_axis(
    matrix: Parameter, used: Sequence[int], data: Tensor, output: Tensor, biases: Iterable[Tensor]
) -> int | None:
    """Return which axis of a parameter that is ``used`` in some shape an operation sums with data, its first or last.

    Of those that are joined it is any one, and of stacked matrices one of these. Sizes tell, or numbers where they fit
    several. None where nothing tells.
    """
    ways = matrices_of(matrix.shape, used)
    if ways[0][1] is None and side_of(matrix.shape):
        last = contracts_last(matrix.view(), data.view(), _without(biases, output))
        if last is not None or len(ways) == 1:
            return None if last is None else _ends(matrix.shape, None)[last]
        ways = ways[1:]
    same = data.dtype == output.dtype == matrix.dtype
    found: dict[int, list[tuple[int, bool]]] = {}
    for shape, stacking in ways:
        of_all = stacking is not None and len(used) == len(matrix.shape) == 3
        count = matrix.shape[stacking or 0] if of_all else math.prod(used[:-2])
        last = contracts_last_by_size(shape, data.shape, output.shape, stacked=count) if same else None
        for one in (False, True) if side_of(shape) else () if last is None else (last,):
            found.setdefault(_ends(matrix.shape, stacking)[one], []).append((stacking or 0, one))
    if len(found) < 2:
        return next(iter(found), None)
    stack, given, taken = matrix.view(), _without(biases, output), data.view()
    told = [axis for axis, some in found.items() if any(_stack_makes(given, taken, stack, *one) for one in some)]
    return told[0] if len(told) == 1 else None if side_of(ways[0][0]) else next(iter(found))


def _without(biases: Iterable[Tensor], output: Tensor) -> Array:
    """Return an output without the biases that are added to its last axis."""
    values = output.view()
    return values - sum(bias.view() for bias in biases if bias.shape == values.shape[-1:])


def side_of(shape: Sequence[int]) -> int:
    """Return the rows of the square matrix that axes side by side, joined, make of a tensor; 0 where they make none."""
    sides = (math.prod(shape[:at]) for at in range(1, len(shape)))
    return next((side for side in sides if side > 1 and side * side == math.prod(shape)), 0)


def matrices_of(parameter: Sequence[int], used: Sequence[int]) -> Ways:
    """Return the shapes of the matrix that a parameter may be which is ``used`` in some shape, and what stacks it.

    It is the parameter itself, or of one that stacks matrices, used one by one or all at once, what the last axes are.
    Of three axes any one may stack what the others are: of all that are used as they lie, nothing tells which one.
    """
    if rectangle(parameter) or len(parameter) == 2:
        return [(parameter, None)] * bool(rectangle(parameter) or side_of(parameter))
    whole: Ways = [(parameter, None)] * bool(side_of(parameter))
    matrices: Ways = [(shape, axis) for shape, axis in _stacked(parameter) if side_of(shape) or rectangle(shape)]
    if tuple(used) == tuple(parameter):
        return whole + matrices
    sides = used[-2:] if len(used) == len(parameter) else [length for length in used if length != 1]
    return whole + [(shape, axis) for shape, axis in matrices if sorted(sides) == sorted(shape)]


def _stacked(parameter: Sequence[int]) -> list[tuple[Sequence[int], int]]:
    if len(parameter) != 3:
        return [(parameter[-2:], 0)] if len(parameter) > 3 else []
    return [([*parameter[:axis], *parameter[axis + 1 :]], axis) for axis in range(3)]


def _ends(parameter: Sequence[int], stacking: int | None) -> tuple[int, int]:
    """Return the first and the last axis of the matrix of a parameter that one of its axes stacks, or none."""
    axes = [axis for axis, length in enumerate(parameter) if stacking is not None or length != 1]
    axes = axes if stacking is None else [axis for axis in axes if axis != stacking][-2:]
    return axes[0], axes[-1]


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
    square = matrix.reshape(side, side)
    ways = ((rows, last) for rows in _rows(data, side) for last in (False, True))
    found = {last for rows, last in ways if _is_made(output, rows, square.T if last else square)}
    return found.pop() if len(found) == 1 else None


def _stack_makes(output: Array, data: Array, matrices: Array, stacking: int, last: bool) -> bool:
    """Return whether matrices that an axis of a parameter stacks make an output of data, summed with their last axes.

    Or with their first. All of them are used at once, on the same rows or each on its own, or one by itself.
    """
    matrices = np.moveaxis(matrices, stacking, 0)
    stack = matrices.reshape(-1, *matrices.shape[-2:])
    stack = stack.swapaxes(-1, -2) if last else stack
    count, width, wide = stack.shape
    floats = {array.dtype.kind for array in (matrices, data, output)} == {"f"}
    if not floats or data.ndim < 2 or data.shape[-1] != width or not output.size:
        return False
    places, rows = math.prod(data.shape[:-2]), data.astype(np.float64)
    each, ways = data.size // width * wide, list[tuple[Array, Array]]()
    if output.size == each * count:
        ways.append((rows.reshape(1, -1, width), stack))
    if output.size == each and places == count:
        ways.append((rows.reshape(count, -1, width), stack))
    if output.size == each:
        ways += [(rows.reshape(-1, width), one) for one in stack]
    return any(_is_made(output, *way) for way in ways)


def _is_made(output: Array, rows: Array, matrix: Array) -> bool:
    """Return whether an output holds the numbers of a product, in whatever order."""
    expected = _spread(output)
    bound = SAME(epsilon(output.dtype)) * expected[-1]
    return np.allclose(_spread(rows @ matrix), expected, rtol=0.0, atol=bound)


def _rows(data: Array, side: int) -> Iterator[Array]:
    """Yield data as rows of so many numbers, once for each of the axes side by side that may be summed."""
    for start, end in itertools.combinations(range(data.ndim + 1), 2):
        if math.prod(data.shape[start:end]) == side:
            axes = [*range(start), *range(end, data.ndim), *range(start, end)]
            yield data.transpose(axes).reshape(-1, side).astype(np.float64)


def _spread(values: Array) -> tuple[float, float, float]:
    """Return what tells numbers from others, in whatever order: the least, the largest, and the root mean square."""
    return float(values.min()), float(values.max()), root_mean_square(values)
