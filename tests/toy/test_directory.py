"""Write runs to directories and read them back: every dtype, once each, and nothing but data."""

from __future__ import annotations

import functools
import json
import os
import zlib
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from padiff.codec import DTYPES
from padiff.errors import InputError
from padiff.forcing import LocalSide
from padiff.plugins import adapter_for
from padiff.recording import Task
from padiff.testing.toy import rows
from padiff.trace import Description, Trace, ValueStore, open_run, summarized

from .archive import write_run


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.act, self.norm, self.head = (
            rows.Linear(6, 8),
            rows.GELU(),
            rows.LayerNorm(8),
            rows.Linear(8, 4),
        )

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.act(self.first(x))))


def numbers() -> Any:
    return np.random.default_rng(0).standard_normal((2, 6), dtype=np.float32)


net = functools.cache(Net)


def recorded() -> tuple[Description, Trace]:
    model = net()
    side = LocalSide(adapter_for(model).wrap(model))
    side.prepare(None, None, index=0)
    return side.about, side.record(Task((numbers(),), {}), ValueStore())


@pytest.fixture
def written(tmp_path: Path) -> Path:
    about, trace = recorded()
    write_run(tmp_path / "run", about, [(0, trace), (3, trace)])
    return tmp_path / "run"


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.name, array.shape, array.tobytes()


def test_a_run_comes_back_as_it_was(written: Path) -> None:
    run, (about, trace) = open_run(written), recorded()
    assert run.steps == [0, 3]
    assert run.values == "tensors"
    assert attrs.asdict(run.about.modules["norm"]) == attrs.asdict(about.modules["norm"])
    read = run.trace(3)
    assert [(c.key, c.settings, c.args) for c in read.calls] == [(c.key, c.settings, c.args) for c in trace.calls]
    for kind in ("values", "gradients", "parameter_gradients", "buffers"):
        ours, theirs = getattr(trace, kind), getattr(read, kind)
        assert ours.keys() == theirs.keys()
        assert [bits(trace.array(key)) for key in ours.values()] == [bits(read.array(key)) for key in theirs.values()]
    leaf = trace.root.outputs[0]
    assert list(read.samples[leaf.token]) == list(trace.samples[leaf.token])
    assert leaf.token in read.samples
    assert read.samples.get(-99) is None


@pytest.mark.parametrize("version", [0, 2])
def test_a_run_of_another_version_of_the_format_is_refused_in_words(written: Path, version: int) -> None:
    for file in written.glob("*.json"):
        file.write_bytes(file.read_bytes().replace(b'"version": 1', b'"version": %d' % version, 1))
    said = rf"version {version} of padiff's format; this padiff reads version 1\.\nHint: up"
    with pytest.raises(InputError, match=said):
        open_run(written)


def test_what_is_the_same_in_two_steps_is_written_once(written: Path) -> None:
    sizes = [file.stat().st_size for file in written.glob("*.safetensors")]
    assert len(sizes) == 1
    with safe_open(next(written.glob("*.safetensors")), "np") as shard:
        assert len({shard.get_tensor(name).tobytes() for name in shard.keys()}) == len(list(shard.keys()))  # noqa: SIM118


ARRAYS = st.builds(
    lambda name, shape, seed: (
        np.frombuffer(np.random.default_rng(seed).bytes(4096), np.uint8)[: DTYPES[name].itemsize * int(np.prod(shape))]
        .copy()
        .view(DTYPES[name])
        .reshape(shape)
        if name != "bool"
        else np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    ),
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.integers(0, 50),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays=st.lists(ARRAYS, max_size=12), args=st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5) | st.slices(9),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_every_dtype_and_nesting_survives(tmp_path_factory: Any, arrays: list[Any], args: Any) -> None:
    about, trace = recorded()
    trace.root.args = (args,)
    trace.values = {-1 - i: trace.store.put(array) for i, array in enumerate(arrays)}
    folder = tmp_path_factory.mktemp("run") / "new"
    write_run(folder, about, [(0, trace)])
    read = open_run(folder).trace(0)
    assert read.root.args == (args,)
    assert [bits(read.array(read.values[-1 - i])) for i in range(len(arrays))] == [bits(array) for array in arrays]
    for shard in folder.glob("*.safetensors"):
        with safe_open(shard, "np") as file:  # the library finds no hole and no overlap
            assert list(file.keys())


def test_the_safetensors_library_reads_the_values(tmp_path: Path) -> None:
    about, trace = recorded()
    values = np.arange(3).astype(ml_dtypes.bfloat16)
    trace.values[-1] = trace.store.put(values)
    write_run(tmp_path, about, [(0, trace)])
    found = load_file(next(tmp_path.glob("*.safetensors")))
    assert values.tobytes() in {array.tobytes() for array in found.values()}


def test_summaries_stand_for_values(tmp_path: Path) -> None:
    about, trace = recorded()
    array = np.asarray([1.0, -2.0, np.nan, np.inf, 4.0], np.float32)
    summary = summarized(array)
    figures = summary.mean, summary.low, summary.high, summary.nans, summary.infinities
    assert figures == (1.0, -2.0, 4.0, 1, 1)
    assert summary.norm == pytest.approx(21**0.5)
    token = trace.root.outputs[0].token
    trace.values = {token: trace.summarized(summary)}
    write_run(tmp_path, about, [(0, trace)], "summary")
    read = open_run(tmp_path).trace(0)
    assert read.value(trace.root.outputs[0]) is None
    assert read.summaries[read.values[token]].high == 4.0
    assert len(read.samples[token]) == 5


