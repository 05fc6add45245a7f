"""What the interface of adapters says for models of this process, and remote ones answer from theirs."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from padiff.adapter import extent_of, shares_elements
from padiff.forcing import Memory
from padiff.import_string import SpecError, loss_of, optimizer_of
from padiff.numerics import sample
from padiff.plugins import adapter_for
from padiff.pytree import Nested, leaves, map_leaves
from padiff.recording import settings_at

from .conftest import Sides


class Far(Nested):
    """Be a container of which only the leaves are here."""

    def __init__(self, **items: Any) -> None:
        self.held = items

    def items(self) -> Any:
        return ((f".{name}", value) for name, value in self.held.items())

    def rebuilt(self, items: list[Any]) -> Far:
        return Far(**dict(zip(self.held, items, strict=True)))


def test_a_container_of_another_process_is_walked_as_any_other() -> None:
    value = {"out": (Far(a=1, b="text"), 2)}
    found = list(leaves(value, lambda leaf: isinstance(leaf, int)))
    assert found == [("['out'][0].a", 1), ("['out'][1]", 2)]
    changed = map_leaves(value, lambda leaf: isinstance(leaf, int), lambda path, leaf: leaf + 1)
    assert changed["out"][0].held == {"a": 2, "b": "text"}
    assert map_leaves(value, lambda leaf: False, lambda path, leaf: leaf) is value


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


def test_a_remote_tensor_answers_from_its_process(sides: Sides) -> None:
    adapter = sides.there("torch").start()
    values = np.arange(60_000, dtype=np.float32).reshape(2, -1)
    tensor = adapter.tensor(adapter.from_numpy(values, differentiable=True))
    assert (tensor.dtype, tensor.shape, tensor.device) == ("float32", (2, 30_000), "cpu")
    assert tensor.differentiable
    assert tensor.identity is adapter.tensor(tensor.native).identity
    assert tensor.identity is not adapter.tensor(tensor.swapped(values)).identity
    assert (tensor.numpy() == values).all()
    assert (tensor.read(sample) == sample(values)).all()
    start, end = tensor.extent() or (0, 0)
    assert end - start == values.nbytes
    plain = adapter.tensor(adapter.from_numpy(values))
    assert plain.overwrite(values + 1)
    assert (plain.view() == values + 1).all()
    assert (adapter.tensor(plain.swapped(values)).view() == values).all()
    assert not adapter.is_tensor(values)
    assert not adapter.is_tensor(torch.ones(1))


def test_a_remote_tree_reads_as_the_model_does(sides: Sides) -> None:
    here = sides.here("torch")
    local = adapter_for(here).wrap(here)
    distant = sides.there("torch").model()
    assert list(distant.modules()) == list(local.modules())
    for path, module in local.modules().items():
        other = distant.modules()[path]
        assert (other.kind, other.class_name, other.training) == (module.kind, module.class_name, module.training)
        assert other.definition == module.definition
        assert settings_at(other) == settings_at(module)
    assert {p: (q.shape, q.dtype, q.buffer, q.paths, q.trainable) for p, q in distant.parameters().items()} == {
        p: (q.shape, q.dtype, q.buffer, q.paths, q.trainable) for p, q in local.parameters().items()
    }
    assert distant.modules()["blocks.0"].native is distant.modules()["blocks"].native.__getattr__("0")
    with pytest.raises(AttributeError, match="no_such_child"):
        _ = distant.modules()[""].native.no_such_child
    assert distant.device == local.device


def test_a_remote_model_is_put_into_evaluation_mode_and_back(sides: Sides) -> None:
    model = sides.there("torch").model()
    assert all(module.training for module in model.modules().values())
    with model.preserved():
        model.evaluate()
        assert not any(module.training for module in model.modules().values())
    assert all(module.training for module in model.modules().values())


def test_a_module_is_of_a_class_or_of_a_class_of_that_name(sides: Sides) -> None:
    here = sides.here("torch")
    for model in (adapter_for(here).wrap(here), sides.there("torch").model()):
        head = model.modules()["head"]
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


def test_frames_are_those_of_the_process_in_which_the_model_runs(sides: Sides, inputs: dict[str, Any]) -> None:
    from padiff.recording import Task, record
    from padiff.trace import temporary_store

    here = sides.here("torch")
    with temporary_store() as store:
        task = Task((), inputs, backward=False)
        local = record(adapter_for(here).wrap(here), task, store)
        distant = record(sides.there("torch").model(), task, store)
        assert [call.frames for call in distant.calls] == [call.frames for call in local.calls]
        assert [[leaf.path for leaf in call.inputs] for call in distant.calls] == [
            [leaf.path for leaf in call.inputs] for call in local.calls
        ]
        tokens = [
            [leaf.token for call in trace.calls for leaf in (*call.inputs, *call.outputs)] for trace in (local, distant)
        ]
        assert tokens[0] == tokens[1], "the same tensor is known again"
        del distant, local
