"""Name the causes that both sides' records show: hyper-parameters and arguments that differ.

What differs is a cause only where it is verified: the code is the framework's own on both sides and was fed the same
values, so that nothing else is left; or the module, set as the reference is, gives what the reference gives. Else it is
told as evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Reader
from padiff.judging._settle import Settler
from padiff.kinds import ORDER_SETTINGS
from padiff.numerics import TOGETHER, difference, epsilon
from padiff.parameters import UnitMatch
from padiff.report import Cause, Evidence, Phase
from padiff.trace import Contrast, Described, ModuleRecord, called_otherwise, contrasts, contrasts_inside

OF_STATE = frozenset({"momentum"})
"""Hyper-parameters that change what is kept for later, not what is given."""
_OF_SHAPES = frozenset({"kind", "groups", "normalized_shape", "hidden_size", "num_layers", "bidirectional", "track"})
"""Hyper-parameters of which the shapes of parameters follow, or whether there are any."""


def cause_of(found: Sequence[Contrast]) -> Cause | None:
    """Return hyper-parameters that differ as the cause of another shape of parameters, or None where none does."""
    if not found:
        return None
    return Cause("settings", told_by(found), verified=any(one.setting in _OF_SHAPES for one in found))


def told_by(found: Sequence[Contrast]) -> dict[str, dict[str, str]]:
    """Return hyper-parameters that differ as a cause holds them."""
    return {one.setting: {"reference": one.reference, "candidate": one.candidate} for one in found}


def cause_between(pair: Pair, phase: Phase) -> Cause | None:
    """Return in what two matched calls differ but for their values: settings, or an operation's arguments."""
    ours, theirs = pair.reference, pair.candidate
    found = contrasts(ours, theirs) or contrasts_inside(ours, theirs)
    if found:
        own = all(_is_frameworks(call.module) for call in (ours, theirs) if call.module.kind is not None)
        without = (OF_STATE if phase is not Phase.BUFFER else frozenset()) | (
            ORDER_SETTINGS if pair.misfed else frozenset()
        )
        matters = any(one.setting not in without for one in found)
        return Cause("settings", told_by(found), verified=own and matters)
    called = called_otherwise(ours, theirs)
    return called and Cause("arguments", {"reference": called[0], "candidate": called[1]}, verified=not pair.misfed)


def found_by_setting(settler: Settler, pair: Pair, matches: Sequence[UnitMatch], read: Reader) -> Cause | None:
    """Return the settings that differ as the cause; verified where the candidate, set as the reference is, agrees.

    They are the module's own, or those of modules inside that are judged with the code around them: a norm of one side
    holds its activation.
    """
    groups: dict[Cause, dict[str, Mapping[str, Any]]] = {}
    for path, found, wanted in _apart(settler.bench.alignment, pair, matches):
        groups.setdefault(Cause("settings", told_by(found)), {})[path] = wanted
    for cause, all_wanted in groups.items():
        if _agrees(settler, pair, all_wanted, read):
            return attrs.evolve(cause, verified=True)
    return next((cause for cause, all_wanted in groups.items() if "" not in all_wanted), None)


def _apart(
    alignment: Alignment, pair: Pair, matches: Sequence[UnitMatch]
) -> Iterator[tuple[str, list[Contrast], dict[str, Any]]]:
    """Yield the paths of modules, below the pair's, with settings that differ, and what these are in the reference."""
    top = pair.candidate
    inside = {call.path for call in top.subtree() if call is not top and alignment.of_candidate(call) is None}
    units = ((match.candidate.module.path, match) for match in matches if match.candidate.module.path in inside)
    further = [(path.removeprefix(f"{top.path}."), match.reference, match.candidate) for path, match in units]
    sides: list[tuple[str, Described, Described]] = [("", pair.reference, top), *further]
    for path, ours, theirs in sides:
        known = set(ours.settings) - OF_STATE
        found = [one for one in contrasts(ours, theirs) if one.setting in known]
        if found:
            yield path, found, {one.setting: ours.settings[one.setting].value for one in found}


def _agrees(settler: Settler, pair: Pair, wanted: Mapping[str, Mapping[str, Any]], read: Reader) -> bool:
    """Return whether the candidate's call gives what the reference's gives where modules are set so."""
    alone = settler.runs(pair, "float64").reference
    if alone is None:
        return False
    try:
        other = settler.bench.run_candidate(pair, alone.observed, "float64", settings=wanted, backward=False)
    except Exception:  # what cannot be set, or does not run so, verifies nothing
        return False
    ours, theirs = read(alone, True), read(other, False)
    return not (ours is None or theirs is None) and difference(ours, theirs).rel_l2 <= TOGETHER(epsilon(ours.dtype))


def _is_frameworks(module: ModuleRecord) -> bool:
    """Return whether a module's class comes from the package that the base of its classes comes from."""
    roots = [name.partition(".")[0] for name in module.classes]
    roots = [root for root in roots if not root.startswith("pybind11")]
    return not roots or roots[0] == roots[-1]


def not_verified(found: Cause) -> Evidence:
    """Return an unverified cause as a piece of evidence."""
    return Evidence(f"unverified_{found.name}", found.parameters)
