"""Align two sequences by scores, and find the longest run of pairs that goes forward on both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray


def align_sequences(scores: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return the pairs of the monotone alignment of rows and columns with the largest total score.

    Needleman and Wunsch (1970) with free gaps: a weighted longest common subsequence. Pairs with score 0 are never
    made. Runs row by row in numpy: O(rows x columns) time and one float per cell.
    """
    rows, columns = scores.shape
    best = np.zeros((rows + 1, columns + 1), np.float32)
    for i in range(rows):
        diagonal = np.where(scores[i] > 0, best[i, :-1] + scores[i], 0)
        np.maximum.accumulate(np.maximum(best[i, 1:], diagonal), out=best[i + 1, 1:])
    pairs = []
    i, j = rows, columns
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def gaps(pairs: Iterable[tuple[int, int]], rows: int, columns: int) -> Iterator[tuple[range, range]]:
    """Yield the ranges between neighbouring pairs of two sequences so long that go forward on both."""
    last = (-1, -1)
    for i, j in [*pairs, (rows, columns)]:
        yield range(last[0] + 1, i), range(last[1] + 1, j)
        last = (i, j)


def forward_run(anchors: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of anchors that goes forward on both sides (branches may be called in another order).

    Longest increasing subsequence, by patience sorting.
    """
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for number, (_, b) in enumerate(anchors):
        at = bisect_left(tails, b)
        before.append(ends[at - 1] if at else None)
        tails[at : at + 1] = [b]
        ends[at : at + 1] = [number]
    run: list[tuple[int, int]] = []
    last = ends[-1] if ends else None
    while last is not None:
        run.append(anchors[last])
        last = before[last]
    return run[::-1]
