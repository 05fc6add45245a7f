"""Train one GPT-2 with a vocabulary that one side pads, and the other does not, or pads otherwise.

``vocabulary_jobs.py FOLDER [NAME...]``: each layout's processes are started once and run its jobs one behind the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import stack_jobs
import torch
from gpt_jobs import on_the_cpu, small_config

import padiff

Job = Callable[[int, int, Path], None]
WORDS, STEPS = 50, 2


def gpt(rows: int, *, tied: bool) -> Any:
    """Return Megatron's GPT with a vocabulary of some rows, tensor parallel over all ranks."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    on_the_cpu()
    world = torch.distributed.get_world_size()
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(world, 1)
    config = small_config(num_layers=2, tensor_model_parallel_size=world)
    torch.manual_seed(1)
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    sizes = {"vocab_size": rows, "max_sequence_length": 32, "share_embeddings_and_output_weights": tied}
    return GPTModel(config, spec, **sizes, position_embedding_type="learned_absolute", parallel_output=True).train()


def without_padding(model: Any, rank: int) -> None:
    """Leave the rows that no token names out of the loss."""
    right, size = model.compute_language_model_loss, model.vocab_size // torch.distributed.get_world_size()

    def loss(labels: Any, logits: Any) -> Any:
        padding = torch.arange(rank * size, rank * size + size) >= WORDS
        return right(labels, logits.masked_fill(padding, -1e4))

    model.compute_language_model_loss = loss


def batch(step: int) -> Any:
    size = stack_jobs.BATCH, stack_jobs.LENGTH
    return torch.randint(0, WORDS, (2, *size), generator=torch.Generator().manual_seed(step))


def megatron(rows: int, source: str | None = None, *, masked: bool = True, tied: bool = True, last: int = 0) -> Job:
    """Return a job that trains Megatron's model; ``last`` is a token that its last step is given."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = gpt(rows, tied=tied)
        if source is not None:
            padiff.transfer(folder.parent.parent / source, model)
        if masked:
            without_padding(model, rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        size = stack_jobs.LENGTH
        places = torch.arange(size)[None].repeat(stack_jobs.BATCH, 1)
        mask = torch.triu(torch.ones(1, 1, size, size, dtype=torch.bool), 1)
        with padiff.record(model, folder) as recorder:
            for step in range(STEPS):
                tokens, labels = batch(step)
                if step == STEPS - 1 and last:
                    tokens[0, 0] = last
                loss = model(tokens, places, mask, labels=labels).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


def by_hand(source: str | None = None) -> Job:
    """Return a job that trains Hugging Face's model, which pads nothing; over two ranks by DistributedDataParallel."""

    def job(rank: int, world: int, folder: Path) -> None:
        model = stack_jobs.gpt2(WORDS)
        if source is not None:
            padiff.transfer(folder.parent.parent / source, model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
        with padiff.record(wrapped, folder) as recorder:
            for step in range(STEPS):
                tokens, labels = batch(step).chunk(world, 1)[rank]
                logits = wrapped(tokens).logits
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


SETS: dict[str, tuple[int, dict[str, Job]]] = {
    "one": (
        1,
        {
            "hand": by_hand(),
            "plain": megatron(WORDS, "one/hand"),
            "padded": megatron(56, "one/hand"),
            "apart": megatron(WORDS, tied=False),
        },
    ),
    "two": (
        2,
        {
            "hand": by_hand("one/hand"),
            "padded": megatron(64, "one/hand"),
            "otherwise": megatron(64, "one/padded"),
            "apart": megatron(64, "one/apart", tied=False),
            "in-loss": megatron(64, "one/hand", masked=False),
            "named": megatron(64, "one/hand", last=WORDS + 3),
        },
    ),
    "back": (1, {"hand": by_hand("two/padded")}),
}
"""Name of a folder -> how many ranks, and the jobs that they run."""

if __name__ == "__main__":
    import megatron.core.models.gpt.gpt_model
    from planted import several

    base = Path(sys.argv[1])
    for place, (world, many) in SETS.items():
        (base / place).mkdir(parents=True, exist_ok=True)
        jobs.run(several(many, sys.argv[2:]), world, base / place)
