"""Match a layer that one side calls several times with each of those that the other side has in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import align_sequences
from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._links import Link
from padiff.parameters._roles import FULL, UnitMatch, link_roles
from padiff.parameters._units import Held, HeldUnit
from padiff.paths import is_at, last, parent
from padiff.trace import Call, Trace

_KNOWN, _FITS, _SAME_NAME = 1.75, 1.0, 0.5
"""What two calls count for: of layers that are matched; of layers that fit, and more where their names end alike.

What is matched, in what may be the wrong order, counts for less than two others that fit.
"""
_MOST = 1 << 24
"""Pairs of calls that are weighed against each other; what is called more often than that stays as it is."""
Layers = Mapping[str, Mapping[str, HeldUnit]]
"""Path of a module -> its units, by their names."""
Calls = Mapping[str, Sequence[Call]]


def with_shared(known: Correspondence, reference: Trace, candidate: Trace) -> Correspondence:
    """Return the correspondence with the layers that one side alone has matched with what the other calls instead.

    That is a layer which it calls more often than the layer's own counterpart is called, in each call of the model. The
    runs' order tells which; it may tell too that another one is the counterpart of what is called so often.
    """
    traces = reference, candidate
    for ours in (True, False):
        known = _with_lacking_matched(known, traces if ours else traces[::-1], ours)
    return known


def _with_lacking_matched(known: Correspondence, traces: tuple[Trace, Trace], ours: bool) -> Correspondence:
    """Return it with the layers without counterpart of one side, whose trace comes first, matched."""
    units, others = known.sides[:: 1 if ours else -1]
    mine, yours = (trace.by_module() for trace in traces)
    models = [len(calls.get(trace.root.path, ())) or 1 for trace, calls in zip(traces, (mine, yours), strict=True)]
    partners: defaultdict[str, set[str]] = defaultdict(set)
    for match in (match for match in known.matches if match.links):
        path, one = (match.reference.module.path, match.candidate.module.path)[:: 1 if ours else -1]
        partners[one].add(path)
    own = {
        path: one
        for one, (path, *more) in partners.items()
        if not more and 0 < len(mine.get(path, ())) / models[0] < len(yours.get(one, ())) / models[1]
    }
    matched = {path for some in partners.values() for path in some}
    lacking = _layers(units, mine.keys() - matched - known.fixed.ignored[not ours])
    if not (lacking and own):
        return known
    layers, shared = {**lacking, **_layers(units, own)}, _layers(others, own.values())
    # A packed layer fits no other one: it would hold all that is around it where it is.
    own = {path: one for path, one in own.items() if _fits(layers[path], shared[one], ours)}
    layers, shared = {path: layers[path] for path in (*lacking, *own)}, {one: shared[one] for one in own.values()}
    rows, columns = _in_order(mine, layers), _in_order(yours, shared)
    if len(rows) * len(columns) > _MOST:
        return known
    named = {(path, one) for path in lacking for held, one in own.items() if last(path) == last(held)}

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
    matches = [m for m in known.matches if m.units[not ours].module.path not in new]
    first = {one: path for path, one in own.items() if path not in new}
    for path in dict.fromkeys(call.path for call in rows if call.path in new):
        one = new[path]
        both = ((unit, shared[one][name])[:: 1 if ours else -1] for name, unit in layers[path].items())
        matches += [UnitMatch.of(*pair, beside=first.get(one)) for pair in both]
        first.setdefault(one, path)
    moves = {_without_common_end(path, first[one]) for path, one in own.items() if path in new and one in first}
    return _moved(attrs.evolve(known, matches=matches), sorted(moves), ours)


def _moved(known: Correspondence, moves: Sequence[tuple[str, str]], ours: bool) -> Correspondence:
    """Return it with what stayed in modules whose layers are matched elsewhere now matched where these are.

    That is the parts of packed layers, of which no layer is one of the other side's.
    """
    going = {
        match
        for match in known.matches
        if match.beside is None and any(_is_below(match.units[not ours], home) for home, _ in moves)
    }
    taken = {unit for match in known.matches if match.links and match not in going for unit in match.units}
    left = _layers(unit for unit in known.sides[not ours] if unit not in taken)
    packed = [
        next(filter(None, (_packed_there(one, *move, left, ours) for move in moves)), one) for one in known.packed
    ]
    pairs = zip(known.packed, packed, strict=True)
    changed = {
        old: new
        for one, other in pairs
        if one is not other
        for old, new in zip(one.matches, other.matches, strict=True)
    }
    for match in going - changed.keys():
        found = next(filter(None, (_copied(match, *move, left, ours) for move in moves)), None)
        changed |= {} if found is None else {match: attrs.evolve(found, beside=None)}
    return attrs.evolve(known, matches=[changed.get(match, match) for match in known.matches], packed=packed)


def _packed_there(packed: Packed, home: str, twin: str, left: Layers, ours: bool) -> Packed | None:
    """Return packed layers, or what they pack, as they lie at the same places below a module's twin."""
    one = packed.packing
    units = [*one.together, *(unit for unit, _ in one.behind)]
    if one.ours is not ours:
        units = [*one.members, *(unit for _, others in one.behind for unit in others)]
    held = [x for way in one.ways for x in way.roles.values()] if one.ours is ours else []
    found = {unit: _there(unit, held if unit is one.packed else (), home, twin, left) for unit in units}
    there = {unit: other for unit, other in found.items() if other is not None and not unit.stack}
    if len(there) < len(units) or len(one.stripes) > 1:
        return None

    def moved(unit: HeldUnit) -> HeldUnit:
        return there[unit][0] if unit in there else unit

    lies = {x: y for _, ends in there.values() for x, y in ends.items()}
    packing = attrs.evolve(
        one,
        stripes=tuple(tuple(map(moved, stripe)) for stripe in one.stripes),
        members=tuple(map(moved, one.members)),
        ways=[attrs.evolve(x, roles={role: lies.get(y, y) for role, y in x.roles.items()}) for x in one.ways],
        behind=tuple((moved(unit), tuple(map(moved, others))) for unit, others in one.behind),
    )
    return Packed.of(packing)


