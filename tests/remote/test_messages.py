"""Messages and the shared memory that belongs to them; and what a hostile worker sends ends it, with a clear error."""

from __future__ import annotations

import gc
import inspect
import json
import os
import pickle
import re
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import attrs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import padiff
from padiff.codec import Codec, Custom, Known, Unsendable, home_of
from padiff.forcing import Side
from padiff.isolation._connection import ANSWER, PROTOCOL, Connection, Gone, Silent
from padiff.isolation._errors import ErrorRecord, raised_again
from padiff.isolation._messages import codec
from padiff.numerics import Difference, numpy_dtype
from padiff.recording import Task
from padiff.report import Measurement
from padiff.trace import SharedStore, ValueStore

LARGE = 1 << 15


@attrs.frozen
class Point:
    """A record without an identity."""

    x: float
    name: str | None = None
    tags: tuple[str, ...] = ()


@attrs.define(eq=False)
class Node:
    """A record with one, that others refer to."""

    path: str
    parent: Node | None = None
    children: list[Node] = attrs.field(factory=list)
    points: dict[int, Point] = attrs.field(factory=dict)
    values: hnp.np.ndarray[Any, Any] | None = None


class Ends:
    """Two ends of a connection: the parent's, which owns what has an identity, and the worker's."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        records = (Point, Node, Difference)
        stores = {"ValueStore": Custom(ValueStore, lambda store: store.arrays(), ValueStore.of)}
        self.parent = Connection(here, Codec(records, Known(owns=True), stores))
        self.worker = Connection(there, Codec(records, Known(owns=False), stores))
        here.settimeout(5.0)

    def to_parent(self, message: Any) -> Any:
        """Return a message of the worker's as the parent has it."""
        self.worker.send(ANSWER, message)
        return self.parent.receive()[1]

    def to_worker(self, message: Any) -> Any:
        """Return a message of the parent's as the worker has it."""
        self.parent.send(ANSWER, message)
        return self.worker.receive()[1]

    def close(self) -> None:
        """Close both ends."""
        self.parent.socket.close()
        self.worker.socket.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return two ends."""
    found = Ends()
    yield found
    found.close()


# Values -----------------------------------------------------------------------------------------------------

DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "bfloat16", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, LARGE)], ids=str)
def test_every_dtype_and_shape_arrives_bit_for_bit(ends: Ends, dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape).astype(np.dtype(dtype))
    found = ends.to_parent({"deep": [values]})["deep"][0]
    assert (found.dtype, found.shape) == (numpy_dtype(dtype), values.shape)  # MindSpore has a bfloat16 of its own
    assert found.tobytes() == values.tobytes()
    assert not found.flags.writeable


@given(hnp.arrays(st.sampled_from(["f4", "i8", "?"]), hnp.array_shapes(max_dims=3, max_side=5)), st.booleans())
def test_arrays_of_any_strides_arrive(values: np.ndarray, transposed: bool) -> None:
    ends = Ends()
    values = values.T if transposed else values[::2]
    assert np.array_equal(ends.to_parent(values), values, equal_nan=values.dtype.kind == "f")
    ends.close()


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers())
        | st.builds(slice, st.integers())
    ),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_data_arrives_as_it_is(value: Any) -> None:
    ends = Ends()
    found = ends.to_parent(value)
    assert found == value
    assert type(found) is type(value)
    ends.close()


def test_scalars_of_numpy_arrive_as_they_are(ends: Ends) -> None:
    found = ends.to_worker([np.float32(1.5), ml_dtypes.bfloat16(2), np.int64(3), float("nan")])
    assert [type(one) for one in found] == [np.float32, ml_dtypes.bfloat16, np.int64, float]
    assert found[:3] == [1.5, 2, 3]


def test_records_arrive_as_their_types_and_keep_their_identity(ends: Ends) -> None:
    root = Node("", points={1: Point(0.5, "a", ("b", "c"))})
    root.children = [Node("one", root), Node("two", root)]
    there = ends.to_worker(root)
    assert [type(one) for one in (there, there.points[1])] == [Node, Point]
    assert there.points == root.points
    assert all(child.parent is there for child in there.children)
    assert ends.to_parent([there.children[1], there]) == [root.children[1], root], "the very objects"
    made = Node("made there", there)
    here = ends.to_parent(made)
    assert here.parent is root
    assert ends.to_worker({"again": here})["again"] is made


def test_the_worker_keeps_a_record_until_the_parent_has_let_go_of_it(ends: Ends) -> None:
    here = ends.to_parent(Node("made there"))
    assert len(ends.worker.codec.known) == 1
    assert ends.parent.codec.known.dropped() == []
    del here
    gc.collect()
    ends.worker.codec.known.drop(ends.parent.codec.known.dropped())
    assert (len(ends.parent.codec.known), len(ends.worker.codec.known)) == (0, 0)


def test_memory_is_shared_as_long_as_a_view_lives(ends: Ends) -> None:
    found = ends.to_parent(np.arange(LARGE))
    view = found[::2].reshape(2, -1)
    del found
    gc.collect()
    assert view[0, 1] == 2
    assert home_of(np.asarray(view.base)) is not None or home_of(view[0, :1]) is not None
    del view
    gc.collect()
    assert _mapped() == 0


def _mapped() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:padiff")


def test_what_another_process_wrote_is_handed_on_where_it_lies(ends: Ends) -> None:
    here, others = ends.to_parent(np.arange(LARGE)), Ends()
    there = others.to_worker(here[10:])
    assert home_of(there) is not None
    assert _inode(there) == _inode(here), "nothing was copied"
    assert there[0] == 10
    others.close()


def _inode(values: np.ndarray) -> int:
    home = home_of(values)
    assert home is not None
    return os.fstat(home[0].descriptor).st_ino


@pytest.mark.parametrize("budget", [None, 1 << 20], ids=["in-memory", "spilling"])
def test_a_shared_store_is_read_by_the_other_end_without_a_copy(ends: Ends, budget: int | None) -> None:
    store = SharedStore(budget)
    values = [np.random.default_rng(i).normal(size=(64, 1000)).astype(np.float32) for i in range(9)]
    keys = [store.put(value) for value in values]
    assert (store.on_disk > 0) is (budget is not None)
    assert store.in_memory <= store.budget
    there = ends.to_parent(store)
    assert type(there) is ValueStore
    for key, value in zip(keys, values, strict=True):
        assert (there.get(key) == value).all()
        assert _inode(there.get(key)) == _inode(store.get(key))
    store.close()


def test_what_cannot_be_sent_leaves_nothing_behind(ends: Ends) -> None:
    with pytest.raises(Unsendable, match=r"a builtins\.function is no plain data"):
        ends.parent.send(ANSWER, [Node("never sent"), np.arange(LARGE), lambda: None])
    with pytest.raises(Unsendable, match="an array of object is no array of numbers"):
        ends.parent.send(ANSWER, np.array([None]))
    gc.collect()
    assert (len(ends.parent.codec.known), _mapped()) == (0, 0)
    assert ends.to_worker("and then") == "and then"


def test_a_large_message_and_many_segments_cross(ends: Ends) -> None:
    import threading

    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(ends.worker.receive()[1]))
    reader.start()
    ends.parent.send(ANSWER, "x" * 3_000_000)
    reader.join(10)
    assert found == ["x" * 3_000_000]
    pieces = [ends.to_parent(np.full(4, index)) for index in range(300)]
    assert [int(piece[0]) for piece in ends.to_worker(pieces)] == list(range(300))


def test_an_end_that_closes_and_one_that_is_silent(ends: Ends) -> None:
    ends.parent.socket.settimeout(0.05)
    signs = [True, False]
    with pytest.raises(Silent):
        ends.parent.receive(lambda: signs.pop(0))
    assert signs == [], "it waits as long as the other end is at work"
    ends.worker.socket.close()
    with pytest.raises(Gone):
        ends.parent.receive()


# What a hostile worker may send -------------------------------------------------------------------------------


def frame(text: Any, *, kind: int = ANSWER, length: int | None = None, segments: int = 0) -> bytes:
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("!BQI", kind, len(data) if length is None else length, segments) + data


def _frame(*fields: Any) -> list[Any]:
    return ["r", "Frame", None, *fields]


LEAF = ["r", "Leaf", 1, "x", "float32", ["t", 2], 3, False]


HOSTILE = {
    "a-builtin": (frame(["r", "eval", None, "1 + 1"]), "unknown type 'eval'"),
    "a-name-to-import": (frame(["r", "os.system", None, "true"]), "unknown type 'os.system'"),
    "a-type-that-is-no-name": (frame(["r", ["Frame"], None, 1.0]), "unknown type"),
    "a-pickle": (frame(pickle.dumps(print)), "JSONDecodeError|UnicodeDecodeError"),
    "a-pickle-without-a-frame": (pickle.dumps({"a": list(range(100))}), "a frame of kind 128"),
    "no-json": (frame(b"{'a': 1}"), "JSONDecodeError"),
    "an-object": (frame({"__reduce__": "eval"}), "neither plain nor tagged"),
    "an-unknown-tag": (frame(["x" * 1000, 1]), "unknown tag 'xxxx"),
    "a-tag-that-is-none": (frame([["a"], 1]), "neither plain nor tagged"),
    "nested-deeply": (frame(b"[" * 20_000), "nested too deeply"),
    "records-nested-deeply": (frame(b'["l",' * 9_000 + b"1" + b"]" * 9_000), "nested too deeply"),
    "a-wrong-type": (frame(_frame("f", "one", "g", 1, False)), "field line of a Frame came as a str, 'one'"),
    "a-wrong-item": (frame([*LEAF[:5], ["t", 2, "3"], 3, False]), "field shape of a Leaf came as a tuple"),
    "a-wrong-key": (
        frame(["r", "Given", None, False, None, ["d", [1, 2]], None, True]),
        "field optimizer of a Given came as a dict",
    ),
    "a-truth-for-a-number": (frame(_frame("f", True, "g", 1, False)), "field line of a Frame came as a bool"),
    "a-function-for-a-record": (
        frame(
            [
                "r",
                "Task",
                None,
                ["t"],
                ["d"],
                "eval",
                *(["f"] if field.default == frozenset() else field.default for field in attrs.fields(Task)[3:]),
            ]
        ),
        "field loss of a Task",
    ),
    "too-few-fields": (frame(_frame("f")), "a Frame came with 1 fields"),
    "too-many-fields": (frame(_frame("f", 1, "g", 1, False, 1)), "a Frame came with 6 fields"),
    "a-number-that-is-none": (frame([*LEAF[:2], "1", *LEAF[3:]]), "a Leaf came with 5 fields and the number '1'"),
    "an-identity-for-what-has-none": (frame(["r", "Frame", 1, "f", 1, "g", 1, False]), "and the number 1"),
    "a-record-never-sent": (frame(["@", 4711]), "a record 4711 was named that was never sent"),
    "a-record-named-by-a-list": (frame(["@", [1]]), "was named that was never sent"),
    "a-record-before-it-came": (frame(["&", 0]), "was named before it came"),
    "a-record-twice": (frame(["l", LEAF, LEAF]), "record 1 came twice"),
    "an-array-of-objects": (frame(["a", "object", [1], [-1, 0]]), "dtype 'object'"),
    "a-dtype-by-a-name": (frame(["a", "O,O", [1], [-1, 0]]), "dtype 'O,O'"),
    "a-dtype-that-is-none": (frame(["a", ["float32"], [1], [-1, 0]]), "TypeError"),
    "an-array-without-memory": (frame(["a", "float32", [1], [-1, 0]]), "0 segments"),
    "an-array-in-another-segment": (frame(["a", "float32", [1], [7, 0]]), r"at \[7, 0\] of 0 segments"),
    "a-negative-place": (frame(["a", "float32", [1], [-1, -64]]), r"at \[-1, -64\]"),
    "a-path-for-a-place": (frame(["a", "float32", [1], ["/etc/passwd", 0]]), "/etc/passwd"),
    "an-unknown-custom": (frame(["k", "open", "/etc/passwd"]), "KeyError"),
    "a-custom-of-what-is-none": (frame(["k", "ValueStore", 3]), "TypeError"),
    "a-scalar-of-objects": (frame(["n", "object", "00" * 8]), "KeyError"),
    "no-bytes": (frame(["b", "zz"]), "ValueError"),
    "an-unhashable-key": (frame(["d", [["l"], 1]]), "TypeError"),
    "an-absurd-length": (frame(b"", length=1 << 62), f"{1 << 62} bytes"),
    "an-absurd-count": (frame(b"1", segments=1 << 30), f"{1 << 30} segments"),
    "an-unknown-kind": (frame(1, kind=77), "kind 77"),
    "more-than-a-frame": (frame(1) + b"more", "4 bytes came behind a frame"),
}


WORKER = """
import array, fcntl, os, socket, sys, tempfile
connection = socket.socket(fileno=int(sys.argv[1]))
connection.sendall(b'{"python": "3", "padiff": "0", "protocol": PROTOCOL, "frameworks": []}\\n')
connection.recv(1 << 20)
descriptors = []
for kind in "KINDS".split():
    if kind == "pipe":
        descriptors.append(os.pipe()[0])
    elif kind == "named":
        descriptors.append(os.open(__file__, os.O_RDONLY))
    else:
        descriptors.append(os.memfd_create("padiff", os.MFD_ALLOW_SEALING))
        os.ftruncate(descriptors[-1], 4096)
        if kind == "sealed":
            fcntl.fcntl(descriptors[-1], fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
connection.sendmsg([SENT], rights if descriptors else [])
connection.WAYrecv(1)
"""


def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, kinds: str = "", way: str = "") -> str:
    """Return what is said where a worker answers its first request with some bytes, and descriptors of some kinds."""
    script = tmp_path / "worker.py"
    text = WORKER.replace("PROTOCOL", str(PROTOCOL)).replace("KINDS", kinds).replace("SENT", repr(sent))
    script.write_text(text.replace("WAY", way))
    monkeypatch.setattr("padiff.isolation._process._BOOT", str(script))
    with padiff.remote("any:model") as model:
        with pytest.raises(padiff.WorkerError) as caught:
            model.start()
        assert model.pid is None
    said = str(caught.value)
    assert "the worker of any:model (" in said
    assert "while it built the model" in said
    assert "\nHint: " in said
    return said


@pytest.mark.parametrize(("sent", "said"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_message_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, said: str
) -> None:
    found = answered(tmp_path, monkeypatch, sent)
    assert "sent what padiff cannot read while it built the model: " in found
    assert re.search(said, found), found


@pytest.mark.parametrize("sent", [b"", frame(1)[:5], frame("x" * 100)[:-1]], ids=["nothing", "header", "body"])
def test_a_frame_that_is_cut_short_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    assert "exited with status" in answered(tmp_path, monkeypatch, sent or b"\0", way="close() or connection.")


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([1 << 60], "was announced in 4096 bytes"),
        ([1 << 40, 1 << 40], "was announced in 4096 bytes"),
        ([1] * 65, "with the shape"),
        ([-1, -1], "with the shape"),
        ([2.0], "with the shape"),
        ([True], "with the shape"),
    ],
    ids=str,
)
def test_arrays_must_lie_in_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: list[Any], said: str
) -> None:
    sent = frame(["a", "float32", shape, [-1, 0]], segments=1)
    assert said in answered(tmp_path, monkeypatch, sent, "sealed")


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ("loose", "take away"),
        ("named", "take away"),
        ("pipe", "is none|take away"),
        ("sealed pipe", "is none|take away"),
    ],
)
def test_memory_that_is_none_or_could_be_taken_away_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: str, said: str
) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    sent = frame(["a", "uint8", [4096], [-1, 0]], segments=len(kinds.split()))
    assert re.search(said, answered(tmp_path, monkeypatch, sent, kinds))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_answer_of_another_kind_than_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a str came where None was expected" in answered(tmp_path, monkeypatch, frame("eval"))


@pytest.mark.parametrize("name", ["eval", "SystemExit", "KeyboardInterrupt", "os.system", "__class__", ""])
def test_an_error_of_any_name_is_an_error_and_nothing_else(name: str) -> None:
    for found in (ErrorRecord("said", "trace", name), ErrorRecord("said", "trace", None, name, name, name)):
        error = raised_again(found, "the worker")
        assert isinstance(error, Exception)
        assert not isinstance(error, SystemExit)
        assert str(error) == "said"


def _records_in(hint: Any) -> Iterator[type]:
    """Yield the records that an annotation names, but for what a function takes: it stays where it is."""
    if get_origin(hint) is Callable:
        return
    if isinstance(hint, type) and attrs.has(hint):
        yield hint
    for inside in get_args(hint):
        yield from _records_in(inside)


def test_whatever_a_side_takes_or_answers_may_cross() -> None:
    known = set(codec(owns=True).types.values())
    members = [one.fget if isinstance(one, property) else one for one in vars(Side).values()]
    hints = [hint for one in members if inspect.isfunction(one) for hint in get_type_hints(one).values()]
    assert {record for hint in hints for record in _records_in(hint)} <= known
    hints += [hint for record in known if attrs.has(record) for hint in get_type_hints(record).values()]
    found = {record for hint in hints for record in _records_in(hint)}
    assert found - known == {Measurement}  # what metrics give, which the parent asks


def test_a_name_for_a_type_is_looked_through() -> None:
    """Numpy 2.5's NDArray is one, as the statement ``type`` makes it."""
    from typing_extensions import TypeAliasType, TypeVar

    from padiff.codec import checker_of

    item = TypeVar("item")
    check = checker_of(TypeAliasType("Named", np.ndarray[Any, np.dtype[item]], type_params=(item,))[np.float32])
    assert check(np.ones(2, np.float32))
    assert not check([1.0])
