"""What replays gave is kept within a budget."""

from __future__ import annotations

import numpy as np

from padiff.forcing import Observed, Replayed
from padiff.judging._forced._replays import Replays, _thinned
from padiff.trace import ValueStore


def test_the_latest_are_kept_within_the_budget_and_the_others_made_again() -> None:
    made: list[int] = []
    kept: Replays[int] = Replays(budget=100)

    def get(key: int) -> int:
        return kept.get(key, lambda: made.append(key) or key, lambda _: 40)  # type: ignore[func-returns-value]

    assert [get(key) for key in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2]
    assert made == [1, 2, 3, 2]
    assert kept.size == 80


def test_one_that_is_larger_than_the_budget_is_kept_until_the_next() -> None:
    kept: Replays[int] = Replays(budget=10)
    assert kept.get("large", lambda: 1, lambda _: 1000) == 1
    assert "large" in kept
    kept.get("small", lambda: 2, lambda _: 5)
    assert "large" not in kept


def test_recorded_values_and_replays_share_a_budget() -> None:
    store = ValueStore(budget=8000)
    store.put(np.zeros(500))
    assert Replays.beside(store).budget == 4000
    store.put(np.zeros(500))
    assert Replays.beside(store).budget == 1000


def test_all_that_a_replay_holds_counts_and_what_is_not_looked_at_is_let_go() -> None:
    """What was thinned out held the whole arrays, and values counted for nothing: memory grew beyond any budget."""
    whole = np.zeros(1 << 18)
    found = Replayed(Observed({0: whole}, {(0, "", 0, ""): whole}, {0: whole}), [], {"weight": whole}, {})
    assert found.size == 4 * whole.nbytes
    thinned = _thinned(found)
    assert not np.shares_memory(thinned.observed.values[0], whole)
    assert thinned.size < 2 * whole.nbytes
