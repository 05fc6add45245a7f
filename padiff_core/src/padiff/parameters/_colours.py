"""Tell which unit is which from its place in the dataflow: colour refinement after Weisfeiler and Leman.

Every unit is coloured by what it is; then, round by round, by the colours of those that it takes values of and gives
values to. A colour that one unit alone has on both sides matches these two. Where the models differ somewhere every
colour is spoilt within as many units of it as there were rounds: so few rounds serve where many do not match, what is
matched keeps its colour from then on, and all is refined again from there. What is left are symmetries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice

import attrs

from padiff.parameters._graph import ENDS, Graph, Labels
from padiff.parameters._refining import Neighbours, refined
from padiff.parameters._roles import flat, is_product, link_roles
from padiff.parameters._shapes import bare
from padiff.parameters._units import HeldUnit
from padiff.trace import settings_of

_ROUNDS = (40, 8, 5, 3, 2, 1, 0)
Pairs = dict[int, int]
Chooser = Callable[[int, Sequence[int], Sequence[int], Pairs], int]
"""Takes a unit of the reference, those like it, those of the candidate, and what is paired: returns which it is."""
Classes = list[tuple[list[int], list[int]]]
"""The units of each colour that both sides have."""


def _exactly(unit: HeldUnit) -> Hashable:
    return unit.kind, tuple(sorted((role, held.shape) for role, held in unit.roles.items()))


def _barely(unit: HeldUnit) -> Hashable:
    return tuple(sorted(_shapes(unit)))


def _mainly(unit: HeldUnit) -> Hashable:
    """Return how many numbers its largest role holds: axes may be split, as in a projection to heads."""
    return max(map(math.prod, _shapes(unit)))


def _shapes(unit: HeldUnit) -> list[tuple[int, ...]]:
    product = is_product(unit)
    return [tuple(sorted(bare(flat(held.shape) if product else held.shape))) for held in unit.roles.values()]


@attrs.frozen
class _View:
    """Say what is seen of units, and of the ways between them."""

    unit: Callable[[HeldUnit], Hashable]
    ways: bool
    """Whether the operations on the ways are seen."""
    joints: bool
    """Whether operations that bring values together are."""
    settings: bool
    """Whether the units' names and hyper-parameters are."""
    behind: bool = True
    """Whether what a unit takes values of is seen."""
    ahead: bool = True
    """Whether what takes its values is."""


_UNITS = (_exactly, _barely, _mainly)
_VIEWS = [_View(unit, more > 0, more > 1, more > 2) for unit in _UNITS for more in range(4)]
"""The views in the order in which they are believed: what is seen in all ports of a model comes first."""
_PLAIN = [view for view in _VIEWS if not view.ways]
_HALVES = [attrs.evolve(view, behind=behind, ahead=not behind) for view in _PLAIN for behind in (False, True)]
"""The views from one end alone: the other one is spoilt where the models differ on the way from there.

They are believed where more ways between units are the same on both sides with what they tell.
"""


def matched_by_colour(
    graphs: tuple[Graph, Graph],
    regions: tuple[Sequence[Hashable], Sequence[Hashable]],
    choose: Chooser,
    known: Pairs | None = None,
    *,
    by_order: bool = False,
) -> tuple[Pairs, Mapping[int, int]]:
    """Return which unit of the candidate each unit of the reference is, as far as the dataflow tells; and symmetries.

    Units of two ``regions`` never belong together. Among units that nothing tells apart ``choose`` picks one; what
    follows from that is refined before it picks again. Symmetries are the units of the reference that only the
    operations around them, or ``choose``, tell from others, by colour: those of one colour may stand for each other;
    ``by_order`` leaves all of them to ``choose``: a sum of experts may be written in any order. What is ``known``
    already stays.
    """
    matching = _Matching(graphs, regions, choose, known or {}, _PLAIN if by_order else _VIEWS)
    return matching.pairs(), matching.symmetric


