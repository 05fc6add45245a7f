"""Match the parameters of two models, by names, by the order of definition, and by the order of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._matching import UnitMatch, execution_order, match_strays, match_units, same_names, same_order
from padiff.parameters._packing import find_packings
from padiff.parameters._units import HeldUnit
from padiff.trace import Trace

__all__ = ["defined_alike", "named_alike", "pair_parameters"]

Units = Sequence[HeldUnit]
Fixed = Mapping[str, str]


def named_alike(reference: Units, candidate: Units, fixed: Fixed) -> Correspondence | None:
    """Return the correspondence where names alone give it and no layout is open: it needs no run."""
    return _unambiguous(reference, candidate, None if fixed else same_names(reference, candidate))


def defined_alike(reference: Units, candidate: Units, fixed: Fixed) -> Correspondence | None:
    """Return the correspondence in the order of definition where everything fits so: a guess, for a run to confirm."""
    return _unambiguous(reference, candidate, None if fixed else same_order(reference, candidate))


def _unambiguous(reference: Units, candidate: Units, matches: Sequence[UnitMatch] | None) -> Correspondence | None:
    found = None if matches is None else Correspondence(reference, candidate, matches)
    return None if found is None or found.ambiguous else found


def pair_parameters(reference: Units, candidate: Units, trace: Trace, probe: Trace, fixed: Fixed) -> Correspondence:
    """Match units by kind, shape, name and the order in which the runs of both models used them."""
    ours, theirs = execution_order(reference, trace), execution_order(candidate, probe)
    matches = (None if fixed else same_names(ours, theirs)) or match_units(ours, theirs, fixed)
    packings = find_packings((ours, trace), (theirs, probe), _without_counterpart(ours, theirs, matches))
    packed = [Packed(packing, packing.matches(next(packing.arrangements()))) for packing in packings]
    if packed:
        gone = {unit for packing in packings for unit in (packing.packed, *packing.members)}
        mine, yours = ([unit for unit in units if unit not in gone] for units in (ours, theirs))
        matches = match_units(mine, yours, fixed) + [match for one in packed for match in one.matches]
    return Correspondence(ours, theirs, matches + match_strays(ours, theirs, matches), packed, fixed)


def _without_counterpart(ours: Units, theirs: Units, matches: Sequence[UnitMatch]) -> set[HeldUnit]:
    """Return the units that found no counterpart that fits."""
    matched = {unit for match in matches if match.links for unit in (match.reference, match.candidate)}
    return {*ours, *theirs} - matched
