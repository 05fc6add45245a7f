"""Jobs in which ranks do not do what they should, one fault each: ``planted.py FOLDER [NAME...]``.

Each layout's processes are started once and run its jobs one behind the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import planted_by_hand
import planted_by_torch
import torch
import torch.distributed as dist
from attrs import frozen
from planted_by_hand import by_hand

import padiff


def _nothing(*_: Any) -> None:
    return None


@frozen
class Planted:
    """What a job does otherwise than it should: each a function of the rank last."""

    model: Callable[[Any, int], None] = _nothing
    """Changes the model before it is trained."""
    given: Callable[[tuple[Any, ...], int], tuple[Any, ...]] = lambda batch, _: batch
    seed: Callable[[int], int] = lambda rank: 0
    optimizer: Callable[[Any, int], None] = _nothing
    backward: Callable[[Any, int], None] = _nothing
    """Follows the backward passes of a step."""
    stepped: Callable[[Any, int], None] = _nothing
    """Follows the optimizer."""
    clip: Callable[[Any], None] = _nothing
    parts: int = 1
    """Backward passes in a step."""
    divided: int = 1
    """What the loss of one is divided by once more."""
    dropout: float = 0.0
    told: bool = False
    """Whether the optimizer is recorded."""


def megatron(one: Planted) -> jobs.Job:
    """Return a job that trains Megatron's GPT, tensor parallel over two ranks, data parallel over the others."""

    def job(rank: int, world: int, folder: Path) -> None:
        from megatron.core import parallel_state

        tp = min(world, 2)
        model = jobs.gpt(tp, rank % tp)
        for module in model.modules():
            if hasattr(module, "hidden_dropout"):
                module.hidden_dropout = one.dropout
            if type(module).__name__ == "Dropout":
                module.p = one.dropout
        one.model(model, rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        one.optimizer(optimizer, rank)
        draw = torch.Generator().manual_seed(0)
        tokens, labels = torch.randint(0, 60, (2, 2, 8), generator=draw)
        places = torch.arange(8)[None].repeat(2, 1)
        tokens, labels, places = one.given((tokens, labels, places), rank)
        mask = torch.triu(torch.ones(1, 1, 8, 8, dtype=torch.bool), 1)
        here = slice(None) if world < 4 else slice(rank // tp, rank // tp + 1)
        with padiff.record(model, folder, optimizer=optimizer if one.told else None) as recorder:
            for step in range(jobs.STEPS):
                torch.manual_seed(step + one.seed(rank))
                total = 0.0
                for part in range(one.parts):
                    at = here if one.parts == 1 else slice(part, part + 1)
                    loss = model(tokens[at], places[at], mask, labels=labels[at]).mean() / one.parts
                    (loss / one.divided).backward()
                    total += loss.item()
                if world == 4:
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad, group=parallel_state.get_data_parallel_group())
                        parameter.grad /= 2
                one.backward(model, rank)
                one.clip(model)
                optimizer.step()
                one.stepped(model, rank)
                optimizer.zero_grad()
                recorder.step(total)

    return job


def _patched(linear: Any, **functions: Any) -> None:
    """Let a layer of Megatron's call other functions than those of its module."""
    from megatron.core.tensor_parallel import layers

    before = {name: getattr(layers, name) for name in functions}

    def forward(*args: Any, **kwargs: Any) -> Any:
        for name, function in functions.items():
            setattr(layers, name, function)
        try:
            return type(linear).forward(linear, *args, **kwargs)
        finally:
            for name, function in before.items():
                setattr(layers, name, function)

    linear.forward = forward


def reduced(by: Callable[[Any, Any], Any]) -> Callable[[Any, int], None]:
    """Let the second layer's row-parallel linear layer reduce by a function of its part and the right reduction."""

    def change(model: Any, _: int) -> None:
        from megatron.core.tensor_parallel import layers

        right = layers.reduce_from_tensor_model_parallel_region
        changed = {"reduce_from_tensor_model_parallel_region": lambda x, group=None: by(x, right)}
        _patched(model.decoder.layers[1].mlp.linear_fc2, **changed)

    return change


def across_data(x: Any, _: Any) -> Any:
    """Reduce over the ranks that have other data, in place of those that have the other part."""
    from megatron.core import parallel_state
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(x, group=parallel_state.get_data_parallel_group())


def column_unreduced(model: Any, _: int) -> None:
    """Leave the gradient of a column-parallel layer's input unreduced."""
    linear = model.decoder.layers[1].mlp.linear_fc1
    linear.allreduce_dgrad, linear.disable_grad_reduce = False, True


def embedding_unmasked(model: Any, _: int) -> None:
    """Look other ranks' tokens up in this rank's rows, and add what comes up."""
    embedding = model.embedding.word_embeddings

    def forward(tokens: Any) -> Any:
        from megatron.core.tensor_parallel import layers

        rows = len(embedding.weight)
        return layers.reduce_from_tensor_model_parallel_region(embedding.weight[tokens % rows], embedding.tp_group)

    embedding.forward = forward


def gathered_logits(model: Any, _: int) -> None:
    """Give the loss of shards the gathered logits."""
    model.output_layer.gather_output = True


def masked_padding(model: Any, rank: int) -> None:
    """Leave the last four of 64 tokens, which are padding, out of the loss."""
    right, size = model.compute_language_model_loss, len(model.output_layer.weight)
    first = 0 if size == 64 else rank % 2 * size

    def loss(labels: Any, logits: Any) -> Any:
        padding = torch.arange(first, first + size) >= 60
        return right(labels, logits.masked_fill(padding, -1e4))

    model.compute_language_model_loss = loss


def held(path: str, change: Callable[[Any], Any], *ranks: int) -> Callable[[Any, int], None]:
    """Let some ranks, or all, hold another parameter."""

    def of(model: Any, rank: int) -> None:
        if not ranks or rank in ranks:
            parameter = model.get_parameter(path)
            with torch.no_grad():
                parameter.copy_(change(parameter.clone()))

    return of


def exchanged(path: str) -> Callable[[Any, int], None]:
    """Let two ranks hold each other's shard."""

    def of(model: Any, rank: int) -> None:
        parameter = model.get_parameter(path).data
        both = [torch.empty_like(parameter) for _ in range(2)]
        dist.all_gather(both, parameter.contiguous())
        parameter.copy_(both[1 - rank])

    return of


def kinds_behind_each_other(qkv: Any) -> Any:
    """Return the rows of q of both heads, then k, then v, where Megatron has q, k, v of one head and of the next."""
    return qkv.reshape(2, 3, -1, *qkv.shape[1:]).transpose(0, 1).reshape(qkv.shape)


def clipped(shared: bool) -> Callable[[Any], None]:
    """Clip by the norm of all gradients, or of those that this rank has."""

    def clip(model: Any) -> None:
        squares = {False: torch.zeros(()), True: torch.zeros(())}
        for parameter in model.parameters():
            squares[bool(getattr(parameter, "tensor_model_parallel", False))] += parameter.grad.pow(2).sum()
        if shared and dist.get_world_size() > 1:
            dist.all_reduce(squares[True])
        for parameter in model.parameters():
            parameter.grad *= 0.1 / (squares[False] + squares[True]).sqrt()

    return clip


def frozen_on(wrong: int, path: str) -> Callable[[Any, int], None]:
    """Train the parameters of a layer on the other ranks alone."""
    return lambda model, rank: model.get_submodule(path).requires_grad_(rank != wrong) and None


def put_back(path: str, wrong: int) -> Planted:
    """Let a rank go on with a weight as it was before the step."""
    kept: list[Any] = []

    def keep(model: Any, rank: int) -> None:
        kept[:] = [model.get_parameter(path).detach().clone()]

    def back(model: Any, rank: int) -> None:
        if rank == wrong:
            model.get_parameter(path).data.copy_(kept[0])

    return Planted(backward=keep, stepped=back)


def rate(wrong: int) -> Callable[[Any, int], None]:
    """Let one rank learn twice as fast."""

    def of(optimizer: Any, rank: int) -> None:
        optimizer.param_groups[0]["lr"] *= 2 if rank == wrong else 1

    return of


def keeping(wrong: int) -> Callable[[Any, int], None]:
    """Let one rank add a step's gradients to those of the step before."""

    def of(optimizer: Any, rank: int) -> None:
        if rank == wrong:
            optimizer.zero_grad = _nothing

    return of


def places_of_another(batch: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    """Count positions from 1 on rank 1."""
    return (*batch[:2], batch[2] + (rank == 1))


NORM = "decoder.layers.1.input_layernorm.weight"
UP, DOWN = "decoder.layers.1.mlp.linear_fc1", "decoder.layers.1.mlp.linear_fc2"
QKV = "decoder.layers.0.self_attention.linear_qkv"
CLEAN = Planted()
TENSOR: dict[str, Planted] = {
    "clean": CLEAN,
    "clean-padded": Planted(model=masked_padding),
    "clean-clipped": Planted(clip=clipped(shared=True)),
    "clean-parts": Planted(parts=2),
    "clean-dropout": Planted(dropout=0.1),
    "clean-told": Planted(told=True),
}
"""Jobs without a fault, which one rank runs too."""
TENSOR_FAULTS: dict[str, Planted] = {
    "no-all-reduce": Planted(model=reduced(lambda x, right: x)),
    "two-all-reduces": Planted(model=reduced(lambda x, right: right(right(x)))),
    "averaged": Planted(model=reduced(lambda x, right: right(x) / 2)),
    "column-unreduced": Planted(model=column_unreduced),
    "embedding-unmasked": Planted(model=embedding_unmasked),
    "gathered-logits": Planted(model=gathered_logits),
    "padding-in-loss": CLEAN,
    "shard-order": Planted(model=exchanged(f"{UP}.weight")),
    "qkv-order": Planted(model=held(f"{QKV}.weight", kinds_behind_each_other)),
    "stale-norm": Planted(model=held(NORM, lambda x: x * 1.1, 1)),
    "stale-norm-on-0": Planted(model=held(NORM, lambda x: x * 1.1, 0)),
    "wrong-shard": Planted(model=held(f"{DOWN}.weight", lambda x: x.flip(0), 1)),
    "stale-after-step": put_back(f"{UP}.weight", 1),
    "clipped-by-shard": Planted(clip=clipped(shared=False)),
    "clipped-on-one-side": Planted(clip=clipped(shared=True), told=True),
    "divided-twice": Planted(parts=2, divided=2),
    "seed-per-rank": Planted(dropout=0.1, seed=lambda rank: 100 * rank),
    "rate-on-1": Planted(optimizer=rate(1)),
    "rate-on-0": Planted(optimizer=rate(0)),
    "kept-on-1": Planted(optimizer=keeping(1)),
    "frozen-on-1": Planted(model=frozen_on(1, UP)),
    "frozen-norm-on-1": Planted(model=frozen_on(1, NORM.rpartition(".")[0])),
    "positions-on-1": Planted(given=places_of_another),
}
GRID: dict[str, Planted] = {"clean": CLEAN, "wrong-group": Planted(model=reduced(across_data))}

SETS: dict[str, tuple[int, dict[str, jobs.Job]]] = {
    "one": (1, planted_by_hand.ONE | planted_by_torch.ONE),
    "two": (2, planted_by_hand.TWO | planted_by_torch.TWO),
    "tensor1": (1, {name: megatron(one) for name, one in TENSOR.items()}),
    "tensor2": (
        2,
        {name: megatron(one) for name, one in (TENSOR | TENSOR_FAULTS).items()} | {"hand-clean": by_hand("clean")},
    ),
    "grid": (4, {name: megatron(one) for name, one in GRID.items()} | planted_by_torch.FOUR),
}
"""Name of a folder -> how many ranks, and the jobs that they run."""


def several(many: dict[str, jobs.Job], names: list[str]) -> jobs.Job:
    """Return a job that runs several, one behind the other."""

    def job(rank: int, world: int, folder: Path) -> None:
        for name, one in many.items():
            if not names or name in names:
                one(rank, world, folder / name)

    return job


if __name__ == "__main__":
    import deepspeed  # noqa: F401
    import megatron.core.models.gpt.gpt_model

    base = Path(sys.argv[1])
    for place, (world, many) in SETS.items():
        (base / place).mkdir(parents=True, exist_ok=True)
        jobs.run(several(many, sys.argv[2:]), world, base / place)
