"""Match the parameters of two models, copy them, and let forcing settle what names and shapes leave open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Model, Parameter
from padiff.align import Pair
from padiff.alone import Bench
from padiff.compare import difference
from padiff.explain import contrasts, in_words
from padiff.links import Link, canonical, copy_link, view
from padiff.measure import Measures
from padiff.packed import Arrangement, Packing, find_packings
from padiff.report import Figures, Finding, Note, Phase, Place, Verdict
from padiff.settle import is_suspect
from padiff.special import Specials
from padiff.trace import Trace
from padiff.units import Held, HeldUnit, units_of
from padiff.weights import (
    UnitMatch,
    execution_order,
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
    "is_ignored",
    "named_alike",
    "pair_parameters",
    "parameter_findings",
    "put_back",
    "special_notes",
    "values_of",
]

Array = NDArray[Any]
Rule = Callable[[Array, Array], bool]

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
    return Pairing(ours, theirs, matches, packings)


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

    Runs the candidate's module alone on the reference's inputs, once for each layout. A module that is never
    called, or that no layout makes right, keeps the reference's orientation and is listed as undecided.
    """
    for packing in pairing.packings:
        _choose_arrangement(pairing, packing, bench)
    for match in pairing.open:
        links = [link for link in match.links if link.open]
        users = bench.alignment.using(match.candidate.module)
        choices = list(itertools.islice(itertools.product((False, True), repeat=len(links)), _MOST_LAYOUTS))
        errors = {}
        for choice in choices if users else ():
            _copy_as(links, choice)
            error = _local_error(bench, users[0])
            if error is not None:
                errors[choice] = error
        best = min(errors, key=lambda choice: errors[choice], default=choices[0])
        _copy_as(links, best)
        names = [link.candidate.parameter.path for link in links]
        if not errors or errors[best] > _RIGHT:
            pairing.undecided.extend(names)
            continue
        for name, turned in zip(names, best, strict=True):
            pairing.settled[name] = "transposed" if turned else "as in the reference"


_RIGHT = 1e-3


def _choose_arrangement(pairing: Pairing, packing: Packing, bench: Bench) -> None:
    """Let forcing say how a packed layer holds what it packs; the first arrangement that is right ends the search."""
    users = bench.alignment.using(packing.matches[0].candidate.module)
    best: tuple[float, Arrangement] | None = None
    for arrangement in itertools.islice(packing.arrangements(), _MOST_ARRANGEMENTS) if users else ():
        packing.arrange(arrangement)
        transfer(packing.matches)
        error = _local_error(bench, users[0])
        if error is not None and (best is None or error < best[0]):
            best = error, arrangement
        if best is not None and best[0] <= _RIGHT:
            break
    chosen = best[1] if best else next(packing.arrangements())
    packing.arrange(chosen)
    transfer(packing.matches)
    if best is None or best[0] > _RIGHT:
        pairing.undecided.extend({link.candidate.parameter.path for m in packing.matches for link in m.links})
    else:
        pairing.settled[packing.packed.path] = packing.named(chosen)


def _copy_as(links: Sequence[Link], choice: tuple[bool, ...]) -> None:
    for link, turned in zip(links, choice, strict=True):
        link.transposed = turned
        copy_link(link)


def _local_error(bench: Bench, pair: Pair) -> float | None:
    """Return the largest relative error of a call alone, fed from the reference; None where it cannot run."""
    try:
        alone = bench.run_candidate(pair, bench.trace)
    except Exception:  # the wrong layout may not even run; then it is not the one
        return None
    return max((c.difference.rel_l2 for c in alone.checks if c.spot.owner is pair and not c.backward), default=0.0)


def parameter_findings(
    pairing: Pairing,
    ignored: frozenset[int],
    *,
    copied: bool,
    backward: bool,
    rule: Rule | None = None,
    measures: Measures | None = None,
) -> list[Finding]:
    """Report parameters without counterpart, values that differ, and ties that one side has alone.

    Parameters of modules whose ids are in ``ignored``, on either side, are left out. ``rule`` is the user's
    own, for values that were not copied; ``measures`` are the metrics of plugins.
    """
    for packing in () if copied else pairing.packings:
        packing.arrange(min(packing.arrangements(), key=lambda choice: _distance(packing, choice)))
    links = [(match, link) for match, link in pairing.links if not is_ignored(match, link, ignored)]
    found = [*_missing(pairing, ignored), *_apart(links, copied, rule, measures or Measures())]
    return found + (list(_ties(links)) if backward else [])


