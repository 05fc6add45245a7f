"""The alignment of sequences, against what it promises for any input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from padiff.alignment import align_sequences, forward_run
from padiff.alignment._leaves import pair_leaves
from padiff.trace import Leaf

matrices = st.integers(0, 5).flatmap(
    lambda rows: st.integers(0, 5).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(0, 4), min_size=columns, max_size=columns), min_size=rows, max_size=rows
        ).map(lambda table: np.array(table, np.float32).reshape(rows, columns))
    )
)


def best_by_trying(scores: np.ndarray) -> float:
    """Try every monotone matching."""
    rows, columns = scores.shape
    best = 0.0
    for size in range(min(rows, columns) + 1):
        for left in itertools.combinations(range(rows), size):
            for right in itertools.combinations(range(columns), size):
                found = [scores[i, j] for i, j in zip(left, right, strict=True)]
                if all(value > 0 for value in found):
                    best = max(best, float(sum(found)))
    return best


@settings(max_examples=150, deadline=None)
@given(matrices)
def test_no_monotone_alignment_scores_more(scores: np.ndarray) -> None:
    pairs = align_sequences(scores)
    assert all(scores[i, j] > 0 for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))
    assert sum(float(scores[i, j]) for i, j in pairs) == best_by_trying(scores)


def test_repeated_layers_are_aligned_whole() -> None:
    """Where every row fits every column (4900 like calls), the diagonal is found."""
    scores = np.ones((70, 70), np.float32) + np.eye(70, dtype=np.float32)
    assert align_sequences(scores) == [(i, i) for i in range(70)]


@given(st.lists(st.integers(0, 30), unique=True, max_size=9))
def test_the_longest_forward_run_is_found(columns: list[int]) -> None:
    run = forward_run(list(enumerate(columns)))
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(run))
    longest = max(
        (
            len(chosen)
            for size in range(len(columns) + 1)
            for chosen in itertools.combinations(columns, size)
            if list(chosen) == sorted(chosen)
        ),
        default=0,
    )
    assert len(run) == longest


@pytest.mark.parametrize(("apart", "pairs"), [((2, 12, 16), ((0, 0), (2, 2))), ((2, 5, 16), ((0, 0), (1, 2)))])
def test_what_lies_in_another_order_of_axes_is_no_other_tensor(
    apart: tuple[int, ...], pairs: tuple[tuple[int, int], ...]
) -> None:
    """Values of a cache, whose heads are known to lie in another order, were taken for keys, of which that is open."""
    heads = (2, 2, 12, 8)

    def leaves(**shapes: tuple[int, ...]) -> list[Leaf]:
        return [Leaf(path, "float32", shape, token) for token, (path, shape) in enumerate(shapes.items())]

    ours, theirs = leaves(out=(2, 5), k=heads, v=heads), leaves(y=(2, 5), keys=apart, values=heads)
    assert pair_leaves(ours, theirs, lambda *_: False) == pairs
