"""Match a bias that one side holds apart from the layer that it is added behind, or adds to another one.

Ports written by hand add a vector of their own behind a layer without bias, several of them behind a packed one, where
the other side's layer has a bias. They may also join some in one, which they give a function with the layer's weight.
A recurrent cell has two where a port needs one: whether such biases count in their sum with others alone a run tells,
for what one of them gains, the other one loses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import attrs

from padiff.alignment import similarity
from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._graph import graph_of
from padiff.parameters._links import Link
from padiff.parameters._matching import best_first
from padiff.parameters._packing import Packing
from padiff.parameters._roles import UnitMatch, ways_between
from padiff.parameters._shapes import bare, is_joined
from padiff.parameters._splitting import ADDED
from padiff.parameters._units import Held, HeldUnit
from padiff.paths import parent
from padiff.trace import Flow, called, joint_of

_BIAS = "bias"
Sums = dict[Held, tuple[Held, ...]]
"""What has a counterpart, and what has none and may be added to it."""


def with_biases(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with the left over biases of layers matched with what is added behind their partners.

    Of several behind one layer names say which is which, then the order of definition. A vector that was matched with
    another for no more than its shape leaves that to one beside it, of that shape and without counterpart. Several may
    be joined to the bias of a packed layer, with or without zeros for a part: queries, nothing for keys, and values.
    """
    left = known.left
    if not all(left):
        return known
    guessed = [dict(_guessed(known, some, ours)) for ours, some in zip((True, False), left, strict=True)]
    sides = [_Side(known, flows[ours], left, ours, guessed[ours]) for ours in (True, False)]
    found = [match for side in sides for match in side.added()]
    packed = [Packed.of(packing) for side in sides for packing in side.joined()]
    taken = {held for match in found for held in match.ends}
    left_to = {link: other for side in guessed for held, (link, other) in side.items() if held in taken}
    changed = {match for match in known.matches if not left_to.keys().isdisjoint(match.links)}
    known = known.rematched({m: attrs.evolve(m, links=[left_to.get(x, x) for x in m.links]) for m in changed})
    matches = [*known.matches, *(match for one in packed for match in one.matches)]
    known = attrs.evolve(known, matches=matches, packed=[*known.packed, *packed])
    return _with_members_of(attrs.evolve(known, matches=[*known.matches, *found]), found) if found else known


def _with_members_of(known: Correspondence, found: Sequence[UnitMatch]) -> Correspondence:
    """Return it with such vectors as those of packed layers' members: whatever order these have, they have it too."""
    for old in known.packed:
        packing, (mine, yours) = old.packing, (0, 1)[:: 1 if old.packing.ours else -1]
        # What is linked of a bias: the place of the rows that a member has, and that member.
        members = {
            (held.parameter.path, held.part): one
            for match in old.matches
            for held in [match.units[mine].roles.get(_BIAS)]
            for one in packing.members
            if held is not None and one.paths & match.units[yours].paths
        }
        vectors = {
            one: (match, end)
            for match in found
            for link in match.links
            for held, end in [(link.reference, link.candidate)[:: 1 if packing.ours else -1]]
            for one in [members.get((held.parameter.path, held.part))]
            if one is not None and len(end.shape) == 1 and not one.stack
        }
        layers = {one: packing.layer(one) for one in vectors}
        lies = {one: attrs.evolve(x, roles={**x.roles, _BIAS: vectors[one][1]}) for one, x in layers.items()}
        new = attrs.evolve(packing, lies={**packing.lies, **lies})
        gone = {*old.matches, *(match for match, _ in vectors.values())} if vectors else set()
        packed = Packed.of(new) if vectors else old
        known = attrs.evolve(
            known,
            matches=[*(m for m in known.matches if m not in gone), *(packed.matches if vectors else ())],
            packed=[packed if one is old else one for one in known.packed],
        )
    return known


