"""Measure what rounding makes of a value where weights were merged: they are rounded once more than what they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Noisy, Replayed, Side, holding
from padiff.numerics import BORNE_OUT, MERGING, Array, epsilon, is_float
from padiff.paths import below

Moved = tuple[Replayed, Replayed]
"""What the candidate's call does by itself in float64 with its weights, and with others that merging rounds to, too."""


def moved_by_merging(bench: Bench, pair: Pair) -> Moved | None:
    """Return what other roundings of merged weights make of a pair; None where it has none, or does not run so."""
    paths = [path for path in bench.alignment.merged if below(path, pair.candidate.path)]
    still = bench.tried(pair, False, dtype="float64", backward=False) if paths else None
    if still is None:
        return None
    with rounded_otherwise(bench.candidate, paths):
        moved = bench.tried(pair, False, dtype="float64", backward=False)
    return None if moved is None else (still, moved)


def unproven_by_gradients(bench: Bench, pair: Pair, paths: Collection[str], *, ours: bool) -> set[str]:
    """Return which of some parameters of one side a call's values do not move with, though gradients say so.

    That is so behind what rounds, or chooses, and sends gradients straight through: what is wrong there may not show.
    Whether values bear gradients out is asked for all at once; only where they do not, it is asked for each.
    """
    still = bench.tried(pair, ours, dtype="float64", thawed=True) if paths else None
    if still is None:
        return set()
    side = bench.reference if ours else bench.candidate
    held = still.gradients.keys() & paths
    with rounded_otherwise(side, held) as off:
        moved = bench.tried(pair, ours, dtype="float64", backward=False)
    if moved is None or not held:
        return set()
    told = np.concatenate([(still.gradients[path] * off[path]).reshape(-1) for path in held])
    calls = [one.reference for one in bench.alignment.pairs]
    leaves = {leaf.token: leaf for call in calls for leaf in (*call.inputs, *call.outputs)}
    fed, before, after = Noisy(bench.trace, bench.noise), still.observed.values, moved.observed.values
    seen = sum(
        float(np.vdot(fed.gradient(leaves[token]), after[token] - before[token]))
        for token in still.observed.gradients.keys() & before.keys() & after.keys() & leaves.keys()
        if is_float(after[token]) and before[token].shape == after[token].shape == leaves[token].shape
    )
    if abs(seen - told.sum()) <= BORNE_OUT * np.linalg.norm(told):
        return set()

    def moves(path: str) -> bool:
        with rounded_otherwise(side, [path]):
            found = bench.tried(pair, ours, dtype="float64", backward=False)
        values = {} if found is None else found.observed.values
        return found is None or any(not np.array_equal(before.get(at, one), one) for at, one in values.items())

    return {path for path in held if not moves(path)}


@contextmanager
def rounded_otherwise(side: Side, paths: Iterable[str]) -> Iterator[Mapping[str, Array]]:
    """Let a side hold parameters of which each element is off by as much as merging rounds; give by how much."""
    random = np.random.default_rng(0)
    held = {path: side.value(path) for path in sorted(paths)}
    off = {path: one * random.uniform(-1, 1, one.shape) * MERGING(epsilon(one.dtype)) for path, one in held.items()}
    with holding(side, {path: one + off[path] for path, one in held.items()}):
        yield off
