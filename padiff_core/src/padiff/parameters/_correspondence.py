"""What belongs to what: parameters with their layouts, calls, and the axes of values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import attrs

from padiff.alignment import Alignment, Resolved
from padiff.parameters._arrangements import Arrangement
from padiff.parameters._links import Link, SumLink
from padiff.parameters._packing import Packing
from padiff.parameters._roles import UnitMatch
from padiff.parameters._units import HeldUnit
from padiff.paths import parent
from padiff.recording import Orders


@attrs.frozen(eq=False)
class Packed:
    """A packed layer and what belongs together under the way of packing that is believed."""

    packing: Packing
    matches: tuple[UnitMatch, ...]

    @classmethod
    def of(cls, packing: Packing) -> Packed:
        """Return a packing under the likeliest way."""
        return cls(packing, packing.matches(next(packing.arrangements())))


@attrs.frozen(eq=False)
class Correspondence:
    """What of the reference belongs to what of the candidate, as far as is known; a refinement returns a better one."""

    reference: Sequence[HeldUnit]
    candidate: Sequence[HeldUnit]
    matches: Sequence[UnitMatch]
    packed: Sequence[Packed] = ()
    fixed: Resolved = attrs.field(factory=Resolved)
    """What the user mapped."""
    symmetric: frozenset[HeldUnit] = frozenset()
    """Units of the reference that their place in the dataflow does not tell from others, as far as it was recorded."""
    constants: Sequence[UnitMatch] = ()
    """Buffers and frozen parameters that both models compute for themselves: compared, and never copied for good."""
    wrong: Sequence[UnitMatch] = ()
    """Those of which the candidate's are wrong: it has the reference's until the diff ends."""
    axes: Orders = attrs.field(factory=dict)
    """How the candidate's tensors are read, where their axes lie in another order."""
    refuted: frozenset[tuple[str, int, str, int]] = frozenset()
    """Places, as in ``axes``, where forcing shows that the candidate needs its own order: another one is a fault."""
    by_order: bool = False
    """Whether the calls of a module belong together in their order, whatever they took and gave."""
    calls: Alignment | None = None
    settled: Mapping[str, str] = attrs.field(factory=dict)
    """Parameter of the candidate -> its layout, where forcing chose it."""
    undecided: tuple[str, ...] = ()
    """Parameters of the candidate of which nothing tells the layout, or whose they are."""
    crossed: Mapping[str, tuple[tuple[str, str], ...]] = attrs.field(factory=dict)
    """Candidate's module -> (reference's unit, candidate's unit) under which its code would be right, against names."""

    carried: tuple[str, ...] = ()
    """Candidate's calls that hand on a sum, added up around them in the reference, which no compared value shows."""

    merged: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """Parameters of the reference, and of the candidate, that have no equal each, and make the same together."""
    astray: Mapping[tuple[int, str, int, str], tuple[frozenset[str], frozenset[str]]] = attrs.field(factory=dict)
    """Value that differs, by its spot's key -> parameters of both sides that were to make it together, and do not."""
    other_rows: Mapping[str, Mapping[str, tuple[int, ...]]] = attrs.field(factory=dict)
    """Candidate's module -> layer, as its code names it -> the order of rows under which this code would be right."""

    hidden: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    """The same, where other inputs alone show so."""
    unshown: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    """Candidate's parameter that would be merged -> how many of its elements count in any run, and how many it has."""

    @property
    def together(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the parameters of both sides that are taken together: none of them is compared by itself."""
        ours, theirs = (
            frozenset().union(*some) for some in zip(self.merged, *self.astray.values(), *self.hidden, strict=True)
        )
        return ours, theirs

    @property
    def sides(self) -> tuple[Sequence[HeldUnit], Sequence[HeldUnit]]:
        """Return the units of both sides, the reference's first."""
        return self.reference, self.candidate

    @property
    def links(self) -> Iterator[tuple[UnitMatch, Link]]:
        """Yield every link with its match."""
        return ((match, link) for match in self.matches for link in match.links)

    @property
    def one_to_one(self) -> list[UnitMatch]:
        """Return the matches in which each unit is once: without what is called for several of the other side."""
        return [match for match in self.matches if match.beside is None]

    @property
    def sharing(self) -> tuple[set[str], set[str]]:
        """Return the paths of both sides' modules that share a sum of biases with others: what one gives is its own."""
        sums = [link for _, link in self.links if isinstance(link, SumLink) and not link.zero]
        sides = [x.references for x in sums], [(x.candidate, *x.candidate.added) for x in sums]
        homes = ([{parent(held.parameter.path) for held in terms} for terms in some] for some in sides)
        ours, theirs = ({path for home in some if len(home) > 1 for path in home} for some in homes)
        return ours, theirs

    @property
    def alignment(self) -> Alignment:
        """Return the matched calls, once these are matched."""
        assert self.calls is not None
        return self.calls

    def settling(self, layouts: Mapping[str, str], held: Collection[str] = ()) -> Correspondence:
        """Return it with layouts that forcing chose, of parameters ``held`` there that are undecided no more."""
        left = tuple(path for path in self.undecided if path not in held)
        return attrs.evolve(self, settled={**self.settled, **layouts}, undecided=left)

    def leaving_open(self, paths: Iterable[str]) -> Correspondence:
        """Return it with further parameters of which nothing tells the layout, or whose they are."""
        return attrs.evolve(self, undecided=tuple(dict.fromkeys((*self.undecided, *paths))))

    @property
    def linked(self) -> tuple[set[str], set[str]]:
        """Return the paths of both sides' parameters that have a counterpart."""
        ours = {held.parameter.path for _, link in self.links for held in link.references}
        return ours, {link.candidate.parameter.path for _, link in self.links}

    @property
    def left(self) -> tuple[set[str], set[str]]:
        """Return the paths of both sides' parameters that have none."""
        ours, theirs = (
            {path for unit in units for path in unit.paths} - linked
            for units, linked in zip(self.sides, self.linked, strict=True)
        )
        return ours, theirs

    def names(self) -> set[tuple[str, ...]]:
        """Return which parameters belong together, by paths and roles."""
        return {
            (m.reference.path, m.candidate.path, x.role, x.reference.parameter.path, x.candidate.parameter.path)
            for m, x in self.links
        }

    @property
    def open(self) -> list[UnitMatch]:
        """Return the matches of which names and shapes leave open a layout, or which parameter is which."""
        return [match for match in self.matches if match.unnamed or any(link.open for link in match.links)]

    @property
    def ambiguous(self) -> bool:
        """Return whether a layout is open, which parameter is which, or how a layer packs others."""
        return bool(self.packed or self.open)

    @property
    def row_orders(self) -> list[tuple[int, ...]]:
        """Return the orders in which channels are read that parameters have a row for, where these are in others."""
        return list(dict.fromkeys(order for _, link in self.links for order in link.read_in if order))

    def in_order(self, goes: Callable[[UnitMatch, Link, int], bool]) -> Correspondence:
        """Return the correspondence with parameters' rows in the reference's order, but where code goes with theirs.

        That is asked for each axis along which they are in another order.
        """
        changed: dict[UnitMatch, UnitMatch] = {}
        for match in self.matches:
            links = [link.in_order(partial(goes, match, link)) for link in match.links]
            if any(one is not link for one, link in zip(links, match.links, strict=True)):
                changed[match] = attrs.evolve(match, links=links)
        return self.rematched(changed) if changed else self

    def rematched(self, changed: Mapping[UnitMatch, UnitMatch]) -> Correspondence:
        """Return the correspondence with some matches replaced by others."""
        packed = [attrs.evolve(one, matches=tuple(changed.get(m, m) for m in one.matches)) for one in self.packed]
        return attrs.evolve(self, matches=[changed.get(match, match) for match in self.matches], packed=packed)

    def arranged(self, packed: Packed, arrangement: Arrangement) -> Correspondence:
        """Return the correspondence under one way of packing a layer."""
        return self.rematched(dict(zip(packed.matches, packed.packing.matches(arrangement), strict=True)))

    def beside(self, packed: Sequence[Packed]) -> list[UnitMatch]:
        """Return the matches of what else packed layers hold: biases that the other side adds by itself."""
        own = {match for one in packed for match in one.matches}
        paths = {path for one in packed for path in one.packing.packed.paths}
        rest = (match for match in self.matches if match not in own)
        return [match for match in rest if any(link.candidate.parameter.path in paths for link in match.links)]