class _Matching:
    def __init__(
        self,
        graphs: tuple[Graph, Graph],
        regions: tuple[Sequence[Hashable], Sequence[Hashable]],
        choose: Chooser,
        known: Pairs,
        views: Sequence[_View],
    ) -> None:
        self._graphs, self._regions, self._choose, self._views = graphs, regions, choose, views
        self._both = both = graphs, (graphs[0].with_joints, graphs[1].with_joints)
        self._pairs: Pairs = dict(known)
        self.symmetric: Mapping[int, int] = {}
        self._bases = {view.unit: [list(map(view.unit, graph.units)) for graph in graphs] for view in _VIEWS}
        spelled = [[(unit.name, repr(sorted(settings_of(unit).items()))) for unit in graph.units] for graph in graphs]
        self._settings: Mapping[bool, Sequence[Sequence[Hashable]]] = {
            False: [[None] * len(side) for side in spelled],
            True: spelled,
        }
        self._ways = {(view.ways, view.joints): _numbered(both[view.joints], view.ways) for view in _VIEWS}
        self._idle = [
            {base for node, base in enumerate(bases) if not graph.is_met(node)}
            for graph, bases in zip(graphs, self._bases[_exactly], strict=True)
        ]
        """The looks of units that are never used."""
        self._met = [[node for node in _in_order(graph) if graph.is_met(node)] for graph in graphs]
        self._fits: dict[tuple[Hashable, ...], bool] = {}
        self._known: dict[_View, list[Classes]] = {}
        """What each view showed since the last match."""
        self._alike: dict[Hashable, list[Classes]] = {}
        """The same, by what a view makes of the units before they are refined: to several views they look alike."""

    def pairs(self) -> Pairs:
        while self._sees_the_unique(_PLAIN):
            pass
        colours, _ = self._refined(_PLAIN[0], *self._unrefined(_PLAIN[0]))[-1]
        left = range(len(self._graphs[0].units))
        self.symmetric = {unit: colours[unit] for unit in left if unit not in self._pairs}
        while self._sees_the_unique(self._views):
            pass
        known = dict(self._pairs)
        if self._sees_the_unique(_HALVES, ends=False):
            from_ends = self._completed(_HALVES)
            self._pairs = known
            self._forget()
            return max(self._completed(), from_ends, key=lambda pairs: preserved(self._graphs, pairs)[0])
        return self._completed()

    def _completed(self, halves: Sequence[_View] = ()) -> Pairs:
        while (
            self._sees_the_unique(self._views) or self._sees_the_unique(halves, ends=False) or self._breaks_symmetries()
        ):
            pass
        return self._pairs

    def _sees_the_unique(self, views: Sequence[_View], *, ends: bool = True) -> bool:
        for classes in self._levels(views):
            found = [(ours[0], theirs[0]) for ours, theirs in classes if len(ours) == len(theirs) == 1]
            if self._take([(i, j) for i, j in found if ends or self._tells_from_one_end(i, j)]):
                return True
        return False

    def _tells_from_one_end(self, i: int, j: int) -> bool:
        """Return whether one end may tell that two units are one.

        A packed product has other neighbours there than its members. What looks like a unit that is never used may be
        used in its place, too: its ends are those of both.
        """
        unused = any(
            base[unit] in idle for base, idle, unit in zip(self._bases[_exactly], self._idle, (i, j), strict=True)
        )
        return not unused and not is_product(self._graphs[0].units[i])

    def _levels(self, views: Sequence[_View]) -> Iterator[Classes]:
        """Yield the units of each colour that both sides have: seen from afar first, in each of the views."""
        for level in range(len(_ROUNDS)):
            for view in views:
                if view not in self._known:
                    self._known[view] = self._rounds(view)
                yield self._known[view][level]

    def _take(self, found: Sequence[tuple[int, int]]) -> bool:
        fit = [(i, j) for i, j in found if self._fit(i, j)]
        if fit:
            self._pairs.update(fit)
            self._forget()
        return bool(fit)

    def _forget(self) -> None:
        self._known.clear()
        self._alike.clear()

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
                        partner = self._choose(unit, mine, yours, self._pairs)
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

    def _rounds(self, view: _View) -> list[Classes]:
        """Return, for more rounds first, the units of each colour that both sides have."""
        colours, moving = self._unrefined(view)
        key = tuple(colours), view.ways, view.joints, view.behind, view.ahead
        if key not in self._alike:
            seen = self._refined(view, colours, moving)
            places = [min(rounds, len(seen) - 1) for rounds in _ROUNDS]
            found = {place: self._classes(seen[place]) for place in set(places)}
            self._alike[key] = [found[place] for place in places]
        return self._alike[key]

    @property
    def _fixed(self) -> tuple[dict[int, int], dict[int, int]]:
        return {i: n for n, i in enumerate(self._pairs)}, {j: n for n, j in enumerate(self._pairs.values())}

    def _unrefined(self, view: _View) -> tuple[list[int], list[int]]:
        """Return the colours of both sides' nodes as they are seen by themselves, and those nodes that may change.

        The numbers say who looks like whom, and nothing else.
        """
        known: dict[Hashable, int] = {}
        fixed, graphs = self._fixed, self._both[view.joints]
        colours, moving, half = [], [], len(graphs[0].takes)
        for side, graph in enumerate(graphs):
            base, settings = self._bases[view.unit][side], self._settings[view.settings][side]
            count, regions = len(graph.units), self._regions[side]
            first: list[Hashable] = [
                ("fixed", fixed[side][i]) if i in fixed[side] else (base[i], settings[i], regions[i], graph.is_met(i))
                for i in range(count)
            ]
            first += [("end", end) for end in range(ENDS)]
            first += [("joint", name) for name in graph.joints]
            colours += [known.setdefault(colour, len(known)) for colour in first]
            joints = range(count + ENDS, len(graph.takes))
            moving += [half * side + i for i in (*self._met[side], *joints) if i not in fixed[side]]
        return colours, moving

    def _refined(
        self, view: _View, colours: Sequence[int], moving: Sequence[int]
    ) -> list[tuple[Sequence[int], Sequence[int]]]:
        """Return the colours of both sides' nodes after each round, until they are stable."""
        half = len(self._both[view.joints][0].takes)
        takes, gives = self._ways[view.ways, view.joints]
        ends = [(takes, gives)] * view.behind + [(gives, takes)] * view.ahead
        seen: list[tuple[Sequence[int], Sequence[int]]] = []
        before = None
        for now in islice(refined(colours, [one for one, _ in ends], [one for _, one in ends], moving), _ROUNDS[0] + 1):
            seen.append((now[:half], now[half:]))
            if before == (before := [len(set(side)) for side in seen[-1]]):
                break
        return seen

    def _classes(self, colours: Sequence[Sequence[int]]) -> Classes:
        found: dict[int, tuple[list[int], list[int]]] = {}
        for side, fixed in enumerate(self._fixed):
            for node in self._met[side]:
                if node not in fixed:
                    found.setdefault(colours[side][node], ([], []))[side].append(node)
        return [both for both in found.values() if both[0] and both[1]]


