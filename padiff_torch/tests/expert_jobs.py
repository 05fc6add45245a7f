"""Train Megatron's GPT with experts on the CPU: on one rank, and on ranks with experts of their own.

``expert_jobs.py FOLDER [NAME...]``: each layout's processes are started once and run its jobs one behind the other.
"""

from __future__ import annotations

import contextlib
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jobs
import torch
from gpt_jobs import Given, laid_out, on_the_cpu, small_config, trained

import padiff

Job = Callable[[int, int, Path], None]
Fault = Callable[[Any, int], None]
STEPS, BATCH, LENGTH, EXPERTS = 2, 4, 6, 4


def experts_on_the_cpu() -> None:
    """Let Megatron's dispatchers, which ask CUDA for streams, have the CPU."""
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    on_the_cpu()
    nothing = SimpleNamespace(synchronize=lambda: None)
    stream = SimpleNamespace(wait_stream=lambda _: None, record_event=lambda: nothing)
    torch.cuda.Stream = lambda *_: stream  # type: ignore
    torch.cuda.current_stream = lambda *_: stream  # type: ignore
    torch.cuda.stream = lambda *_: contextlib.nullcontext()  # type: ignore
    moe_utils.te_general_gemm = None  # which is asked for where Transformer Engine is not there, too

    def on_host(value: Any, as_numpy: bool = False, **_: Any) -> Any:
        return value.numpy() if as_numpy and torch.is_tensor(value) else value

    token_dispatcher.maybe_move_tensor_to_cpu = on_host


def gpt(*, ep: int = 1, tp: int = 1, dispatcher: str = "alltoall", **settings: Any) -> Any:
    """Return Megatron's GPT with experts, each weight, or its shard, that which its name in the whole seeds."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    experts_on_the_cpu()
    sizes = {"expert_model_parallel_size": ep, "expert_tensor_parallel_size": 1}
    laid_out(tp, 1, **sizes)
    config = small_config(
        num_layers=2,
        tensor_model_parallel_size=tp,
        sequence_parallel=tp > 1,
        add_bias_linear=False,
        num_moe_experts=EXPERTS,
        moe_router_topk=2,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type=dispatcher,
        moe_ffn_hidden_size=64,
        **sizes,
        **settings,
    )
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS, normalization="LayerNorm")
    kinds = {"share_embeddings_and_output_weights": False, "parallel_output": True}
    model = GPTModel(config, spec, vocab_size=64, max_sequence_length=LENGTH, **kinds)
    first = parallel_state.get_expert_model_parallel_rank() * EXPERTS // ep
    for name, parameter in model.named_parameters():
        whole = re.sub(r"experts\.(\d+)", lambda found: f"experts.{int(found[1]) + first}", name)
        group = model.get_submodule(name.rpartition(".")[0])
        split = torch.distributed.get_world_size(group.tp_group) if hasattr(group, "tp_group") else 1
        dim = getattr(parameter, "partition_dim", -1) if split > 1 else -1
        shape = [size * (split if axis == dim else 1) for axis, size in enumerate(parameter.shape)]
        values = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(whole.encode()))) * 0.2
        values += "layernorm.weight" in name
        place = torch.distributed.get_rank(group.tp_group) if split > 1 else 0
        parameter.data.copy_(values if dim < 0 else values.chunk(split, dim)[place])
    return model


def megatron(fault: Fault | None = None, source: str | None = None, **settings: Any) -> Job:
    """Return a job that trains Megatron's GPT with experts, by its own optimizer and data parallelism."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = gpt(**settings)
        if source is not None:
            for parameter in model.parameters():
                parameter.data.zero_()
            padiff.transfer(folder.parent.parent / source, model)

        def batches(copies: int, place: int) -> Iterator[Given]:
            places = torch.arange(LENGTH)[None].repeat(BATCH // copies, 1)
            mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
            for step in range(1 if fault else STEPS):
                draw = torch.Generator().manual_seed(step)
                batch = torch.randint(0, 64, (2, BATCH, LENGTH), generator=draw)
                tokens, labels = batch.chunk(copies, 1)[place]
                yield (tokens, places, mask), labels

        trained(model, folder, rank, batches, fault)

    return job


def _layer(chunk: Any) -> Any:
    return chunk.module.decoder.layers[1].mlp


def wrong_expert(model: Any, rank: int) -> None:
    """Let rank 1 hold another expert's weight in place of its own."""
    if rank == 1:
        first, second = _layer(model).experts.local_experts
        second.linear_fc1.weight.data.copy_(first.linear_fc1.weight.data)


def router_out_of_step(model: Any, rank: int) -> None:
    if rank == 1:
        _layer(model).router.weight.data *= 1.1


def dropped(model: Any, rank: int) -> None:
    """Let rank 1 lose what its last expert makes of its last two tokens."""
    if rank == 1:
        expert = _layer(model).experts.local_experts[-1]
        expert.register_forward_hook(lambda _, __, out: (torch.cat([out[0][:-2], 0 * out[0][-2:]]), out[1]))


def not_put_back(model: Any, _: int) -> None:
    """Give each token what the experts made of another one."""
    dispatcher = _layer(model).token_dispatcher
    combine = dispatcher.combine_preprocess
    dispatcher.combine_preprocess = lambda hidden: combine(hidden.roll(1, 0))


def averaged_with_others(model: Any, _: int) -> None:
    """Average the gradients of experts, of which each rank has other ones, over all ranks as everything else."""
    for group in model.expert_parallel_bucket_groups:
        group.intra_distributed_optimizer_instance_group = None
        reduce = group.start_grad_sync

        def wrong(*args: Any, buckets: Any = group.buckets, reduce: Any = reduce, **kwargs: Any) -> Any:
            for bucket in buckets:
                torch.distributed.all_reduce(bucket.grad_data)
            return reduce(*args, **kwargs)

        group.start_grad_sync = wrong


def not_divided(model: Any, _: int) -> None:
    """Add the gradients of experts up, which are to be averaged over the ranks with other data."""
    for group in model.expert_parallel_bucket_groups:
        for bucket in group.buckets:
            bucket.gradient_scaling_factor = 1.0


FAULTS = {
    "wrong-expert": wrong_expert,
    "router": router_out_of_step,
    "dropped": dropped,
    "not-put-back": not_put_back,
    "averaged": averaged_with_others,
    "not-divided": not_divided,
}
SETS: dict[str, tuple[int, dict[str, Job]]] = {
    "one": (1, {"clean": megatron()}),
    "two": (
        2,
        {
            "clean": megatron(ep=2),
            "data": megatron(),
            "gathered": megatron(ep=2, dispatcher="allgather"),
            "tensor": megatron(ep=2, tp=2),
            "moved": megatron(ep=2, tp=2, source="one/clean"),
            **{name: megatron(fault, ep=2) for name, fault in FAULTS.items()},
        },
    ),
    "four": (4, {"clean": megatron(ep=2), "tensor": megatron(ep=2, tp=2)}),
}
"""Name of a folder -> how many ranks, and the jobs that they run."""

if __name__ == "__main__":
    import megatron.core.models.gpt.gpt_model
    from planted import several

    base = Path(sys.argv[1])
    for place, (world, many) in SETS.items():
        (base / place).mkdir(parents=True, exist_ok=True)
        jobs.run(several(many, sys.argv[2:]), world, base / place)
