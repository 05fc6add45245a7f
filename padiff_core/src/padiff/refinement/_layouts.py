"""Choose the layouts that names and shapes leave open: which way a matrix lies, how a layer packs others."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any

import attrs
import numpy as np

from padiff.grouping import grouped
from padiff.numerics import Array
from padiff.parameters import Arrangement, Correspondence, Link, Packing, UnitMatch, as_contracted, canonical, not_seen
from padiff.refinement._axes import aligned
from padiff.refinement._evidence import Evidence
from padiff.refinement._search import best_of, judging_call

_MOST_LAYOUTS = 24
_MOST_ARRANGEMENTS = 64
MOST_ORDERS = 48
"""Orders that are tried of parameters in one module: all of four, for all groups together and each alone."""
_ROUNDS = 6
"""How often what lies in one call is gone through, part by part: one that is right now may show the next."""
_FAILURES = 2
"""Repeated layers that no way makes right, behind which others are not tried in all ways any more."""
_NEARER = 2**-0.5
"""How much nearer an order of layers is than a likelier one if that is no chance, where a fault makes all wrong."""
_REPEATED = attrgetter("repeated")
_ALIKE = 2
"""Layouts that are tried with each of these orders: all matrices straight, or all transposed."""


def with_layouts(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Choose each open layout so that its module reproduces the reference, and give the candidate its parameters so.

    Replays the candidate's module on the reference's inputs, once for each layout; in evaluation mode where none is
    right and the reference draws random numbers. A module that is never called, or that no layout makes right, keeps
    the reference's orientation and is listed as undecided.
    """
    if not correspondence.ambiguous:
        return correspondence
    correspondence = _apart(aligned(_as_used(correspondence, evidence), evidence))
    chosen: dict[Packing, Arrangement] = {}
    guessed: dict[Packing, Arrangement] = {}
    tried: dict[frozenset[Packing], Mapping[Packing, Arrangement]] = {}
    for groups in _judged_alike(correspondence):
        left = [some for some in groups if some[0] not in chosen]
        own = frozenset(itertools.chain(*left))
        beside = {one: way for one, way in {**guessed, **chosen}.items() if one not in own}
        if left and tried.get(own) != beside:  # else it would give what it gave
            tried[own] = beside
            correspondence = _arranged(correspondence, left, evidence, chosen, guessed)
    correspondence = _as_most(correspondence, chosen, guessed, evidence)
    known = {link.candidate.parameter.path: link for _, link in correspondence.links if link.single and not link.open}
    for group in _judged_together(correspondence):
        correspondence = _oriented(correspondence, group, known, evidence)
    return correspondence


