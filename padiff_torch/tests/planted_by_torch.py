"""Jobs that torch, or DeepSpeed, spreads over ranks: data, parameters, layers, sequences. Each may have one fault."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jobs
import torch
import torch.distributed as dist

import padiff

__all__ = ["FOUR", "ONE", "TWO"]


def mixed(fault: str) -> jobs.Job:
    """Return a job that trains with AdamW: alone in float32, or on ranks that compute in bfloat16."""

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        torch.manual_seed(0)
        model: Any = Attending()
        cast = world > 1 and fault.startswith("cast")
        if cast:
            model = torch.nn.parallel.DistributedDataParallel(model)
        elif world > 1:
            mesh = torch.distributed.init_device_mesh("cpu", (world,))
            fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1.2e-2 if fault.endswith("rate") else 1e-2)
        with padiff.record(model, folder) as recorder:
            for step in range(jobs.STEPS):
                given = torch.randn(8, 6, 16, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]
                with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                    out = model(given)
                loss = out.float().pow(2).mean()
                loss.backward()
                for parameter in model.parameters() if fault.endswith("halved") else ():
                    parameter.grad *= 0.5
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


MIXED = ("cast", "cast-rate", "sharded", "sharded-halved", "sharded-rate")


def data_parallel(fault: str) -> jobs.Job:
    """Return a job that trains a net with DistributedDataParallel, or alone."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = jobs.net()
        if fault == "norm":
            model[2] = torch.nn.BatchNorm1d(32)
        if fault == "start":
            torch.manual_seed(rank)
            torch.nn.init.normal_(model[0].weight)
        parallel = torch.nn.parallel.DistributedDataParallel
        if fault == "one-unreduced":
            parallel._set_params_and_buffers_to_ignore_for_model(model, ["3.weight"])
        alone = world < 2 or fault in ("start", "none-reduced", "by-hand")
        wrapped = model if alone else parallel(model)
        if fault == "summed":
            wrapped._comm_hooks.append((_summed, None))
            torch._C._distributed_c10d._register_comm_hook(wrapped.reducer, None, _summed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with padiff.record(wrapped, folder) as recorder:
            for step in range(jobs.STEPS):
                loss = wrapped(jobs.data(step, 0 if fault == "batch" else rank, world)).pow(2).mean()
                (loss / (2 if fault == "divided" else 1)).backward()
                for parameter in model.parameters() if fault == "by-hand" and world > 1 else ():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


def accumulated(fault: str) -> jobs.Job:
    """Return a job that makes a step of slices of two rows: those of one process are dealt out to many, in turn.

    It tells the loss of its last slice. A ``whole`` step is of one batch. Of four ranks each two share the parameters.
    """

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.fsdp import fully_shard

        model = jobs.net()
        wrapped: Any = model
        if world == 2:
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
        elif world == 4:
            fully_shard(model, mesh=dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with padiff.record(wrapped, folder, optimizer=optimizer) as recorder:
            for step in range(jobs.STEPS):
                slices = jobs.data(step, 0, 1).split(8 if fault == "whole" else 2)[rank::world]
                for number, given in enumerate(slices, 1):
                    alone = wrapped.no_sync() if world == 2 and number < len(slices) else contextlib.nullcontext()
                    with alone:
                        loss = wrapped(given).pow(2).mean()
                        (loss / (1 if fault == "undivided" else len(slices))).backward()
                if fault == "halved" and rank == 1:
                    model[3].weight.grad *= 0.5
                optimizer.step()
                if fault != "kept":
                    optimizer.zero_grad()
                recorder.step(loss)

    return job


SLICES = ("clean", "undivided", "kept", "halved")


class Signs(torch.optim.Optimizer):
    """Steps by the sign of each gradient, whatever its size."""

    def step(self, closure: Any = None) -> None:
        """Step all parameters."""
        for group in self.param_groups:
            for one in group["params"]:
                one.data -= group["lr"] * one.grad.sign()


def owned(fault: str) -> jobs.Job:
    """Return a job of which one rank steps a parameter for all: its optimizer alone is given what counts.

    With ``signs`` each steps by itself, by these, or (``sent``) the first by what the others send it.
    """

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        model = jobs.net()
        signs, sent = fault.startswith("signs"), fault.endswith("sent")
        wrapped = torch.nn.parallel.DistributedDataParallel(model) if world > 1 and not sent else model
        kind: Any = Signs if signs else torch.optim.AdamW
        if world > 1 and not signs:
            optimizer: Any = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, lr=1e-3)
        else:
            optimizer = kind(model.parameters(), {"lr": 1e-3}) if signs else kind(model.parameters(), lr=1e-3)
        with padiff.record(wrapped, folder, optimizer=None if fault.endswith("found") else optimizer) as recorder:
            for step in range(jobs.STEPS):
                loss = wrapped(jobs.data(step, rank, world)).pow(2).mean()
                loss.backward()
                for parameter in model.parameters() if sent else ():
                    dist.reduce(parameter.grad, 0)
                    parameter.grad /= world if rank == 0 else 1
                if fault.endswith("halved") and rank == 1:
                    model[3].weight.grad *= 0.5
                optimizer.step()
                for parameter in model.parameters() if sent else ():
                    dist.broadcast(parameter.data, 0)
                optimizer.zero_grad()
                recorder.step(loss)

    return job


OWNED = ("clean", "found", "halved", "found-halved", "signs-clean", "signs-sent", "signs-halved")


def _summed(_: Any, bucket: Any) -> Any:
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


DATA = ("clean", "none-reduced", "one-unreduced", "summed", "batch", "divided", "start")


class Attending(torch.nn.Module):
    """Attention with places of its own, of which the bias of keys gets no gradient but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.places = torch.nn.Parameter(torch.randn(6, 16))
        self.q, self.k, self.v, self.out = (torch.nn.Linear(16, 16) for _ in range(4))
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x: Any) -> Any:
        attend = torch.nn.functional.scaled_dot_product_attention
        x = x + self.places
        return self.out(attend(self.q(x), self.k(x), self.v(x)) + attend(*self.qkv(x).chunk(3, -1)))


def tokens(fault: str) -> jobs.Job:
    """Return a job that trains with Adam, by the mean over all tokens that count: each rank has another number."""

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(0)
        model: Any = Attending()
        if world > 1 and fault == "sharded":
            fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (world,)))
        elif world > 1 and fault not in ("unreduced", "told-by-hand"):
            model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        with padiff.record(model, folder, optimizer=optimizer) as recorder:
            for step in range(jobs.STEPS):
                draw = torch.Generator().manual_seed(step)
                given, count = torch.randn(4, 6, 16, generator=draw), torch.tensor([6, 5, 3, 2])
                counted = (torch.arange(6) < count[:, None]).chunk(world)[rank]
                of_all = counted.sum() if fault == "each" else count.sum() / world
                loss = (model(given.chunk(world)[rank]).pow(2).mean(-1) * counted).sum() / of_all
                loss.backward()
                summed = [one.grad for one in model.parameters()] if fault == "told-by-hand" else []
                for one in summed if world > 1 else ():
                    torch.distributed.all_reduce(one)
                    one /= world
                optimizer.step()
                optimizer.zero_grad()
                if world > 1 and fault.startswith("told"):
                    loss = loss.detach()
                    torch.distributed.all_reduce(loss)
                    loss /= world
                recorder.step(loss)

    return job


TOKENS = ("clean", "sharded", "unreduced", "each", "told", "told-by-hand")


def _trained_on_tokens(model: Any, folder: Path) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for step in range(jobs.STEPS):
            loss = model(torch.randint(0, 12, (2, 6), generator=torch.Generator().manual_seed(step))).pow(3).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)


def table(rank: int, world: int, folder: Path) -> None:
    """Train a table that is sharded by its rows; each rank's optimizer is given the gradient of all rows."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(12, 16), torch.nn.LayerNorm(16))
    if world > 1:
        mesh = torch.distributed.init_device_mesh("cpu", (world,))
        plan = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate(), use_local_output=True)
        parallelize_module(model, mesh, {"0": plan})
    _trained_on_tokens(model, folder)


