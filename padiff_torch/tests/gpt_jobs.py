"""Train Megatron's GPT on the CPU over any of its dimensions, by its own schedules, recorded by padiff."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import padiff

Job = Callable[[int, int, Path], None]
Fault = Callable[[Any, int], None]
Given = tuple[tuple[Any, ...], Any]
"""What a model takes by place, and the labels."""
STEPS, MICRO = 2, 2
EPS = 1e-3
"""Of Adam: with a smaller one its steps are the signs of what rounding makes of gradients that cancel."""
SEQUENCE = 8


def on_the_cpu() -> None:
    """Let Megatron, which asks CUDA for everything, have the CPU."""
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import torch_norm

    def hosted(make: Any) -> Any:
        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            kwargs = {name: one for name, one in kwargs.items() if name != "pin_memory"}
            return make(*args, **(kwargs | {"device": "cpu"} if kwargs.get("device") == "cuda" else kwargs))

        return made

    torch.Tensor.cuda = lambda tensor, **_: tensor  # type: ignore
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    torch.zeros, torch.tensor = hosted(torch.zeros), hosted(torch.tensor)
    kind = torch.Tensor.type

    def named(tensor: Any) -> str:
        return str(kind(tensor)).replace("torch.", "torch.cuda.", 1)

    torch.Tensor.type = lambda tensor, *args: kind(tensor, *args) if args else named(tensor)  # type: ignore
    torch_norm.WrappedTorchNorm.__new__ = staticmethod(norm)  # type: ignore[assignment]
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()


def norm(_: Any, config: Any, hidden_size: int, eps: float = 1e-5) -> Any:
    """Return torch's norm, where sequences are parallel too: Megatron has only CUDA's there."""
    made = torch.nn.LayerNorm(hidden_size, eps)
    for parameter in made.parameters():
        parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return made


def trained(
    model: Any,
    folder: Path,
    rank: int,
    batches: Callable[[int, int], Iterable[Given]],
    fault: Fault | None = None,
    **how: Any,
) -> None:
    """Record a training by Megatron's own optimizer and data parallelism.

    ``batches`` gives, of how many copies of the model there are and which this rank belongs to, what the model takes in
    each step and the labels. A ``fault`` is planted in the wrapped model; ``how`` are options of `padiff.record`.
    """
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    wrapped = DistributedDataParallel(model.config, DistributedDataParallelConfig(), model)
    plain = {"optimizer": "sgd", "sgd_momentum": 0.0, "lr": 0.1, "weight_decay": 0.0, "clip_grad": 0.0}
    optimizer = get_megatron_optimizer(OptimizerConfig(**plain), [wrapped])
    if fault is not None:
        fault(wrapped, rank)
    copies, place = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    with padiff.record(wrapped, folder, **how) as recorder:
        for given, labels in batches(copies, place):
            loss = wrapped(*given, labels=labels).mean()
            loss.backward()
            finalize_model_grads([wrapped])
            optimizer.step()
            wrapped.zero_grad_buffer()
            optimizer.zero_grad()
            recorder.step(loss)


_laid_out: list[Any] = []


def laid_out(*sizes: Any, **further: Any) -> None:
    """Lay the ranks out as Megatron does, unless they lie so already: making the groups takes a tenth of a second."""
    from megatron.core import parallel_state

    if _laid_out != [(sizes, further)]:
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(*sizes, **further)
        _laid_out[:] = [(sizes, further)]


def small_config(**settings: Any) -> Any:
    """Return the settings of a small GPT of Megatron on the CPU: no kernel that is fused, nothing drawn."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    off = ("bias_activation_fusion", "masked_softmax_fusion", "bias_dropout_fusion", "persist_layer_norm")
    off += ("gradient_accumulation_fusion", "apply_rope_fusion")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    return TransformerConfig(use_cpu_initialization=True, **sizes, **dict.fromkeys(off, False), **settings)


