"""Read what other tools dumped, compare it, draw it: each dump was really written by its tool, small as it is.

``padiff_03.zip``: PaDiff 0.3, one model in torch, its port in Paddle, and a port with a fault.
``msprobe_mindspore.zip``: mindstudio-probe 26.2.0 on MindSpore 2.10, tensors and statistics, right and with a fault
(its norm, for which MindSpore has no kernel on a CPU, was numpy's). reprod_log 1.0.1 saves a dictionary with
``numpy.save``, and so does this file.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import padiff
from padiff.__main__ import main
from padiff.engine import mapping_of_runs, opened
from padiff.errors import InputError
from padiff.report import Report

DATA = Path(__file__).parent / "data"


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def padiff_03(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("padiff_03", tmp_path_factory.mktemp("padiff"))


@pytest.fixture(scope="module")
def mindspore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("msprobe_mindspore", tmp_path_factory.mktemp("mindspore"))


def logged(file: Path, values: dict[str, Any]) -> Path:
    """Write what reprod_log's ``ReprodLogger.save`` writes."""
    np.save(file, values)  # type: ignore[arg-type]
    return file


def places(report: Report) -> list[str]:
    return [f"{finding.candidate.path}: {finding.phase} {finding.what}" for finding in report.sources]


# PaDiff 0.3


def test_a_dump_of_padiff_03_is_a_run(padiff_03: Path) -> None:
    run = opened(padiff_03 / "right")
    assert (run.about.framework, run.about.class_name, run.values, list(run.steps)) == (
        "paddle",
        "PNet",
        "tensors",
        [0],
    )
    trace = run.trace(0)
    assert [call.path for call in trace.calls] == ["", "a", "a.fc1", "a.act", "a.fc2", "head"]
    call = trace.calls[2]
    assert (call.module.class_name, call.module.kind) == ("Linear", "linear")
    assert [(leaf.dtype, leaf.shape) for leaf in call.outputs] == [("float32", (2, 6))]
    assert trace.value(call.outputs[0]) is not None
    assert trace.gradient(call.inputs[0]) is not None
    assert trace.parameters["a.fc1.weight"].shape == (4, 6)
    assert trace.array(trace.parameter_gradients["a.fc1.weight"]).shape == (4, 6)
    assert [(frame.file, frame.function) for frame in call.frames][:1] == [("/home/user/train.py", "forward")]
    assert not any(frame.library for frame in call.frames)


def test_dumps_of_padiff_03_are_compared_across_frameworks(padiff_03: Path) -> None:
    """Paddle's linear layers lie transposed: their kind, which their class tells, says so without Paddle."""
    assert padiff.compare(padiff_03 / "torch_", padiff_03 / "right").aligned
    assert places(padiff.compare(padiff_03 / "torch_", padiff_03 / "wrong")) == ["a: forward output"]


def test_a_fault_is_the_one_source_though_no_call_says_what_it_took(padiff_03: Path) -> None:
    report = padiff.compare(padiff_03 / "right", padiff_03 / "wrong")
    assert places(report) == ["a: forward output"]
    assert "head" in {finding.candidate.path for finding in report.victims}


def test_a_dump_of_padiff_03_moves_freely_and_stays_in_its_folder(padiff_03: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(padiff_03 / "right" / "step_0" / "rank_0", moved)
    np.save(tmp_path / "secret.npy", np.zeros((2, 3), np.float32))
    assert padiff.compare(padiff_03 / "torch_", moved).aligned
    report = json.loads((moved / "report.json").read_text())
    report["tree"][0]["fwd_outputs"][0]["path"] = str(tmp_path / "secret.npy")
    (moved / "report.json").write_text(json.dumps(report))
    trace = opened(moved).trace(0)
    with pytest.raises(InputError, match=r"elsewhere/tensors/secret\.npy cannot be read: No such file"):
        trace.value(trace.root.outputs[0])


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tree": 3}', '{"tree": [{}]}', '{"tree": [{"records": 1}], "records": []}']
)
def test_a_damaged_report_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "tensors").mkdir()
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(InputError, match=r"report\.json cannot be read: "):
        opened(tmp_path).trace(0)


