"""Run jobs of one rank and of two, as processes that gloo joins, each recorded to a folder: ``jobs.py FOLDER``.

Everything is imported once; the ranks of a job are forked from here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from gpt_jobs import small_config, without_all_reduce  # noqa: E402

import padiff  # noqa: E402

STEPS = 2
Job = Callable[[int, int, Path], None]


def run(job: Job, world: int, folder: Path) -> None:
    """Run a job to its end; raise where a rank does."""
    gc.freeze()  # else each rank goes through what was imported before
    store = str(folder.with_suffix(".store"))
    ranks = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(world)}
                dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world))
                job(rank, world, folder)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        ranks.append(child)
    codes = [os.waitpid(child, 0)[1] for child in ranks]
    if any(codes):
        msg = f"a rank of {folder.name} failed"
        raise SystemExit(msg)


# -- Megatron


def gpt(world: int, rank: int) -> Any:
    """Return Megatron's GPT, each weight the shard of one that its name seeds."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel import random

    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(world, 1)
    config = small_config(num_layers=2, tensor_model_parallel_size=world)
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    sizes = {"vocab_size": 64, "max_sequence_length": 32}
    model = GPTModel(config, spec, **sizes, share_embeddings_and_output_weights=False, parallel_output=True)
    for name, parameter in model.named_parameters():
        dim = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
        shape = [size * world if axis == dim else size for axis, size in enumerate(parameter.shape)]
        values = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) * 0.1
        values += "layernorm.weight" in name
        parameter.data.copy_(values if dim is None else values.chunk(world, dim)[rank])
    return model


def megatron(fault: Callable[[Any, int], None] = lambda *_: None) -> Job:
    """Return a job that trains Megatron's GPT, tensor parallel over all ranks."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = gpt(world, rank)
        fault(model, rank)
        draw = torch.Generator().manual_seed(0)
        tokens, labels = torch.randint(0, 64, (2, 2, 8), generator=draw)
        places = torch.arange(8)[None].repeat(2, 1)
        mask = torch.triu(torch.ones(1, 1, 8, 8, dtype=torch.bool), 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with padiff.record(model, folder) as recorder:
            for _ in range(STEPS):
                loss = model(tokens, places, mask, labels=labels).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


def stale_norm(model: Any, rank: int) -> None:
    """Let rank 1 hold another weight of a norm than rank 0."""
    if rank == 1:
        model.decoder.layers[1].input_layernorm.weight.data *= 1.1


# -- DeepSpeed and torch


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))


def data(step: int, rank: int, world: int) -> Any:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]


def plain(rank: int, world: int, folder: Path) -> None:
    """Train with torch alone, or with DistributedDataParallel."""
    model = net()
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    trained(wrapped, rank, world, folder)


def trained(
    model: Any,
    rank: int,
    world: int,
    folder: Path,
    given: float | None = None,
    *,
    rate: float = 0.1,
    values: Any = "tensors",
) -> None:
    """Record a few steps of a script's own loop; ``given`` a share of its gradients, of one with Adam that evaluates.

    What such a share is does not show in Adam's step.
    """
    optimizer = (torch.optim.SGD if given is None else torch.optim.Adam)(model.parameters(), lr=rate)
    with padiff.record(model, folder, optimizer=optimizer, values=values) as recorder:
        for step in range(STEPS):
            loss = model(data(step, rank, world)).pow(2).mean()
            loss.backward()
            for parameter in model.parameters() if given not in (None, 1.0) else ():
                if parameter.grad is not None:
                    parameter.grad *= given
            optimizer.step()
            optimizer.zero_grad()
            if given is not None:
                with torch.no_grad():
                    model(data(step, rank, world))
            recorder.step(loss)


def with_adam(rank: int, world: int, folder: Path) -> None:
    """Train with Adam on one rank."""
    trained(net(), rank, world, folder, 1.0)


def fully_sharded(given: float | None = None, values: str = "tensors") -> Job:
    """Return a job that trains with FSDP2, whose mesh names no axis."""

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.fsdp import fully_shard

        model = net()
        for layer in (model[0], model[3], model):
            fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (world,)))
        trained(model, rank, world, folder, given, values=values)

    return job


def flattened(
    *, original: bool, given: float | None = None, rates: tuple[float, float] = (0.1, 0.1), values: str = "tensors"
) -> Job:
    """Return a job that trains with FSDP1, whose optimizer is given the ``original`` parameters, or flat ones.

    Each rank has one of the ``rates``.
    """

    def job(rank: int, world: int, folder: Path) -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel

        how = {"use_orig_params": original, "device_id": torch.device("cpu")}
        model = net()
        model[0] = FullyShardedDataParallel(model[0], **how)
        trained(FullyShardedDataParallel(model, **how), rank, world, folder, given, rate=rates[rank], values=values)

    return job


def zero(stage: int, rate: float = 0.1) -> Job:
    """Return a job that DeepSpeed trains."""

    def job(rank: int, world: int, folder: Path) -> None:
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        config = {"train_micro_batch_size_per_gpu": 8 // world, "gradient_clipping": 0.0}
        config |= {"zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
        with padiff.record(engine, folder) as recorder:
            for step in range(STEPS):
                loss = engine(data(step, rank, world)).pow(2).mean()
                engine.backward(loss)
                engine.step()
                recorder.step(loss)

    return job


JOBS: dict[str, tuple[Job, int]] = {
    "tp1": (megatron(), 1),
    "tp2": (megatron(), 2),
    "tp2-no-all-reduce": (megatron(without_all_reduce), 2),
    "tp2-stale-norm": (megatron(stale_norm), 2),
    "plain": (plain, 1),
    "ddp2": (plain, 2),
    "with-adam": (with_adam, 1),
    "fsdp1": (flattened(original=True), 2),
    "fsdp1-sketched": (flattened(original=True, values="sketch"), 2),
    "fsdp1-adam": (flattened(original=False, given=1.0), 2),
    "fsdp1-halved": (flattened(original=True, given=0.5), 2),
    "fsdp1-rates": (flattened(original=False, rates=(0.1, 0.2)), 2),
    "fsdp2": (fully_sharded(), 2),
    "fsdp2-adam": (fully_sharded(1.0), 2),
    "fsdp2-halved": (fully_sharded(0.5), 2),
    "fsdp2-halved-sketched": (fully_sharded(0.5, "sketch"), 2),
    **{f"zero{stage}": (zero(stage), 2) for stage in (1, 2, 3)},
    "zero3-rate": (zero(3, 0.12), 2),
}

if __name__ == "__main__":
    import gpt_jobs
    import megatron.core.models.gpt.gpt_model
    import megatron.core.pipeline_parallel
    import stack_jobs

    JOBS |= gpt_jobs.JOBS | stack_jobs.JOBS
    base = Path(sys.argv[1])
    for name in sys.argv[2:] or list(JOBS):
        run(*JOBS[name], base / name)