def _distance(packing: Packing, arrangement: Arrangement) -> float:
    """Return how far apart the values of both sides are under one way of packing: the sum of relative errors."""
    packing.arrange(arrangement)
    links = [link for match in packing.matches for link in match.links]
    arrays = ([canonical(held, held.parameter.view()) for held in (link.reference, link.candidate)] for link in links)
    return sum(difference(*pair).rel_l2 for pair in arrays)


def _missing(pairing: Pairing, ignored: frozenset[int]) -> Iterator[Finding]:
    covered = {id(held.parameter) for _, link in pairing.links for held in (*link.references, link.candidate)}
    partner = {id(m.reference): m.candidate for m in pairing.matches}
    partner |= {id(m.candidate): m.reference for m in pairing.matches}
    for units, ours in ((pairing.reference, True), (pairing.candidate, False)):
        others = pairing.candidate if ours else pairing.reference
        for unit in units:
            for held in unit.roles.values():
                if id(held.parameter) in covered or (held.parameter.buffer and id(unit) not in partner):
                    continue
                # Without a partner the unit of the same name is what a user takes for its counterpart.
                other = partner.get(id(unit)) or next(
                    (u for u in others if u.path == unit.path and id(u) not in partner), None
                )
                beside = {id(other.module.native)} if other else set()
                if (_holders(unit, held) | beside) & ignored:
                    continue
                covered.add(id(held.parameter))
                yield _unmatched(unit, held, partner.get(id(unit)), others, ours=ours)


def _holders(unit: HeldUnit, held: Held) -> set[int]:
    """Return the ids of the native modules that a parameter belongs to: its unit's, and where it hangs."""
    names = held.part.parameter.split(".")[:-1]
    return {id(unit.module.native), id(reduce(getattr, names, unit.module.native))}


def is_ignored(match: UnitMatch, link: Link, ignored: frozenset[int]) -> bool:
    """Return whether a parameter, on either side, belongs to a module whose id is among the ignored."""
    holders = _holders(match.reference, link.reference) | _holders(match.candidate, link.candidate)
    return not ignored.isdisjoint(holders)


def _unmatched(unit: HeldUnit, held: Held, partner: HeldUnit | None, others: list[HeldUnit], *, ours: bool) -> Finding:
    here = _place(unit, held)
    there = Place(partner.module.path, partner.module.class_name) if partner else Place(None)
    side, other = ("reference", "candidate") if ours else ("candidate", "reference")
    seen = f"the {side} has {held.parameter.path} {list(held.parameter.shape)}"
    evidence = [f"{seen}, the {other} has no counterpart"]
    namesake = next((u for u in others if u.path == unit.path and u is not partner), None)
    if namesake is not None:
        shapes = ", ".join(f"{role} {list(h.shape)}" for role, h in namesake.roles.items())
        there_held = f"{namesake.path} there holds {shapes} (in padiff's layout)"
        evidence.append(f"{there_held}, which does not fit {list(held.shape)}")
    return Finding(
        verdict=Verdict.UNMATCHED,
        phase=Phase.PARAMETER,
        reference=here if ours else there,
        candidate=there if ours else here,
        what=f"parameter {held.part.parameter}",
        evidence=tuple(evidence),
        cause=_only(unit, held, partner, side, other),
        source=True,
    )


def _only(unit: HeldUnit, held: Held, partner: HeldUnit | None, side: str, other: str) -> str:
    """Say why a parameter may have no counterpart: a hyper-parameter differs, or it is on one side only."""
    name = held.part.parameter
    if partner is None:
        return f"{unit.path or name} ({unit.kind or unit.module.class_name}) is in the {side} only"
    ours, theirs = (unit, partner) if side == "reference" else (partner, unit)
    differing = in_words(contrasts(ours.module, theirs.module))
    return differing or f"{name}: present in the {side}, absent or of another shape in the {other}"


def _place(unit: HeldUnit, held: Held) -> Place:
    return Place(held.parameter.path.rpartition(".")[0], unit.module.class_name)


