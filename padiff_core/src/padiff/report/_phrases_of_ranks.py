"""The words of what the ranks of a job tell of a difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Data = Mapping[str, Any]
Phrase = str | Callable[[Data], str]


def ranks(numbers: Sequence[int]) -> str:
    """Return ranks in words."""
    more = [f"{len(numbers) - _RANKS} more"] if len(numbers) > _RANKS else []
    named = [str(rank) for rank in numbers[:_RANKS]] + more
    if len(named) == 1:
        return f"rank {named[0]}"
    return f"ranks {', '.join(named[:-1])} and {named[-1]}"


def setting(value: Any) -> str:
    """Return a setting in words: a text, or which ranks have which."""
    if isinstance(value, str):
        return value
    return ", ".join(f"{own} on {ranks(some)}" for own, some in zip(value["values"], value["ranks"], strict=True))


_RANKS = 8
"""How many ranks are named."""


def _chunks(*, both_ends: bool) -> str:
    """Return how ranks hold a sequence that lies otherwise than others do, of which they have parts of both ends."""
    names = "one part each", "a part from each end"
    return f"have {names[not both_ends]}, where they are given {names[both_ends]} of other values"


def _multiples(data: Data) -> str:
    """Return which rank has how many times what it should have."""
    return ", ".join(f"{times:.4g} on rank {rank}" for rank, times in zip(data["ranks"], data["times"], strict=True))


OF_RANKS: dict[str, Phrase] = {
    "missing_all_reduce": lambda data: (
        f"the mean of what {ranks(data['ranks'])} hold is the other side's value: they are not averaged"
        if data.get("mean")
        else f"what {ranks(data['ranks'])} hold adds up to the other side's value: an all-reduce is missing"
    ),
    "wrong_group": lambda data: (
        f"summed over {ranks(data['ranks'])}, which have other data, in place of {ranks(data['right'])}"
    ),
    "experts_mixed": lambda data: f"{ranks(data['ranks'])} hold experts of their own, yet step by the sum of all's",
    "added_by_each": lambda data: f"each of {ranks(data['ranks'])} adds {data['name']} before the sum",
    "gathered_order": lambda data: (
        f"the parts of {ranks(data['ranks'])} lie in another order: right in the order "
        f"{', '.join(map(str, data['order']))}"
    ),
    "reordered": lambda data: (
        f"{ranks(data['ranks'])} hold what they should, but in another order along axis {data['dim']}"
    ),
    "loss_scaled": (
        "{times:.4g} times the other side's gradient, in every element: the loss is scaled before its backward pass"
    ),
    "stepped_on_ranks": lambda data: (
        f"{ranks(data['ranks'])} {'steps' if len(data['ranks']) == 1 else 'step'} "
        + (f"{data['times']:.4g} times as far" if data["times"] else "not at all")
        + f", right on {ranks(data['right'])}"
    ),
    "gradients_unreduced": lambda data: (
        f"each of {ranks(data['ranks'])} steps by the gradient that arrived on it alone, where all of theirs together "
        "are the other side's: an all-reduce of gradients is missing"
    ),
    "loss_of_each_rank": lambda data: (
        "of what the other side's loss sends back each rank's loss sends a multiple of its own: "
        + _multiples(data)
        + " (a mean over what each rank has itself, where the other side's is over all?)"
    ),
    "normalized_by_each": lambda data: (
        f"each of {ranks(data['ranks'])} normalizes by the statistics of its own part of the batch, the other side by "
        "those of all of it (as SyncBatchNorm does)"
    ),
    "scaled_by_ranks": lambda data: (
        "of the other side's step each rank makes a multiple of its own: "
        + _multiples(data)
        + " (clipped by the norm of its shards?)"
    ),
    "reduced_twice": lambda data: (
        f"{data['times']} times the other side's value on {ranks(data['ranks'])}: summed over them once too often"
    ),
    "averaged": lambda data: (
        f"1/{data['times']} of the other side's value on {ranks(data['ranks'])}: averaged over them, not summed"
    ),
    "chunk_order": lambda data: f"{ranks(data['ranks'])} {_chunks(both_ends=data['ends'])}",
    "shard_order": lambda data: (
        f"{ranks(data['ranks'])} hold each other's shards: right in the order {', '.join(map(str, data['order']))}"
    ),
    "wrong_on_ranks": lambda data: f"wrong on {ranks(data['ranks'])}, right on {ranks(data['right'])}",
    "nothing_on_ranks": lambda data: f"nothing, or zeros, on {ranks(data['ranks'])}, right on {ranks(data['right'])}",
    "out_of_step": lambda data: (
        f"{ranks(data['ranks'])} {'holds' if len(data['ranks']) == 1 else 'hold'} another value than "
        f"{ranks([data['first']])}, though all should hold the same"
    ),
    "looked_up_by_each": lambda data: (
        f"each of {ranks(data['ranks'])} adds a row of its own for tokens whose row another one holds"
    ),
    "logits_gathered": lambda data: (
        f"{ranks(data['ranks'])} count each logit {len(data['ranks'])} times: the loss of shards is given all logits"
    ),
    "padding_in_loss": lambda data: (
        f"rows {data['real']} to {data['rows'] - 1} of the vocabulary count in the loss; the other side leaves them out"
    ),
}
