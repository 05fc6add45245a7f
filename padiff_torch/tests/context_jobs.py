"""Train Megatron's GPT on the CPU with parts of the sequence on ranks of their own: context parallelism.

``context_jobs.py FOLDER [NAME...]``: each layout's processes are started once and run its jobs one behind the other.
Megatron's own attention refuses to run so without Transformer Engine: the layers are given one that gathers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jobs
import torch
import torch.distributed as dist
from gpt_jobs import Given, by_name, laid_out, on_the_cpu, small_config, trained

import padiff

Job = Callable[[int, int, Path], None]
Fault = Callable[[Any, int], None]
Batch = dict[str, Any]
STEPS, BATCH, LENGTH = 2, 4, 16


def in_order(parts: list[Any]) -> Any:
    """Return a sequence of which each rank has one part from the front and one from the back."""
    halves = [part.chunk(2) for part in parts]
    return torch.cat([front for front, _ in halves] + [back for _, back in reversed(halves)])


class Gathered(torch.autograd.Function):
    """The whole sequence, whose gradient is the sum of what all ranks make of it."""

    @staticmethod
    def forward(ctx: Any, part: Any, group: Any, join: Any, sums: bool) -> Any:
        """Return the parts of all ranks, joined."""
        ctx.group, ctx.sums = group, sums
        parts = [torch.empty_like(part) for _ in range(group.size())]
        dist.all_gather(parts, part.contiguous(), group=group)
        count = sum(len(one) for one in parts)
        places = [torch.arange(count).chunk(2 * group.size())[n] for n in range(2 * group.size())]
        ctx.at = torch.cat([places[group.rank()], places[-1 - group.rank()]])
        return join(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        """Return the part of this rank."""
        gradient = gradient.contiguous()
        if ctx.sums:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient[ctx.at], None, None, None


class ContextAttention(torch.nn.Module):
    """An attention whose queries lie on this rank, and whose keys and values on all."""

    def __init__(self, config: Any, layer_number: int, *_: Any, **__: Any) -> None:
        """Keep the ranks that share the sequence."""
        from megatron.core import parallel_state

        super().__init__()
        self.group = parallel_state.get_context_parallel_group()
        self.join, self.sums = in_order, True

    def forward(self, query: Any, key: Any, value: Any, attention_mask: Any, **_: Any) -> Any:
        """Return what each query makes of the keys of which the mask, of its own rows, leaves it some."""
        key, value = (Gathered.apply(one, self.group, self.join, self.sums) for one in (key, value))  # type: ignore
        scores = torch.einsum("qbnd,kbnd->bnqk", query, key) / math.sqrt(query.shape[-1])
        shares = scores.masked_fill(attention_mask, -10000.0).softmax(-1)
        return torch.einsum("bnqk,kbnd->qbnd", shares, value).flatten(2)


def gpt(*, cp: int = 1, tp: int = 1, positions: str = "learned_absolute") -> Any:
    """Return Megatron's GPT, each weight, or its shard, that which its name in the whole seeds."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    on_the_cpu()
    laid_out(tp, 1, context_parallel_size=cp)
    sizes = {"tensor_model_parallel_size": tp, "context_parallel_size": cp}
    config = small_config(num_layers=2, sequence_parallel=tp > 1, **sizes)
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    if cp > 1:
        spec.submodules.self_attention.submodules.core_attention = ContextAttention
    kinds = {"share_embeddings_and_output_weights": False, "parallel_output": True}
    kinds["position_embedding_type"] = positions
    model = GPTModel(config, spec, vocab_size=64, max_sequence_length=LENGTH, **kinds)
    by_name(model, tp, parallel_state.get_tensor_model_parallel_rank())
    return model


