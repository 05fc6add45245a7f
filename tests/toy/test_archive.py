"""Write traces and the answers of replays, and align and judge them again in a process without the frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import padiff
from padiff.alignment import Resolved, align
from padiff.errors import InputError
from padiff.forcing import Bench, KeptSide, LocalSide, force
from padiff.judging import Judge
from padiff.parameters import named_alike, units_of
from padiff.plugins import adapter_for
from padiff.recording import Task
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import Trace, ValueStore, read_trace, write_records, write_trace

from .offline import RECORDS, again, judged


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.act, self.norm = rows.Linear(6, 8), rows.GELU(), rows.LayerNorm(8)
        self.attention, self.head = rows.Attention(8, 2), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.act(self.first(x)))
        return self.head(x + self.attention(x))


class Port(columns.Layer):
    def __init__(self) -> None:
        self.first, self.norm = columns.Dense(6, 8), columns.LayerNormalization(8)
        self.attention, self.head = columns.SelfAttention(8, 2), columns.Dense(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(F.relu(self.first(x)))
        return self.head(x * 1.5 + self.attention(x))


def numbers() -> Any:
    return np.random.default_rng(0).standard_normal((2, 3, 6), dtype=np.float32)


def kept_in(folder: Path) -> list[Any]:
    """Record and judge a port with two faults, and write all of it to a folder."""
    net, port = Net(), Port()
    padiff.diff(net, port, (numbers(),))  # copies the parameters
    sides = [LocalSide(adapter_for(model).wrap(model)) for model in (net, port)]
    task, store = Task((numbers(),), {}), ValueStore()
    for index, side in enumerate(sides):
        side.prepare(None, None, index=index)
    traces = sides[0].record(task, store), sides[1].record(task, store, values=False)
    units = [units_of(side.about) for side in sides]
    known = named_alike(*units, Resolved())
    assert known is not None
    alignment = align(*traces, [match.modules for match in known.matches])
    forced = force(sides[0], sides[1], task, alignment, traces[0], known.matches)
    keeping = [KeptSide(side) for side in sides]
    bench = Bench(keeping[0], keeping[1], traces[0], alignment, forced.own, True, 0)
    found = judged(Judge(bench, traces[0], forced, loss=False))
    what = {"traces": list(traces), "matches": list(known.matches), "alignment": alignment, "forced": forced}
    write_records({**what, "answers": [one.answers for one in keeping]}, folder, *RECORDS)
    return found


def test_a_process_without_the_framework_finds_the_same(tmp_path: Path) -> None:
    found = kept_in(tmp_path)
    assert {("", "forward"), ("", "backward")} & {(key[0], phase) for key, phase, *_ in found}, found
    assert again(tmp_path) == found
    script = (
        "import json, pathlib, sys; from tests.toy.offline import again\n"
        f"found = again(pathlib.Path({str(tmp_path)!r}))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'paddle', 'mindspore', 'jax')]\n"
        "assert 'padiff.testing' not in sys.modules\n"
        "print(json.dumps(found))"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{root}"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, cwd=root)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == found


def trace_of(model: Any) -> Trace:
    side = LocalSide(adapter_for(model).wrap(model))
    side.prepare(None, None, index=0)
    return side.record(Task((numbers(),), {}), ValueStore())


def test_a_trace_survives_with_its_settings_and_every_dtype(tmp_path: Path) -> None:
    trace = trace_of(Net())
    for index, name in enumerate(("bfloat16", "float8_e4m3fn", "complex64", "bool", "uint64")):
        values = np.asarray([1, 0, 2]).astype(getattr(ml_dtypes, name, name))
        trace.values[-1 - index] = trace.store.put(values)
    trace.values[-9] = trace.store.put(np.zeros((0, 3), np.float32))
    write_trace(trace, tmp_path / "new" / "folder")
    read = read_trace(tmp_path / "new" / "folder")
    assert [(c.key, c.settings, c.args, c.frames, c.module) for c in read.calls] == [
        (c.key, c.settings, c.args, c.frames, c.module) for c in trace.calls
    ]
    assert read.root.children[0].parent is read.root
    assert read.parameters == trace.parameters
    assert next(call.settings["eps"].value for call in read.calls if call.path == "norm") > 0
    for token, key in trace.values.items():
        before, after = trace.array(key), read.array(read.values[token])
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        assert before.tobytes() == after.tobytes()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_trace(trace_of(Net()), tmp_path)
    return tmp_path


def changed(folder: Path, before: bytes, after: bytes) -> None:
    file = folder / "trace.json"
    assert before in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(before, after))


def test_what_is_no_trace_is_refused(written: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace"):
        read_trace(tmp_path / "nowhere")
    (written / "trace.json").write_bytes(b"\x80\x04cos\nsystem\n")  # the beginning of a pickle
    with pytest.raises(InputError, match="not written by padiff"):
        read_trace(written)
    (written / "trace.json").write_text('{"format": "padiff trace", "version": 99, "array_bytes": 0}\nnull')
    with pytest.raises(InputError, match="version 99"):
        read_trace(written)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'["r","Call"', b'["r","Popen"'),
        (b'["r","Leaf"', b'["r","eval"'),
        (b'["k","store"', b'["k","pickle"'),
        (b'"float32",[2,3,6]', b'"float32",[2000000,3000000,60000000000]'),
        (b'"float32",[2,3,6]', b'"float32",[-2,-3,6]'),
        (b'"float32",[2,3,6]', b'"object",[2,3,6]'),
        (b'["r","Slot"', b'["r","Slot",'),
        (b'"array_bytes": ', b'"array_bytes": 9'),
    ],
)
def test_what_was_tampered_with_is_refused(written: Path, before: bytes, after: bytes) -> None:
    changed(written, before, after)
    with pytest.raises(InputError, match="do not trust"):
        read_trace(written)


def test_a_link_out_of_the_folder_is_refused(written: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "trace.arrays"
    (written / "trace.arrays").rename(elsewhere)
    (written / "trace.arrays").symlink_to(elsewhere)
    with pytest.raises(InputError, match="outside of the folder"):
        read_trace(written)
