"""Refine the colours of nodes by those of their neighbours, after Weisfeiler and Leman."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from padiff.grouping import grouped

Neighbours = Sequence[Sequence[tuple[int, int]]]
"""Node -> its neighbours to one side, each with a number that stands for the ways there."""


def refined(
    colours: Sequence[int], seen: Sequence[Neighbours], seers: Sequence[Neighbours], moving: Collection[int]
) -> Iterator[tuple[int, ...]]:
    """Yield the colours as they are, then after each round, in which what sees other neighbours gets another colour.

    ``seen`` are the neighbours that a node sees, ``seers`` those that see it. Nodes that are not ``moving`` keep their
    colour, which no moving one has. A round looks only at what sees a change: the largest part of a colour keeps it.
    """
    now, fresh = list(colours), max(colours, default=0) + 1
    scale = 1 + max((way for side in seen for found in side for _, way in found), default=0)
    members = grouped(moving, now.__getitem__)
    free, stirred, near = frozenset(moving), set(moving), {}
    while True:
        yield tuple(now)
        for node in stirred:
            near[node] = tuple(tuple(sorted([now[i] * scale + way for i, way in side[node]])) for side in seen)
        changed = []
        for colour in {now[node] for node in stirred}:
            parts = grouped(members[colour], near.__getitem__)
            members[colour], *others = sorted(parts.values(), key=len, reverse=True)
            for part in others:
                for node in part:
                    now[node] = fresh
                members[fresh], fresh = part, fresh + 1
                changed += part
        stirred = {other for node in changed for side in seers for other, _ in side[node]} & free
