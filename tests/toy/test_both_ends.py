"""Put a sequence together of which each rank has a part from the front and one from the back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from padiff.distributed._expected import Expected
from padiff.distributed._grid import Grid
from padiff.distributed._infer import merged, spread_of
from padiff.distributed._placements import joined, joined_shape, share_of
from padiff.distributed._sides import part_of
from padiff.kinds import Placement, Ranks
from padiff.numerics import sketch
from padiff.recording._places import Where


def ends(sequence: list[int], count: int, rank: int) -> list[int]:
    """Return what Megatron's `get_batch_on_this_cp_rank` gives a rank."""
    size = len(sequence) // (2 * count)
    back = 2 * count - 1 - rank
    return sequence[rank * size : (rank + 1) * size] + sequence[back * size : (back + 1) * size]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1), st.sampled_from([1, 2]))
def test_both_ways_of_it_are_each_others_reverse(count: int, extent: int, dim: int, stride: int) -> None:
    size = 2 * count * extent
    shape = [3, 3]
    shape[dim] = stride * size
    whole = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    how, group = Placement("shard", dim, stride, ends=True), tuple(range(count))
    places = [
        [block * size + at for block in range(stride) for at in ends([*range(size)], count, rank)] for rank in group
    ]
    parts = {rank: whole.take(places[rank], dim) for rank in group}
    assert np.array_equal(joined([*parts.values()], how), whole)
    assert joined_shape([part.shape for part in parts.values()], how) == whole.shape
    ranks = [Ranks(rank, count, {"cp": group} if count > 1 else {}, {"w": {"cp": how}}) for rank in group]
    if count > 1:
        grid = Grid(("cp",), {rank: {"cp": group} for rank in group})
        for rank in group:
            assert np.array_equal(part_of(whole, "w", ranks[rank], parts[rank].shape), parts[rank])
            share = share_of(rank, parts, {"cp": how}, grid, whole)
            assert share is not None
            assert np.array_equal(share, parts[rank])
    found = [Where(None, ((how, rank, count),)).sketched(parts[rank]).sketch for rank in group]
    assert np.allclose(sum(one.astype(np.float64) for one in found if one is not None), sketch(whole), atol=1e-5)


def test_a_sequence_that_cannot_be_halved_lies_otherwise() -> None:
    assert joined_shape([(3, 2), (3, 2)], Placement("shard", 0, ends=True)) is None
    assert joined_shape([(4, 2), (2, 2)], Placement("shard", 0, ends=True)) is None


@pytest.mark.parametrize(
    ("known", "both"), [({}, True), ({"cp": True}, True), ({"cp": False}, False), (None, False)], ids=str
)
def test_it_is_inferred_of_data_alone_and_for_all_of_a_job(known: dict[str, bool] | None, both: bool) -> None:
    """What else lies so is no coincidence: a weight does not, nor does a value where the tokens do not."""
    whole = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
    parts = {rank: whole[ends([*range(16)], 2, rank)] for rank in range(2)}
    grid = Grid(("cp",), {rank: {"cp": (0, 1)} for rank in range(2)})
    found = spread_of(parts, grid, {}, Expected(((whole.shape, lambda: whole),)), ends=known)
    assert found is not None
    assert found.placements == {"cp": Placement("shard", 0, ends=both)}


def test_what_lies_otherwise_than_the_tokens_is_read_as_they_lie() -> None:
    whole = np.arange(16)
    parts = {rank: whole[8 * rank : 8 * rank + 8] for rank in range(2)}
    grid = Grid(("cp",), {rank: {"cp": (0, 1)} for rank in range(2)})
    found = spread_of(parts, grid, {}, Expected(((whole.shape, lambda: whole),)), ends={"cp": True})
    assert found is not None
    assert found.placements == {"cp": Placement("shard", 0, ends=True)}


@pytest.mark.parametrize(("experts", "there"), [({0: (0, 1), 2: (2, 3)}, True), ({0: (0, 2), 1: (1, 3)}, False)])
def test_what_ranks_count_of_their_experts_is_a_sum_over_those_that_have_these(
    experts: dict[int, tuple[int, int]], there: bool
) -> None:
    of = {rank: group for group in experts.values() for rank in group}
    grid = Grid(("dp",), {rank: {"dp": (0, 1, 2, 3), "ep": of[rank]} for rank in range(4)})
    parts = {rank: np.array(one) for rank, one in enumerate([(5, 6), (6, 7), (6, 3), (8, 7)])}
    whole = np.array([11, 9, 14, 14])
    found = spread_of(parts, grid, {}, Expected(((whole.shape, lambda: whole),)))
    assert (found is not None) is there
    assert found is None or np.array_equal(merged(parts, grid, found.placements), whole)
