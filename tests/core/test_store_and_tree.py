"""Where values are kept, how nested values are walked, how layouts are read and written."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from padiff.errors import InputError
from padiff.kinds import Part
from padiff.pytree import leaves, map_leaves
from padiff.trace import Trace, ValueStore, summarized, temporary_store

Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Output:
    logits: object
    hidden: object = None


def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


@given(st.lists(hnp.arrays(st.sampled_from(["f4", "i8", "?"]), hnp.array_shapes(max_dims=3, max_side=4)), max_size=6))
def test_a_store_gives_back_what_it_got_in_memory_and_on_disk(arrays: list[np.ndarray]) -> None:
    for budget in (0, 64, 1 << 20):
        with temporary_store(budget) as store:
            keys = [store.put(array) for array in arrays]
            for key, array in zip(keys, arrays, strict=True):
                np.testing.assert_array_equal(store.get(key), array)
            assert store.in_memory <= max(budget, 0)


def test_a_value_of_which_only_a_summary_was_kept_is_no_array() -> None:
    """Its key is below 0, which must not count from the end of what was kept."""
    trace = Trace(ValueStore.of([np.ones(3)]))
    key = trace.summarized(summarized(np.zeros((2, 3), np.float32)))
    assert trace.array(0).shape == (3,)
    with pytest.raises(InputError, match=r"a value of float32\[2, 3\] was not kept itself, but only a summary of it"):
        trace.array(key)


def test_bfloat16_survives_the_disk() -> None:
    store = ValueStore(budget=0)
    array = np.arange(6, dtype=np.float32).reshape(2, 3).astype(ml_dtypes.bfloat16)
    found = store.get(store.put(array))
    assert found.dtype == array.dtype
    assert store.on_disk == array.nbytes
    np.testing.assert_array_equal(found.view(np.uint16), array.view(np.uint16))
    store.close()


NESTED = {
    "a": (np.ones(1), [np.zeros(2), None]),
    "b": Point(np.ones(3), "text"),
    "c": Output(np.ones(4), OrderedDict(k=np.ones(5))),
}


def test_leaves_are_found_in_order_with_python_paths() -> None:
    assert [path for path, _ in leaves(NESTED, is_array)] == [
        "['a'][0]",
        "['a'][1][0]",
        "['b'].x",
        "['c'].logits",
        "['c'].hidden['k']",
    ]


def test_mapping_leaves_keeps_the_containers_and_the_original() -> None:
    doubled = map_leaves(NESTED, is_array, lambda _, array: array * 2)
    assert isinstance(doubled["b"], Point)
    assert isinstance(doubled["c"], Output)
    assert doubled["c"].hidden["k"].tolist() == [2.0] * 5
    assert NESTED["c"].hidden["k"].tolist() == [1.0] * 5
    assert map_leaves(NESTED, is_array, lambda _, array: array) is NESTED


PARTS = [
    Part("w"),
    Part("w", transpose=(1, 0)),
    Part("w", piece=(1, 3)),
    Part("w", transpose=(1, 0), piece=(2, 3)),
    Part("w", blocks=(2, 0, 1)),
    Part("w", merge=(2,)),
    Part("w", flip=(1,), transpose=(1, 0)),
]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_what_a_part_writes_it_reads_back_and_nothing_else_changes(part: Part) -> None:
    native = np.arange(36.0).reshape(6, 6)
    before = native.copy()
    values = -1.0 - np.arange(part.read(native).size, dtype=float).reshape(part.read(native).shape)
    part.write(native, values)
    np.testing.assert_array_equal(part.read(native), values)
    assert (native == before).sum() == native.size - values.size


def test_a_part_joins_neighbouring_axes_and_turns_others_round() -> None:
    heads = np.arange(24.0).reshape(2, 3, 4)
    part = Part("w", merge=(1, 2), transpose=(1, 0))
    np.testing.assert_array_equal(part.read(heads), heads.reshape(2, 12).T)
    assert Part("w", merge=(0,)).read(np.float32(3)).tolist() == [3.0]
    np.testing.assert_array_equal(Part("w", flip=(0, 2)).read(heads), heads[::-1, :, ::-1])
    native = np.zeros((2, 3, 4))
    part.write(native, part.read(heads))
    np.testing.assert_array_equal(native, heads)


def test_a_part_never_bends_a_shape() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Part("w").write(np.zeros((2, 3)), np.zeros((3, 2)))
