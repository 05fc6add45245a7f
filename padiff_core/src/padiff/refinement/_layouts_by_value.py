"""Choose the layouts that names and shapes leave open by the values that both sides hold."""

from __future__ import annotations

import itertools

from padiff.judging import is_close
from padiff.numerics import Array, difference, is_suspect
from padiff.parameters import Correspondence, Link, held_of
from padiff.refinement._evidence import Evidence
from padiff.refinement._layouts import MOST_ORDERS, laid


def with_layouts_by_value(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Choose each open layout by the values that both sides hold: where nothing is copied, they tell."""

    def values(link: Link) -> tuple[Array, Array]:
        ours, theirs = held_of(link, evidence.reference, evidence.candidate)
        assert ours is not None
        return ours, theirs

    for packed in list(correspondence.packed):
        packing = packed.packing
        sums = {
            choice: sum(difference(*values(link)).rel_l2 for match in packing.matches(choice) for link in match.links)
            for choice in packing.arrangements()
        }
        correspondence = correspondence.arranged(packed, min(sums, key=sums.__getitem__))
    for match in list(correspondence.open):
        chosen, before = match, None
        while chosen is not before:
            before = chosen
            apart = {
                order: sum(difference(*values(link)).rel_l2 for link in order.links if not link.open)
                for order in itertools.chain([chosen], itertools.islice(chosen.orders(), MOST_ORDERS))
            }
            chosen = min(apart, key=apart.__getitem__)
        ways = {}
        for link in (link for link in chosen.links if link.open):
            rest = [way for way in link.ways if not is_suspect(difference(*values(way)), values(way)[1].dtype)]
            if rest and not is_close(*values(link), evidence.rule):
                ways[link] = rest[0]
        correspondence = correspondence.rematched({match: laid(chosen, ways)})
    return correspondence
