"""The words of what the ranks of a job tell of a difference."""

from __future__ import annotations

from collections.abc import Mapping

from padiff.report._templates import Data, Phrase, ranks


def _chunks(*, both_ends: bool) -> str:
    """Return how ranks hold a sequence that lies otherwise than others do, of which they have parts of both ends."""
    names = "one part each", "a part from each end"
    return f"have {names[not both_ends]}, where they are given {names[both_ends]} of other values"


def _multiples(data: Data) -> str:
    """Return which rank has how many times what it should have."""
    return ", ".join(f"{times:.4g} on rank {rank}" for rank, times in zip(data["ranks"], data["times"], strict=True))


OF_RANKS: Mapping[str, Phrase] = {
    "missing_all_reduce": lambda data: (
        f"the mean of what {ranks(data['ranks'])} hold is the other side's value: they are not averaged"
        if data.get("mean")
        else f"what {ranks(data['ranks'])} hold adds up to the other side's value: an all-reduce is missing"
    ),
    "wrong_group": "summed over {ranks:ranks}, which have other data, in place of {right:ranks}",
    "experts_mixed": "{ranks:ranks} hold experts of their own, yet step by the sum of all's",
    "added_by_each": "each of {ranks:ranks} adds {name} before the sum",
    "gathered_order": "the parts of {ranks:ranks} lie in another order: right in the order {order:all}",
    "reordered": "{ranks:ranks} hold what they should, but in another order along axis {dim}",
    "loss_scaled": (
        "{times:.4g} times the other side's gradient, in every element: the loss is scaled before its backward pass"
    ),
    "stepped_on_ranks": lambda data: (
        f"{ranks(data['ranks'])} {'steps' if len(data['ranks']) == 1 else 'step'} "
        + (f"{data['times']:.4g} times as far" if data["times"] else "not at all")
        + f", right on {ranks(data['right'])}"
    ),
    "given_on_ranks": lambda data: (
        f"not all step by the gradient of {ranks([data['first']])}: it is multiplied by {_multiples(data)}"
    ),
    "gradients_unreduced": (
        "each of {ranks:ranks} steps by the gradient that arrived on it alone, where all of theirs together are the "
        "other side's: an all-reduce of gradients is missing"
    ),
    "loss_of_each_rank": lambda data: (
        "of what the other side's loss sends back each rank's loss sends a multiple of its own: "
        + _multiples(data)
        + " (a mean over what each rank has itself, where the other side's is over all?)"
    ),
    "normalized_by_each": (
        "each of {ranks:ranks} normalizes by the statistics of its own part of the batch, the other side by those of "
        "all of it (as SyncBatchNorm does)"
    ),
    "scaled_by_ranks": lambda data: (
        "of the other side's step each rank makes a multiple of its own: "
        + _multiples(data)
        + " (clipped by the norm of its shards?)"
    ),
    "reduced_twice": "{times} times the other side's value on {ranks:ranks}: summed over them once too often",
    "averaged": "1/{times} of the other side's value on {ranks:ranks}: averaged over them, not summed",
    "chunk_order": lambda data: f"{ranks(data['ranks'])} {_chunks(both_ends=data['ends'])}",
    "shard_order": "{ranks:ranks} hold each other's shards: right in the order {order:all}",
    "wrong_on_ranks": "wrong on {ranks:ranks}, right on {right:ranks}",
    "nothing_on_ranks": "nothing, or zeros, on {ranks:ranks}, right on {right:ranks}",
    "out_of_step": lambda data: (
        f"{ranks(data['ranks'])} {'holds' if len(data['ranks']) == 1 else 'hold'} another value than "
        f"{ranks([data['first']])}, though all should hold the same"
    ),
    "looked_up_by_each": "each of {ranks:ranks} adds a row of its own for tokens whose row another one holds",
    "logits_gathered": "{ranks:ranks} count each logit {ranks:count} times: the loss of shards is given all logits",
    "padding_in_loss": lambda data: (
        f"rows {data['real']} to {data['rows'] - 1} of the vocabulary count in the loss; the other side leaves them out"
    ),
}
