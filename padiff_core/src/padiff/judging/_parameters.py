"""Say what became of the parameters: without counterpart, apart, tied on one side alone, or not compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import attrs
import numpy as np

from padiff.grouping import grouped
from padiff.judging._causes import cause_of
from padiff.judging._metrics import Measures
from padiff.judging._parts import SHOWN, Ignored, holders_of, part_finding, parts_of, place_held, unmatched
from padiff.judging._sizes import size_of
from padiff.judging._tolerance import Rule
from padiff.kinds import Part
from padiff.numerics import SAME, Array, difference, epsilon, is_suspect, reordered, reorderings, same_numbers
from padiff.parameters import Correspondence, Held, HeldUnit, Link, PartAlone, UnitMatch, canonical
from padiff.paths import joined
from padiff.report import Cause, Evidence, Figures, Finding, Note, Phase, Place, Verdict, What
from padiff.trace import Summary, contrasts

Reading = Callable[[Link], tuple[Any, Any]]
"""Returns what both sides hold of a link in one layout: values, or summaries of them; None where that is not known."""


def parameter_findings(
    correspondence: Correspondence,
    read: Reading,
    ignored: Ignored,
    *,
    copied: bool,
    backward: bool,
    rule: Rule | None = None,
    measures: Measures | None = None,
    own: Mapping[str, Array] | None = None,
    frozen: bool = True,
    alike: Callable[[Link], bool] = lambda link: False,
    counts: Callable[[PartAlone], bool] = lambda part: True,
) -> list[Finding]:
    """Report parameters without counterpart, values that differ, and ties that one side has alone.

    ``read`` gives what both sides hold. Parameters of modules whose paths are in ``ignored``, of the reference and of
    the candidate, are left out. ``rule`` is the user's own, for values that were not copied; ``measures`` are the
    metrics of plugins; ``own`` holds what the candidate has for constants that are wrong. Without ``frozen`` no frozen
    parameter is missed: what differs without it shows where it is used. Of what is ``alike``, as is known already, no
    values are read. Of a parameter that has a counterpart one side may have more than the other: where that ``counts``.
    """
    gone = correspondence.together[1]
    links = [(match, link) for match, link in correspondence.links if not is_ignored(match, link, ignored)]
    links = [(match, link) for match, link in links if link.candidate.parameter.path not in gone]
    found = [*_missing(correspondence, ignored, frozen), *_constants(correspondence.wrong, read, own or {})]
    found += [part_finding(part) for part in parts_of(correspondence, ignored) if counts(part)]
    exact = None if copied else rule
    groups = tied(links, ours=False)
    one_held = (g for g in groups if copied or any(is_close(*both, exact) for both in _arrays(g, read)))
    merged = {link for group in one_held for _, link in group}
    unlike = [(match, link) for match, link in links if link not in merged and not alike(link)]
    others = _with_other_values(unlike, read, copied, rule, measures or Measures())
    found += [_as_far_as_shown(one, correspondence.unshown) for one in others]
    return [*found, *_ties(links, read, merged, backward, exact)]


def _as_far_as_shown(finding: Finding, unshown: Mapping[str, tuple[int, int]]) -> Finding:
    """Return a finding on a parameter with how many of its elements count, where these are merged as they should be."""
    counts = unshown.get(joined(finding.candidate.path or "", finding.what.name))
    if counts is None or not any(counts):
        return finding
    count, size = counts
    return attrs.evolve(finding, evidence=(*finding.evidence, Evidence.of("unshown", count=count, size=size)))


def _missing(correspondence: Correspondence, ignored: Ignored, frozen: bool) -> Iterator[Finding]:
    # A layer that has nothing in common with what holds single parameters at its place is in the one model only.
    matches = [m for m in correspondence.matches if m.links or m.reference.kind == m.candidate.kind]
    partner = {m.reference: m.candidate for m in matches} | {m.candidate: m.reference for m in matches}
    partner |= {one.packing.packed: one.packing.members[0] for one in correspondence.packed}
    covered = _matched(correspondence)
    for known, merged in zip(covered, correspondence.together, strict=True):
        known |= merged
    for side, (units, others) in enumerate(
        ((correspondence.reference, correspondence.candidate), (correspondence.candidate, correspondence.reference))
    ):
        for unit in units:
            for role, held in unit.roles.items():
                if (
                    held.parameter.path in covered[side]
                    or (held.parameter.buffer and unit not in partner)
                    or (_is_constant(unit, held, ours=side == 0, matched=unit in partner) and not frozen)
                ):
                    continue
                # Without a partner the unit of the same name is what a user takes for its counterpart.
                other = partner.get(unit) or next((u for u in others if u.path == unit.path and u not in partner), None)
                if holders_of(unit, held) & ignored[side] or (other and other.module.path in ignored[1 - side]):
                    continue
                covered[side].add(held.parameter.path)
                there = None if other is None else other.roles.get(role)
                if there is not None and other is not None and there.parameter.path not in covered[1 - side]:
                    covered[1 - side].add(there.parameter.path)
                    yield _of_other_shape((unit, held), (other, there), ours=side == 0)
                    continue
                yield _unmatched(unit, held, partner.get(unit), others, ours=side == 0)


def _is_constant(unit: HeldUnit, held: Held, *, ours: bool, matched: bool) -> bool:
    """Return whether a parameter is frozen, and code may compute the same on the other side.

    What is ``matched`` and of a known kind lacks a role there: then no code does. But what a framework holds of a norm
    without scale and shift, ones and zeros, the reference has nowhere: other values show in what the candidate gives.
    """
    if unit.special is not None or held.parameter.trainable:
        return False
    return unit.kind is None or not matched or not (ours or held.parameter.buffer)


def constant_notes(correspondence: Correspondence) -> Iterator[Note]:
    """Yield the frozen parameters that only one side has: what differs without them shows where they are used."""
    sides = ("reference", correspondence.reference), ("candidate", correspondence.candidate)
    both = {unit for match in correspondence.matches for unit in (match.reference, match.candidate)}
    for (side, units), known in zip(sides, _matched(correspondence), strict=True):
        ours = side == "reference"
        every = [(unit, held) for unit in units for held in unit.roles.values()]
        held = [one for unit, one in every if _is_constant(unit, one, ours=ours, matched=unit in both)]
        alone = [one.parameter.path for one in held if not (one.parameter.buffer or one.parameter.path in known)]
        if alone:
            yield Note("frozen_on_one_side", {"side": side, "paths": alone})


def _matched(correspondence: Correspondence) -> tuple[set[str], set[str]]:
    """Return the paths of both sides' parameters, buffers and constants that have a counterpart."""
    links = [link for match in (*correspondence.matches, *correspondence.constants) for link in match.links]
    ours = {held.parameter.path for link in links for held in link.references}
    return ours, {link.candidate.parameter.path for link in links}


