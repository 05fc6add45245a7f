"""Match the parameters of two models, and copy the reference's to the candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Model, Parameter
from padiff.parameters._links import Link
from padiff.parameters._matching import (
    UnitMatch,
    execution_order,
    match_strays,
    match_units,
    same_names,
    same_order,
    transfer,
)
from padiff.parameters._packing import Packing, find_packings
from padiff.parameters._special import Specials
from padiff.parameters._units import HeldUnit, units_of
from padiff.trace import Trace

__all__ = ["Pairing", "copy_parameters", "defined_alike", "named_alike", "pair_parameters", "put_back", "values_of"]

Array = NDArray[Any]


@attrs.define(eq=False)
class Pairing:
    """Hold the matched parameters and what matching could not decide."""

    reference: list[HeldUnit]
    candidate: list[HeldUnit]
    matches: list[UnitMatch]
    packings: list[Packing] = attrs.field(factory=list)
    copied: int = 0
    settled: dict[str, str] = attrs.field(factory=dict)
    undecided: list[str] = attrs.field(factory=list)

    @property
    def links(self) -> Iterator[tuple[UnitMatch, Link]]:
        """Yield every link with its match."""
        return ((match, link) for match in self.matches for link in match.links)

    def ties(self) -> set[tuple[str, ...]]:
        """Return which parameters belong together, by paths and roles."""
        return {
            (m.reference.path, m.candidate.path, x.role, x.reference.parameter.path, x.candidate.parameter.path)
            for m, x in self.links
        }

    @property
    def open(self) -> list[UnitMatch]:
        """Return the matches with a layout that only forcing can choose."""
        return [match for match in self.matches if any(link.open for link in match.links)]

    @property
    def ambiguous(self) -> bool:
        """Return whether forcing has something to choose: a layout, or how a layer packs others."""
        return bool(self.packings or self.open)


def named_alike(reference: Model, candidate: Model, fixed: Mapping[str, str], specials: Specials) -> Pairing | None:
    """Return the pairing where names alone give it and no layout is open: it needs no run."""
    ours, theirs = units_of(reference, specials.on(0)), units_of(candidate, specials.on(1))
    matches = None if fixed else same_names(ours, theirs)
    if matches is None:
        return None
    pairing = Pairing(ours, theirs, matches)
    return None if pairing.ambiguous else pairing


def defined_alike(reference: Model, candidate: Model, fixed: Mapping[str, str], specials: Specials) -> Pairing | None:
    """Return the pairing in the order of definition where everything fits so: a guess, for a run to confirm."""
    ours, theirs = units_of(reference, specials.on(0)), units_of(candidate, specials.on(1))
    matches = None if fixed else same_order(ours, theirs)
    if matches is None:
        return None
    pairing = Pairing(ours, theirs, matches)
    return None if pairing.ambiguous else pairing


def pair_parameters(
    reference: Model, candidate: Model, trace: Trace, probe: Trace, fixed: Mapping[str, str], specials: Specials
) -> Pairing:
    """Match the parameters of two models by kind, shape, name and the order in which the runs used them."""
    ours = execution_order(units_of(reference, specials.on(0)), trace)
    theirs = execution_order(units_of(candidate, specials.on(1)), probe)
    matches = (None if fixed else same_names(ours, theirs)) or match_units(ours, theirs, fixed)
    packings = find_packings((ours, trace), (theirs, probe), _homeless(ours, theirs, matches))
    if packings:
        gone = {id(unit) for packing in packings for unit in (packing.packed, *packing.members)}
        mine, yours = ([unit for unit in units if id(unit) not in gone] for units in (ours, theirs))
        matches = match_units(mine, yours, fixed) + [match for packing in packings for match in packing.matches]
    return Pairing(ours, theirs, matches + match_strays(ours, theirs, matches), packings)


def _homeless(ours: Sequence[HeldUnit], theirs: Sequence[HeldUnit], matches: Sequence[UnitMatch]) -> set[int]:
    """Return the ids of the units that found no counterpart that fits."""
    housed = {id(unit) for match in matches if match.links for unit in (match.reference, match.candidate)}
    return {id(unit) for unit in (*ours, *theirs)} - housed


def copy_parameters(pairing: Pairing) -> None:
    """Copy every matched parameter from the reference to the candidate."""
    transfer(pairing.matches)
    pairing.copied = len({id(link.candidate.parameter) for _, link in pairing.links})


def values_of(pairing: Pairing) -> list[tuple[Parameter, Array]]:
    """Return the candidate's parameters that a pairing copies to, each with a copy of its values."""
    held = {id(link.candidate.parameter): link.candidate.parameter for _, link in pairing.links}
    return [(parameter, np.array(parameter.view())) for parameter in held.values()]


def put_back(values: Iterable[tuple[Parameter, Array]]) -> None:
    """Assign kept values to their parameters."""
    for parameter, array in values:
        parameter.assign(array)