def batch(step: int) -> Batch:
    """Return a step's batch, as Megatron's own scripts make it."""
    tokens, labels = torch.randint(0, 64, (2, BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
    places = torch.arange(LENGTH)[None].repeat(BATCH, 1)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    return {"tokens": tokens, "labels": labels, "position_ids": places, "attention_mask": mask}


def megatron(
    fault: Fault | None = None,
    given: Callable[[Batch, int], Batch] = lambda batch, _: batch,
    source: str | None = None,
    values: Any = "tensors",
    **settings: Any,
) -> Job:
    """Return a job that trains Megatron's GPT, by its own optimizer and data parallelism."""

    def job(rank: int, world: int, folder: Path) -> None:
        from megatron.core.utils import get_batch_on_this_cp_rank

        model = gpt(**settings)
        if source is not None:
            for parameter in model.parameters():
                parameter.data.zero_()
            padiff.transfer(folder.parent.parent / source, model)

        def batches(copies: int, place: int) -> Iterator[Given]:
            for step in range(STEPS):
                of_all = batch(step)
                mask = of_all.pop("attention_mask")
                mine = {name: one.chunk(copies)[place] for name, one in of_all.items()} | {"attention_mask": mask}
                mine = given(get_batch_on_this_cp_rank(mine), rank)
                yield tuple(mine[name] for name in _GIVEN), mine["labels"]

        trained(model, folder, rank, batches, fault, values=values)

    return job


_GIVEN = ("tokens", "position_ids", "attention_mask")


def _attention(model: Any) -> Any:
    return model.module.decoder.layers[1].self_attention.core_attention


def keys_by_rank(model: Any, _: int) -> None:
    """Gather keys and values in the order of the ranks, for a mask in that of the sequence."""
    _attention(model).join = torch.cat


def keys_unsummed(model: Any, _: int) -> None:
    """Leave out what other ranks' queries make of this rank's keys, backward."""
    _attention(model).sums = False


def own_keys(model: Any, rank: int) -> None:
    """Let rank 1 take its own keys for everybody's."""
    if rank == 1:
        _attention(model).join = lambda parts: in_order([parts[1], parts[1]])


def places_in_order(batch: Batch, rank: int) -> Batch:
    """Count positions as if each rank had one part of the sequence."""
    batch["position_ids"] = torch.arange(LENGTH).chunk(2)[rank % 2][None].repeat(len(batch["tokens"]), 1)
    return batch


def mask_in_order(batch: Batch, rank: int) -> Batch:
    """Mask as if each rank had one part of the sequence."""
    batch["attention_mask"] = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1).chunk(2, 2)[rank % 2]
    return batch


def rotated_in_order(model: Any, _: int) -> None:
    """Rotate as if each rank had one part of the sequence."""
    from megatron.core.models.common.embeddings import rotary_pos_embedding as home

    rotary = model.module.rotary_pos_emb
    right, cut = type(rotary).forward, home.get_pos_emb_on_this_cp_rank

    def forward(*args: Any, **kwargs: Any) -> Any:
        home.get_pos_emb_on_this_cp_rank = lambda pos, dim, group: pos.chunk(group.size(), dim)[group.rank()]
        try:
            return right(rotary, *args, **kwargs)
        finally:
            home.get_pos_emb_on_this_cp_rank = cut

    rotary.forward = forward


def unreduced(model: Any, _: int) -> None:
    """Reduce gradients over the ranks with other samples, and not over those with other parts of the sequence."""
    from megatron.core import parallel_state

    for group in model.bucket_groups:
        group.data_parallel_group = parallel_state.get_data_parallel_group()


def summed(model: Any, _: int) -> None:
    """Add gradients up over the ranks that share the sequence, which average them."""
    for group in model.bucket_groups:
        for bucket in group.buckets:
            bucket.gradient_scaling_factor = 1.0


def stale_norm(model: Any, rank: int) -> None:
    if rank == 1:
        model.module.decoder.layers[1].pre_mlp_layernorm.weight.data *= 1.1


FAULTS: dict[str, dict[str, Any]] = {
    "keys-by-rank": {"fault": keys_by_rank},
    "keys-unsummed": {"fault": keys_unsummed},
    "own-keys": {"fault": own_keys},
    "places": {"given": places_in_order},
    "mask": {"given": mask_in_order},
    "rotated": {"fault": rotated_in_order, "positions": "rope"},
    "unreduced": {"fault": unreduced},
    "summed": {"fault": summed},
    "stale-norm": {"fault": stale_norm},
}
SETS: dict[str, tuple[int, dict[str, Job]]] = {
    "one": (1, {"clean": megatron(), "rope": megatron(positions="rope"), "sketch": megatron(values="sketch")}),
    "two": (
        2,
        {
            "clean": megatron(cp=2),
            "rope": megatron(cp=2, positions="rope"),
            "tensor": megatron(tp=2),
            "sketch": megatron(cp=2, values="sketch"),
            "sketch-own-keys": megatron(own_keys, cp=2, values="sketch"),
            "moved": megatron(cp=2, source="two/tensor"),
            "back": megatron(tp=2, source="two/clean"),
            **{name: megatron(**{"cp": 2, **how}) for name, how in FAULTS.items()},
        },
    ),
    "four": (4, {"four": megatron(cp=4), "data": megatron(cp=2), "tensor": megatron(cp=2, tp=2)}),
}
"""Name of a folder -> how many ranks, and the jobs that they run."""

if __name__ == "__main__":
    import megatron.core.models.gpt.gpt_model
    from planted import several

    base = Path(sys.argv[1])
    for place, (world, many) in SETS.items():
        (base / place).mkdir(parents=True, exist_ok=True)
        jobs.run(several(many, sys.argv[2:]), world, base / place)