def with_copies(known: Correspondence) -> Correspondence:
    """Return the correspondence with what lies beside such layers, in modules alike, matched as it is there.

    That is what no rule matches by itself: the parts of a packed layer. Copies that were matched before are made anew.
    """
    units = {*known.reference, *known.candidate}
    matches = [m for m in known.matches if m.beside is None or units.issuperset(m.units)]
    linked = {unit for match in matches if match.links for unit in match.units}
    copies: list[UnitMatch] = []
    for ours, side in zip((True, False), known.sides, strict=True):
        paths = [(m.units[not ours].module.path, m) for m in matches]
        twins = {_without_common_end(m.beside, path) for path, m in paths if m.beside not in (None, path)}
        left = _layers(unit for unit in side if unit not in linked)
        found = (_copied(match, home, twin, left, ours) for home, twin in sorted(twins) for match in matches)
        copies += filter(None, found)
    return attrs.evolve(known, matches=[*matches, *copies]) if len(matches) < len(known.matches) or copies else known


def _without_common_end(path: str, other: str) -> tuple[str, str]:
    """Return the modules above two, or these themselves, where what is below has one name: of ``a.0.q``, ``a.1.q``."""
    while parent(path) and parent(other) and last(path) == last(other):
        path, other = parent(path), parent(other)
    return path, other


def _copied(match: UnitMatch, home: str, twin: str, left: Layers, ours: bool) -> UnitMatch | None:
    """Return a match of what is below a module with what lies at the same place below its twin, without counterpart."""
    unit = match.units[not ours]
    if match.beside is not None or (ours and any(type(link) is not Link for link in match.links)):
        return None
    found = _there(unit, [_end(link, ours) for link in match.links], home, twin, left)
    if found is None:
        return None
    copy, there = found
    if ours:
        links = [attrs.evolve(link, reference=there[link.reference]) for link in match.links]
        return UnitMatch(copy, match.candidate, links, beside=unit.module.path)
    links = [attrs.evolve(link, candidate=there[link.candidate]) for link in match.links]
    return UnitMatch(match.reference, copy, links, beside=unit.module.path)


def _there(
    unit: HeldUnit, more: Iterable[Held], home: str, twin: str, left: Layers
) -> tuple[HeldUnit, dict[Held, Held]] | None:
    """Return a unit below a module as it lies below its twin, and where what it holds, and ``more``, lies there."""
    path = f"{twin}{unit.module.path[len(home) :]}"
    if not _is_below(unit, home) or path not in left:
        return None
    held_there = [held for one in left[path].values() for held in one.roles.values()]
    records = {(name, held.shape): held.parameter for held in held_there for name in held.parameter.paths}

    def moved(held: Held) -> Held | None:
        record = records.get((f"{twin}{held.parameter.path[len(home) :]}", held.shape))
        return None if record is None or held.added else attrs.evolve(held, parameter=record)

    ends = {held: moved(held) for held in (*unit.roles.values(), *more)}
    there = {held: other for held, other in ends.items() if other is not None}
    if len(there) < len(ends):
        return None
    module = next(iter(left[path].values())).module
    return attrs.evolve(unit, module=module, roles={role: there[held] for role, held in unit.roles.items()}), there


def _is_below(unit: HeldUnit, home: str) -> bool:
    return is_at(unit.module.path, home)


def _end(link: Link, ours: bool) -> Held:
    return link.reference if ours else link.candidate


def _layers(units: Iterable[HeldUnit], paths: Collection[str] | None = None) -> Layers:
    """Return the units by module, of some modules or of all."""
    found: defaultdict[str, dict[str, HeldUnit]] = defaultdict(dict)
    for unit in units:
        if paths is None or unit.module.path in paths:
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
