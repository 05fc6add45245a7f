"""Match the parameters of two models, copy them, and let forcing settle what names and shapes leave open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Model, Parameter
from padiff.alone import Bench
from padiff.links import Link, canonical, copy_link
from padiff.packed import Arrangement, Packing, find_packings
from padiff.special import Specials
from padiff.trace import Trace
from padiff.trial import RIGHT, Trial, trial_without_chance
from padiff.units import HeldUnit, units_of
from padiff.weights import (
    UnitMatch,
    execution_order,
    match_strays,
    match_units,
    same_names,
    same_order,
    transfer,
)

__all__ = [
    "Pairing",
    "choose_layouts",
    "copy_parameters",
    "defined_alike",
    "named_alike",
    "pair_parameters",
    "put_back",
    "values_of",
]

Array = NDArray[Any]
Rule = Callable[[Array, Array], bool]
Choice = TypeVar("Choice")

_MOST_LAYOUTS = 16
_MOST_ARRANGEMENTS = 64


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


def choose_layouts(pairing: Pairing, bench: Bench) -> None:
    """Copy each open layout in the way under which its module reproduces the reference.

    Runs the candidate's module alone on the reference's inputs, once for each layout; in evaluation mode where none is
    right and the reference draws random numbers. A module that is never called, or that no layout makes right, keeps
    the reference's orientation and is listed as undecided.
    """
    for packing in pairing.packings:
        _choose_arrangement(pairing, packing, bench)
    told = {id(link.candidate.parameter): link for _, link in pairing.links if link.single and not link.open}
    for match in pairing.open:
        links = [x for x in match.links if x.open and not _as_tied(x, told.get(id(x.candidate.parameter)))]
        if not links:
            continue
        choices = list(itertools.islice(itertools.product((False, True), repeat=len(links)), _MOST_LAYOUTS))
        best, right = _tried(bench, match, choices, partial(_copy_as, links))
        names = [link.candidate.parameter.path for link in links]
        if not right:
            pairing.undecided.extend(names)
            continue
        for name, turned in zip(names, best, strict=True):
            pairing.settled[name] = "transposed" if turned else "as in the reference"


def _choose_arrangement(pairing: Pairing, packing: Packing, bench: Bench) -> None:
    """Let forcing say how a packed layer holds what it packs; the first arrangement that is right ends the search."""

    def put(arrangement: Arrangement) -> None:
        packing.arrange(arrangement)
        transfer(packing.matches)

    choices = list(itertools.islice(packing.arrangements(), _MOST_ARRANGEMENTS))
    chosen, right = _tried(bench, packing.matches[0], choices, put, first=True)
    if not right:
        pairing.undecided.extend({link.candidate.parameter.path for m in packing.matches for link in m.links})
    else:
        pairing.settled[packing.packed.path] = packing.named(chosen)


def _tried(
    bench: Bench, match: UnitMatch, choices: Sequence[Choice], put: Callable[[Choice], None], *, first: bool = False
) -> tuple[Choice, bool]:
    """Put in each choice and leave the best, or the ``first`` that is right; return it, and whether it is right."""
    users = bench.alignment.using(match.candidate.module)
    best, least = choices[0], math.inf
    if users:
        best, least = _best(Trial(bench, users[0], bench.trace), choices, put, first=first)
        trial = trial_without_chance(bench, users[0]) if least > RIGHT else None
        if trial is not None:
            best, least = _best(trial, choices, put, first=first)
    put(best)
    return best, least <= RIGHT


def _best(
    trial: Trial, choices: Sequence[Choice], put: Callable[[Choice], None], *, first: bool
) -> tuple[Choice, float]:
    best, least = choices[0], math.inf
    for choice in choices:
        put(choice)
        error = trial.error()
        if error < least:
            best, least = choice, error
        if first and least <= RIGHT:
            break
    return best, least


def _as_tied(link: Link, other: Link | None) -> bool:
    """Give an open link the layout under which it agrees with another link of the same two parameters, if one does."""
    if other is None or other.reference.parameter is not link.reference.parameter:
        return False
    numbers = np.arange(np.prod(link.reference.parameter.shape)).reshape(link.reference.parameter.shape)
    expected = _placed(other, numbers)
    for link.transposed in (False, True):
        if np.array_equal(_placed(link, numbers), expected):
            link.open = False
            return True
    return False


def _placed(link: Link, values: Array) -> Array:
    """Return what the candidate's parameter holds where the reference's holds these values."""
    native = np.full(link.candidate.parameter.shape, -1)
    link.candidate.part.write(native, link.to_candidate(canonical(link.reference, values)))
    return native


def _copy_as(links: Sequence[Link], choice: tuple[bool, ...]) -> None:
    for link, turned in zip(links, choice, strict=True):
        link.transposed = turned
        copy_link(link)
