"""Tell which way square matrices lie by how the code of both sides uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import attrs

from padiff.kinds import PRODUCTS
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._links import Link
from padiff.parameters._shapes import transposition
from padiff.parameters._units import Held, HeldUnit
from padiff.trace import Flow, called, inputs_of, joint_of

Homes = Mapping[str, Set[int]]
"""Holder of either side -> the matches that it is of, by number."""


def as_contracted(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with those open layouts that both sides' own code tells.

    A matrix lies in the candidate as in the reference where both sum over the same of its axes, and else transposed.
    Where each sums it with other data (a bilinear form, from its one end and from the other), nothing is told.
    """
    changed = {}
    homes = _homes(known, 0), _homes(known, 1)
    for match in known.matches:
        links = [_lying(link, match.units, flows, homes) for link in match.links]
        if any(one is not link for one, link in zip(links, match.links, strict=True)):
            changed[match] = attrs.evolve(match, links=links)
    return known.rematched(changed) if changed else known


def not_seen(known: Correspondence, flows: tuple[Flow, Flow]) -> bool:
    """Return whether the candidate's run did not show how it uses a matrix of which the reference's code tells that."""
    ours, theirs = flows
    left = ((match, link) for match, link in known.links if link.open)
    unseen = ((match, link) for match, link in left if link.candidate.parameter.path not in theirs.contracted)
    return any(_contracts_last(match.reference, link.reference, ours) is not None for match, link in unseen)


def _homes(known: Correspondence, side: int) -> Homes:
    homes: dict[str, set[int]] = {}
    for number, match in enumerate(known.matches):
        unit = match.units[side]
        for holder in (called(unit.module.path), *unit.paths):
            homes.setdefault(holder, set()).add(number)
    return homes


def _lying(link: Link, units: tuple[HeldUnit, HeldUnit], flows: tuple[Flow, Flow], homes: tuple[Homes, Homes]) -> Link:
    turned = transposition(link.reference.shape, link.candidate.shape)
    if not turned or {*link.layouts} != {(), turned}:
        return link
    ours, theirs = map(_contracts_last, units, (link.reference, link.candidate), flows)
    if ours is None or theirs is None:
        return link
    a, b = ([*_origins(*one)] for one in zip(units, (link.reference, link.candidate), flows, homes, strict=True))
    if a and b and all((*a, *b)) and not any(x & y for x in a for y in b):
        return link
    return attrs.evolve(link, axes=() if ours == theirs else turned, layouts=())


def _contracts_last(unit: HeldUnit, held: Held, flow: Flow) -> bool | None:
    """Return whether a unit sums data with the last axes of what it holds, in its canonical layout; None if unknown."""
    if unit.kind in PRODUCTS and unit.module.kind is not None:
        return True
    axis, count = flow.contracted.get(held.parameter.path), len(held.parameter.shape)
    return None if axis is None or not held.part.permuted else (axis == count - 1) != (held.part.transpose is not None)


def _origins(unit: HeldUnit, held: Held, flow: Flow, homes: Homes) -> Iterator[Set[object]]:
    """Yield what the data comes from that meets what a unit holds: the matches of a holder, or inputs of the model."""
    waiting = [*held.parameter.paths, called(unit.module.path)]
    seen: set[str] = set()
    while waiting:
        for source, way in flow.takes.get(waiting.pop(), ()):
            if joint_of(source) and source not in seen:
                waiting.append(source)
            elif not joint_of(source):
                yield inputs_of(way) or homes.get(source, frozenset())
            seen.add(source)