def _as_used(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with square matrices as both sides' code uses them, and give them to the candidate.

    Of a candidate that held zeros nothing was seen: it runs once more, with what it was given.
    """
    ours, theirs = evidence.flows()
    used = as_contracted(correspondence, (ours, theirs))
    if not_seen(used, (ours, theirs)):
        used = as_contracted(used, (ours, evidence.candidate.flow(evidence.task)))
    told = _open_paths(correspondence) - _open_paths(used)
    if told:
        evidence.give(used)
    return used.settling(
        {x.candidate.parameter.path: x.layout for _, x in used.links if x.candidate.parameter.path in told}
    )


def _open_paths(correspondence: Correspondence) -> set[str]:
    return {link.candidate.parameter.path for _, link in correspondence.links if link.open}


def _apart(correspondence: Correspondence) -> Correspondence:
    """Return the correspondence without the calls of layers that pack others together: which is which is tried yet."""
    matches = {m.modules for one in correspondence.packed if len(one.packing.stripes[0]) > 1 for m in one.matches}
    paths = {(pair.reference, pair.candidate) for pair in matches}
    alignment = correspondence.alignment
    dropped = [pair for pair in alignment.pairs if (pair.reference.path, pair.candidate.path) in paths]
    return attrs.evolve(correspondence, calls=alignment.without(dropped))


def _judged_together(correspondence: Correspondence) -> list[list[UnitMatch]]:
    """Return the open matches, those together of which the same call tells whether they are right."""
    return list(grouped(correspondence.open, lambda match: _judge_of(correspondence, match)).values())


def _judge_of(correspondence: Correspondence, match: UnitMatch) -> object:
    """Return what tells the call that says whether a match is right."""
    users = correspondence.alignment.using(match.candidate.module.path)
    return judging_call(correspondence.alignment, users[0]).key if users else match


def _as_most(
    correspondence: Correspondence,
    chosen: Mapping[Packing, Arrangement],
    guessed: Mapping[Packing, Arrangement],
    evidence: Evidence,
) -> Correspondence:
    """Let repeated layers pack alike, as most of them do: another order in one of them is a fault of the code there.

    Whoever loads weights converts all of them in one way. Where a fault in each of them lets none be right, most tell.
    """
    for group in grouped((one.packing for one in correspondence.packed), _REPEATED).values():
        known = chosen if any(packing in chosen for packing in group) else guessed
        counts = Counter(known[packing] for packing in group if packing in known)
        usual = max((way for way in group[0].arrangements() if way in counts), key=counts.__getitem__, default=None)
        for packed in [one for one in correspondence.packed if one.packing in group]:
            if usual is not None and known.get(packed.packing) != usual:
                correspondence = correspondence.arranged(packed, usual)
                if known is chosen:
                    correspondence = correspondence.settling({packed.packing.packed.path: packed.packing.named(usual)})
                evidence.assign((*packed.packing.matches(usual), *correspondence.beside([packed])))
    return correspondence


def _judged_alike(correspondence: Correspondence) -> Iterator[list[list[Packing]]]:
    """Yield the packings of which one call tells, those of repeated layers together: they are tried alike.

    Few ways are tried all at once. Of more those come first that may lie in the same ways, all alike (a recurrent
    module's layers), then each by itself, and once more: one of them (a cell's two maps) is right once those beside it
    are.
    """
    judged = grouped(correspondence.packed, lambda one: _judge_of(correspondence, one.matches[0]))
    for found in judged.values():
        groups = list(grouped((one.packing for one in found), _REPEATED).values())
        if math.prod(len(_ways_of(some[0])) for some in groups) <= _MOST_ARRANGEMENTS:
            yield groups
        else:
            alike = [*grouped(groups, lambda some: tuple(_ways_of(some[0]))).values()]
            yield from ([[*itertools.chain(*some)]] for some in alike if len(some) > 1)
            yield from ([some] for some in (*groups, *groups[: len(groups) if len(groups) > 1 else 0]))


def _ways_of(packing: Packing) -> list[Arrangement]:
    return list(itertools.islice(packing.arrangements(), _MOST_ARRANGEMENTS))


def _arranged(
    correspondence: Correspondence,
    groups: Sequence[Sequence[Packing]],
    evidence: Evidence,
    chosen: dict[Packing, Arrangement],
    guessed: dict[Packing, Arrangement],
) -> Correspondence:
    """Choose how packed layers, each group alike, hold what they pack; the first way that none outdoes ends the search.

    Those of other layers come first, and need no more: nearly even attention is right in several, but for what float64
    shows. What else is open is tried each way with each of them, where the same call tells whether it is right. Of more
    ways than are tried those follow in which two members of the nearest change places. What was ``chosen`` for sure is
    noted, and what was ``guessed``: the nearest way of layers of which none was right. Where that befell some repeated
    layers, the code that they share is wrong: others are tried in the ways that are known.
    """
    packings = [*itertools.chain(*groups)]
    packed = [one for one in correspondence.packed if one.packing in packings]
    judge, own = _judge_of(correspondence, packed[0].matches[0]), {m for one in packed for m in one.matches}
    beside = [m for m in correspondence.open if m not in own and _judge_of(correspondence, m) == judge]
    laid, usual = list(itertools.islice(laid_each_way(beside), _ALIKE)) or [()], set(chosen.values())
    earlier = [
        [way for one, way in guessed.items() if one not in packings and one.repeated == some[0].repeated]
        for some in groups
    ]
    given_up = all(len(nearest) >= _FAILURES * len(some) for nearest, some in zip(earlier, groups, strict=True))
    each = [sorted(_ways_of(some[0]), key=lambda way: way not in usual) for some in groups]
    if given_up:
        each = [[way for way in some if way in (*usual, *near)] for some, near in zip(each, earlier, strict=True)]
    ways = sorted(itertools.product(*each), key=lambda some: not usual.issuperset(some))

    def varied(tried: Sequence[tuple[Sequence[Arrangement], Sequence[UnitMatch]]]) -> bool:
        orders = [[some[place].order for some, _ in tried] for place in range(len(groups))]
        return all(len({order.index(i) for order in found}) > 1 for found in orders for i in range(len(found[0])))

    def put(choice: tuple[Sequence[Arrangement], Sequence[UnitMatch]]) -> None:
        lie = zip(groups, choice[0], strict=True)
        laid = (m for some, way in lie for one in some for m in one.matches(way))
        evidence.assign((*laid, *choice[1], *correspondence.beside(packed)))

    layers = all(one.layers for one in packings)
    told = [m for one in packed for m in one.matches[: 1 if one.packing.layers else None]]
    choices = list(itertools.product(ways, laid))
    last = len([choice for choice in choices if usual.issuperset(choice[0])])
    many = max(map(len, each)) >= _MOST_ARRANGEMENTS
    nearer = 0.0 if any(one.wanting for one in packings) else _NEARER if layers and not many else 1.0
    how: dict[str, Any] = {"known": last, "varied": varied, "nearer": nearer}
    handed = [m for one in packed for m in one.matches]
    (best, _), right = best_of(correspondence, evidence, told, choices, put, first=True, handed=handed, **how)
    more = many or any(one.rows for one in packings)
    for _ in range(_ROUNDS if more and not (right or given_up) else 0):
        before, nearby = best, [some[0].exchanges(way) for some, way in zip(groups, best, strict=True)]
        others = [(*best[:i], way, *best[i + 1 :]) for i, found in enumerate(nearby) for way in found]
        choices = [(some, laid[0]) for some in (best, *others)]
        (best, _), right = best_of(correspondence, evidence, told, choices, put, first=True, handed=handed)
        if right or best == before:
            break
    if not (right or layers or given_up):
        orders = (order for group in _groups(beside) for order in _orders(beside, group))
        turned = [next(laid_each_way(order)) for order in itertools.islice(orders, _MOST_LAYOUTS)]
        choices = [(best, laid[0]), *itertools.islice(itertools.product(ways, turned), _MOST_ARRANGEMENTS)]
        (best, _), right = best_of(correspondence, evidence, told, choices, put, first=True, handed=handed)
    lie = {packing: way for some, way in zip(groups, best, strict=True) for packing in some}
    for one in packed:
        correspondence = correspondence.arranged(one, lie[one.packing])
    held = [link.candidate.parameter.path for one in packed for match in one.matches for link in match.links]
    if not right:
        guessed.update(lie)
        return correspondence.leaving_open(held)
    chosen.update(lie)
    return correspondence.settling({one.packed.path: one.named(way) for one, way in lie.items()}, held)


def _oriented(
    correspondence: Correspondence, matches: Sequence[UnitMatch], known: Mapping[str, Link], evidence: Evidence
) -> Correspondence:
    """Choose which way the open links of some matches lie, and which parameter is which, of which one call tells.

    Parameters that neither names nor shapes tell apart are taken in their order first, and in others where none of
    the ways is right then. Where none is at all, the likeliest stands, unless another one is much nearer.
    """
    shared = {
        x: _as_shared(x, known.get(x.candidate.parameter.path)) for match in matches for x in match.links if x.open
    }
    ways = {link: way for link, way in shared.items() if way is not None}
    now = likeliest = tuple(laid(match, ways) for match in matches)
    told = frozenset(ways.values())
    choices = list(itertools.islice(laid_each_way(now, told), _MOST_LAYOUTS))
    if len(choices) > 1 or any(match.unnamed for match in now):
        now, right = best_of(correspondence, evidence, matches[:1], choices, evidence.assign)
        for _ in range(0 if right else _ROUNDS):
            before = now
            for group in _groups(now):
                others = [now, *_others(now, group, told)]
                now, right = best_of(correspondence, evidence, matches[:1], others, evidence.assign, first=True)
                if right:
                    break
            if right or now is before:
                break
        if not right:
            both = (likeliest, now)
            now, _ = best_of(correspondence, evidence, matches[:1], both, evidence.assign, nearer=_NEARER)
        layouts = {link.candidate.parameter.path: word for link, word in uncertain(now).items() if link not in told}
        correspondence = correspondence.settling(layouts) if right else correspondence.leaving_open(layouts)
    return correspondence.rematched(dict(zip(matches, now, strict=True)))


def _groups(matches: Sequence[UnitMatch]) -> list[list[int]]:
    """Return the places of the matches whose parameters lie alike, and in one order: what one stack holds, or each."""

    def together(place: int) -> object:
        stacks = frozenset(stack for stack in map(_stack_of, matches[place].links) if stack is not None)
        return stacks or matches[place]

    return list(grouped(range(len(matches)), together).values())


def _orders(matches: Sequence[UnitMatch], group: Sequence[int]) -> Iterator[tuple[UnitMatch, ...]]:
    """Yield the matches with the parameters of some of them in another order."""
    for orders in zip(*(matches[place].orders() for place in group), strict=True):
        turned = dict(zip(group, orders, strict=True))
        yield tuple(turned.get(place, match) for place, match in enumerate(matches))


def _others(matches: Sequence[UnitMatch], group: Sequence[int], told: Set[Link]) -> Iterator[tuple[UnitMatch, ...]]:
    """Yield the matches with those of a group in other orders and layouts, the others as they are."""
    for ordered in itertools.islice(itertools.chain([tuple(matches)], _orders(matches, group)), MOST_ORDERS):
        yield ordered
        turns = any(link.open and link not in told for place in group for link in ordered[place].links)
        for ways in itertools.islice(laid_each_way([ordered[place] for place in group], told), turns * _ALIKE):
            laid = dict(zip(group, ways, strict=True))
            yield tuple(laid.get(place, match) for place, match in enumerate(ordered))


def _stack_of(link: Link) -> str | None:
    """Return the path of the parameter that stacks what a link holds, if one does."""
    return next((x.parameter.path for x in (link.reference, link.candidate) if x.part.at is not None), None)


def uncertain(matches: Sequence[UnitMatch]) -> dict[Link, str]:
    """Return the links that lie in one of several ways, or have one of several partners: in which way, or whose."""
    unnamed = {link for match in matches for group in match.unnamed for link in group}
    whose = {link: f"the reference's {link.role}{', transposed' * link.transposed}" for link in unnamed}
    links = [link for match in matches for link in match.links if link.open or link in unnamed]
    return {link: whose.get(link, link.layout) for link in links}


def laid_each_way(matches: Sequence[UnitMatch], told: Set[Link] = frozenset()) -> Iterator[tuple[UnitMatch, ...]]:
    """Yield the matches with their open links in each way, but for those that are told; a stack's lie alike."""
    links = (link for match in matches for link in match.links if link.open and link not in told)
    groups = grouped(links, lambda link: _stack_of(link) or link)
    for chosen in _ways([group[0] for group in groups.values()]):
        ways = {
            link: attrs.evolve(link, axes=way.axes)
            for group, way in zip(groups.values(), chosen, strict=True)
            for link in group
        }
        yield tuple(laid(match, ways) for match in matches)


def _ways(links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    """Yield the ways in which some links may lie: first those in which all lie alike, then all but one."""
    ways = [link.ways for link in links]
    most = max(map(len, ways), default=0)
    alike = [tuple(min(way, len(some) - 1) for some in ways) for way in range(most)]
    single = (
        (*one[:place], way, *one[place + 1 :])
        for one in alike
        for place, some in enumerate(ways)
        for way in range(len(some))
    )
    every = itertools.product(*(range(len(some)) for some in ways))
    seen: set[tuple[int, ...]] = set()
    for places in itertools.chain(alike, single, every):
        if places not in seen:
            seen.add(places)
            yield tuple(some[place] for some, place in zip(ways, places, strict=True))


def laid(match: UnitMatch, ways: Mapping[Link, Link]) -> UnitMatch:
    """Return a match with some of its links lying in given ways."""
    return attrs.evolve(match, links=[ways.get(link, link) for link in match.links])


def _as_shared(link: Link, other: Link | None) -> Link | None:
    """Return an open link in the layout that another link of the same two parameters tells, if one does."""
    if other is None or other.reference.parameter.path != link.reference.parameter.path:
        return None
    numbers = np.arange(np.prod(link.reference.parameter.shape)).reshape(link.reference.parameter.shape)
    expected = placed(other, numbers)
    return next((way for way in link.ways if np.array_equal(placed(way, numbers), expected)), None)


def placed(link: Link, values: Array) -> Array:
    """Return what the candidate's parameter holds where the reference's holds these values."""
    native = np.full(link.candidate.parameter.shape, -1)
    link.candidate.part.write(native, link.to_candidate(canonical(link.reference, values)))
    return native
