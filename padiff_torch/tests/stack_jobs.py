"""Train one GPT-2 with two stacks: Hugging Face's by hand or under DeepSpeed, and Megatron's; recorded by padiff."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from gpt_jobs import SEQUENCE, on_the_cpu, small_config, without_all_reduce
from gpt_jobs import batch as micro_batch
from gpt_jobs import megatron as scheduled

import padiff

Job = Callable[[int, int, Path], None]
Fault = Callable[[Any, int], None]
WORDS, BATCH, LENGTH = 64, 4, 8
LEARNING = 0.1
ADAM = 1e-8


def gpt2(words: int = WORDS, layers: int = 2, positions: int = 32) -> Any:
    """Return Hugging Face's GPT-2, with biases that are not zero."""
    import transformers

    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"}
    sizes = {"vocab_size": words, "n_positions": positions, "n_embd": 32, "n_layer": layers, "n_head": 4}
    torch.manual_seed(0)
    config = transformers.GPT2Config(**sizes, **still, activation_function="gelu", use_cache=False)
    model = transformers.GPT2LMHeadModel(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


def gpt(world: int) -> Any:
    """Return Megatron's GPT with weights of its own, tensor parallel over all ranks."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    on_the_cpu()
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(world, 1)
    config = small_config(num_layers=2, tensor_model_parallel_size=world)
    torch.manual_seed(1)
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    sizes = {"vocab_size": WORDS, "max_sequence_length": 32, "share_embeddings_and_output_weights": True}
    return GPTModel(config, spec, **sizes, position_embedding_type="learned_absolute", parallel_output=True).train()


def batch(step: int) -> Any:
    return torch.randint(0, WORDS, (2, BATCH, LENGTH), generator=torch.Generator().manual_seed(step))


def _loss(logits: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _optimizer(model: Any, adam: float | None) -> Any:
    """Return plain SGD, or AdamW with that epsilon."""
    if adam is None:
        return torch.optim.SGD(model.parameters(), lr=LEARNING)
    return torch.optim.AdamW(model.parameters(), lr=LEARNING / 100, eps=adam, weight_decay=0.01)


def by_hand(source: str | None = None, steps: int = 2, adam: float | None = None) -> Job:
    """Return a job that trains Hugging Face's model without any stack, with the weights of a run where one is named."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = gpt2()
        if source is not None:
            padiff.transfer(folder.parent / source, model)
        optimizer = _optimizer(model, adam)
        with padiff.record(model, folder) as recorder:
            for step in range(steps):
                tokens, labels = batch(step)
                loss = _loss(model(tokens).logits, labels)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


def four_layers(rank: int, world: int, folder: Path) -> None:
    """Train Hugging Face's model of four layers, whose positions are those of `gpt_jobs`."""
    model = gpt2(layers=4, positions=SEQUENCE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with padiff.record(model, folder) as recorder:
        for step in range(2):
            tokens, labels = micro_batch(step, 0)
            loss = _loss(model(tokens).logits, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)


def zero(stage: int, source: str, steps: int = 2, adam: float | None = None, **settings: Any) -> Job:
    """Return a job in which DeepSpeed trains Hugging Face's model, with the weights of a run."""

    def job(rank: int, world: int, folder: Path) -> None:
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        config = {"train_micro_batch_size_per_gpu": BATCH // world, "gradient_clipping": 0.0}
        config |= {"zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
        model = gpt2()
        optimizer = None if adam is not None else torch.optim.SGD(model.parameters(), lr=LEARNING)
        if adam is not None:
            how = {"torch_adam": True, "lr": LEARNING / 100, "eps": adam, "weight_decay": 0.01, **settings}
            config["optimizer"] = {"type": "AdamW", "params": how}
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
        padiff.transfer(folder.parent / source, engine)
        with padiff.record(engine, folder) as recorder:
            for step in range(steps):
                tokens, labels = batch(step).chunk(world, 1)[rank]
                loss = _loss(engine(tokens).logits, labels)
                engine.backward(loss)
                engine.step()
                recorder.step(loss)

    return job


def megatron(source: str, fault: Fault = lambda *_: None, steps: int = 2, adam: float | None = None) -> Job:
    """Return a job that trains Megatron's model, tensor parallel over all ranks, with the weights of a run."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = gpt(world)
        padiff.transfer(folder.parent / source, model)
        fault(model, rank)
        optimizer = _optimizer(model, adam)
        places = torch.arange(LENGTH)[None].repeat(BATCH, 1)
        mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
        with padiff.record(model, folder) as recorder:
            for step in range(steps):
                tokens, labels = batch(step)
                loss = model(tokens, places, mask, labels=labels).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


def exchanged(model: Any, rank: int) -> None:
    """Let the ranks hold each other's shard of a weight."""
    weight = model.decoder.layers[0].mlp.linear_fc1.weight
    shards = [torch.empty_like(weight) for _ in range(2)]
    torch.distributed.all_gather(shards, weight.detach())
    weight.data.copy_(shards[1 - rank])


JOBS: dict[str, tuple[Job, int]] = {
    "hand": (by_hand(), 1),
    "hf-zero1": (zero(1, "hand", 10), 2),
    "hf-tp2": (megatron("hf-zero1", steps=10), 2),
    "hf-tp2-no-all-reduce": (megatron("hf-zero1", without_all_reduce), 2),
    "hf-tp2-exchanged": (megatron("hf-zero1", exchanged), 2),
    "hf-back": (by_hand("hf-tp2"), 1),
    "hf-zero3": (zero(3, "hf-tp2"), 2),
    "four": (four_layers, 1),
    "four-pp2": (scheduled(pp=2, micro=1, own="plain", tied=True, source="four"), 2),
    "adam": (by_hand("hand", 5, ADAM), 1),
    "adam-zero1": (zero(1, "hand", 5, ADAM), 2),
    "adam-tp2": (megatron("hand", steps=5, adam=ADAM), 2),
    "adam-betas": (zero(1, "hand", 5, ADAM, betas=[0.9, 0.99]), 2),
}