def test_an_existing_directory_is_left_alone(written: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    with pytest.raises(InputError, match="holds something already"):
        write_run(written, recorded()[0], [])
    assert before == {path.name: path.read_bytes() for path in written.iterdir()}
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        write_run(tmp_path / "file", recorded()[0], [])


def read_all(folder: Path) -> list[tuple[Any, ...]]:
    """Return all that can be read of a run, and the error in place of what cannot."""
    try:
        run = open_run(folder)
    except InputError as error:
        return [("run", str(error))]
    found: list[tuple[Any, ...]] = []
    for step in run.steps:
        try:
            trace = run.trace(step)
        except InputError as error:
            found.append((step, str(error)))
            continue
        for token, key in trace.values.items():
            try:
                found.append((step, token, bits(trace.array(key))))
            except InputError as error:
                found.append((step, token, str(error)))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 3), where=st.floats(0, 1, exclude_max=True), cut=st.booleans(), flip=st.integers(1, 255))
def test_what_is_damaged_is_named_and_the_rest_read(
    tmp_path_factory: Any, written: Path, which: int, where: float, cut: bool, flip: int
) -> None:
    sound = read_all(written)
    file = sorted(path for path in written.iterdir())[which % len(list(written.iterdir()))]
    content = file.read_bytes()
    at = int(where * len(content))
    damaged = content[:at] if cut else content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
    file.write_bytes(damaged)
    try:
        found = read_all(written)
    finally:
        file.write_bytes(content)
    for one in found:
        assert one in sound or "Hint" in one[-1], one
        if one not in sound:
            assert file.name in one[-1]


@pytest.mark.parametrize("name", ["manifest.json", "step-00000000.json", "shard-00000.safetensors"])
def test_a_link_is_not_followed(written: Path, tmp_path: Path, name: str) -> None:
    (written / name).rename(tmp_path / "elsewhere")
    (written / name).symlink_to(tmp_path / "elsewhere")
    told = [one[-1] for one in read_all(written) if isinstance(one[-1], str)]
    assert told
    assert all("link" in text for text in told)


@pytest.mark.parametrize("name", ["manifest.json", "step-00000000.json", "shard-00000.safetensors"])
def test_what_is_no_file_is_not_waited_for(written: Path, name: str) -> None:
    (written / name).unlink()
    os.mkfifo(written / name)
    told = [one[-1] for one in read_all(written) if isinstance(one[-1], str)]
    assert told
    assert all("no file" in text for text in told)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"shard-00000.safetensors"', b'"../../../../etc/passwd"'),
        (b'"shard-00000.safetensors"', b'"/etc/passwd"'),
        (b'["r","Call"', b'["r","Popen"'),
        (b'["r","Placed"', b'["r","eval"'),
        (b'["k","store"', b'["k","pickle"'),
        (b'"float32",["t",2,6]', b'"float32",["t",2000000,3000000,60000000000]'),
        (b'"float32",["t",2,6]', b'"float32",["t",-2,-3]'),
        (b'"float32",["t",2,6]', b'"object",["t",2,6]'),
    ],
)
def test_a_hostile_record_is_refused(written: Path, before: bytes, after: bytes) -> None:
    file = written / "step-00000000.json"
    head, _, text = file.read_bytes().partition(b"\n")
    assert before in text
    text = text.replace(before, after)
    file.write_bytes(
        json.dumps({**json.loads(head), "bytes": len(text), "crc": zlib.crc32(text)}).encode() + b"\n" + text
    )
    told = [one for one in read_all(written) if one[0] == 0 and isinstance(one[-1], str)]
    assert told
    assert all("Hint" in one[-1] and "passwd " not in one[-1] for one in told)


def test_an_unfinished_step_is_not_there(written: Path) -> None:
    (written / "step-00000004.json.part").write_bytes(b"half")
    (written / "shard-00001.safetensors.part").write_bytes(b"half")
    assert open_run(written).steps == [0, 3]
    with pytest.raises(InputError, match="has no step 4"):
        open_run(written).trace(4)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no directory"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no recorded run"):
        open_run(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\x80\x04cos\nsystem\n")  # the beginning of a pickle
    with pytest.raises(InputError, match="not written by padiff"):
        open_run(tmp_path)


def test_a_run_of_another_version_is_read(written: Path) -> None:
    file = written / "step-00000000.json"
    first, _, text = file.read_bytes().partition(b"\n")
    head = json.loads(first)
    place = head["fields"]["SettingRecord"].index("spelled")
    head["fields"]["SettingRecord"][place] = "said"  # a field that is not known here, and one that has to be
    file.write_bytes(json.dumps(head).encode() + b"\n" + text)
    with pytest.raises(InputError, match="a SettingRecord came without the field spelled"):
        open_run(written).trace(0)
    head["fields"]["SettingRecord"][place] = "spelled"
    place = head["fields"]["Trace"].index("returned")
    head["fields"]["Trace"][place] = "later"
    file.write_bytes(json.dumps(head).encode() + b"\n" + text)
    assert open_run(written).trace(0).returned == ""
