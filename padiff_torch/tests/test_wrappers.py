"""Diff models in the hands of what trains them, on one rank, against plain torch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff

STAGES = (0, 1, 2, 3)
X = (np.random.default_rng(0).standard_normal((8, 16), dtype="float32"),)


def built() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def engine(stage: int, model: nn.Module, **settings: Any) -> Any:
    import deepspeed

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": stage}, **settings}
    config["zero_allow_untested_optimizer"] = True
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def squares(output: Any) -> Any:
    return output.pow(2).sum()


@pytest.mark.parametrize("stage", STAGES)
def test_an_engine_is_the_model_that_it_trains(stage: int) -> None:
    report = padiff.diff(built(), engine(stage, built()), X)
    assert report.aligned, report
    assert report.transfer.verified == report.transfer.copied == 6
    assert [call.candidate.path for call in report.calls] == ["", "0", "1", "2", "3"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_inside_an_engine_is_named_and_nothing_else(stage: int) -> None:
    theirs = engine(stage, built())
    theirs.module[2].eps = 1e-3
    report = padiff.diff(built(), theirs, X)
    assert [(s.candidate.path, s.cause.name) for s in report.sources] == [("2", "settings")], report
    x = torch.tensor(X[0])
    losses = []
    for _ in range(2):  # it trains on
        loss = squares(theirs(x))
        theirs.backward(loss)
        theirs.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]


@pytest.mark.parametrize("stage", STAGES)
def test_the_step_is_that_of_the_engine_which_clips_by_default(stage: int) -> None:
    def report(**settings: Any) -> Any:
        ours, theirs = built(), engine(stage, built(), **settings)
        optimizers = torch.optim.SGD(ours.parameters(), lr=0.1), theirs
        return padiff.diff(ours, theirs, X, loss=squares, optimizers=optimizers)

    assert report(gradient_clipping=0.0).aligned
    found = report()
    assert [(s.phase, s.cause.name) for s in found.sources] == [("update", "step_scaled")], found


def test_distributed_data_parallel_and_fully_shard_fold_away() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sharded = built()
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(sharded[3], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for theirs, inner in ((nn.parallel.DistributedDataParallel(built()), True), (sharded, False)):
        report = padiff.diff(built(), theirs, X)
        assert report.aligned, report
        (theirs.module if inner else theirs)[2].eps = 1e-3
        report = padiff.diff(built(), theirs, X)
        assert [s.candidate.path for s in report.sources] == ["2"], report


def test_what_an_engine_holds_comes_back_as_it_was() -> None:
    inner = built()
    theirs = engine(3, inner)
    theirs.backward(squares(theirs(torch.tensor(X[0]))))
    theirs.step()
    hooks = {path: list(module._forward_pre_hooks) for path, module in inner.named_modules()}
    before = copy.deepcopy([p.ds_tensor.clone() for p in inner.parameters()])
    padiff.diff(built(), theirs, X, transfer=False)
    assert {path: list(module._forward_pre_hooks) for path, module in inner.named_modules()} == hooks
    assert all(torch.equal(p.ds_tensor, kept) for p, kept in zip(inner.parameters(), before, strict=True))
