"""What the interface of adapters says for models of this process, and sides say of remote ones."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch

import padiff
from padiff.adapter import extent_of, shares_elements
from padiff.forcing import Memory
from padiff.import_string import SpecError, loss_of, optimizer_of
from padiff.isolation import side_of
from padiff.numerics import sample
from padiff.plugins import adapter_for
from padiff.recording import Task
from padiff.trace import temporary_store

from .conftest import Sides


def test_the_extent_of_an_array() -> None:
    array = np.zeros((4, 6), np.float32)
    start = array.__array_interface__["data"][0]
    assert extent_of(array) == (start, start + 96)
    assert extent_of(array[1:, ::-1]) == (start + 24, start + 96)
    assert extent_of(array[:0]) is None
    assert extent_of(None) is None
    assert not shares_elements(array.T)
    assert shares_elements(np.broadcast_to(array[:1], (4, 6)))


def test_a_tensor_of_this_process() -> None:
    adapter = adapter_for(torch.nn.Linear(1, 1))
    native = torch.arange(6.0).reshape(2, 3)
    tensor = adapter.tensor(native)
    assert tensor.identity is native
    assert tensor.extent() == (native.data_ptr(), native.data_ptr() + 24)
    assert (tensor.read(sample) == np.arange(6)).all()
    assert tensor.read(np.array_equal, np.arange(6.0, dtype=np.float32).reshape(2, 3))
    assert tensor.overwrite(np.ones((2, 3)))
    assert native.sum() == 6
    assert not adapter.tensor(native[:1].expand(4, 3)).overwrite(np.zeros((4, 3)))


def test_what_is_protected_or_given_is_not_overwritten() -> None:
    adapter = adapter_for(torch.nn.Linear(1, 1))
    whole = torch.zeros(4, 2)
    kept, free = adapter.tensor(whole[:2]), adapter.tensor(whole[2:])
    memory = Memory([kept.extent(), None])
    assert not memory.overwrite(kept, np.ones((2, 2)))
    assert memory.overwrite(free, np.ones((2, 2)))
    memory.give(free)
    assert not memory.overwrite(adapter.tensor(whole[3:]), np.zeros((1, 2)))
    assert memory.overwrite(free, np.full((2, 2), 2.0))
    assert whole.sum() == 8


def test_a_remote_side_describes_its_model_as_one_of_this_process_does(sides: Sides) -> None:
    here, there = side_of(sides.here("torch")), side_of(sides.there("torch"))
    assert list(there.about.modules) == list(here.about.modules)
    environment = {**there.about.environment, "process": there.about.environment["process"]}
    assert environment == {**here.about.environment, "process": sys.executable}
    assert attrs.evolve(there.about, environment={}) == attrs.evolve(here.about, environment={})
    assert there.native("") is None
    assert there.find(sides.port("torch")) is None
    assert there.shared(here) == []


def test_a_remote_side_gives_and_takes_values_and_leaves_what_it_entered(sides: Sides) -> None:
    there = side_of(sides.there("torch"))
    path = "head.weight"
    values = np.array(there.value(path))
    with there.preserved():
        there.assign({path: values + 1})
    assert (there.value(path) == values + 1).all(), "an assigned value stays"
    with pytest.raises(padiff.InputError, match="float8"):
        there.check_dtype("float8_e3m4")
    with pytest.raises(KeyError):
        there.value("no.such.parameter")


def test_a_module_is_of_a_class_or_of_a_class_of_that_name(sides: Sides) -> None:
    here = sides.here("torch")
    head = adapter_for(here).wrap(here).modules()["head"]
    for cls in (torch.nn.Linear, torch.nn.Module, "Linear", "torch.nn.modules.linear.Linear"):
        assert head.is_a(cls), cls
    for cls in (torch.nn.LayerNorm, "LayerNorm", "nn.Linear"):
        assert not head.is_a(cls), cls


def test_names_of_losses_and_optimizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("named_here.py").write_text(
        "def loss(output): return output\n"
        "def make(): return loss\n"
        "pair = loss, make\n"
        "def sgd(model): return ('sgd', model)\n"
        "def step(): return 'stepped'\n"
        "def both(a, b): pass\n"
    )
    assert loss_of("named_here:loss", 0).__name__ == "loss"
    assert loss_of("named_here:make", 1).__name__ == "loss"
    assert [loss_of("named_here:pair", side).__name__ for side in (0, 1)] == ["loss", "make"]
    assert optimizer_of("named_here:sgd", 0, "model") == ("sgd", "model")
    assert optimizer_of("named_here:step", 0, "model")() == "stepped"
    with pytest.raises(SpecError, match="needs a, b; expected a function of one argument, the model"):
        optimizer_of("named_here:both", 0, "model")
    model = adapter_for(torch.nn.Linear(1, 1)).wrap(torch.nn.Linear(1, 1))
    assert model.loss("named_here:loss", 0)(3) == 3
    assert model.loss(None, 0) is None
    assert model.optimizer("named_here:sgd", 0) == ("sgd", model.native)
    function = types.FunctionType((lambda: None).__code__, {})
    assert model.optimizer(function, 0) is function


def test_a_remote_side_records_what_one_of_this_process_does(sides: Sides, inputs: dict[str, Any]) -> None:
    here, there = side_of(sides.here("torch")), side_of(sides.there("torch"))
    there.assign({path: here.value(path) for path in here.about.parameters})
    with temporary_store() as store:
        local, distant = (side.record(Task((), inputs), store) for side in (here, there))
        for field in ("index", "key", "module", "training", "frames", "args", "kwargs", "settings"):
            assert [getattr(c, field) for c in distant.calls] == [getattr(c, field) for c in local.calls], field
        leaves = [
            [
                (x.path, x.dtype, x.shape, x.token, x.differentiable)
                for c in trace.calls
                for x in (*c.inputs, *c.outputs)
            ]
            for trace in (local, distant)
        ]
        assert leaves[0] == leaves[1], "the same tensor is known again"
        assert [c.parent and c.parent.key for c in distant.calls] == [c.parent and c.parent.key for c in local.calls]
        for token, key in local.values.items():
            assert np.array_equal(local.array(key), distant.array(distant.values[token])), token
        for token, key in local.gradients.items():
            assert np.allclose(local.array(key), distant.array(distant.gradients[token]), atol=1e-6), token
        assert distant.parameters == local.parameters
        assert not distant.array(next(iter(distant.values.values()))).flags.writeable


@pytest.mark.parametrize(("name", "places"), [("padded", []), ("doubled", [("", "[1]")])])
def test_a_model_elsewhere_is_read_without_its_padding(name: str, places: list[tuple[str, str]]) -> None:
    import toy_words

    tokens = np.array([[0, 3, 4, 1]])
    with padiff.remote(f"toy_words:{name}") as theirs:
        report = padiff.diff(toy_words.plain(), theirs, (tokens,))
        assert [(one.candidate.path, one.what.name) for one in report.sources] == places, report
        with padiff.remote("toy_words:plain") as ours:
            turned = padiff.diff(theirs, ours, (tokens,))
    assert [(one.candidate.path, one.what.name) for one in turned.sources] == places, turned
    for one, side in ((report, "candidate"), (turned, "reference")):
        (note,) = [note for note in one.notes if note.kind == "padded_rows"]
        assert (note.data["side"], note.data["count"], note.data["real"]) == (side, 8, 5)
