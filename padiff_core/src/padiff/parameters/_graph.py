"""See a model as a graph: units of parameters, and which of them takes what which gives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property

import attrs

from padiff.grouping import grouped
from padiff.kinds import STATE_MAP
from padiff.parameters._units import HeldUnit
from padiff.trace import INPUT, Flow, called, inputs_of, joint_of, operations_of, outputs_of

Labels = frozenset[frozenset[str]]
"""The names of the operations on each way from one unit to another."""
ENDS = 2
"""Nodes that are no unit: the model's inputs, and its outputs."""
_MOST = 64
"""Units that one value comes from: a sum that goes on from block to block has ever more, and is a node then."""
_NONE: frozenset[str] = frozenset()
_OUT = "out"
"""The unit of an attention that takes what the others give."""
_LAYER = re.compile(r"l(\d+)")
"""How the units of a recurrent module begin: each layer takes what the one before gives."""


@attrs.frozen(eq=False)
class Graph:
    """The units of a model, and what each of them takes.

    Behind the units stand inputs and outputs of the model, then joints: operations whose operands come from several.
    """

    units: Sequence[HeldUnit]
    takes: Sequence[Mapping[int, Labels]]
    """Node -> the nodes that it takes values of, with the ways that these come."""
    joints: Sequence[str]
    """The names of their operations."""
    order: Sequence[int]
    """Unit -> when it was met first in the run; as many as there are units where it never was."""
    gone: Set[int] = frozenset()
    """Units that another one stands for."""
    jointed: Graph | None = None
    """The same with its joints, where it is without."""
    contracted: Mapping[str, int] = attrs.field(factory=dict)
    """Which way the run's code uses matrices, as `Flow` has it."""

    @cached_property
    def gives(self) -> Sequence[Mapping[int, Labels]]:
        """Node -> the nodes that take its values, with the ways that these go."""
        found: list[dict[int, Labels]] = [{} for _ in self.takes]
        for node, sources in enumerate(self.takes):
            for source, labels in sources.items():
                found[source][node] = labels
        return found

    @property
    def edges(self) -> Iterator[tuple[int, int, Labels]]:
        """Yield (who gives, who takes, the ways)."""
        return ((source, node, labels) for node, found in enumerate(self.takes) for source, labels in found.items())

    def joined(self, groups: Sequence[Sequence[int]]) -> Graph:
        """Return the graph with each group of units as one node, the group's first; the others are met no more."""
        into = {node: group[0] for group in groups for node in group}
        takes: list[dict[int, Labels]] = [{} for _ in self.takes]
        for source, node, labels in self.edges:
            found = takes[into.get(node, node)]
            source = into.get(source, source)
            found[source] = found.get(source, frozenset()) | labels
        order = [len(self.units) if into.get(unit, unit) != unit else rank for unit, rank in enumerate(self.order)]
        gone, jointed = {unit for unit in into if into[unit] != unit}, self.jointed and self.jointed.joined(groups)
        return attrs.evolve(self, takes=takes, order=order, gone=gone, jointed=jointed)

    @property
    def with_joints(self) -> Graph:
        """Return the graph with its joints."""
        return self.jointed or self

    @property
    def own(self) -> list[int]:
        """Return the units that no other one stands for."""
        return [unit for unit in range(len(self.units)) if unit not in self.gone]

    def is_met(self, node: int) -> bool:
        """Return whether the run used a unit."""
        return node >= len(self.units) or self.order[node] < len(self.units)


def graph_of(units: Sequence[HeldUnit], flow: Flow, *, joints: bool = False) -> Graph:
    """Return the graph of a run's dataflow; what belongs to no unit is passed through, but for ``joints``."""
    return _Builder(units, flow, joints).graph()


def inputs_behind(units: Sequence[HeldUnit], flow: Flow) -> list[frozenset[str]]:
    """Return the inputs of the model that what each unit takes was made of."""
    found = {key: _NONE.union(*(inputs_of(names) for _, names in sources)) for key, sources in flow.takes.items()}
    return _of_units(units, found, [(source, key) for key, sources in flow.takes.items() for source, _ in sources])


def outputs_ahead(units: Sequence[HeldUnit], flow: Flow) -> list[frozenset[str]]:
    """Return the outputs of the model that are made of what each unit gives."""
    found: dict[str, frozenset[str]] = {}
    for source, names in flow.gives:
        found[source] = found.get(source, _NONE) | outputs_of(names)
    takes = reversed([*flow.takes.items()])
    return _of_units(units, found, [(key, source) for key, sources in takes for source, _ in sources])


def _of_units(
    units: Sequence[HeldUnit], found: dict[str, frozenset[str]], ways: Sequence[tuple[str, str]]
) -> list[frozenset[str]]:
    """Return what is found of each unit, and of what leads to it over some ways."""
    changed = True
    while changed:  # once, and once more: holders come in the order of the run, but for those that are used again
        changed = False
        for start, end in ways:
            known, more = found.get(end, _NONE), found.get(start, _NONE)
            changed |= not more <= known
            found[end] = known | more
    return [_NONE.union(*(found.get(key, _NONE) for key in _holders(unit))) for unit in units]