def test_steps_and_ranks_of_padiff_03(padiff_03: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (0, 3):
        for rank in (0, 1, 10):
            shutil.copytree(padiff_03 / "right" / "step_0" / "rank_0", tmp_path / f"d/step_{step}/rank_{rank}")
    assert main(["show", str(tmp_path / "d")]) == 2
    assert "holds 3 ranks: rank_0, rank_1, rank_10.\nHint: name one: " in (said := capsys.readouterr().err)
    assert "--rank 0" in said
    assert main(["show", str(tmp_path / "d"), "--rank", "7"]) == 2
    assert "has no rank7; it has rank_0, rank_1, rank_10" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "d"), "--rank", "1", "--step", "3"]) == 0
    assert "2 steps (0, 3)" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "d"), str(tmp_path / "d"), "--rank", "10", "-q"]) == 0
    assert list(opened(tmp_path / "d" / "rank1").steps) == [0, 3]


# msprobe of MindSpore


@pytest.mark.parametrize("kept", ["tensors", "statistics"])
def test_dumps_of_mindspore_are_compared(mindspore: Path, kept: str) -> None:
    same = padiff.compare(mindspore / kept, mindspore / kept)
    assert same.aligned
    assert ("as far as summaries show" in str(same)) == (kept == "statistics")
    wrong = padiff.compare(mindspore / kept, mindspore / f"{kept}_wrong")
    assert places(wrong) == ["layers.1: forward output"]
    assert "train.py" in str(wrong)


def test_dumps_of_torch_and_mindspore_are_compared(mindspore: Path) -> None:
    assert padiff.compare(mindspore / "torch", mindspore / "tensors").aligned
    assert places(padiff.compare(mindspore / "torch", mindspore / "tensors_wrong")) == ["layers.1: forward output"]
    assert places(padiff.compare(mindspore / "torch", mindspore / "statistics_wrong")) == ["layers.1: forward output"]


def test_values_of_which_nothing_was_dumped_are_no_pass(mindspore: Path, tmp_path: Path) -> None:
    """So it is with hashes alone."""
    folder = tmp_path / "hashes"
    shutil.copytree(mindspore / "statistics" / "step0" / "proc1", folder)
    text = (folder / "dump.json").read_text()
    for figure in ("Max", "Min", "Mean", "Norm"):
        text = text.replace(f'"{figure}"', f'"no {figure}"')
    (folder / "dump.json").write_text(text)
    assert opened(folder).trace(0).values == {}
    assert not padiff.compare(folder, folder).aligned


def test_a_layer_that_one_dump_lacks_is_no_pass(mindspore: Path, tmp_path: Path) -> None:
    """No code around the outermost modules was dumped: nothing else could judge what they give."""
    folder = tmp_path / "cut"
    shutil.copytree(mindspore / "tensors" / "step0" / "proc1", folder)
    for name in ("dump", "construct"):
        found = json.loads((folder / f"{name}.json").read_text())
        held = found["data"] if name == "dump" else found
        for key in [key for key in held if key.startswith("Cell.layers.1")]:
            del held[key]
        (folder / f"{name}.json").write_text(json.dumps(found))
    assert not padiff.compare(mindspore / "tensors", folder).aligned


def test_a_widened_tensor_is_read_as_it_was(tmp_path: Path) -> None:
    """MindSpore's bfloat16 is dumped as float32, which has another rounding."""
    about = {"type": "mindspore.Tensor", "dtype": "BFloat16", "shape": [2], "data_name": "x.npy"}
    data = {"Cell.fc.Dense.forward.0": {"input_args": [], "output": [about]}}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "tensor", "framework": "mindspore", "data": data}))
    (tmp_path / "dump_tensor_data").mkdir()
    np.save(tmp_path / "dump_tensor_data" / "x.npy", np.array([1.5, 2.0], np.float32))
    trace = opened(tmp_path).trace(0)
    found = trace.value(trace.calls[1].outputs[0])
    assert found is not None
    assert found.dtype == ml_dtypes.bfloat16