def _guessed(known: Correspondence, left: set[str], ours: bool) -> Iterator[tuple[Held, tuple[Link, Link]]]:
    """Yield what of one side shape alone tied, with its link, and that of what is left beside it to its partner."""
    for match in known.matches:
        unit, way = match.units[not ours], 1 if ours else -1
        beside = [(role, held) for role, held in unit.roles.items() if held.parameter.path in left]
        for link in match.links if unit.loose else ():
            held, partner = (link.reference, link.candidate)[::way]
            alike = ((role, (other, partner)[::way]) for role, other in beside if other.shape == held.shape)
            to_other = next((one for role, sides in alike for one in ways_between(role, *sides)), None)
            if to_other is not None and type(link) is Link and not link.mapped:
                yield held, (link, to_other)


class _Side:
    """One side's biases without counterpart, by the layers of the other side that lack them, and vectors used there."""

    def __init__(
        self, known: Correspondence, flow: Flow, left: tuple[set[str], set[str]], ours: bool, guessed: Collection[Held]
    ) -> None:
        """Take the other side's dataflow."""
        self._ours, self._left = ours, left[ours]
        self._biases: dict[frozenset[str], list[HeldUnit]] = {}
        for match in known.matches:
            unit, partner = match.units[:: 1 if ours else -1]
            held = unit.roles.get(_BIAS) if match.links and unit.kind is not None else None
            if held is not None and held.parameter.path in left[not ours]:
                self._biases.setdefault(_holders(partner), []).append(unit.piece(_BIAS))
        others = known.sides[ours]
        self._vectors = {
            unit.piece(role): _met(unit, held, others, flow)
            for unit in (others if self._biases else ())
            if unit.loose
            for role, held in unit.roles.items()
            if held.parameter.path in self._left or (held in guessed and _is_added(held, flow))
            if not held.parameter.buffer
        }

    def _behind(self, layers: frozenset[str]) -> list[HeldUnit]:
        return [one for one, sources in self._vectors.items() if not layers.isdisjoint(sources)]

    def added(self) -> Iterator[UnitMatch]:
        """Yield matches of a bias with a vector, which are left out from then on."""
        for layers, some in self._biases.items():
            behind = self._behind(layers)
            names = similarity(*([_held(one).parameter.path for one in units] for units in (some, behind)))
            fits = [[_fits(one, other) for other in behind] for one in some]
            found = best_first((names + 1) * fits)
            for i, j in found:
                yield UnitMatch.of(*(some[i], behind[j])[:: 1 if self._ours else -1])
                del self._vectors[behind[j]]
            self._biases[layers] = [one for i, one in enumerate(some) if i not in dict(found)]

    def joined(self) -> Iterator[Packing]:
        """Yield the only bias of layers with the vectors of one length that are parts of it; the rest of it is zero.

        That is likely between them: keys need no bias, and lie between queries and values, or in front of values. Or
        the only vector with the biases that are parts of it: those of some of the layers that one matrix packs.
        """
        for layers, some in self._biases.items():
            vectors = [one for one in self._behind(layers) if one.paths <= self._left]
            shapes = {bare(_held(one).shape) or (1,) for one in (*some, *vectors)}
            if len(shapes) != 2 or {*map(len, shapes)} != {1}:
                continue
            if len(vectors) == 1 < len(some):
                packed, *held = (attrs.evolve(one, roles={"weight": _held(one)}) for one in (*vectors, *some))
                packing = Packing(((packed,),), tuple(held), not self._ours, layers=False)
                if packing.fits:
                    yield packing
            elif len(some) == 1:
                packed, *held = (attrs.evolve(one, roles={"weight": _held(one)}) for one in (*some, *vectors))
                part, whole = sorted(shapes)
                lacking = whole[0] // max(1, part[0]) - len(vectors)
                held[len(held) // 2 : len(held) // 2] = [HeldUnit(vectors[0].module, "", None, {})] * lacking
                packing = Packing(((packed,),), tuple(held), self._ours, layers=False, wanting=part)
                if packing.fits:
                    yield packing


def _met(unit: HeldUnit, held: Held, others: Sequence[HeldUnit], flow: Flow) -> set[str]:
    """Return the holders with which a parameter is used; of one that nobody reads, what its module has beside it.

    That one is not read is a fault of the code, at the place where it should be.
    """
    if flow.takes.keys().isdisjoint(held.parameter.paths):
        home = unit.module.path
        beside = (one for one in others if home in ((path := one.module.path), parent(path)))
        return set().union(*map(_holders, beside))
    return _sources(held, flow) if _is_added(held, flow) else _in_one_operation(held, flow)


def _held(piece: HeldUnit) -> Held:
    (held,) = piece.roles.values()
    return held


def _fits(bias: HeldUnit, vector: HeldUnit) -> bool:
    """Return whether a vector is as long as a bias, be it by heads: (heads, size) for (heads * size,)."""
    whole, shape = (bare(_held(piece).shape) for piece in (bias, vector))
    return len(whole) < 2 and (whole == shape or is_joined(shape, whole))


def _holders(unit: HeldUnit) -> frozenset[str]:
    """Return what a dataflow may call a layer: its module, or what it holds where no rule speaks of it."""
    paths = [path for held in unit.roles.values() for path in held.parameter.paths]
    return frozenset(paths if unit.loose else [*paths, called(unit.module.path)])


def _is_added(held: Held, flow: Flow) -> bool:
    """Return whether all that is made of a parameter is a sum with it: a gain is no bias."""
    return all(ADDED in way for path in held.parameter.paths for _, way in flow.goes.get(path, ()))


def _sources(held: Held, flow: Flow) -> set[str]:
    """Return the holders whose values a parameter meets, be they added to each other before."""
    found: set[str] = set()
    new = set(held.parameter.paths)
    while new:
        met = {source for key in new for source, _ in flow.takes.get(key, ())} - found
        found |= met
        new = {key for key in met if joint_of(key) is not None}
    return found


def _in_one_operation(held: Held, flow: Flow) -> set[str]:
    """Return the holders that take what a parameter does, and of which all is made that is made of it."""
    own = next((path for path in held.parameter.paths if path in flow.takes), None)
    used = (flow.takes.get(own or ""), flow.goes.get(own or ""))
    return {key for key in flow.takes if None not in used and (flow.takes[key], flow.goes.get(key)) == used} - {own}


def sums_between(known: Correspondence, flow: Flow, *, ours: bool) -> Sums:
    """Return the vectors of one side without counterpart, each at one that has one and lies as it does.

    Both are of one cell, or of one module that no rule speaks of, or their layers give to the same.
    """
    left, units = known.left[not ours], known.sides[not ours]
    places = [(i, held) for i, unit in enumerate(units) for held in unit.roles.values() if len(held.shape) == 1]
    places = [(i, held) for i, held in places if not (held.parameter.buffer or held.part.partial or units[i].stack)]
    alone = [one for one in places if one[1].parameter.path in left]
    found: Sums = {}
    graph = graph_of(units, flow) if alone else None
    for i, held in alone:
        for j, other in places:
            assert graph is not None
            near = _cell(units[i]) == _cell(units[j]) or graph.gives[i].keys() == graph.gives[j].keys()
            if near and other.parameter.path not in left and _lies_alike(held, other):
                found[other] = (*found.get(other, ()), held)
                break
    return found


def _cell(unit: HeldUnit) -> tuple[str, str]:
    return unit.module.path, parent(unit.name)


def _lies_alike(one: Held, other: Held) -> bool:
    parts = {attrs.evolve(held.part, parameter="") for held in (one, other)}
    return len(parts) == 1 and one.shape == other.shape and one.parameter.trainable == other.parameter.trainable