def _holders(unit: HeldUnit) -> set[str]:
    """Return what a dataflow may call a unit."""
    helds = [held for one in unit.units for held in (*one.roles.values(), *one.extras.values())]
    return {called(one.module.path) for one in unit.units} | {path for held in helds for path in held.parameter.paths}


class _Builder:
    def __init__(self, units: Sequence[HeldUnit], flow: Flow, joints: bool) -> None:
        self._units, self._flow, self._joints = units, flow, joints
        self._kept: dict[str, int] = {}
        self._at: dict[str, list[int]] = {}
        for index, unit in enumerate(units):
            for key in _holders(unit):
                self._at.setdefault(key, []).append(index)
        self._through: dict[str, dict[int, set[frozenset[str]]]] = {}
        by_hand = [unit.roles for unit in units if unit.kind is not None and unit.module.kind is None]
        both = ((roles["bias"].parameter, roles.get("weight")) for roles in by_hand if "bias" in roles)
        apart = (bias for bias, weight in both if weight is None or weight.parameter is not bias)
        self._behind_sums = {path for bias in apart for path in bias.paths}
        """What is added behind a layer by hand, maybe to a sum with others: it takes nothing that its layer takes."""

    def graph(self) -> Graph:
        count = len(self._units)
        takes: list[dict[int, set[frozenset[str]]]] = [{} for _ in range(count + ENDS)]
        order = [count] * count
        first: dict[int, str] = {}
        rank = 0
        # In the order of the run: the first layer of a loop takes what each step made, which is made of the one before.
        for key in self._flow.takes:
            if key not in self._at:
                self._nodes(key)
        for key, sources in self._flow.takes.items():
            for unit in self._at.get(key, ()):
                if order[unit] == count:
                    order[unit], rank = rank, rank + 1
            if key not in self._at:
                continue
            found = {} if key in self._behind_sums else self._found(sources)
            for unit in self._stages(key)[0]:
                # Written by hand, a layer may use one parameter on what another one gave: its own business.
                inside = first.setdefault(unit, key) != key or bool(self._units[unit].stack)
                _add(takes[unit], {source: ways for source, ways in found.items() if not inside or source != unit})
            self._inside(key, takes)
        _add(takes[count + 1], self._found(self._flow.gives))
        for unit in takes[count + 1]:
            if unit < count and order[unit] == count:  # a parameter that is returned as it is
                order[unit], rank = rank, rank + 1
        takes += [self._through[key] for key in self._kept]
        joints = [joint_of(key) or "" for key in self._kept]
        taken = [{k: frozenset(v) for k, v in one.items()} for one in takes]
        return Graph(self._units, taken, joints, order, contracted=self._flow.contracted)

    def _stages(self, key: str) -> list[list[int]]:
        """Return the units of a holder, first those that take what it takes, then those that take what these give."""
        stages = grouped(self._at.get(key, ()), lambda unit: _stage(self._units[unit]))
        return [stages[stage] for stage in sorted(stages)]

    def _inside(self, key: str, takes: Sequence[dict[int, set[frozenset[str]]]]) -> None:
        for unit in self._at[key]:
            cell = self._units[unit].name.removesuffix(STATE_MAP)
            if cell != self._units[unit].name and not self._units[unit].loose:
                beside = (other for other in self._at[key] if self._units[other].name.startswith(cell))
                _add(takes[unit], {other: {frozenset()} for other in beside})
        for before, behind in itertools.pairwise(self._stages(key)):
            for unit in behind:
                _add(takes[unit], {other: {frozenset()} for other in before})

    def _found(self, sources: frozenset[tuple[str, frozenset[str]]]) -> dict[int, set[frozenset[str]]]:
        found: dict[int, set[frozenset[str]]] = {}
        for key, names in sources:
            for node, ways in self._nodes(key).items():
                found.setdefault(node, set()).update(way | operations_of(names) for way in ways)
        return found

    def _nodes(self, key: str) -> Mapping[int, set[frozenset[str]]]:
        """Return the nodes that a holder's values come from: its units, or where it has none those before it."""
        if key == INPUT:
            return {len(self._units): {frozenset()}}
        stages = self._stages(key)
        if stages:
            own = {unit: {frozenset[str]()} for unit in stages[-1]}
            summed = key in self._behind_sums
            return {**self._found(self._flow.takes.get(key, frozenset())), **own} if summed else own
        if key not in self._through:
            self._through[key] = {}
            found = self._through[key] = self._found(self._flow.takes.get(key, frozenset()))
            if joint_of(key) is not None and (self._joints or len(found) > _MOST):
                self._kept[key] = len(self._units) + ENDS + len(self._kept)
        return {self._kept[key]: {frozenset()}} if key in self._kept else self._through[key]


def _stage(unit: HeldUnit) -> int:
    """Return when a module calls one of its units: behind those of which it takes what they give."""
    layer = None if unit.loose else _LAYER.match(unit.name)
    return int(layer[1]) if layer else int(unit.name == _OUT)


def _add(known: dict[int, set[frozenset[str]]], more: Mapping[int, set[frozenset[str]]]) -> None:
    for node, ways in more.items():
        known.setdefault(node, set()).update(ways)