def _apart(
    links: Sequence[tuple[UnitMatch, Link]], copied: bool, rule: Rule | None, measures: Measures
) -> Iterator[Finding]:
    for match, link in links:
        ours = link.expected(view)
        theirs = canonical(link.candidate, link.candidate.parameter.view())
        if ours is None:
            continue  # a function wrote to the module itself: there is nothing to compare with
        # What was copied is as equal as the candidate's dtype allows; there is nothing for a rule to judge.
        exact = None if copied else rule
        if _is_close(ours, theirs, exact):
            continue
        if link.open and not copied and not is_suspect(difference(ours.T, theirs), theirs.dtype):
            # Names and shapes leave both layouts possible: the one that the values show is the module's own.
            link.transposed = not link.transposed
            continue
        apart = difference(ours, theirs)
        cause = None
        if copied:
            cause = "two parameters of the reference are one in the candidate, and their values differ"
        elif ours.ndim == 2 and ours.shape[0] == ours.shape[1] and _is_close(ours.T, theirs, exact):
            cause = "equal when transposed"
        sort = "buffer" if link.candidate.parameter.buffer else "parameter"
        yield Finding(
            verdict=Verdict.DIFFERS,
            phase=Phase.PARAMETER,
            reference=_place(match.reference, link.reference),
            candidate=_place(match.candidate, link.candidate),
            what=f"{sort} {link.candidate.part.parameter}",
            figures=Figures(apart.rel_l2, apart.max_abs, metrics=measures(ours, theirs)),
            evidence=("the values differ before any run",),
            cause=cause,
            source=True,
        )


def _is_close(ours: Array, theirs: Array, rule: Rule | None) -> bool:
    """Return whether values are equal by the user's own rule, or without one but for rounding."""
    if rule is not None:
        return rule(ours, theirs)
    narrower = theirs.dtype if theirs.dtype.itemsize < ours.dtype.itemsize else ours.dtype
    return not is_suspect(difference(ours, theirs), narrower)


def special_notes(pairing: Pairing, *, copied: bool, backward: bool) -> Iterator[Note]:
    """Yield what special transfers leave uncompared: values that only a copy tells, gradients that nothing tells."""
    for match in pairing.matches:
        row = match.reference.special
        links = [link for link in match.links if not link.buffer]
        if row is None or not links:
            continue
        places = (Place(unit.module.path, unit.module.class_name) for unit in (match.reference, match.candidate))
        reference, candidate = places
        said = f"the special transfer {row.label}"
        if not copied and links[0].expected(view) is None:
            yield Note(f"its parameters are not compared: {said} writes to the module itself", reference, candidate)
        untold = [link.role for link in links if not link.differentiated] if backward else []
        if untold:
            names = ", ".join(untold[:_NAMED]) + (f" and {len(untold) - _NAMED} more" if len(untold) > _NAMED else "")
            why = "writes to the module itself" if row.item.takes == "modules" else "does more than rearrange"
            text = f"gradients of {names} are not compared: {said} {why}, and names no gradients"
            yield Note(text, reference, candidate)


_NAMED = 3
"""How many parameters a note lists by name."""


def half_tied(pairing: Pairing) -> set[str]:
    """Return the paths of the candidate's modules whose parameter is tied on one side only: gradients then differ."""
    links = list(pairing.links)
    found = set()
    for ours in (True, False):
        for group in _untied(_by_parameter(links, ours=ours), ours=ours):
            found |= {match.candidate.module.path for match, _ in group}
    return found


def _by_parameter(links: Sequence[tuple[UnitMatch, Link]], *, ours: bool) -> list[list[tuple[UnitMatch, Link]]]:
    groups: dict[int, list[tuple[UnitMatch, Link]]] = {}
    for match, link in links:
        held = link.reference if ours else link.candidate
        if link.single and not held.part.partial:
            groups.setdefault(id(held.parameter), []).append((match, link))
    return list(groups.values())


def _untied(groups: Iterable[list[tuple[UnitMatch, Link]]], *, ours: bool) -> Iterator[list[tuple[UnitMatch, Link]]]:
    """Yield the groups of links to one parameter that lead to several on the other side."""
    for group in groups:
        if len({id((link.candidate if ours else link.reference).parameter) for _, link in group}) > 1:
            yield group


def _ties(links: Sequence[tuple[UnitMatch, Link]]) -> Iterator[Finding]:
    """Yield parameters that are one object on one side and several on the other."""
    for ours in (True, False):
        for group in _untied(_by_parameter(links, ours=ours), ours=ours):
            others = {id((link.candidate if ours else link.reference).parameter) for _, link in group}
            match, link = group[-1]
            side, other = ("reference", "candidate") if ours else ("candidate", "reference")
            names = " and ".join((held.candidate if ours else held.reference).parameter.path for _, held in group)
            yield Finding(
                verdict=Verdict.DIFFERS,
                phase=Phase.PARAMETER,
                reference=_place(match.reference, link.reference),
                candidate=_place(match.candidate, link.candidate),
                what=f"parameter {link.candidate.part.parameter}",
                evidence=(f"one parameter in the {side}, {len(others)} in the {other} ({names})",),
                cause=f"tied in the {side}, not tied in the {other}: equal now, apart after the first update",
                source=True,
            )
