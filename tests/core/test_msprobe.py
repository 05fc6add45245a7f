"""Read dumps of msprobe. Those in data/ were written by mindstudio-probe 26.2.0: two small models of document 004."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import padiff
from padiff.codec import Malformed
from padiff.engine import opened
from padiff.errors import InputError
from padiff.trace.readers._pickles import Made, unpickled
from padiff.trace.readers._tensor_files import read_tensor

DATA = Path(__file__).parent / "data"
DENSE = "module.module.language_model.encoder.layers.0.mlp.dense_h_to_4h"
MAPPING = """\
TopLayer:
  module: model

GPTModel:
    language_model.embedding: embedding
    language_model.rotary_pos_emb: rotary_pos_emb
    language_model.encoder: decoder

ParallelMLP:
    dense_h_to_4h: linear_fc1
    dense_4h_to_h: linear_fc2
"""


def unmatched(page: str) -> list[list[str]]:
    """Return the paths of what has no counterpart, by side."""
    (found,) = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', page, re.S)
    data = json.loads(found)
    matched = [{link["nodes"][side] for link in data["links"]} for side in (0, 1)]
    return [
        [node["path"] for index, node in enumerate(side["nodes"]) if index not in matched[number]]
        for number, side in enumerate(data["sides"])
    ]


def test_a_dump_of_statistics_is_a_run() -> None:
    run = opened(DATA / "msprobe_a")
    assert (run.about.framework, run.values, list(run.steps)) == ("torch", "summary", [0])
    trace = run.trace(0)
    assert [call.path for call in trace.calls[1:4]] == [
        "module", "module.module", "module.module.language_model",
    ]  # fmt: skip
    call = next(call for call in trace.calls if call.path == DENSE)
    assert call.parent is not None
    assert call.parent.path == DENSE.rpartition(".")[0]
    assert (call.module.class_name, call.ordinal) == ("ColumnParallelLinear", 0)
    assert [(leaf.path, leaf.dtype, leaf.shape) for leaf in call.outputs] == [("[0]", "float32", (2, 4, 64))]
    known = trace.summaries[trace.values[call.outputs[0].token]]
    assert known.high == 2.0516133308410645
    assert known.norm == 14.159448623657227
    assert trace.summaries[trace.gradients[call.inputs[0].token]].shape == (2, 4, 16)
    assert trace.parameters[f"{DENSE}.weight"].shape == (64, 16)
    assert trace.summaries[trace.parameter_gradients[f"{DENSE}.weight"]].norm
    assert any(frame.function == "forward" and not frame.library for frame in call.frames)


@pytest.mark.parametrize("mapped", [True, False])
def test_document_004s_models_are_matched_with_its_mapping_and_without(mapped: bool, tmp_path: Path) -> None:
    """All but the one level more that the left has, as the document says."""
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(MAPPING)
    page = padiff.graph(DATA / "msprobe_a", DATA / "msprobe_b", mapping=mapping if mapped else None)
    assert unmatched(page) == [["module.module.language_model"], []]
    assert ("rotary_pos_emb: rotary_pos_emb" in page) == mapped  # a rule that never matched is told


def test_steps_and_ranks(tmp_path: Path) -> None:
    for step in (0, 2):
        for rank in ("rank0", "rank1"):
            shutil.copytree(DATA / "msprobe_a", tmp_path / f"step{step}" / rank)
    with pytest.raises(
        InputError, match=r"holds 2 ranks: rank0, rank1\.\nHint: name one: .*/rank0, or on the command line --rank 0"
    ):
        opened(tmp_path)
    run = opened(tmp_path / "rank1")
    assert list(run.steps) == [0, 2]
    assert run.trace(2).calls[1].path == "module"
    with pytest.raises(InputError, match="has no step 1; it has 0, 2"):
        run.trace(1)
    assert list(opened(tmp_path / "step2" / "rank0").steps) == [2]
    assert list(opened(tmp_path / "step2" / "rank0" / "dump.json").steps) == [2]


def dumped(folder: Path, name: str, value: Any) -> None:
    """Write a dump of one module that gives one tensor, which lies in a file of its own."""
    (folder / "dump_tensor_data").mkdir(parents=True)
    about = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 1, "data_name": name}
    data = {"Module.fc.Linear.forward.0": {"input_args": [None, {"type": "int", "value": 3}], "output": [about]}}
    (folder / "dump.json").write_text(json.dumps({"task": "tensor", "framework": "pytorch", "data": data}))
    torch.save(value, folder / "dump_tensor_data" / "x.pt")


def test_tensors_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    value = torch.arange(6.0).reshape(3, 2).T
    dumped(tmp_path / "dump", "x.pt", value)
    run = opened(tmp_path / "dump")
    trace = run.trace(0)
    assert run.values == "tensors"
    np.testing.assert_array_equal(trace.value(trace.calls[1].outputs[0]), value.numpy())
    (tmp_path / "dump" / "dump_tensor_data" / "x.pt").write_bytes(b"no tensor")
    with pytest.raises(InputError, match=r"x\.pt cannot be read: File is not a zip file"):
        trace.value(trace.calls[1].outputs[0])


def test_no_file_outside_of_a_dump_is_read(tmp_path: Path) -> None:
    torch.save(torch.zeros(2, 3), tmp_path / "secret.pt")
    dumped(tmp_path / "dump", "../../secret.pt", torch.zeros(2, 3))
    trace = opened(tmp_path / "dump").trace(0)
    assert trace.value(trace.calls[1].outputs[0]) is None


def checksums(folder: Path, given: str, *, figures: bool) -> padiff.Report:
    """Compare two dumps of two layers with checksums, as msprobe writes them: of md5 beside figures, of xor alone."""
    for side, last in (("a", "0x3"), ("b", given)):
        known = {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 1.0} if figures else {}
        x, y, z = (
            {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], **known, "md5": f"{one:0>8}"}
            for one in ("0x1", "0x2", last)
        )
        data = {
            "Module.fc.Linear.forward.0": {"input_args": [x], "output": [y]},
            "Module.norm.LayerNorm.forward.0": {"input_args": [y], "output": [z]},
        }
        (folder / side).mkdir()
        head = {"task": "statistics", "framework": "pytorch", "data": data}
        (folder / side / "dump.json").write_text(json.dumps(head))
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("figures", [True, False])
def test_checksums_tell_equal_bytes_from_others(figures: bool, tmp_path: Path) -> None:
    """Other bytes may be rounding: that is no fault, and without figures no pass."""
    (tmp_path / "same").mkdir()
    same = checksums(tmp_path / "same", "0x3", figures=figures)
    assert same.aligned
    assert same.counts == {"equal": 3}
    (tmp_path / "other").mkdir()
    other = checksums(tmp_path / "other", "0x4", figures=figures)
    assert other.aligned == figures
    assert not other.sources
    assert other.counts == ({"equal": 1, "rounding": 2} if figures else {"equal": 1, "not compared": 2})
    assert "'norm' is the first that makes other bytes of equal ones" in str(other)
    if not figures:
        assert "as far as checksums show" in str(other)
        assert "checksums do not tell how far apart the values are" in str(other)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"data": 3}', '{"data": {"Module.a.A.forward.0": 3}}', "\x00"])
def test_a_damaged_dump_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(InputError, match=r"dump\.json cannot be read: "):
        opened(tmp_path).trace(0)


TENSORS = {
    "bfloat16": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
    "float16": torch.ones(2, dtype=torch.float16),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor(7),
    "complex": torch.tensor([1 + 2j]),
    "float8": torch.arange(4.0).to(torch.float8_e4m3fn),
    "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    "view": torch.arange(24.0).reshape(4, 6)[1:3, ::2],
    "expanded": torch.arange(3.0).expand(4, 3),
    "empty": torch.zeros(0, 3),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_torch_are_read_without_torch(name: str, tmp_path: Path) -> None:
    value = TENSORS[name].detach()
    torch.save(TENSORS[name], tmp_path / "x.pt")
    found = read_tensor(tmp_path / "x.pt")
    expected = {
        "bfloat16": lambda: value.float().numpy().astype(ml_dtypes.bfloat16),
        "float8": lambda: value.float().numpy().astype(ml_dtypes.float8_e4m3fn),
    }.get(name, value.numpy)()
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


class _Harm:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    torch.save(_Harm(harm), tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", np.array({"a": _Harm(harm)}, dtype=object), allow_pickle=True)
    for name in ("x.pt", "x.npy"):
        with pytest.raises(InputError, match="cannot be read"):
            read_tensor(tmp_path / name)
    found = unpickled(pickle.dumps(_Harm(harm), 2))
    assert isinstance(found, Made)
    assert not harm.exists()


def _saved() -> bytes:
    file = io.BytesIO()
    torch.save(torch.arange(12.0).reshape(3, 4), file)
    return file.getvalue()


SAVED = _saved()
QUIET = settings(max_examples=150, derandomize=True, database=None)


@QUIET
@given(st.integers(0, len(SAVED) - 1), st.integers(1, 255), st.booleans())
def test_flipped_and_cut_files_are_errors_or_tensors(at: int, flip: int, cut: bool) -> None:
    bad = bytearray(SAVED)
    bad[at] ^= flip
    _read_or_refuse(bytes(bad[:at]) if cut else bytes(bad))


@QUIET
@given(st.data())
def test_strange_pickles_are_errors_or_tensors(data: st.DataObject) -> None:
    """The same file with bytes of its pickle exchanged, and its checksums right."""
    with zipfile.ZipFile(io.BytesIO(SAVED)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in parts if name.endswith("data.pkl"))
    text = bytearray(parts[name])
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for one, content in parts.items():
            archive.writestr(one, bytes(text) if one == name else content)
    _read_or_refuse(file.getvalue())


def _read_or_refuse(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt"
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            read_tensor(path)


@given(st.binary(max_size=40))
@QUIET
def test_any_bytes_are_a_pickle_or_malformed(content: bytes) -> None:
    with contextlib.suppress(Malformed):
        unpickled(content)
