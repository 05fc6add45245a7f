"""What lies where in memory, found by overlap."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from padiff.forcing._overwrite import Spans

RANGES = st.tuples(st.integers(0, 60), st.integers(0, 40)).map(lambda x: (x[0], x[0] + x[1]))


@given(st.lists(st.tuples(st.integers(0, 9), RANGES)), RANGES, st.sets(st.integers(0, 9)))
def test_ranges_that_share_bytes_are_found(
    puts: list[tuple[int, tuple[int, int]]], asked: tuple[int, int], gone: set[int]
) -> None:
    spans, held = Spans(), {}
    for key, (start, end) in puts:
        spans.put(key, start, end, f"held {key}")
        held[key] = start, end
    for key in gone:
        spans.drop(key)
        held.pop(key, None)
    expected = {key for key, (start, end) in held.items() if start < asked[1] and asked[0] < end}
    assert dict(spans.over(*asked)) == {key: f"held {key}" for key in expected}


def test_a_look_up_does_not_go_through_all_that_is_held() -> None:
    spans = Spans()
    spans.put(-1, 0, 10**9, None)
    for key in range(20_000):
        spans.put(key, key * 1000, key * 1000 + 100, None)
    begun = time.perf_counter()
    for key in range(20_000):
        assert len(spans.over(key * 1000, key * 1000 + 10)) == 2
    assert time.perf_counter() - begun < 5  # some 0.1 s; going through all would take minutes