def _constants(wrong: Sequence[UnitMatch], read: Reading, own: Mapping[str, Array]) -> Iterator[Finding]:
    """Yield the constants of the candidate that are wrong: with the reference's, less differs.

    These are all that the candidate has the reference's of by now: what is compared with those proves nothing else.
    """
    assert own.keys() == {link.candidate.parameter.path for match in wrong for link in match.links}
    for match in wrong:
        for link in match.links:
            ours, _ = read(link)
            theirs = canonical(link.candidate, own[link.candidate.parameter.path])
            assert ours is not None
            yield _differing(match, link, Figures.of(difference(ours, theirs)), Cause("constant", verified=True))


def is_ignored(match: UnitMatch, link: Link, ignored: Ignored) -> bool:
    """Return whether a parameter, on either side, belongs to a module whose path is among the ignored."""
    sides = holders_of(match.reference, link.reference), holders_of(match.candidate, link.candidate)
    return any(holders & paths for holders, paths in zip(sides, ignored, strict=True))


def _unmatched(
    unit: HeldUnit, held: Held, partner: HeldUnit | None, others: Sequence[HeldUnit], *, ours: bool
) -> Finding:
    here = place_held(unit, held)
    there = Place(partner.module.path, partner.module.class_name) if partner else Place(None)
    side = "reference" if ours else "candidate"
    seen = {"side": side, "path": held.parameter.path, "shape": tuple(held.parameter.shape)}
    evidence = [Evidence("no_counterpart", seen)]
    namesake = next((u for u in others if u.path == unit.path and u is not partner), None)
    if namesake is not None:
        roles = {role: tuple(there.shape) for role, there in namesake.roles.items()}
        evidence.append(Evidence.of("namesake", path=namesake.path, roles=roles, shape=tuple(held.shape)))
    places = (here, there) if ours else (there, here)
    return unmatched(held, places, _only(unit, held, partner, side), side, *evidence)