# reprod_log

VALUES = {
    name: np.random.default_rng(number).normal(size=shape).astype(np.float32)
    for number, (name, shape) in enumerate(
        {"embedding": (4, 8), "layer.0": (4, 8), "layer.1": (4, 8), "logits": (4, 3), "loss": ()}.items()
    )
}


def changed(**by: float) -> dict[str, Any]:
    """Return the values with some of them scaled."""
    return {name: (value * by.get(name.replace(".", "_"), 1)).astype(np.float32) for name, value in VALUES.items()}


def test_dictionaries_of_reprod_log_are_compared(tmp_path: Path) -> None:
    ours = logged(tmp_path / "a.npy", VALUES)
    assert padiff.compare(ours, logged(tmp_path / "b.npy", changed(loss=1 + 1e-7))).aligned
    wrong = changed(layer_1=1.01, logits=1.01, loss=1.01)
    assert places(padiff.compare(ours, logged(tmp_path / "c.npy", wrong))) == ["layer.1: forward output"]


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_one_dictionary_lacks_is_no_pass(name: str, tmp_path: Path) -> None:
    ours = logged(tmp_path / "a.npy", VALUES)
    theirs = logged(tmp_path / "b.npy", {key: value for key, value in VALUES.items() if key != name})
    for pair in ((ours, theirs), (theirs, ours)):
        report = padiff.compare(*pair)
        assert not report.aligned
        assert name in str(report)


def test_other_names_and_nested_dictionaries(tmp_path: Path) -> None:
    names = {"layer.0": "blocks.0", "layer.1": "blocks.1", "logits": "out"}
    ours = logged(tmp_path / "a.npy", VALUES)
    theirs = logged(tmp_path / "b.npy", {names.get(key, key): value for key, value in VALUES.items()})
    assert padiff.compare(ours, theirs).aligned
    assert "  logits: out" in mapping_of_runs(ours, theirs)
    nested = opened(logged(tmp_path / "n.npy", {"step": {"x": np.ones(3)}, "y": np.zeros((2, 2), order="F")})).trace(0)
    assert [call.path for call in nested.calls] == ["", "step", "step.x", "y"]
    assert "6 calls matched" in padiff.graph(ours, theirs)


def test_every_dtype_of_a_dictionary_comes_back(tmp_path: Path) -> None:
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 >f4"
    values: dict[str, Any] = {name: np.arange(6).astype(name).reshape(2, 3).T for name in names.split()}
    values["bfloat16"] = np.arange(3).astype(ml_dtypes.bfloat16)
    trace = opened(logged(tmp_path / "a.npy", values)).trace(0)
    for call in trace.calls[1:]:
        found = trace.value(call.outputs[0])
        assert found is not None
        np.testing.assert_array_equal(found.astype(complex), values[call.path].astype(complex))


class _Harm:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_nothing_in_a_dictionary_is_executed(tmp_path: Path) -> None:
    harm, cycle = tmp_path / "harm", dict[str, Any]()
    cycle["again"] = cycle
    hostile = {"call": {"x": _Harm(harm)}, "cycle": cycle, "text": {"x": np.array(["a"])}, "objects": {"x": [1]}}
    for name, values in hostile.items():
        file = logged(tmp_path / f"{name}.npy", values)
        with pytest.raises(InputError, match="cannot be read"):
            opened(file).trace(0)
    plain = tmp_path / "plain.npy"
    np.save(plain, np.ones(3))
    with pytest.raises(InputError, match=r"it holds float64\[3\], and no dictionary of arrays"):
        opened(plain).trace(0)
    (tmp_path / "short.npy").write_bytes((tmp_path / "text.npy").read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        opened(tmp_path / "short.npy").trace(0)
    assert not harm.exists()
