"""Measure what rounding makes of a value where weights were merged: they are rounded once more than what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Replayed
from padiff.numerics import MERGING, epsilon

Moved = tuple[Replayed, Replayed]
"""What the candidate's call does by itself in float64 with its weights, and with others that merging rounds to, too."""


def moved_by_merging(bench: Bench, pair: Pair) -> Moved | None:
    """Return what other roundings of merged weights make of a pair; None where it has none, or does not run so."""
    inside = f"{pair.candidate.path}." if pair.candidate.path else ""
    paths = [path for path in bench.alignment.merged if path.startswith(inside)]
    still = bench.tried(pair, False, dtype="float64", backward=False) if paths else None
    if still is None:
        return None
    with _rounded_otherwise(bench, paths):
        moved = bench.tried(pair, False, dtype="float64", backward=False)
    return None if moved is None else (still, moved)


@contextmanager
def _rounded_otherwise(bench: Bench, paths: list[str]) -> Iterator[None]:
    """Let the candidate hold parameters of which each element is off by a few epsilons of their type."""
    side, random = bench.candidate, np.random.default_rng(0)
    before = {path: np.array(side.value(path), order="C") for path in sorted(paths)}
    noise = {path: random.uniform(-1, 1, held.shape) for path, held in before.items()}
    side.assign({path: held * (1 + MERGING * epsilon(held.dtype) * noise[path]) for path, held in before.items()})
    try:
        yield
    finally:
        side.assign(before)
