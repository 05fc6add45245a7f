"""Say what a process is among the ranks that run one model, and how a value is spread over them: in DTensor's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs
import numpy as np
from numpy.typing import NDArray

_DATA, _SEQUENCE = "dp", "cp"
UNKNOWN = "world"
"""The name of the group of all ranks, where nobody says what it is for."""


@attrs.frozen
class Placement:
    """How a value lies on the ranks of one group."""

    kind: Literal["replicate", "shard", "partial", "range", "sums"] = "replicate"
    """``replicate``: each rank holds it; ``shard``: each holds a part, in the ranks' order; ``partial``: what they hold
    adds up to it; ``range``: each holds a range of its elements, laid out flat; ``sums``: each holds a part of a sum of
    a shard, in ``copies`` rows of ranks behind each other that hold all shards."""
    dim: int = 0
    """The dimension along which it is sharded."""
    stride: int = 1
    """Of a shard: how many layers lie behind each other on each rank (2 where gate and up are one)."""
    mean: bool = False
    """Whether the ranks' values, or shards, are to be divided by how many they are: gradients of a mean of losses."""
    ends: bool = False
    """Of a shard: whether each rank holds a part from the front and one from the back, the first rank the outermost.
    So a causal mask leaves all of them as much of a sequence to do."""
    copies: int = 1

    @property
    def blocks(self) -> int:
        """Return of how many blocks a shard on one rank is made, each of which lies elsewhere in the whole."""
        return self.stride * (2 if self.ends else 1)

    def part(self, whole: NDArray[Any], count: int, index: int) -> NDArray[Any]:
        """Return what one of ``count`` ranks holds of a value.

        Of what does not come out even, the last ones hold less; of a sum each holds all.
        """
        if self.kind == "range":
            return Placement("shard").part(whole.reshape(-1), count, index)
        if self.kind != "shard":
            return whole
        if self.blocks == 1:
            dim = self.dim % whole.ndim
            size = -(-whole.shape[dim] // count)
            return whole[(*[slice(None)] * dim, slice(index * size, (index + 1) * size))]
        blocks = np.split(whole, self.blocks * count, self.dim)
        held = (index, 2 * count - 1 - index) if self.ends else (index,)
        runs = range(0, len(blocks), len(held) * count)
        return np.concatenate([blocks[run + place] for run in runs for place in held], self.dim)

    def __str__(self) -> str:
        """Return it as DTensor writes it."""
        if self.kind == "shard":
            stride = "" if self.stride == 1 else f", stride={self.stride}"
            return f"Shard({self.dim}{stride}{', both ends' if self.ends else ''})"
        partial = "Partial(avg)" if self.mean else "Partial(sum)"
        sums = f"Partial(sum) of Shard({self.dim})"
        return {"replicate": "Replicate", "partial": partial, "range": "Range", "sums": sums}[self.kind]


Spread = Mapping[str, Placement]
"""Name of a group -> how a value lies on its ranks; in a group that is not named, nobody says."""


def is_data(group: str) -> bool:
    """Return whether the ranks of a group have data of their own, and average what they make of it: by its name.

    Where they are two groups, say those that hold shards of weights and those that hold the same, a word follows.
    """
    return group.partition("_")[0] == _DATA


def shares_data(group: str) -> bool:
    """Return whether each rank of a group has a part of what the model is given: samples, or parts of all sequences."""
    return is_data(group) or group == _SEQUENCE


def unreduced(spread: Spread, shape: tuple[int, ...], whole: tuple[int, ...]) -> Spread:
    """Return how a gradient is spread that has another shape than its parameter's shard has, and that ``whole``.

    Ranks that share data have not put it together yet; along the dimension of another shard it may be of all of it.
    """
    shards = {axis: how for axis, how in spread.items() if how.kind == "shard" and not is_data(axis)}
    return {axis: how for axis, how in shards.items() if shape[how.dim] != whole[how.dim]}


def parts_of_data(groups: Iterable[str], batch: int = 0, sequence: int | None = None) -> Spread:
    """Return how a value lies of which ranks that share data have each a part, along the axes that are given.

    Ranks of which nobody says what they are for may be such: the first one's part lies where the whole does. Those that
    share sequences have a part from both ends, as `Placement.ends` says it.
    """
    found = {group: Placement("shard", 0 if group == UNKNOWN else batch) for group in groups if _has_samples(group)}
    if sequence is not None:
        found |= {group: Placement("shard", sequence, ends=True) for group in groups if group == _SEQUENCE}
    return found


def _has_samples(group: str) -> bool:
    return is_data(group) or group == UNKNOWN


@attrs.frozen
class Ranks:
    """What one process is among several, as far as its framework knows."""

    rank: int
    world: int
    """How many ranks there are."""
    groups: Mapping[str, tuple[int, ...]]
    """Name of a group that this rank is in (``tp``, ``dp``) -> its ranks, in the order of their shards; ``pp``: those
    of the stages of a pipeline, each of which has a part of the modules."""
    parameters: Mapping[str, Spread] = attrs.field(factory=dict)
    """Path of a parameter or buffer -> how it is spread."""
    outputs: Mapping[str, Spread] = attrs.field(factory=dict)
    """Path of a module -> how its first output is spread, where its class says so."""
    shapes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    """Path of a parameter or buffer of which a part lies here -> its shape over all ranks, where that is known."""
    chunks: tuple[tuple[str, ...], ...] = ()
    """Of a stage of a pipeline that holds several chunks: the paths at which each holds what no other one does."""
    copies: Mapping[str, str] = attrs.field(factory=dict)
    """Path of a parameter that in the whole model is another one, of which a stage needs a copy -> that one's."""
    job: str = ""
    """What the launcher calls the job, to all of its ranks alike; empty where it says nothing."""
    starts: Mapping[str, int] = attrs.field(factory=dict)
    """Path of a parameter of which a range of its elements lies here, laid out flat -> how many lie in front of it."""
