"""Tell which unit is which from its place in the dataflow: colour refinement after Weisfeiler and Leman.

Every unit is coloured by what it is; then, round by round, by the colours of those that it takes values of and gives
values to. A colour that one unit alone has on both sides matches these two. Where the models differ somewhere every
colour is spoilt within as many units of it as there were rounds: so few rounds serve where many do not match, what is
matched keeps its colour from then on, and all is refined again from there. What is left are symmetries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from padiff.parameters._graph import ENDS, Graph, Labels
from padiff.parameters._roles import flat, is_product, link_roles
from padiff.parameters._units import HeldUnit
from padiff.trace import settings_of

_ROUNDS = (40, 8, 5, 3, 2, 1, 0)
Chooser = Callable[[int, Sequence[int], Sequence[int]], int]
"""Takes a unit of the reference, those like it, and those of the candidate: returns which of these it is."""
Pairs = dict[int, int]


def _exactly(unit: HeldUnit) -> Hashable:
    return unit.kind, tuple(sorted((role, held.shape) for role, held in unit.roles.items()))


def _barely(unit: HeldUnit) -> Hashable:
    return tuple(sorted(_shapes(unit)))


def _mainly(unit: HeldUnit) -> Hashable:
    return max(_shapes(unit))


def _shapes(unit: HeldUnit) -> list[tuple[int, ...]]:
    product = is_product(unit)
    return [_bare(flat(held.shape) if product else held.shape) for held in unit.roles.values()]


def _bare(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(extent for extent in shape if extent != 1))


def _nothing(labels: Labels) -> Labels | None:
    return None


def _everything(labels: Labels) -> Labels:
    return labels


def _unset(unit: HeldUnit) -> Hashable:
    return None


def _set(unit: HeldUnit) -> Hashable:
    return unit.name, repr(sorted(settings_of(unit).items()))


@attrs.frozen
class _View:
    """Say what is seen of units, and of the ways between them."""

    unit: Callable[[HeldUnit], Hashable]
    ways: Callable[[Labels], Labels | None]
    settings: Callable[[HeldUnit], Hashable]
    joints: bool = False
    """Whether operations that bring values together are seen."""
    behind: bool = True
    """Whether what a unit takes values of is seen."""
    ahead: bool = True
    """Whether what takes its values is."""


_WAYS: tuple[tuple[Any, ...], ...] = (
    (_nothing, _unset),
    (_everything, _unset),
    (_everything, _unset, True),
    (_everything, _set, True),
)
_UNITS = (_exactly, _barely, _mainly)
_VIEWS = [_View(unit, *more) for unit in _UNITS for more in _WAYS]
"""The views in the order in which they are believed: what is seen in all ports of a model comes first."""
_PLAIN = [view for view in _VIEWS if view.ways is _nothing]
_HALVES = [attrs.evolve(view, behind=behind, ahead=not behind) for view in _PLAIN for behind in (False, True)]
"""The views from one end alone: the other one is spoilt where the models differ on the way from there."""


def matched_by_colour(
    graphs: tuple[Graph, Graph],
    joined: tuple[Graph, Graph],
    regions: tuple[Sequence[Hashable], Sequence[Hashable]],
    choose: Chooser,
    known: Pairs | None = None,
    *,
    by_order: bool = False,
) -> tuple[Pairs, Mapping[int, int]]:
    """Return which unit of the candidate each unit of the reference is, as far as the dataflow tells; and symmetries.

    ``joined`` are the graphs with their joints. Units of two ``regions`` never belong together. Among units that
    nothing tells apart ``choose`` picks one; what follows from that is refined before it picks again. Symmetries are
    the units of the reference that only the operations around them, or ``choose``, tell from others, by colour: those
    of one colour may stand for each other; ``by_order`` leaves all of them to ``choose``: a sum of experts may be
    written in any order. What is ``known`` already stays.
    """
    matching = _Matching((graphs, joined), regions, choose, known or {}, _PLAIN if by_order else _VIEWS)
    return matching.pairs(), matching.symmetric


class _Matching:
    def __init__(
        self,
        both: tuple[tuple[Graph, Graph], tuple[Graph, Graph]],
        regions: tuple[Sequence[Hashable], Sequence[Hashable]],
        choose: Chooser,
        known: Pairs,
        views: Sequence[_View],
    ) -> None:
        self._both, self._regions, self._choose, self._views = both, regions, choose, views
        self._graphs = graphs = both[0]
        self._pairs: Pairs = dict(known)
        self.symmetric: Mapping[int, int] = {}
        self._bases = {view.unit: [list(map(view.unit, graph.units)) for graph in graphs] for view in _VIEWS}
        self._settings = {view.settings: [list(map(view.settings, graph.units)) for graph in graphs] for view in _VIEWS}
        self._ways = {
            (view.ways, view.joints): [
                [[(node, view.ways(labels)) for node, labels in found.items()] for found in side]
                for graph in both[view.joints]
                for side in (graph.takes, graph.gives)
            ]
            for view in _VIEWS
        }
        self._fits: dict[tuple[Hashable, ...], bool] = {}

    def pairs(self) -> Pairs:
        while self._sees_the_unique(_PLAIN):
            pass
        colours, _ = self._coloured(_PLAIN[0])[-1]
        left = range(len(self._graphs[0].units))
        self.symmetric = {unit: colours[unit] for unit in left if unit not in self._pairs}
        while self._sees_the_unique(self._views) or self._sees_from_one_end() or self._breaks_symmetries():
            pass
        return self._pairs

    def _sees_the_unique(self, views: Sequence[_View]) -> bool:
        for classes in self._levels(views):
            found = [(ours[0], theirs[0]) for ours, theirs in classes if len(ours) == len(theirs) == 1]
            if self._take(found):
                return True
        return False

    def _sees_from_one_end(self) -> bool:
        """Match the unique of one end, but for products: a packed one has other neighbours than its members."""
        for classes in self._levels(_HALVES):
            found = [(ours[0], theirs[0]) for ours, theirs in classes if len(ours) == len(theirs) == 1]
            if self._take([both for both in found if not is_product(self._graphs[0].units[both[0]])]):
                return True
        return False

    def _levels(self, views: Sequence[_View]) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yield the units of each colour that both sides have: seen from afar first, in each of the views."""
        seen: dict[_View, list[list[tuple[list[int], list[int]]]]] = {}
        for level in range(len(_ROUNDS)):
            for view in views:
                if view not in seen:
                    seen[view] = list(self._rounds(view))
                yield seen[view][level]

    def _take(self, found: Sequence[tuple[int, int]]) -> bool:
        fit = [(i, j) for i, j in found if self._fit(i, j)]
        self._pairs.update(fit)
        return bool(fit)

    def _fit(self, i: int, j: int) -> bool:
        ours, theirs = self._graphs[0].units[i], self._graphs[1].units[j]
        if ours.special is not None or theirs.special is not None:
            return ours.special is theirs.special
        key = tuple((_exactly(unit), len(unit.stack), unit.module.class_name) for unit in (ours, theirs))
        if key not in self._fits:
            self._fits[key] = link_roles(ours, theirs)[0] > 0
        return self._fits[key]

    def _breaks_symmetries(self) -> bool:
        """Pick partners for one unit of each part of the graph that is not matched yet: what follows is refined."""
        parts = self._parts()
        closest = [view for unit in _UNITS for view in self._views[::-1] if view.unit is unit]
        for classes in self._levels(closest):
            found, done = [], set()
            for ours, theirs in sorted(classes, key=lambda pair: self._graphs[0].order[pair[0][0]]):
                if len(ours) != len(theirs):
                    continue
                mine, yours = list(ours), list(theirs)
                for unit in ours:
                    if parts[unit] not in done:
                        done.add(parts[unit])
                        partner = self._choose(unit, mine, yours)
                        mine.remove(unit)
                        yours.remove(partner)
                        found.append((unit, partner))
            if self._take(found):
                return True
        return False

    def _parts(self) -> list[int]:
        """Return the part of the reference that each unit is in, matched ones standing between the parts."""
        graph = self._graphs[0]
        count = len(graph.units)
        parts = list(range(count))

        def top(node: int) -> int:
            while parts[node] != node:
                parts[node] = parts[parts[node]]
                node = parts[node]
            return node

        for source, node, _ in graph.edges:
            if source < count and node < count and source not in self._pairs and node not in self._pairs:
                parts[top(source)] = top(node)
        return [top(node) for node in range(count)]

    def _rounds(self, view: _View) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yield, for more rounds first, the units of each colour that both sides have."""
        seen, fixed = self._coloured(view), self._fixed
        for rounds in _ROUNDS:
            yield self._classes(seen[min(rounds, len(seen) - 1)], fixed)

    @property
    def _fixed(self) -> tuple[dict[int, int], dict[int, int]]:
        return {i: n for n, i in enumerate(self._pairs)}, {j: n for n, j in enumerate(self._pairs.values())}

    def _coloured(self, view: _View) -> list[list[list[int]]]:
        """Return the colours of both sides' nodes after each round, until they are stable."""
        known: dict[Hashable, int] = {}
        fixed = self._fixed
        colours: list[list[int]] = []
        for side, graph in enumerate(self._both[view.joints]):
            base = self._bases[view.unit][side]
            settings = self._settings[view.settings][side]
            regions = self._regions[side]
            first: list[Hashable] = [
                ("fixed", fixed[side][i]) if i in fixed[side] else (base[i], settings[i], regions[i])
                for i in range(len(graph.units))
            ]
            first += [("end", end) for end in range(ENDS)]
            first += [("joint", name) for name in graph.joints]
            colours.append([known.setdefault(colour, len(known)) for colour in first])
        seen = [colours]
        for _ in range(_ROUNDS[0]):
            after = [self._refined(side, colours[side], fixed[side], known, view) for side in (0, 1)]
            settled = all(len(set(now)) == len(set(then)) for now, then in zip(after, colours, strict=True))
            colours = after
            seen.append(colours)
            if settled:
                break
        return seen

    def _refined(
        self, side: int, colours: Sequence[int], fixed: dict[int, int], known: dict[Hashable, int], view: _View
    ) -> list[int]:
        count = len(self._graphs[side].units)
        takes, gives = self._ways[view.ways, view.joints][2 * side : 2 * side + 2]
        found = list(colours)
        for node in range(len(colours)):
            if node in fixed or count <= node < count + ENDS or not self._graphs[side].is_met(node):
                continue
            near = tuple(
                tuple(sorted((colours[other], hash(way)) for other, way in ways)) if seen else ()
                for ways, seen in ((takes[node], view.behind), (gives[node], view.ahead))
            )
            found[node] = known.setdefault((colours[node], near), len(known))
        return found

    def _classes(
        self, colours: Sequence[Sequence[int]], fixed: tuple[dict[int, int], dict[int, int]]
    ) -> list[tuple[list[int], list[int]]]:
        found: dict[int, tuple[list[int], list[int]]] = {}
        for side, graph in enumerate(self._graphs):
            for node in sorted(range(len(graph.units)), key=graph.order.__getitem__):
                if node not in fixed[side] and graph.is_met(node):
                    found.setdefault(colours[side][node], ([], []))[side].append(node)
        return [both for both in found.values() if both[0] and both[1]]