def _of_other_shape(here: tuple[HeldUnit, Held], there: tuple[HeldUnit, Held], *, ours: bool) -> Finding:
    """Return that two parameters of one role, in modules that are each other's, have not one shape."""
    sides = (here, there) if ours else (there, here)
    (unit, held), (other, theirs) = sides
    both = {"reference": held, "candidate": theirs}
    figures = {
        "paths": {side: one.parameter.path for side, one in both.items()},
        "shapes": {side: tuple(one.parameter.shape) for side, one in both.items()},
        "laid_out": {side: tuple(one.shape) for side, one in both.items()},
    }
    kind = "other_shape" if tuple(held.shape) != tuple(theirs.shape) else "beside_other_shape"
    places = place_held(unit, held), place_held(other, theirs)
    return unmatched(held, places, cause_of(contrasts(unit, other)), None, Evidence(kind, figures))


def _only(unit: HeldUnit, held: Held, partner: HeldUnit | None, side: str) -> Cause:
    """Say why a parameter may have no counterpart: a hyper-parameter differs, or it is on one side only."""
    name = held.part.parameter
    if partner is None:
        kind = unit.kind or unit.module.class_name
        return Cause("missing_module", {"name": unit.path or name, "kind": kind, "side": side}, verified=True)
    ours, theirs = (unit, partner) if side == "reference" else (partner, unit)
    # A part of a module (a packed projection, a cell's map) is matched with modules of other kinds.
    part = held.part.partial or (unit.kind == partner.kind and unit.module.kind != partner.module.kind)
    differing = None if part else cause_of(contrasts(ours, theirs))
    return differing or Cause("missing_parameter", {"name": name, "side": side}, verified=True)


def _with_other_values(
    links: Sequence[tuple[UnitMatch, Link]],
    read: Reading,
    copied: bool,
    rule: Rule | None,
    measures: Measures,
) -> Iterator[Finding]:
    for match, link in links:
        ours, theirs = read(link)
        if ours is None or theirs is None:
            continue  # not kept, or a function wrote to the module itself: there is nothing to compare with
        if isinstance(ours, Summary):
            size = size_of(ours, theirs, rule)
            if size is not None and (size.error > SAME(size.eps) if size.close is None else not size.close):
                yield _differing(match, link, Figures.of(size.difference), None)
            continue
        # What was copied is as equal as the candidate's dtype allows; there is nothing for a rule to judge.
        exact = None if copied else rule
        if is_close(ours, theirs, exact):
            continue
        cause = _in_another_order(ours, theirs, exact)
        yield _differing(match, link, Figures.of(difference(ours, theirs), measures(ours, theirs)), cause)


def _in_another_order(ours: Array, theirs: Array, rule: Rule | None) -> Cause | None:
    """Return that two parameters hold the same in another order, where they do."""
    if ours.ndim == 2 and ours.shape[0] == ours.shape[1] and is_close(ours.T, theirs, rule):
        return Cause("transposed", verified=True)
    for orders in reorderings(ours, theirs) if same_numbers(ours, theirs) else ():
        if is_close(reordered(ours, orders), theirs, rule):
            shown = {name: list(order[:SHOWN]) for name, order in zip(("rows", "columns"), orders, strict=False)}
            return Cause("rows_in_another_order", shown, verified=True)
    return None


def _differing(match: UnitMatch, link: Link, figures: Figures, cause: Cause | None) -> Finding:
    """Return the finding of two values that differ before any run."""
    what = "buffer" if link.candidate.parameter.buffer else "parameter"
    evidence = Evidence("before_any_run")
    return finding_of_link(match, link, Phase.PARAMETER, what, evidence, figures=figures, cause=cause)


def finding_of_link(match: UnitMatch, link: Link, phase: Phase, kind: str, evidence: Evidence, **rest: Any) -> Finding:
    """Return that a parameter differs, of some kind of value, on one piece of evidence: that is a source."""
    places = place_held(match.reference, link.reference), place_held(match.candidate, link.candidate)
    what = What(kind, link.candidate.part.parameter)
    return Finding(Verdict.DIFFERS, phase, *places, what, evidence=(evidence,), source=True, **rest)


