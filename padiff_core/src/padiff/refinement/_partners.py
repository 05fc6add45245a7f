"""Settle by replaying whose values each of several parameters has, where nothing but their order spoke.

A matrix that a layer holds in one model may lie loose in the other, beside another one of its shape. The values then
went to the wrong one, and what the code that uses both makes of them differs. Exchanged, it does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs

from padiff.alignment import Pair, in_doubt
from padiff.grouping import grouped
from padiff.parameters import Correspondence, Link, UnitMatch, ways_between
from padiff.refinement._evidence import Evidence
from padiff.refinement._layouts import laid_each_way, uncertain
from padiff.refinement._search import best_of, judging_call

_MOST = 48
"""Exchanges that are tried for one call."""
_LAYOUTS = 24
"""Layouts of others that are tried with the exchange of two that have one; with that of others fewer."""
Place = tuple[int, int]
"""Which of some matches, and which of its links."""


def with_partners_tried(
    matches: Sequence[UnitMatch], correspondence: Correspondence, evidence: Evidence
) -> Correspondence:
    """Exchange two parameters of some matches, those that a call's own code uses, where that makes it right.

    Those whose names say the same beyond doubt stay, and so does what layers hold that are matched call by call: what
    these give is compared by itself.
    """
    choices = [tuple(matches), *itertools.islice(_exchanged(matches), _MOST)]
    if len(choices) == 1:
        return correspondence
    best, right = best_of(correspondence, evidence, matches[:1], choices, evidence.assign, first=True, righter=True)
    if not right:
        evidence.assign(matches)
        return correspondence
    changed = {old: new for old, new in zip(matches, best, strict=True) if old is not new}
    held = {link.candidate.parameter.path for match in matches for link in match.links}
    layouts = {link.candidate.parameter.path: word for link, word in uncertain(best).items()}
    return (correspondence.rematched(changed) if changed else correspondence).settling(layouts, held)


def used_by_own_code(correspondence: Correspondence) -> dict[Pair, list[UnitMatch]]:
    """Return for each call the matches of what its own code uses, where what it gives tells whether they are right."""
    found: dict[Pair, list[UnitMatch]] = {}
    for match in (match for match in correspondence.matches if not match.reference.stack):
        first = next(iter(correspondence.alignment.using(match.candidate.module.path)), None)
        if first is not None and judging_call(correspondence.alignment, first) is first:
            found.setdefault(first, []).append(match)
    return found


def _exchanged(matches: Sequence[UnitMatch]) -> Iterator[tuple[UnitMatch, ...]]:
    """Yield the matches with the partners of two parameters exchanged, in each layout that these may have then.

    Those of few layouts come first, and layouts of others as they are now.
    """
    links = {
        (i, j): link
        for i, match in enumerate(matches)
        for j, link in enumerate(match.links)
        if type(link) is Link and not link.mapped and not link.packed
    }
    open_ones: list[Place] = []
    for places in grouped(links, lambda place: links[place].buffer).values():  # statistics have words of their own
        ours = [matches[i].reference.name_of(links[i, j].reference) for i, j in places]
        theirs = [matches[i].candidate.name_of(links[i, j].candidate) for i, j in places]
        open_ones += [places[n] for n in in_doubt(ours, theirs)]
    found: list[list[tuple[UnitMatch, ...]]] = []
    told = {(i, j): _told_by_kind(matches[i], links[i, j]) for i, j in open_ones}
    for one, other in itertools.combinations(sorted(open_ones), 2):
        if told[one] and told[other] and told[one] != told[other]:
            continue
        crossed = [
            ways_between(links[a].role, links[a].reference, links[b].candidate) for a, b in ((one, other), (other, one))
        ]
        each = (dict(zip((one, other), ways, strict=True)) for ways in itertools.product(*crossed))
        found.append([_with_links(matches, lying) for lying in each])
    for ways, pairs in sorted(grouped(found, len).items()):
        exchanged = [*itertools.chain(*pairs)]
        yield from exchanged
        for some in exchanged:
            yield from itertools.islice(laid_each_way(some), _LAYOUTS // ways)


def _told_by_kind(match: UnitMatch, link: Link) -> tuple[str, str] | None:
    """Return what the layers of both sides say that a parameter is, where they say it: no weight is a bias."""
    kinds = {unit.kind for unit in match.units}
    return (kind, link.role) if len(kinds) == 1 and (kind := next(iter(kinds))) else None


def _with_links(matches: Sequence[UnitMatch], links: dict[Place, Link]) -> tuple[UnitMatch, ...]:
    places = {i for i, _ in links}
    return tuple(
        attrs.evolve(match, links=[links.get((i, j), link) for j, link in enumerate(match.links)])
        if i in places
        else match
        for i, match in enumerate(matches)
    )
