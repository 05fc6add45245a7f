"""Match a layer that one side calls several times with each of those that the other side has in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

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

    That is a layer which it calls more often than the layer's own counterpart is called. The runs' order tells which;
    it may tell too that another one is the counterpart of what is called so often.
    """
    calls = reference.by_module(), candidate.by_module()
    for ours in (True, False):
        known = _with_stood_for(known, calls, ours)
    return known


def _with_stood_for(known: Correspondence, calls: tuple[Calls, Calls], ours: bool) -> Correspondence:
    """Return it with the layers of one side without counterpart matched."""
    units, others, mine, yours = (
        (known.reference, known.candidate, *calls) if ours else (known.candidate, known.reference, *calls[::-1])
    )
    partners: defaultdict[str, set[str]] = defaultdict(set)
    for match in (match for match in known.matches if match.links):
        path, one = (match.reference.module.path, match.candidate.module.path)[:: 1 if ours else -1]
        partners[one].add(path)
    own = {
        path: one
        for one, (path, *more) in partners.items()
        if not more and 0 < len(mine.get(path, ())) < len(yours.get(one, ()))
    }
    lacking = _layers(units, mine.keys() - {path for some in partners.values() for path in some})
    if not (lacking and own):
        return known
    layers, shared = {**lacking, **_layers(units, own)}, _layers(others, own.values())
    rows, columns = _in_order(mine, layers), _in_order(yours, shared)
    named = {(path, one) for path in lacking for held, one in own.items() if _last(path) == _last(held)}

    def score(path: str, one: str) -> float:
        if own.get(path) == one:
            return _KNOWN
        may = (path in lacking or not known.fixed) and _fits(layers[path], shared[one], ours)
        return may * (_FITS + _SAME_NAME * ((path, one) in named))

    table = np.array([[score(path, one) for one in shared] for path in layers], np.float32)
    scores = table[np.ix_(_numbers(rows, layers), _numbers(columns, shared))]
    aligned: defaultdict[str, list[str]] = defaultdict(list)
    for i, j in align_sequences(scores):
        aligned[rows[i].path].append(columns[j].path)
    found = {path: ones[0] for path, ones in aligned.items() if len(ones) == len(mine[path]) and len({*ones}) == 1}
    if lacking.keys().isdisjoint(found):
        return known
    new = {path: one for path, one in found.items() if own.get(path) != one}
    matches = [m for m in known.matches if (m.reference if ours else m.candidate).module.path not in new]
    taken = {one for path, one in own.items() if path not in new}
    for path in dict.fromkeys(call.path for call in rows if call.path in new):
        one = new[path]
        matches += [_match(unit, shared[one][name], ours, one in taken) for name, unit in layers[path].items()]
        taken.add(one)
    return attrs.evolve(known, matches=matches)


def _layers(units: Sequence[HeldUnit], paths: Iterable[str]) -> Layers:
    wanted = {*paths}
    found: defaultdict[str, dict[str, HeldUnit]] = defaultdict(dict)
    for unit in units:
        if unit.module.path in wanted:
            found[unit.module.path][unit.name] = unit
    return found


def _in_order(calls: Calls, paths: Iterable[str]) -> list[Call]:
    return sorted((call for path in paths for call in calls[path]), key=lambda call: call.index)


def _numbers(calls: Iterable[Call], layers: Layers) -> list[int]:
    places = {path: number for number, path in enumerate(layers)}
    return [places[call.path] for call in calls]


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


def _match(unit: HeldUnit, other: HeldUnit, ours: bool, shared: bool) -> UnitMatch:
    both = (unit, other) if ours else (other, unit)
    return UnitMatch(*both, link_roles(*both)[1], shared)


def _last(path: str) -> str:
    return path.rpartition(".")[2]