def is_close(ours: Array, theirs: Array, rule: Rule | None) -> bool:
    """Return whether values are equal by the user's own rule, or without one but for rounding."""
    if rule is not None:
        return rule(ours, theirs)
    wider, narrower = sorted((ours, theirs), key=lambda one: (epsilon(one.dtype), -one.dtype.itemsize))
    if narrower.dtype != wider.dtype and np.array_equal(narrower, wider.astype(narrower.dtype)):
        return True  # as near as the narrower dtype allows
    return not is_suspect(difference(ours, theirs), narrower.dtype)


def special_notes(correspondence: Correspondence, *, copied: bool, backward: bool) -> Iterator[Note]:
    """Yield what special transfers leave uncompared: values that only a copy tells, gradients that nothing tells."""
    for match in correspondence.matches:
        row = match.reference.special
        links = [link for link in match.links if not link.buffer]
        if row is None or not links:
            continue
        places = (Place(unit.module.path, unit.module.class_name) for unit in (match.reference, match.candidate))
        reference, candidate = places
        if not copied and not links[0].known:
            yield Note("transfer_writes", {"transfer": row.label}, reference, candidate)
        untold = [link.role for link in links if not link.differentiated] if backward else []
        if untold:
            data = {"names": untold, "transfer": row.label, "writes": row.item.takes == "modules"}
            yield Note("transfer_without_gradients", data, reference, candidate)


def tied_on_one_side(correspondence: Correspondence, ignored: Ignored) -> tuple[set[str], set[str]]:
    """Return what is tied on one side only, so that gradients differ: the candidate's modules, and its parameters.

    What is ``ignored`` is not told, and explains nothing.
    """
    links = [(match, link) for match, link in correspondence.links if not is_ignored(match, link, ignored)]
    found = [one for ours in (True, False) for group in tied(links, ours=ours) for one in group]
    return {match.candidate.module.path for match, _ in found}, {link.candidate.parameter.path for _, link in found}


def is_equal_tie(finding: Finding) -> bool:
    """Return whether a finding tells of what is tied on one side alone, and equal: only gradients show it."""
    return finding.is_caused_by("tied") and finding.figures is None


def tied(links: Sequence[tuple[UnitMatch, Link]], *, ours: bool) -> Iterator[list[tuple[UnitMatch, Link]]]:
    """Yield the links to one parameter, of the reference or of the candidate, that lead to several of the other."""

    def at(one: tuple[UnitMatch, Link]) -> tuple[str, Part | None]:
        held = one[1].reference if ours else one[1].candidate
        return held.parameter.path, held.part if held.part.partial else None

    for group in grouped((one for one in links if one[1].single), at).values():
        if len({(link.candidate if ours else link.reference).parameter.path for _, link in group}) > 1:
            yield group


def _ties(
    links: Sequence[tuple[UnitMatch, Link]], read: Reading, merged: Set[Link], backward: bool, rule: Rule | None
) -> Iterator[Finding]:
    """Yield parameters that are one object on one side and several on the other.

    Their gradients differ. Of several that are one and hold its values, the ``merged`` ones, values may do so, too.
    """
    for ours in (True, False):
        for group in tied(links, ours=ours):
            figures = None if ours or group[0][1] not in merged else _worst(group, read, rule)
            if not (backward or figures):
                continue
            match, link = group[1]
            paths = ((one.candidate if ours else one.reference).parameter.path for _, one in group)
            others = list(dict.fromkeys(paths))
            side = "reference" if ours else "candidate"
            evidence = Evidence.of("tied", side=side, count=len(others), paths=others, apart=figures is not None)
            cause = Cause("tied", {"side": side}, verified=True)
            what = "buffer" if link.candidate.parameter.buffer else "parameter"
            yield finding_of_link(match, link, Phase.PARAMETER, what, evidence, cause=cause, figures=figures)


def _worst(group: Sequence[tuple[UnitMatch, Link]], read: Reading, rule: Rule | None) -> Figures | None:
    """Return how far apart links to one parameter hold it at worst, None where rounding explains it."""
    apart = [Figures.of(difference(*both)) for both in _arrays(group, read) if not is_close(*both, rule)]
    return max(apart, key=lambda one: one.rel_l2, default=None)


def _arrays(group: Sequence[tuple[UnitMatch, Link]], read: Reading) -> Iterator[tuple[Array, Array]]:
    for _, link in group:
        ours, theirs = read(link)
        if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
            yield ours, theirs
