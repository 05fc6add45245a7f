"""Match a layer that one side calls several times with each of those that the other side has in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import align_sequences
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._roles import FULL, UnitMatch, link_roles
from padiff.parameters._units import HeldUnit
from padiff.trace import Call, Trace

_KNOWN, _FITS, _SAME_NAME = 2.0, 1.0, 0.5
"""What two calls count for: of layers that are matched; of layers that fit, and more where their names end alike."""
Layers = Mapping[str, Mapping[str, HeldUnit]]
"""Path of a module -> its units, by their names."""
Calls = Mapping[str, Sequence[Call]]


def with_shared(known: Correspondence, reference: Trace, candidate: Trace) -> Correspondence:
    """Return the correspondence with the layers that one side alone has matched with what the other calls instead.

    That is a layer which it calls more often than the layer's own counterpart is called: the runs' order tells which.
    """
    calls = reference.by_module(), candidate.by_module()
    found = [match for ours in (True, False) for match in _stood_for(known, calls, ours)]
    return attrs.evolve(known, matches=[*known.matches, *found]) if found else known


def _stood_for(known: Correspondence, calls: tuple[Calls, Calls], ours: bool) -> Iterator[UnitMatch]:
    """Yield matches of one side's layers without counterpart."""
    units, mine, yours = (known.reference, *calls) if ours else (known.candidate, *calls[::-1])
    linked = [(m.reference, m.candidate)[:: 1 if ours else -1] for m in known.matches if m.links]
    lacking = _layers(units, set(mine) - {unit.module.path for unit, _ in linked})
    partners: defaultdict[str, set[str]] = defaultdict(set)
    for unit, other in linked:
        partners[other.module.path].add(unit.module.path)
    often = {
        path
        for path, some in partners.items()
        if len(some) == 1 and len(yours.get(path, ())) > sum(len(mine.get(one, ())) for one in some)
    }
    if not (lacking and often):
        return
    shared = _layers(known.candidate if ours else known.reference, often)
    own = {path: one for one in shared for path in partners[one]}
    rows, columns = _in_order(mine, lacking.keys() | own.keys()), _in_order(yours, shared)
    fits = {(path, one): _fits(lacking[path], shared[one], ours) for path in lacking for one in shared}
    scores = np.zeros((len(rows), len(columns)), np.float32)
    for i, j in np.ndindex(scores.shape):
        path, one = rows[i].path, columns[j].path
        if path in own:
            scores[i, j] = _KNOWN * (own[path] == one)
        elif fits[path, one]:
            alike = any(_last(path) == _last(partner) for partner in partners[one])
            scores[i, j] = _FITS + _SAME_NAME * alike
    found: defaultdict[str, list[str]] = defaultdict(list)
    for i, j in align_sequences(scores):
        found[rows[i].path].append(columns[j].path)
    for path, units_of in lacking.items():
        if len(found[path]) == len(mine[path]) and len({*found[path]}) == 1:
            others = shared[found[path][0]]
            yield from (_match(unit, others[name], ours) for name, unit in units_of.items())


def _layers(units: Sequence[HeldUnit], paths: Iterable[str]) -> Layers:
    wanted = {*paths}
    found: defaultdict[str, dict[str, HeldUnit]] = defaultdict(dict)
    for unit in units:
        if unit.module.path in wanted:
            found[unit.module.path][unit.name] = unit
    return found


def _in_order(calls: Calls, paths: Iterable[str]) -> list[Call]:
    return sorted((call for path in paths for call in calls[path]), key=lambda call: call.index)


def _fits(units: Mapping[str, HeldUnit], others: Mapping[str, HeldUnit], ours: bool) -> bool:
    """Return whether two modules hold layers that fit, and train them both or neither: a teacher is no student."""
    if units.keys() != others.keys():
        return False
    both = [(unit, others[name]) for name, unit in units.items()]
    if any(_trained(unit) != _trained(other) for unit, other in both):
        return False
    return all(link_roles(*pair[:: 1 if ours else -1])[0] >= FULL for pair in both)


def _trained(unit: HeldUnit) -> bool:
    return any(held.parameter.trainable for held in unit.roles.values())


def _match(unit: HeldUnit, other: HeldUnit, ours: bool) -> UnitMatch:
    both = (unit, other) if ours else (other, unit)
    return UnitMatch(*both, link_roles(*both)[1], shared=True)


def _last(path: str) -> str:
    return path.rpartition(".")[2]