def sequences(fault: str) -> jobs.Job:
    """Return a job that torch splits: layers over ranks, and sequences where norms work, whose gradients add up."""

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor import parallel as tp

        torch.manual_seed(0)
        nn = torch.nn
        layers = [nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 8, bias=False)]
        model = nn.Sequential(nn.Embedding(12, 16), nn.LayerNorm(16), *layers)
        if world > 1:
            part, whole = Shard(1), Replicate()
            plan: dict[str, Any] = {
                "0": tp.RowwiseParallel(input_layouts=whole, output_layouts=part),
                **{path: tp.SequenceParallel() for path in ("1", "5")},
                "2": tp.ColwiseParallel(input_layouts=part),
                "4": tp.RowwiseParallel(output_layouts=part),
                "6": tp.ColwiseParallel(input_layouts=part, output_layouts=whole),
            }
            tp.parallelize_module(model, torch.distributed.init_device_mesh("cpu", (world,)), plan)
        if fault == "stale" and rank:
            model[1].weight.data *= 1.01
        _trained_on_tokens(model, folder)

    return job


SEQUENCES = ("clean", "stale")


def zero(clip: float) -> jobs.Job:
    """Return a job that DeepSpeed trains at stage 1, with a clipping of its own."""

    def job(rank: int, world: int, folder: Path) -> None:
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        config = {"train_micro_batch_size_per_gpu": 8 // world, "gradient_clipping": clip}
        config |= {"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
        model = jobs.net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
        with padiff.record(engine, folder) as recorder:
            for step in range(jobs.STEPS):
                loss = engine(jobs.data(step, rank, world)).pow(2).mean()
                engine.backward(loss)
                engine.step()
                recorder.step(loss)

    return job


ONE: dict[str, jobs.Job] = {
    "data-clean": data_parallel("clean"),
    "averaged-clean": data_parallel("by-hand"),
    "norm-clean": data_parallel("norm"),
    "slices-clean": accumulated("clean"),
    "slices-whole": accumulated("whole"),
    **{f"owned-{fault}": owned(fault) for fault in ("clean", "signs-clean")},
    "tokens-clean": tokens("clean"),
    "mixed-clean": mixed("clean"),
    "table-clean": table,
    "sequences-clean": sequences("clean"),
}
"""Name -> a job of one process."""
TWO: dict[str, jobs.Job] = {
    **{f"data-{fault}": data_parallel(fault) for fault in DATA},
    **{f"slices-{fault}": accumulated(fault) for fault in SLICES},
    **{f"owned-{fault}": owned(fault) for fault in OWNED},
    **{f"tokens-{fault}": tokens(fault) for fault in TOKENS},
    **{f"mixed-{fault}": mixed(fault) for fault in MIXED},
    **{f"sequences-{fault}": sequences(fault) for fault in SEQUENCES},
    "norm-each": data_parallel("norm"),
    "table-clean": table,
    "averaged-clean": data_parallel("by-hand"),
    "data-clipped": zero(0.05),
}
"""Name -> a job of two."""
FOUR: dict[str, jobs.Job] = {f"slices-{fault}": accumulated(fault) for fault in ("clean", "halved")}
"""Name -> a job of four."""
