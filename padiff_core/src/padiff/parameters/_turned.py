"""Tell which way square matrices lie by how the code of both sides uses them."""

from __future__ import annotations

import attrs

from padiff.kinds import PRODUCTS
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._links import Link
from padiff.parameters._shapes import transposition
from padiff.parameters._units import Held, HeldUnit
from padiff.trace import Flow


def as_contracted(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with those open layouts that both sides' own code tells.

    A matrix lies in the candidate as in the reference where both sum over the same of its axes, and else transposed.
    """
    changed = {}
    for match in known.matches:
        links = [_lying(link, match.units, flows) for link in match.links]
        if any(one is not link for one, link in zip(links, match.links, strict=True)):
            changed[match] = attrs.evolve(match, links=links)
    return known.rematched(changed) if changed else known


def _lying(link: Link, units: tuple[HeldUnit, HeldUnit], flows: tuple[Flow, Flow]) -> Link:
    turned = transposition(link.reference.shape, link.candidate.shape)
    if not turned or {*link.layouts} != {(), turned}:
        return link
    ours, theirs = map(_contracts_last, units, (link.reference, link.candidate), flows)
    if ours is None or theirs is None:
        return link
    return attrs.evolve(link, axes=() if ours == theirs else turned, layouts=())


def _contracts_last(unit: HeldUnit, held: Held, flow: Flow) -> bool | None:
    """Return whether a unit sums data with the last axes of what it holds, in its canonical layout; None if unknown."""
    if unit.kind in PRODUCTS and unit.module.kind is not None:
        return True
    last = flow.contracted.get(held.parameter.path)
    return None if last is None or not held.part.permuted else last != (held.part.transpose is not None)
