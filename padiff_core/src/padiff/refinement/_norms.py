"""Let what a norm over several axes holds lie as the values that it normalises are read.

As they begin, such parameters are ones and zeros, of which no run tells in what order they lie; their gradients do.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from padiff.kinds import NORMS
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.recording import Order
from padiff.refinement._axes import aligned
from padiff.refinement._evidence import Evidence
from padiff.refinement._layouts import placed


def with_norms_as_read(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with that layout of norms as the likeliest in which values are read there."""
    norms = [match for match in correspondence.open if match.reference.kind in NORMS]
    read = aligned(correspondence, evidence) if norms else correspondence
    return correspondence.rematched({match: _as_read(match, read) for match in norms})


def _as_read(match: UnitMatch, read: Correspondence) -> UnitMatch:
    for pair in read.alignment.using(match.candidate.module.path):
        for ours, theirs in pair.outputs[:1]:
            order, shape = read.axes.get((*pair.key, "output", theirs)), pair.reference.outputs[ours].shape
            if order is not None:
                return attrs.evolve(match, links=[_laid(link, order, shape) for link in match.links])
    return match


def _laid(link: Link, order: Order, shape: tuple[int, ...]) -> Link:
    """Return an open link with that layout first that a value of the reference's shape has on the other side."""
    size = math.prod(link.reference.shape)
    axes = next((count for count in range(1, len(shape) + 1) if math.prod(shape[-count:]) == size), 0)
    if not (link.open and axes):
        return link
    numbers = np.arange(size)
    expected = order.natively(np.broadcast_to(numbers.reshape(shape[-axes:]), shape)).reshape(-1)[:size]
    values = numbers.reshape(link.reference.parameter.shape)
    ways = sorted(link.ways, key=lambda way: not np.array_equal(placed(way, values).reshape(-1), expected))
    return attrs.evolve(link, axes=ways[0].axes, layouts=[way.axes for way in ways])
