"""Match the parameters of two models: by names or order as a first guess, and by the dataflow of both."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import attrs

from padiff.alignment import Resolved
from padiff.parameters._biases import with_biases
from padiff.parameters._choosing import among_nearest, as_catalogued, as_named, as_numbered, chooser
from padiff.parameters._colours import Pairs, matched_by_colour, preserved
from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._displaced import displaced
from padiff.parameters._graph import Graph, graph_of
from padiff.parameters._homes import homes_of, strays
from padiff.parameters._joined import with_joined, with_last
from padiff.parameters._left_out import with_left_out
from padiff.parameters._mapped import mapped_packings, with_mapped_parameters
from padiff.parameters._matching import indices, match_units, regions_of, same_names, same_order
from padiff.parameters._packers import find_packings, with_norms
from padiff.parameters._packing import Packing
from padiff.parameters._pieces import Match, with_pieces
from padiff.parameters._roles import UnitMatch
from padiff.parameters._roles_packed import as_packed, with_roles_apart, with_tables
from padiff.parameters._splitting import split_where_left_over
from padiff.parameters._stacks import FIRST, INNER, LAST, stacked, stacked_on_both, unstacked
from padiff.parameters._units import HeldUnit, Units
from padiff.parameters._unrun import packed_unrun, with_unmet, without_counterpart
from padiff.parameters._wholes import packings_of_wholes
from padiff.trace import Flow

Groups = list[list[int]]
_DIVIDED: Sequence[Callable[[Correspondence, tuple[Flow, Flow]], tuple[Units, Units] | None]] = (
    split_where_left_over,
    stacked,
    partial(stacked, deepest=2),
    partial(stacked, along=(INNER, FIRST)),
    partial(stacked, along=(LAST, FIRST, INNER)),
    stacked_on_both,
    with_roles_apart,
)
"""How units are taken otherwise where some have no counterpart."""


def named_alike(reference: Units, candidate: Units, fixed: Resolved) -> Correspondence | None:
    """Return the correspondence where names alone give it and no layout is open: a guess, for a run to confirm."""
    return _unambiguous(reference, candidate, None if fixed else same_names(reference, candidate))


def defined_alike(reference: Units, candidate: Units, fixed: Resolved) -> Correspondence | None:
    """Return the correspondence in the order of definition where everything fits so: a guess, for a run to confirm."""
    return _unambiguous(reference, candidate, None if fixed else same_order(reference, candidate))


def matched_unrun(reference: Units, candidate: Units, fixed: Resolved) -> Correspondence:
    """Return the correspondence as names, kinds, shapes and the order of definition have it, where nothing runs."""
    known = named_alike(reference, candidate, fixed)
    if known is not None:
        return known
    mapped = list(mapped_packings(reference, candidate, fixed))
    gone = {unit for packing, _ in mapped for unit in packing.units}
    ours, theirs = ([unit for unit in units if unit not in gone] for units in (reference, candidate))
    packed = [match for packing, how in mapped for match in packing.matches(how or next(packing.arrangements()))]
    matches = packed_unrun(match_units(ours, theirs, fixed), ours, theirs)
    matches = with_mapped_parameters(matches, ours, theirs, fixed)
    return Correspondence(reference, candidate, matches + packed, fixed=fixed)


def _unambiguous(reference: Units, candidate: Units, matches: Sequence[UnitMatch] | None) -> Correspondence | None:
    found = None if matches is None else Correspondence(reference, candidate, matches)
    return None if found is None or found.ambiguous else found


def pair_parameters(
    reference: Units,
    candidate: Units,
    flows: tuple[Flow, Flow],
    fixed: Resolved,
    guess: Correspondence | None = None,
    *,
    by_order: bool = False,
) -> Correspondence:
    """Match units by the dataflow of both models' runs; order, then names, say what symmetries leave.

    What is in no dataflow, or has no place in the other's, is matched by kind, shape, order and name. A ``guess`` is
    kept where it agrees with the dataflow as far as any matching does. Symmetries are left to names and the order of
    definition, ``by_order``, where that is asked for. A module that holds parameters itself is taken for several
    layers, what one side lists for what the other stacks, and a layer that only looked like another one for what packs
    several, where fewer parameters are left over so; what is left over then may be joined in one parameter.
    """

    def filled(found: Correspondence) -> Correspondence:
        return with_biases(with_joined(found, flows), flows)

    def rank(found: Correspondence) -> tuple[int, int, int]:
        """Return how much is left over in the end, how many modules share any, and what layers alone leave over.

        What two blocks hold each stacks no list of two blocks, of which it would take one parameter each.
        """
        full = filled(found)
        return _left_over(full), len({match.modules for match in full.matches if match.links}), _left_over(found)

    def whole(fixed: Resolved, guess: Correspondence | None = None, *, freed: bool = False) -> Correspondence:
        first = found = _paired(reference, candidate, flows, fixed, guess, by_order=by_order, freed=freed)
        for divided in _DIVIDED:
            # What is split may be what stacks others.
            for one in dict.fromkeys((found, first) if all(found.left) else ()):
                sides = divided(one, flows)
                if sides is not None:
                    other = _paired(*sides, flows, fixed, by_order=by_order, freed=freed)
                    packed = as_packed(unstacked(other, one))
                    found = found if packed is None else min(found, packed, key=rank)
        return filled(found)

    def ended(found: Correspondence) -> Correspondence:
        return with_tables(with_last(found, flows), flows)

    found = whole(fixed, guess)
    other = whole(fixed, freed=True) if all(found.left) else found
    found = ended(other if all(map(operator.lt, map(len, other.left), map(len, found.left))) else found)
    if any(found.left):  # what was divided may be a table of what many layers hold
        plain = _paired(reference, candidate, flows, fixed, guess, by_order=by_order, freed=False)
        found = min(found, ended(filled(plain)), key=_left_over)
    homes = homes_of(found)
    if not fixed and strays(found, homes):
        other = attrs.evolve(ended(whole(homes)), fixed=fixed)
        found = min(found, other, key=lambda one: (_left_over(one), strays(one, homes)))
    return with_unmet(found, flows)


def _paired(
    reference: Units,
    candidate: Units,
    flows: tuple[Flow, Flow],
    fixed: Resolved,
    guess: Correspondence | None = None,
    *,
    by_order: bool,
    freed: bool,
) -> Correspondence:
    graphs = _in_order(reference, flows[0]), _in_order(candidate, flows[1])
    ours, theirs = graphs[0].units, graphs[1].units
    choose = chooser(ours, theirs, (reference, candidate) if by_order else (ours, theirs), flows)
    choose = among_nearest(choose, graphs)
    regions = regions_of(ours, theirs, fixed)
    run = {unit for graph in graphs for i, unit in enumerate(graph.units) if graph.is_met(i)}

    def by_flow(packings: Sequence[Packing]) -> tuple[Pairs, frozenset[HeldUnit]]:
        """Match what the dataflow tells; what a packed layer packs stands where that stands."""
        known, both = _packed_in(graphs, packings)
        pairs, left = matched_by_colour(both, regions, choose, known, by_order=by_order)
        found = as_numbered(as_named(pairs, left, ours, theirs), both)
        found = as_catalogued(_nearest(found, known, both, fixed), known, both)
        return {i: j for i, j in found.items() if i not in known}, frozenset(ours[i] for i in left)

    pairs, symmetric = by_flow(())
    if guess is not None:
        known = indices((match.units for match in guess.one_to_one), ours, theirs)
        if preserved(graphs, known) >= preserved(graphs, pairs):
            matches = with_pieces(ours, theirs, guess.one_to_one, matcher(flows, fixed))
            matches = with_mapped_parameters(matches, ours, theirs, fixed)
            return attrs.evolve(guess, matches=matches, symmetric=symmetric)
    mapped = list(mapped_packings(ours, theirs, fixed))
    packings = [packing for packing, arrangement in mapped if arrangement is None]
    arranged = [packing for packing, arrangement in mapped if arrangement]
    settled = [match for packing, arrangement in mapped if arrangement for match in packing.matches(arrangement)]
    if mapped:
        pairs, symmetric = by_flow([*packings, *arranged])

    def completed(
        packings: list[Packing], pairs: Pairs, symmetric: frozenset[HeldUnit], *, freed: bool
    ) -> tuple[tuple[int, int], Correspondence]:
        """Return the correspondence, with what found no counterpart packed; and what of the dataflow contradicts it."""
        while True:
            gone = {unit for packing in (*packings, *arranged) for unit in packing.units}
            mine, yours = ([unit for unit in units if unit not in gone] for units in (ours, theirs))
            still = indices(((ours[i], theirs[j]) for i, j in pairs.items()), mine, yours)
            matches = match_units(mine, yours, fixed, still)
            if left := run & without_counterpart(mine, yours, matches):
                other = _what_ran_first(mine, yours, fixed, still, run)
                matches = other if len(run & without_counterpart(mine, yours, other)) < len(left) else matches
            standing, both = _packed_in(graphs, [*packings, *arranged])
            matches = with_left_out(matches, both, standing, regions[0], run)
            # Units that are only left between the same neighbours say nothing of what is around them.
            fitting = (match.units for match in matches if match.links)
            lacking, known = without_counterpart(mine, yours, matches), indices(fitting, ours, theirs)
            if freed:
                packed_so = find_packings(graphs, lacking, known, gone=gone, freed=True)
                taken = {unit for packing in packed_so for unit in packing.units}
                lacking |= {unit for match in matches if not taken.isdisjoint(match.units) for unit in match.units}
            freed = False
            # What found a counterpart only now may leave others that pack what is left.
            new = find_packings(graphs, lacking, known, gone=gone)
            if not new:
                break
            packings = [*packings, *with_norms(_packings_as_numbered(new, graphs, pairs), graphs, lacking)]
            pairs, symmetric = by_flow([*packings, *arranged])
        packed = [Packed.of(packing) for packing in packings]
        contradicting = _contradicting(graphs, known, [*packings, *arranged])
        matches = with_pieces(mine, yours, matches, matcher(flows, fixed))
        matches += [match for one in packed for match in one.matches] + settled
        matches = with_mapped_parameters(matches, ours, theirs, fixed)
        return contradicting, Correspondence(ours, theirs, matches, packed, fixed, symmetric)

    contradicting, found = completed(packings, pairs, symmetric, freed=freed)
    wholes = packings_of_wholes(graphs, regions, choose) if any(contradicting) and not mapped else []
    wholes = with_norms(_packings_as_numbered(wholes, graphs, pairs), graphs, {*ours, *theirs})
    if not {frozenset(one.units) for one in wholes} <= {frozenset(one.packing.units) for one in found.packed}:
        fewer, other = completed(wholes, *by_flow(wholes), freed=freed)
        # More that is packed has to leave fewer over, or nothing that contradicts it: the dataflow of another library's
        # attention does so all the same.
        left = _left_over(other), _left_over(found)
        asked = len(other.packed) <= len(found.packed) or left[0] < left[1] or (left[0] == left[1] and not fewer[1])
        if asked and fewer[0] < contradicting[0]:
            contradicting, found = fewer, other
    asked = any(contradicting) and not mapped
    while asked:
        asked = False
        for moved in displaced([one.packing for one in found.packed], graphs):
            fewer, other = completed(moved, *by_flow(moved), freed=False)
            if fewer[0] < contradicting[0] and _left_over(other) <= _left_over(found):
                contradicting, found, asked = fewer, other, True
                break
    return found


def _left_over(known: Correspondence) -> int:
    """Return how many parameters of both sides have no counterpart."""
    return sum(map(len, known.left))


def _what_ran_first(mine: Units, yours: Units, fixed: Resolved, still: Pairs, run: set[HeldUnit]) -> list[UnitMatch]:
    """Return the matches of what ran on both sides, then of the rest with what is left: names count for less."""
    met = [unit for unit in mine if unit in run], [unit for unit in yours if unit in run]
    sure = match_units(*met, fixed, indices(((mine[i], yours[j]) for i, j in still.items()), *met))
    return match_units(mine, yours, fixed, indices((one.units for one in sure if one.links), mine, yours))


def _contradicting(graphs: tuple[Graph, Graph], known: Pairs, packings: Sequence[Packing]) -> tuple[int, int]:
    """Return how many ways between units one side alone has under a matching; and how many between matched ones."""
    packed, both = _packed_in(graphs, packings)
    pairs = {**known, **packed}
    left = [{*graph.own} - {*matched} for graph, matched in zip(both, (pairs, pairs.values()), strict=True)]
    ways = [[{*way[:2]} & some for way in graph.edges] for graph, some in zip(both, left, strict=True)]
    kept = 2 * preserved(both, pairs)[0]
    return sum(map(len, ways)) - kept, sum(map(operator.not_, itertools.chain(*ways))) - kept


def _nearest(pairs: Pairs, known: Pairs, graphs: tuple[Graph, Graph], fixed: Resolved) -> Pairs:
    """Return the pairs, or where the models differ those in the order of the runs, if more of the dataflow fits so.

    Where one model leaves out a block, colours tell of the others only how far each is from it; and where it leaves out
    a residual connection, what takes another block's output may look like what takes this one's.
    """
    matched = pairs.keys(), set(pairs.values())
    if all(graph.is_met(i) <= (i in some) for graph, some in zip(graphs, matched, strict=True) for i in graph.own):
        edges = [len([*graph.edges]) for graph in graphs]
        if edges == [preserved(graphs, pairs)[0]] * 2:
            return pairs
    (ours, mine), (theirs, yours) = ((graph.own, [graph.units[i] for i in graph.own]) for graph in graphs)

    def filled(sure: Pairs) -> Pairs:
        found = match_units(mine, yours, fixed, {ours.index(i): theirs.index(j) for i, j in sure.items()})
        return {ours[mine.index(one.reference)]: theirs[yours.index(one.candidate)] for one in found if one.links}

    in_order = filled(known)
    return in_order if preserved(graphs, in_order) > preserved(graphs, filled(pairs)) else pairs


def _packed_in(graphs: tuple[Graph, Graph], packings: Sequence[Packing]) -> tuple[Pairs, tuple[Graph, Graph]]:
    """Return which unit stands for a packed one, and the graphs in which those that it packs are one node."""
    known, groups = _packed(packings, graphs[0].units, graphs[1].units)
    return known, (graphs[0].joined(groups[0]), graphs[1].joined(groups[1])) if packings else graphs


def _packed(packings: Sequence[Packing], ours: Units, theirs: Units) -> tuple[Pairs, tuple[Groups, Groups]]:
    """Return which unit stands for a packed one, and the units that stand together on both sides."""
    places = [{unit: i for i, unit in enumerate(units)} for units in (ours, theirs)]
    known: Pairs = {}
    groups: tuple[Groups, Groups] = ([], [])
    for packing in packings:
        mine, yours = places if packing.ours else places[::-1]
        for unit, parts in ((packing.packed, packing.members), *packing.behind):
            packed, members = mine[unit], [yours[part] for part in parts]
            known.update([(packed, members[0]) if packing.ours else (members[0], packed)])
            groups[packing.ours].append(members)
        if len(packing.together) > 1:
            groups[not packing.ours].append([mine[unit] for unit in packing.together])
    return known, groups


def _packings_as_numbered(found: list[Packing], graphs: tuple[Graph, Graph], pairs: Pairs) -> list[Packing]:
    """Return packings with the numbers of repeated layers taken at their word, as `as_numbered` does."""
    known, _ = _packed(found, graphs[0].units, graphs[1].units)
    numbered = as_numbered({**pairs, **known}, graphs)
    standing = {j: place for place, j in enumerate(known.values())}
    places = [standing.get(numbered[i], -1) for i in known]
    if sorted(places) != [*range(len(found))] or any(
        found[k].ours != one.ours for one, k in zip(found, places, strict=True)
    ):
        return found
    both = ((one, found[k]) if one.ours else (found[k], one) for one, k in zip(found, places, strict=True))
    exchanged = [attrs.evolve(packed, members=holder.members) for packed, holder in both]
    return exchanged if all(one.fits for one in exchanged) else found


def matcher(flows: tuple[Flow, Flow], fixed: Resolved) -> Match:
    """Return what matches units by their dataflow, where it is sure of some."""

    def match(
        some: Units, others: Units, whole: Mapping[HeldUnit, HeldUnit], homes: Mapping[HeldUnit, UnitMatch]
    ) -> dict[HeldUnit, HeldUnit]:
        sides = _in_order(some, flows[0]), _in_order(others, flows[1])
        a, b = sides[0].units, sides[1].units
        known = indices(whole.items(), a, b)
        everywhere = regions_of(a, b, fixed)
        # What is whole in one match stays there, unless more of the dataflow fits otherwise.
        at_home = _at_home(a, everywhere[0], homes), _at_home(b, everywhere[1], homes)
        choose = chooser(a, b, (a, b), flows)
        ways = [
            matched_by_colour(sides, regions, choose, known)[0]
            for regions in ([at_home, everywhere] if homes else [everywhere])
        ]
        found = max(ways, key=lambda pairs: preserved(sides, pairs))
        return {a[i]: b[j] for i, j in found.items()}

    return match


def _at_home(units: Units, regions: Sequence[int | None], homes: Mapping[HeldUnit, UnitMatch]) -> Sequence[Hashable]:
    return [(region, homes.get(unit)) for unit, region in zip(units, regions, strict=True)]


def _in_order(units: Units, flow: Flow) -> Graph:
    """Return the graph of units as the run met them, what it never met behind the one before; and it with joints."""
    order = list(graph_of(units, flow).order)
    for i, rank in enumerate(order):
        if rank == len(units):
            order[i] = order[i - 1] if i else -1
    units = [units[i] for i in sorted(range(len(units)), key=order.__getitem__)]
    return attrs.evolve(graph_of(units, flow), jointed=graph_of(units, flow, joints=True))
