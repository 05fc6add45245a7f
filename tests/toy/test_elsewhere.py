"""Record to, and read from, a directory that fsspec reaches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import padiff
from padiff.cli import main
from padiff.errors import InputError
from padiff.testing.toy import rows

from .test_recording import Net, batches, state_of, train


@pytest.fixture(params=["memory", "file"])
def place(request: Any, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}"
    fsspec.filesystem("memory").store.clear()
    return "memory://runs"


def recorded(url: str, *, fault: float = 1.0) -> Any:
    np.random.seed(0)
    model = Net()
    model.norm.weight.data *= np.float32(fault)
    with padiff.record(model, url) as recorder:
        train(model, batches(2), recorder.step)
    return model


def test_a_run_is_recorded_read_shown_and_drawn_there(place: str, capsys: Any) -> None:
    recorded(f"{place}/a")
    model = recorded(f"{place}/b", fault=2.0)
    assert padiff.compare(f"{place}/a", f"{place}/a").aligned
    report = padiff.compare(f"{place}/a", f"{place}/b")
    assert {one.candidate.path for one in report.sources} == {"norm"}
    assert main(["compare", f"{place}/a", f"{place}/b", "-q"]) == 1
    assert main(["show", f"{place}/a"]) == 0
    assert "2 steps" in capsys.readouterr().out
    assert "<html" in padiff.graph(f"{place}/a", f"{place}/b")
    fresh = Net()
    padiff.transfer(f"{place}/b", fresh)
    assert state_of(fresh) != state_of(model)  # what it started from, and not where it ended
    again = Net()
    padiff.transfer(f"{place}/b", again)
    assert state_of(again) == state_of(fresh)


def test_what_is_there_is_left_alone_and_what_is_damaged_named(place: str) -> None:
    url = f"{place}/a"
    recorded(url)
    with pytest.raises(InputError, match="holds something already"), padiff.record(Net(), url):
        pass
    system, path = fsspec.core.url_to_fs(url)
    shard = next(name for name in system.ls(path, detail=False) if name.endswith("00000.safetensors"))
    content = bytearray(system.cat_file(shard))
    content[-5] ^= 1
    system.pipe_file(shard, bytes(content))
    with pytest.raises(InputError, match=r"shard-00000\.safetensors is damaged"):
        padiff.compare(url, url)
    system.pipe_file(shard, bytes(content[:-100]))
    with pytest.raises(InputError, match=r"shard-00000\.safetensors was cut off"):
        padiff.compare(url, url)


def test_what_cannot_be_reached_is_told(monkeypatch: Any) -> None:
    with pytest.raises(InputError, match="memory://nowhere is no directory"):
        padiff.compare("memory://nowhere", "memory://nowhere")
    with pytest.raises(InputError, match="fsspec knows no protocol 'nonsense'"):
        padiff.compare("nonsense://bucket/a", "nonsense://bucket/b")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with (
        pytest.raises(InputError, match=r"pip install 'padiff-core\[remote\]'"),
        padiff.record(rows.Linear(2, 2), "memory://a"),
    ):
        pass