def gpt(rank: int, *, tp: int, pp: int, virtual: int | None, tied: bool = False, **settings: Any) -> list[Any]:
    """Return the chunks of Megatron's GPT on a rank, each weight the shard of one that its name in the whole seeds."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    parallel_state.initialize_model_parallel(tp, pp, virtual)
    config = small_config(
        num_layers=4,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=virtual,
        pipeline_dtype=torch.float32,
        batch_p2p_sync=False,
        deallocate_pipeline_outputs=False,
        **settings,
    )
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    chunks = []
    for index in range(virtual or 1):
        stage = None if virtual is None else index
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage)
        sizes = {"vocab_size": 64, "max_sequence_length": SEQUENCE, "pre_process": first, "post_process": last}
        kinds = {"share_embeddings_and_output_weights": tied, "parallel_output": True}
        chunks.append(GPTModel(config, spec, **sizes, **kinds, vp_stage=stage))
        _seeded(chunks[-1], tp, rank % tp)
    return chunks


def _seeded(model: Any, tp: int, place: int) -> None:
    layers = {index: layer.layer_number - 1 for index, layer in enumerate(model.decoder.layers)}
    by_name(model, tp, place, lambda name: re.sub(r"layers\.(\d+)", lambda one: f"layers.{layers[int(one[1])]}", name))


def by_name(model: Any, tp: int, place: int, whole: Callable[[str], str] = str) -> None:
    """Let each weight be the shard of one that its name seeds: that in the ``whole``."""
    for name, parameter in model.named_parameters():
        name = whole("embedding.word_embeddings.weight" if getattr(parameter, "shared", False) else name)
        dim = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
        shape = [size * tp if axis == dim else size for axis, size in enumerate(parameter.shape)]
        values = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) * 0.1
        values += "layernorm.weight" in name
        parameter.data.copy_(values if dim is None else values.chunk(tp, dim)[place])


def batch(step: int, micro: int) -> Any:
    draw = torch.Generator().manual_seed(100 * step + micro)
    return torch.randint(0, 64, (2, 2, SEQUENCE), generator=draw)


def optimized(chunks: list[Any], *, distributed: bool) -> tuple[list[Any], Any]:
    """Return chunks in Megatron's DistributedDataParallel, and an optimizer of Megatron's own."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    how = DistributedDataParallelConfig(use_distributed_optimizer=distributed)
    wrapped = [DistributedDataParallel(chunk.config, how, chunk) for chunk in chunks]
    chunks[0].config.finalize_model_grads_func = finalize_model_grads
    kind = {"optimizer": "adam", "adam_eps": EPS} if distributed else {"optimizer": "sgd", "sgd_momentum": 0.0}
    plain = {"lr": 0.1, "weight_decay": 0.0, "clip_grad": 0.0, "use_distributed_optimizer": distributed}
    return wrapped, get_megatron_optimizer(OptimizerConfig(**kind, **plain), wrapped)


def forward_step(batches: Any, model: Any) -> Any:
    """Run a chunk on the next micro-batch; what `get_forward_backward_func` calls."""
    tokens, labels = next(batches)
    places = torch.arange(SEQUENCE)[None].repeat(len(tokens), 1)
    mask = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool), 1)

    def loss(output: Any) -> Any:
        mean = output.mean()
        return mean, {"loss": mean.detach().clone()}

    return model(tokens, places, mask, labels=labels), loss


def megatron(
    fault: Fault = lambda *_: None,
    *,
    tp: int = 1,
    pp: int = 1,
    virtual: int | None = None,
    micro: int = MICRO,
    own: str | None = None,
    source: str | None = None,
    joined: bool = False,
    **settings: Any,
) -> Job:
    """Return a job that trains Megatron's GPT by its own schedule, with the weights of a run where one is named.

    Where micro-batches are ``joined``, they are one.
    """

    def job(rank: int, world: int, folder: Path) -> None:
        from megatron.core import parallel_state
        from megatron.core.pipeline_parallel import get_forward_backward_func

        on_the_cpu()
        chunks = gpt(rank, tp=tp, pp=pp, virtual=virtual, **settings)
        for chunk in chunks if source is not None else ():
            padiff.transfer(folder.parent / str(source), chunk)
        model, optimizer = chunks, torch.optim.SGD([p for chunk in chunks for p in chunk.parameters()], lr=0.1)
        if own == "adam":
            optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.1, eps=EPS, weight_decay=0.0)
        elif own is not None:
            model, optimizer = optimized(chunks, distributed=own == "distributed")
        fault(model, rank)
        copies, place = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
        with padiff.record(model if virtual else model[0], folder) as recorder:
            for step in range(STEPS):
                batches = [batch(step, n) for n in range(micro)]
                batches = [torch.cat(batches, 1)] if joined else batches
                losses = get_forward_backward_func()(
                    forward_step_func=forward_step,
                    data_iterator=[iter([one.chunk(copies, 1)[place] for one in batches]) for _ in chunks],
                    model=model,
                    num_microbatches=len(batches),
                    seq_length=SEQUENCE,
                    micro_batch_size=batches[0].shape[1] // copies,
                    forward_only=False,
                )
                optimizer.step()
                for one in model:
                    getattr(one, "zero_grad_buffer", list)()
                optimizer.zero_grad()
                recorder.step(sum(one["loss"] for one in losses) / len(batches) if losses else None)

    return job


