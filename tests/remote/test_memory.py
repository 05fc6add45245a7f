"""Shared memory, messages and stand-ins, without another process: two ends in two threads."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from padiff.errors import InputError, RemoteError
from padiff.isolation import (
    Arena,
    Channel,
    Gone,
    Pins,
    Segment,
    Shown,
    Silent,
    Unsendable,
    Wire,
    plain,
    raised_again,
    shown,
    told,
)

LARGE = 1 << 15


def wire() -> Wire:
    return Wire(lambda value: NotImplemented, {}, trusted=True)


def carried(sender: Wire, receiver: Wire, message: Any) -> Any:
    """Return a message as the other end has it."""
    data, segments = sender.pack(message)
    given = [Segment(s.name, s.size, os.dup(s.descriptor), writable=False) for s in segments]
    return next(receiver.unpack(data, given))


# Segments ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_spaces_never_overlap_and_all_comes_back(data: st.DataObject) -> None:
    arena = Arena()
    taken: list[Any] = []
    for _ in range(data.draw(st.integers(1, 30))):
        if taken and data.draw(st.booleans()):
            arena.give_back(taken.pop(data.draw(st.integers(0, len(taken) - 1))))
        else:
            taken.append(arena.take(data.draw(st.integers(1, 40 << 20))))
        spans = sorted((s.segment.name, s.offset, s.offset + s.size) for s in taken)
        for (name, _, end), (other, start, _) in itertools.pairwise(spans):
            assert name != other or end <= start
        assert arena.taken == sum(space.size for space in taken)
    for space in taken:
        arena.give_back(space)
    assert arena.taken == 0
    list(arena.trim())
    assert arena.segments == 0


def test_what_was_given_back_is_used_again() -> None:
    arena = Arena()
    first, second = arena.take(1000), arena.take(1000)
    arena.give_back(first)
    assert arena.take(900).offset == first.offset
    assert arena.segments == 1
    assert second.offset >= 1000


# Messages ---------------------------------------------------------------------------------------------------

DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "bfloat16", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, LARGE)], ids=str)
def test_every_dtype_and_shape_arrives_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    a, b = wire(), wire()
    values = np.random.default_rng(0).integers(0, 2, shape).astype(np.dtype(dtype))
    found = carried(a, b, {"deep": [values]})["deep"][0]
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    assert found.tobytes() == values.tobytes()
    assert not found.flags.writeable


@given(hnp.arrays(st.sampled_from(["f4", "i8", "?"]), hnp.array_shapes(max_dims=3, max_side=5)), st.booleans())
def test_arrays_of_any_strides_arrive(array: np.ndarray, turned: bool) -> None:
    array = array.T if turned else array[::2]
    assert np.array_equal(carried(wire(), wire(), array), array, equal_nan=array.dtype.kind == "f")


def test_scalars_arrive_as_they_are() -> None:
    found = carried(wire(), wire(), [np.float32(1.5), ml_dtypes.bfloat16(2), np.int64(3)])
    assert [type(one) for one in found] == [np.float32, ml_dtypes.bfloat16, np.int64]
    assert found == [1.5, 2, 3]


def test_space_is_taken_as_long_as_a_view_lives() -> None:
    a, b = wire(), wire()
    found = carried(a, b, np.arange(LARGE))
    view = found[::2].reshape(2, -1)
    del found
    gc.collect()
    assert b.returned == []
    assert a.arena.taken >= LARGE * 8
    assert view[0, 1] == 2
    del view
    gc.collect()
    assert len(b.returned) == 1
    a.settle(b.returned)
    assert (a.arena.taken, a.lent) == (0, 0)


def test_an_array_of_another_process_is_handed_on_where_it_lies() -> None:
    a, parent_a, parent_b, b = wire(), wire(), wire(), wire()
    here = carried(a, parent_a, np.arange(LARGE))
    there = carried(parent_b, b, here[10:])
    assert parent_b.arena.segments == 0, "nothing was copied"
    assert there[0] == 10
    back = carried(parent_a, a, here)
    assert a.arena.segments == 1
    assert back[1] == 1
    assert parent_a.arena.segments == 0
    del here, back
    gc.collect()
    parent_a.settle(a.returned)
    assert parent_a.returned == [], "the other process still reads it"
    del there
    gc.collect()
    parent_b.settle(b.returned)
    gc.collect()
    assert len(parent_a.returned) == 1
    a.settle(parent_a.returned)
    parent_a.retire(a.trim())
    b.retire(parent_b.trim())
    assert a.arena.segments == 0


def test_a_message_that_cannot_be_packed_leaves_nothing_taken() -> None:
    a = wire()
    with pytest.raises(Exception, match="pickle"):
        a.pack([np.arange(LARGE), lambda: None])
    assert (a.lent, a.arena.taken) == (0, 0)
    assert carried(a, wire(), np.arange(LARGE))[-1] == LARGE - 1


def test_a_worker_cannot_have_its_parent_import_anything() -> None:
    receiver = Wire(lambda value: NotImplemented, {}, trusted=False)
    with pytest.raises(Exception, match=r"a worker sent a fractions\.Fraction, which is no plain data"):
        carried(wire(), receiver, __import__("fractions").Fraction(1, 2))


# Requests ---------------------------------------------------------------------------------------------------


class Ends:
    """Hold two ends of a channel; the far one answers in a thread."""

    def __init__(self, **far: Callable[..., Any]) -> None:
        here, there = socket.socketpair()
        self.noted: list[Any] = []
        near: dict[str, Callable[..., Any]] = {"double": lambda x: 2 * x, "fail": self._fail}
        notes: dict[str, Callable[..., Any]] = {"note": self.noted.append, "bad": lambda: 1 / 0}
        self.near = Channel(here, wire(), near, {}, repr, RuntimeError)
        self.far = Channel(there, wire(), far, notes, repr, RuntimeError)
        self.thread = threading.Thread(target=self.far.answer_until_closed, daemon=True)
        self.thread.start()

    def _fail(self) -> None:
        msg = "no"
        raise KeyError(msg)

    def close(self) -> None:
        self.near.close()
        self.thread.join(5)
        self.far.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    found: Ends

    def call_back(x: int) -> int:
        return found.far.request("double", x) + 1

    def fail() -> None:
        found.far.request("fail")

    def recursive(depth: int) -> int:
        return depth if depth == 0 else found.far.request("again", depth - 1)

    found = Ends(
        total=lambda array: array.sum(),
        call_back=call_back,
        fail=fail,
        recursive=recursive,
        make=lambda n: np.arange(n),
        length=len,
        silent=lambda: threading.Event().wait(0.5),
    )
    found.near._serve["again"] = lambda depth: found.near.request("recursive", depth)  # type: ignore[index]
    yield found
    found.close()


def test_requests_and_callbacks_within_callbacks(ends: Ends) -> None:
    assert ends.near.request("call_back", 20) == 41
    assert ends.near.request("recursive", 30) == 0
    assert ends.near.request("total", np.ones(LARGE)) == LARGE


def test_space_comes_back_with_the_answer(ends: Ends) -> None:
    for _ in range(5):
        assert ends.near.request("total", np.ones(LARGE)) == LARGE
        assert ends.near.wire.arena.taken == 0
    made = ends.near.request("make", LARGE)
    ends.near.request("total", made)
    assert ends.far.wire.lent == 1
    del made
    ends.near.request("call_back", 1)
    assert ends.far.wire.lent == 0


def test_errors_cross_and_what_follows_works(ends: Ends) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        ends.near.request("fail")
    with pytest.raises(RuntimeError, match="missing"):
        ends.near.request("missing")
    with pytest.raises(Unsendable):
        ends.near.request("total", lambda: None)
    assert ends.near.request("call_back", 1) == 3


def test_notes_come_with_the_next_message_and_their_errors_with_its_answer(ends: Ends) -> None:
    ends.near.note("note", 1)
    ends.near.note("note", 2)
    assert ends.noted == []
    ends.near.request("call_back", 1)
    assert ends.noted == [1, 2]
    ends.near.note("bad")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ends.near.request("call_back", 1)
    assert ends.near.request("call_back", 1) == 3


def test_a_note_is_not_lost_with_a_message_that_cannot_be_sent(ends: Ends) -> None:
    ends.near.note("note", 3)
    with pytest.raises(Unsendable):
        ends.near.request("total", lambda: None)
    ends.near.request("call_back", 1)
    assert ends.noted == [3]


def test_a_large_message_crosses(ends: Ends) -> None:
    assert ends.near.request("length", "x" * 3_000_000) == 3_000_000
    assert ends.near.request("total", np.ones(40 * LARGE)) == 40 * LARGE


def test_an_end_that_closes_and_one_that_is_silent(ends: Ends) -> None:
    ends.near.connection.settimeout(0.2)
    with pytest.raises(Silent):
        ends.near.request("silent")
    ends.near.connection.settimeout(None)
    ends.far.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Gone):
        ends.near.request("call_back", 1)


# Numbers, errors, plain data --------------------------------------------------------------------------------


class Thing:
    """Be an object that can be referenced weakly."""


def test_an_object_keeps_its_number_while_it_lives() -> None:
    pins, thing = Pins(), Thing()
    number = pins.send(thing)
    assert pins.send(thing) == number
    pins.drop([(number, 1)])
    assert pins.get(number) is thing
    pins.drop([(number, 1)])
    assert len(pins) == 0
    assert pins.send(thing) == number, "met again"
    pins.drop([(number, 1)])
    del thing
    gc.collect()
    assert pins.gone == [number]
    assert pins.send(Thing()) != number


def test_a_list_has_a_number_for_each_time_and_a_kept_one_for_a_run() -> None:
    pins, values = Pins(), [1]
    assert pins.send(values) != pins.send(values)
    number = pins.send(values, keep=True)
    assert pins.send(values, keep=True) == number
    pins.forget_kept()
    assert pins.gone == [number]
    assert pins.send(values) != number


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a", 1), "('a', 1)"),
        (KeyError("k"), "'k'"),
        (OSError(2, "no file"), "[Errno 2] no file"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "'utf-8' codec can't decode byte 0x78 in position 0: bad"),
        (ExceptionGroup("several", [ValueError("a")]), "several (1 sub-exception)"),
        (SystemExit(3), "3"),
    ],
)
def test_an_error_is_raised_again_under_its_name(error: BaseException, text: str) -> None:
    found = raised_again(told(error, "file.py:3"), "the worker")
    assert isinstance(found, RemoteError)
    assert type(found).__name__ == type(error).__name__
    assert str(found) == text
    assert found.line == "file.py:3"
    if isinstance(error, ValueError | KeyError | OSError):
        assert isinstance(found, type(error))


def test_padiffs_own_errors_stay_what_they_are() -> None:
    class Own(InputError):
        pass

    found = raised_again(told(Own("said"), None), "the worker")
    assert type(found) is InputError
    assert str(found) == "said"


def test_hyper_parameters_become_plain_data_that_reads_alike() -> None:
    class Size(tuple):
        pass

    class Name(str):
        def __repr__(self) -> str:
            return "<name>"

    assert plain(Size((1, 2.5, None))) == (1, 2.5, None)
    assert plain({"a": [np.float64(1)], "b": {1}}) == {"a": [1.0], "b": {1}}
    assert repr(plain(test_scalars_arrive_as_they_are)) == repr(test_scalars_arrive_as_they_are)
    assert plain(Name("x")) == "x"
    assert repr(shown(Name("x"))) == "<name>"
    assert shown((1, "x")) == (1, "x")
    assert carried(wire(), wire(), Shown("<name>")) == Shown("<name>")
