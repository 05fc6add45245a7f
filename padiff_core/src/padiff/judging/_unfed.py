"""Rule on calls that could not be fed, and have other settings: what the code around makes of them tells.

What one side pads by hand, the other side's module pads: inputs and settings differ, and what comes of it does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Check
from padiff.judging._suspicion import contrasted
from padiff.numerics import ACCUMULATED, epsilon_of
from padiff.trace import Key

__all__ = ["Unfed"]

_Place = tuple[int, str, int]
"""What `Spot.key` gives."""


@attrs.define(eq=False)
class Unfed:
    """The calls of one forced run that take another shape than the reference's and are set otherwise."""

    alignment: Alignment
    checks: Sequence[Check]

    @cached_property
    def right(self) -> frozenset[Key]:
        """Return those behind which the first value that the code around makes is the reference's."""
        apart = {
            check.spot.key
            for check in self.checks
            if not check.backward and check.difference.rel_l2 > ACCUMULATED(epsilon_of(check.spot.reference.dtype))
        }
        behind = ((pair, set(self._behind(pair))) for pair in self._all)
        return frozenset(pair.key for pair, places in behind if places and places.isdisjoint(apart))

    @cached_property
    def wrong(self) -> list[Pair]:
        """Return the others."""
        return [pair for pair in self._all if pair.key not in self.right]

    def taints(self, check: Check) -> bool:
        """Return whether a value is made by the code around a wrong one, behind it."""
        owner, start = check.spot.owner, check.spot.pair.candidate.index
        behind = [pair for pair in self.wrong if check.spot.what == "output" or start > pair.candidate.index]
        return any(pair is not owner and self.alignment.around(pair) is owner for pair in behind)

    @cached_property
    def _all(self) -> list[Pair]:
        return [pair for pair in self.alignment.pairs if pair.misfed and contrasted(pair)]

    def _behind(self, pair: Pair) -> Iterator[_Place]:
        """Yield the first values at a call or behind it, made by it or by the code around it, that are compared."""
        around = self.alignment.around(pair)
        if around is None:
            return
        given = {leaf.token for leaf in around.candidate.inputs}
        for other in self.alignment.pairs:
            if other is not pair and self.alignment.around(other) is not around:
                continue
            found = []
            if other.candidate.index >= pair.candidate.index:
                # What cannot be fed passes on what it was given.
                found = list(_outputs(other) if other.misfed else _inputs(other, given))
            if found:
                yield from found
                return
            given |= {leaf.token for leaf in other.candidate.outputs} if other is not pair else set()
        yield from _outputs(around)


def _outputs(pair: Pair) -> Iterator[_Place]:
    for ours, _ in pair.outputs:
        yield pair.reference.index, "output", pair.reference.outputs[ours].token


def _inputs(pair: Pair, given: Collection[int]) -> Iterator[_Place]:
    for ours, theirs in pair.inputs:
        if pair.candidate.inputs[theirs].token not in given:
            yield pair.reference.index, "input", pair.reference.inputs[ours].token