def preserved(graphs: tuple[Graph, Graph], joined: tuple[Graph, Graph], pairs: Pairs) -> tuple[int, int, int]:
    """Return how many ways between units both sides have under a matching, through the same operations, and joints."""
    reference, candidate = graphs
    ends = (len(reference.units), len(candidate.units))
    partner = {**pairs, **{ends[0] + end: ends[1] + end for end in range(ENDS)}}
    kept = alike = 0
    for source, node, labels in reference.edges:
        if source in partner and node in partner:
            other = candidate.takes[partner[node]].get(partner[source])
            kept += other is not None
            alike += other is not None and other == labels
    known: dict[Hashable, int] = {}
    ours = _joints(joined[0], {i: n for n, i in enumerate(partner)}, known)
    theirs = _joints(joined[1], {j: n for n, j in enumerate(partner.values())}, known)
    return kept, alike, sum((ours & theirs).values())


def _joints(graph: Graph, numbers: Mapping[int, int], known: dict[Hashable, int]) -> Counter[int]:
    """Count what joints bring together, each told by its operation and what it takes."""
    first = len(graph.units) + ENDS
    told = dict(numbers)
    for node, name in enumerate(graph.joints, first):
        taken = frozenset((told.get(source, -1), labels) for source, labels in graph.takes[node].items())
        told[node] = len(numbers) + known.setdefault((name, taken), len(known))
    return Counter(told[node] for node in range(first, len(graph.takes)))