def without_all_reduce(model: Any, rank: int) -> None:
    """Let the second layer's row-parallel linear layer give each rank's part of the sum."""
    from megatron.core.tensor_parallel import layers

    linear = model.decoder.layers[1].mlp.linear_fc2
    reduce = layers.reduce_from_tensor_model_parallel_region

    def forward(*args: Any, **kwargs: Any) -> Any:
        layers.reduce_from_tensor_model_parallel_region = lambda x, group=None: x
        try:
            return type(linear).forward(linear, *args, **kwargs)
        finally:
            layers.reduce_from_tensor_model_parallel_region = reduce

    linear.forward = forward


def unreduced_norm(chunks: Any, rank: int) -> None:
    """Let the gradient of a norm, which comes from each rank's part of the sequence, be each rank's own."""
    chunks[0].module.decoder.layers[1].pre_mlp_layernorm.weight.sequence_parallel = False


def summed(chunks: Any, rank: int) -> None:
    """Let data-parallel ranks sum their gradients, which they are to average."""
    for group in chunks[0].bucket_groups:
        for bucket in group.buckets:
            bucket.gradient_scaling_factor = 1.0


def embedding_gradients_apart(chunks: Any, rank: int) -> None:
    """Let the stages not add up what they make of the embedding that they share."""
    from megatron.core.distributed import finalize_model_grads as home

    sys.modules[home.__module__]._allreduce_word_embedding_grads = lambda *_: None


def wrong_epsilon(chunks: Any, rank: int) -> None:
    if rank == 1:
        chunks[0].decoder.layers[0].input_layernorm.eps = 1e-2


def stale_hand_over(chunks: Any, rank: int) -> None:
    """Let the second stage take in each micro-batch what the first stage gave in the first."""
    if rank == 1:
        take, kept = chunks[0].set_input_tensor, []

        def stale(tensors: Any) -> None:
            kept.append(tensors)
            take([a + (b - a).detach() for a, b in zip(tensors, kept[(len(kept) - 1) // MICRO * MICRO], strict=True)])

        chunks[0].set_input_tensor = stale


JOBS: dict[str, tuple[Job, int]] = {
    "whole": (megatron(), 1),
    "micro3": (megatron(micro=3), 1),
    "joined": (megatron(joined=True), 1),
    "dp2-joined": (megatron(joined=True, own="plain"), 2),
    "pp2-stale": (megatron(stale_hand_over, pp=2), 2),
    "vpp2-epsilon": (megatron(wrong_epsilon, pp=2, virtual=2), 2),
    "tp2-pp2": (megatron(tp=2, pp=2, own="plain", sequence_parallel=True), 4),
    "whole-adam": (megatron(own="adam"), 1),
    "sp2-unreduced": (megatron(unreduced_norm, tp=2, own="plain", sequence_parallel=True), 2),
    "dp2-summed": (megatron(summed, own="plain"), 2),
    "dp2-distributed": (megatron(own="distributed"), 2),
    "tied": (megatron(tied=True), 1),
    "tied-pp2": (megatron(pp=2, own="plain", tied=True), 2),
    "tied-apart": (megatron(embedding_gradients_apart, pp=2, own="plain", tied=True), 2),
    "vpp2": (megatron(pp=2, virtual=2), 2),
}
