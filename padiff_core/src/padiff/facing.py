"""Tell where two matched models hold their images otherwise: channels first on one side, last on the other.

Convolutions and poolings say which they take. From them it follows for all tensors that they take or give, wherever
these go, and for what norms and activations make of them. A tensor whose shape is the reference's as it is, is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.align import Alignment, Pair, pair_leaves
from padiff.layers import LAYOUT
from padiff.trace import Call, Leaf
from padiff.turn import Axes, Turns

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
    rule = call.module.rule
    setting = None if rule is None else rule.settings.get(LAYOUT)
    return None if setting is None else str(setting.value(call.module.native))


class _Flow:
    """Follow images through a candidate's run."""

    def __init__(self, alignment: Alignment, *, last: bool) -> None:
        self.turns: dict[tuple[int, str, int], Axes] = {}
        self._alignment = alignment
        self._last = last
        self._images: set[int] = set()
        """Tokens of the candidate's images."""
        root = alignment.pairs[0].candidate
        for call in root.subtree():
            if _layout(call) is not None:
                # What is no image yet when it enters a call above, is one all the same.
                self._images.update(leaf.token for leaf in (*call.inputs[:1], *call.outputs[:1]))
        self._follow(root)

    def _follow(self, call: Call) -> None:
        pair = self._alignment.of_candidate(call)
        self._turn(call, "input", call.inputs, None if pair is None else pair.reference.inputs)
        for child in call.children:
            self._follow(child)
        if any(leaf.token in self._images for leaf in call.inputs):
            ranks = {len(leaf.shape) for leaf in call.inputs if leaf.token in self._images}
            self._images.update(leaf.token for leaf in call.outputs if len(leaf.shape) in ranks)
        self._turn(call, "output", call.outputs, None if pair is None else pair.reference.outputs)

    def _turn(self, call: Call, what: str, leaves: Sequence[Leaf], others: Sequence[Leaf] | None) -> None:
        twins = dict(self._twins(leaves, others or ()))
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
                self.turns[id(call.module.native), what, index] = axes

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
