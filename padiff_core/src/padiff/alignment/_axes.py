"""Tell where two matched models hold their images otherwise: channels first on one side, last on the other.

Convolutions and poolings say which they take. From them it follows for all tensors that they take or give, wherever
these go, and for what norms and activations make of them. A tensor whose shape is the reference's as it is, is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.alignment._pairs import Alignment, Pair, pair_leaves
from padiff.kinds import LAYOUT
from padiff.recording import Axes, Turns
from padiff.trace import Call, Leaf

__all__ = ["turns"]

_IMAGE = 3
"""The fewest axes of what a convolution takes: batch, one spatial axis, channels."""


def turns(alignment: Alignment) -> Turns:
    """Return how the candidate's tensors are to be read so that their axes are the reference's."""
    layouts = {layout for pair in alignment.pairs if (layout := _layouts(pair)) is not None}
    if len(layouts) != 1 or len(set(*layouts)) == 1:
        return {}
    ((_, theirs),) = layouts
    return _Flow(alignment, last=theirs == "NHWC").turns


def _layouts(pair: Pair) -> tuple[str, str] | None:
    """Return the layouts of both sides, where both say."""
    found = tuple(_layout(call) for call in (pair.reference, pair.candidate))
    return None if None in found else (str(found[0]), str(found[1]))


def _layout(call: Call) -> str | None:
    setting = call.settings.get(LAYOUT)
    return None if setting is None else str(setting.value)


class _Flow:
    """Follow images through a candidate's run."""

    def __init__(self, alignment: Alignment, *, last: bool) -> None:
        self._alignment = alignment
        self._last = last
        self._images: set[int] = set()
        """Tokens of the candidate's images."""
        calls = list(alignment.pairs[0].candidate.subtree())
        for call in calls:
            if _layout(call) is not None:
                self._images.update(leaf.token for leaf in (*call.inputs[:1], *call.outputs[:1]))
        known = -1
        while len(self._images) > known:
            known = len(self._images)
            self.turns: dict[tuple[str, str, int], Axes] = dict(self._found(calls))

    def _found(self, calls: Sequence[Call]) -> Iterator[tuple[tuple[str, str, int], Axes]]:
        for call in calls:
            pair = self._alignment.of_candidate(call)
            ours = ([], []) if pair is None else (pair.reference.inputs, pair.reference.outputs)
            for what, leaves, others in zip(("input", "output"), (call.inputs, call.outputs), ours, strict=True):
                for index, axes in self._turned(leaves, others):
                    yield (call.path, what, index), axes
            self._pass_on(call.inputs, call.outputs)
            if call.leaf and not call.module.operation:
                self._pass_on(call.outputs, call.inputs[:1])

    def _pass_on(self, given: Sequence[Leaf], made: Sequence[Leaf]) -> None:
        """Take what has as many axes as an image that it is made from for an image."""
        ranks = {len(leaf.shape) for leaf in given if leaf.token in self._images}
        self._images.update(leaf.token for leaf in made if len(leaf.shape) in ranks)

    def _turned(self, leaves: Sequence[Leaf], others: Sequence[Leaf]) -> Iterator[tuple[int, Axes]]:
        """Yield the tensors that are turned at one place; a shape that fits one way only tells."""
        twins = dict(self._twins(leaves, others))
        for index, leaf in enumerate(leaves):
            if len(leaf.shape) < _IMAGE:
                continue
            axes = self._axes(len(leaf.shape))
            other = twins.get(index)
            native, turned = leaf.shape, tuple(leaf.shape[axis] for axis in axes)
            fits = leaf.token in self._images
            if other is not None and (other.shape == native) != (other.shape == turned):
                fits = other.shape == turned
            if fits:
                self._images.add(leaf.token)
                yield index, axes

    def _twins(self, leaves: Sequence[Leaf], others: Sequence[Leaf]) -> Iterator[tuple[int, Leaf]]:
        """Yield, of each tensor, the reference's: those of one shape, and of the others those in the same place."""
        tied = pair_leaves(others, leaves)
        yield from ((j, others[i]) for i, j in tied)
        ours = [leaf for i, leaf in enumerate(others) if i not in {a for a, _ in tied}]
        theirs = [j for j in range(len(leaves)) if j not in {b for _, b in tied}]
        yield from zip(theirs, ours, strict=False)

    def _axes(self, rank: int) -> Axes:
        """Return the permutation to channels first, of a candidate that has them last; or the other way round."""
        if self._last:
            return (0, rank - 1, *range(1, rank - 1))
        return (0, *range(2, rank), 1)