def _in_order(graph: Graph) -> list[int]:
    """Return the units in the order in which the run met them."""
    return sorted(range(len(graph.units)), key=graph.order.__getitem__)


def _numbered(graphs: tuple[Graph, Graph], seen: bool) -> tuple[Neighbours, Neighbours]:
    """Return what each node takes and gives, of both sides one behind the other, with a number for its ways."""
    known: dict[Labels | None, int] = {}
    half = len(graphs[0].takes)

    def of(nodes: Sequence[Mapping[int, Labels]], before: int) -> list[list[tuple[int, int]]]:
        return [
            [(before + node, known.setdefault(labels if seen else None, len(known))) for node, labels in found.items()]
            for found in nodes
        ]

    takes, gives = (
        of(first, 0) + of(second, half)
        for first, second in zip(*((graph.takes, graph.gives) for graph in graphs), strict=True)
    )
    return takes, gives


def preserved(graphs: tuple[Graph, Graph], pairs: Pairs) -> tuple[int, int, int]:
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
    ours = _joints(reference.with_joints, {i: n for n, i in enumerate(partner)}, known)
    theirs = _joints(candidate.with_joints, {j: n for n, j in enumerate(partner.values())}, known)
    return kept, alike, sum((ours & theirs).values())


def _joints(graph: Graph, numbers: Mapping[int, int], known: dict[Hashable, int]) -> Counter[int]:
    """Count what joints bring together, each told by its operation and what it takes."""
    first = len(graph.units) + ENDS
    numbered = dict(numbers)
    for node, name in enumerate(graph.joints, first):
        taken = frozenset((numbered.get(source, -1), labels) for source, labels in graph.takes[node].items())
        numbered[node] = len(numbers) + known.setdefault((name, taken), len(known))
    return Counter(numbered[node] for node in range(first, len(graph.takes)))
