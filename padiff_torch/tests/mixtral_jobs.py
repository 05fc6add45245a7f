"""Train one small Mixtral by hand with Hugging Face's model, and with Megatron's, its experts on ranks of their own.

``mixtral_jobs.py FOLDER [NAME...]``: each layout's processes are started once and run its jobs one behind the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import jobs
import torch
from expert_jobs import experts_on_the_cpu
from gpt_jobs import Given, laid_out, small_config, trained

import padiff

Job = Callable[[int, int, Path], None]
Fault = Callable[[Any, int], None]
STEPS, BATCH, LENGTH, WORDS, EXPERTS = 2, 4, 6, 64, 4
BASE, EPS = 10000.0, 1e-5


def mixtral() -> Any:
    """Return Hugging Face's Mixtral."""
    import transformers

    sizes = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": EXPERTS, "num_experts_per_tok": 2}
    how = {"rms_norm_eps": EPS, "rope_theta": BASE, "use_cache": False, "attn_implementation": "eager"}
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads, **how)).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def gpt(ep: int) -> Any:
    """Return Megatron's GPT as Mixtral is built, with weights of its own."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer import torch_norm

    experts_on_the_cpu()

    def norm(_: Any, config: Any, hidden_size: int, eps: float = EPS) -> Any:
        return torch.nn.RMSNorm(hidden_size, eps)

    torch_norm.WrappedTorchNorm.__new__ = staticmethod(norm)  # type: ignore[assignment]
    laid_out(1, 1, expert_model_parallel_size=ep, expert_tensor_parallel_size=1)
    config = small_config(
        num_layers=2,
        num_query_groups=2,
        ffn_hidden_size=48,
        moe_ffn_hidden_size=48,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        layernorm_epsilon=EPS,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=1,
        num_moe_experts=EXPERTS,
        moe_router_topk=2,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="alltoall",
    )
    torch.manual_seed(1)
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS, normalization="RMSNorm")
    kinds = {"share_embeddings_and_output_weights": False, "parallel_output": True, "position_embedding_type": "rope"}
    return GPTModel(config, spec, vocab_size=WORDS, max_sequence_length=LENGTH, rotary_base=int(BASE), **kinds)


def batch(step: int) -> Any:
    return torch.randint(0, WORDS, (2, BATCH, LENGTH), generator=torch.Generator().manual_seed(step))


def by_hand(source: str | None = None) -> Job:
    """Return a job that trains Hugging Face's model without any stack."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = mixtral()
        if source is not None:
            for parameter in model.parameters():
                parameter.data.zero_()
            padiff.transfer(folder.parent.parent / source, model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with padiff.record(model, folder) as recorder:
            for step in range(STEPS):
                tokens, labels = batch(step)
                logits = model(tokens).logits
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


def megatron(ep: int, source: str, fault: Fault | None = None) -> Job:
    """Return a job that trains Megatron's model with the weights of a run, by its own optimizer."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = gpt(ep)
        padiff.transfer(folder.parent.parent / source, model)

        def batches(copies: int, place: int) -> Iterator[Given]:
            places = torch.arange(LENGTH)[None].repeat(BATCH // copies, 1)
            mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
            for step in range(STEPS):
                tokens, labels = batch(step).chunk(copies, 1)[place]
                yield (tokens, places, mask), labels

        trained(model, folder, rank, batches, fault)

    return job


def exchanged(model: Any, rank: int) -> None:
    """Let rank 1 hold its two experts in each other's place."""
    if rank == 1:
        first, second = model.module.decoder.layers[1].mlp.experts.local_experts
        for one, other in zip(first.parameters(), second.parameters(), strict=True):
            kept = one.data.clone()
            one.data.copy_(other.data)
            other.data.copy_(kept)


SETS: dict[str, tuple[int, dict[str, Job]]] = {
    "one": (1, {"hand": by_hand(), "all": megatron(1, "one/hand")}),
    "two": (2, {"experts": megatron(2, "one/hand"), "exchanged": megatron(2, "one/hand", exchanged)}),
    "back": (1, {"hand": by_hand("two/experts")}),
}
"""Name of a folder -> how many ranks, and the jobs that they run."""

if __name__ == "__main__":
    import megatron.core.models.gpt.gpt_model
    import transformers.models.mixtral.modeling_mixtral  # noqa: F401  what is imported now no rank imports
    from planted import several

    base = Path(sys.argv[1])
    for place, (world, many) in SETS.items():
        (base / place).mkdir(parents=True, exist_ok=True)
        jobs.run(several(many, sys.argv[2:]), world, base / place)
