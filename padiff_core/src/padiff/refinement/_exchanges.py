"""Settle by forcing which of several like modules is which, where names do not tell and only order spoke.

Two same-shaped branches may be called in another order in a port. The weights then went to the wrong branches, and
what the parent's code makes of them differs. Exchanged, it does not: no other run of the model is needed to see that,
since forcing alone decides what the branches give.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import SURE, Alignment, Pair, agreement, in_doubt, region_of
from padiff.grouping import grouped
from padiff.judging import Suspicion
from padiff.parameters import Correspondence, HeldUnit, Link, UnitMatch, held_of, link_roles, matcher
from padiff.refinement._axes import aligned
from padiff.refinement._evidence import Evidence
from padiff.refinement._loops import first_of_loops
from padiff.refinement._mismatches import without_mismatches
from padiff.refinement._partners import used_by_own_code, with_partners_tried
from padiff.refinement._trials import RIGHT, Trial, trial_without_randomness
from padiff.report import SIDES, Verdict
from padiff.trace import Key, Trace

_MOST = 20
"""Tries for one call: what attention needs (two or three of four projections, in every way), and some more."""
Cycle = tuple[UnitMatch, ...]
"""Matches of which each is to get the next one's partner."""
Errors = Mapping[Hashable, float]
"""How far each value is off that a call's own code makes."""
_NEARLY = 1 / 1000
"""How far the sizes of parameters that may be equal are apart, at most."""


def with_exchanges(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Exchange partners where that makes code right that differs, or of which chance hides whether it does.

    Partners whose names say the same beyond doubt stay: keys that are used for values are a fault, which whoever loads
    weights by name meets, and no other evidence tells it from names that cross. That it would be right so is noted.
    Where partners were exchanged the candidate has other weights: it runs again, and its calls are matched anew.
    """
    judge = evidence.judged(correspondence)
    suspect = (Verdict.DIFFERS, Verdict.STOCHASTIC)
    suspicions = judge.forward(rough=True)
    owners = grouped((s for s in suspicions if s.verdict in suspect), lambda s: s.pair)
    bench = judge.settler.bench
    result = correspondence
    crossed: dict[str, tuple[tuple[str, str], ...]] = {}
    looked: set[str] = set()  # one call of a class is asked whether it is right against names: they share their code
    used = used_by_own_code(correspondence) if owners else {}
    for owner in owners:
        result = with_partners_tried(used.get(owner, ()), result, evidence)
    callers = _callers(result, bench.alignment) if owners else {}
    for owner in itertools.chain.from_iterable(first for first, _ in first_of_loops(owners)):
        found = owners[owner]
        below = [match for match in result.matches if owner.key in callers.get(match.candidate, ())]
        unnamed = [below[i] for i in _unnamed(below, range(len(below)))]
        last = max(map(_begun_before, found))
        cycles = list(itertools.islice(_cycles(unnamed, bench.alignment, last), _MOST))
        read_otherwise = list(itertools.islice(_cycles(unnamed, bench.alignment, last, read=False), _MOST))
        if not cycles and owner.candidate.module.class_name not in looked:
            looked.add(owner.candidate.module.class_name)
            named = list(itertools.islice(_cycles(below, bench.alignment, last), _MOST))
            asked = Trial(bench, owner, bench.trace)
            told = next((cycle for cycle in named if not asked.error(_crossed(bench.alignment, cycle))), None)
            if told is not None:
                crossed[owner.candidate.path] = tuple((a.reference.path, b.candidate.path) for a, b in _steps(told))
        if not (cycles or read_otherwise):
            continue
        trial = trial_without_randomness(bench, owner)
        drawn, trial = trial is not None, trial or Trial(bench, owner, bench.trace)
        # What can be compared with none of the present partners' values is nobody's but these.
        misfits = (one for one in cycles if not any(pair.outputs for pair in _calls(bench.alignment, one)))
        best = next(misfits, None) or _best(cycles, trial)
        is_right = trial.error() <= RIGHT
        if best is None and not is_right:
            best = next((cycle for cycle in read_otherwise if _is_better_so(cycle, trial, result, evidence)), None)
        if best is not None:
            result = _turned(best, result)
        elif drawn and not is_right:
            paths = (link.candidate.parameter.path for cycle in cycles for match in cycle for link in match.links)
            result = result.leaving_open(paths)
    result = attrs.evolve(result, crossed=crossed)
    if result.matches is correspondence.matches:
        return evidence.replaced(correspondence, result)
    evidence.give(result)
    return without_mismatches(aligned(result, evidence), evidence)


def _best(cycles: Sequence[Cycle], trial: Trial) -> Cycle | None:
    """Return the exchange under which a call's own code is most right, and more so than it is without."""
    best, least = None, trial.errors()
    for cycle in cycles if any(least.values()) else ():
        errors = trial.errors(_crossed(trial.bench.alignment, cycle))
        if _is_better(errors, least):
            best, least = cycle, errors
        if not any(errors.values()):
            break
    return best


def _is_better(errors: Errors, others: Errors) -> bool:
    """Return whether some is right that was wrong, and all that was right: beside another fault, not all is.

    Or else whether what was right is nearer. Query and key exchanged may be nearly right: where attention is nearly
    even.
    """
    wrong, before = ({key for key, error in some.items() if error >= RIGHT} for some in (errors, others))
    near, nearest = (max((e for e in some.values() if e < RIGHT), default=0.0) for some in (errors, others))
    return wrong < before or (wrong == before and near < nearest)


def _is_better_so(cycle: Cycle, trial: Trial, known: Correspondence, evidence: Evidence) -> bool:
    """Return whether a call's own code is more right with an exchange, and values read as that has their axes."""
    tried = aligned(_turned(cycle, known), evidence)
    pair = tried.alignment.of_key(trial.pair.key)
    return pair is not None and _is_better(Trial(evidence.bench(tried), pair, evidence.trace).errors(), trial.errors())


def _turned(cycle: Cycle, known: Correspondence) -> Correspondence:
    return known.rematched({match: _partner(match, following) for match, following in _steps(cycle)})


def with_exchanges_by_value(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Exchange partners where the values that both sides hold already tell which is which, and their names do not.

    Where the candidate gives what the reference gives as it is, its values stand where they belong, whatever names say.
    First among modules that take the same tensor: their order is the port's own business. What is apart still may have
    its counterpart anywhere: a fault in the code around can lead the dataflow astray.
    """
    matches = correspondence.one_to_one
    result = list(matches)
    fed = _first_inputs(evidence.trace), _first_inputs(evidence.free(correspondence.axes))
    groups = grouped(
        range(len(matches)),
        lambda i: tuple(side.get(unit.module.path) for side, unit in zip(fed, matches[i].units, strict=True)),
    )
    right = evidence.agrees(correspondence.axes)

    def open_ones(group: Sequence[int]) -> Sequence[int]:
        return group if right else _unnamed(result, group)

    for group in (group for inputs, group in groups.items() if None not in inputs):
        _exchange(result, [i for i in open_ones(group) if not evidence.holds_alike(result[i])], evidence)
    tops = correspondence.fixed.regions()[1]
    left = [i for i, match in enumerate(result) if match.links and not evidence.holds_alike(match)]
    for apart in grouped(left, lambda i: region_of(result[i].candidate.module.path, tops)).values():
        _exchange(result, open_ones(apart) if len(apart) > 1 else [], evidence)
    _exchange_namesakes(result, evidence)
    changed = {match: now for match, now in zip(matches, result, strict=True) if match is not now}
    if not changed:
        return correspondence
    _follow(result, [match in changed for match in matches], correspondence, evidence)
    return correspondence.rematched(dict(zip(matches, result, strict=True)))


def _follow(
    matches: list[UnitMatch], exchanged: Sequence[bool], correspondence: Correspondence, evidence: Evidence
) -> None:
    """Match what the dataflow left open anew, now that values told of some: norms go with the layers beside them.

    Their own values, equal on all sides as they began, do not tell.
    """
    settled = [
        now or (match.reference not in correspondence.symmetric) for match, now in zip(matches, exchanged, strict=True)
    ]
    whole = {match.reference: match.candidate for match, sure in zip(matches, settled, strict=True) if sure}
    units = [match.reference for match in matches], [match.candidate for match in matches]
    found = matcher(evidence.flows(), correspondence.fixed)(*units, whole, {})
    result = list(matches)
    for index, match in enumerate(matches):
        partner = found.get(match.reference)
        if not settled[index] and partner is not None and partner is not match.candidate:
            result[index] = UnitMatch.of(match.reference, partner)
    changed = [(match, now) for match, now in zip(matches, result, strict=True) if match is not now]
    partners = [{match.candidate for match in some} for some in zip(*changed, strict=True)]
    if partners and partners[0] == partners[1] and all(evidence.holds_alike(now) for _, now in changed):
        matches[:] = result


def _exchange(matches: list[UnitMatch], apart: Sequence[int], evidence: Evidence) -> None:
    """Let matches whose values are apart have each other's partners, where that makes values alike."""
    sizes = {i: _sizes(matches[i], evidence) for i in apart}
    free_partners = list(apart)
    following = {}
    for i in apart:
        like = (j for j in free_partners if abs(sizes[i][0] - sizes[j][1]) <= _NEARLY * sizes[i][0])
        fit = next((j for j in like if evidence.holds_alike(_partner(matches[i], matches[j]))), None)
        if fit is not None:
            following[i] = fit
            free_partners.remove(fit)
    rest = [i for i in apart if i not in following]
    following.update(zip(rest, free_partners, strict=True))
    turned = {i: _partner(matches[i], matches[j]) for i, j in following.items()}
    if len(rest) < len(apart) and all(match.links for match in turned.values()):
        for i, match in turned.items():
            matches[i] = match


def _exchange_namesakes(matches: list[UnitMatch], evidence: Evidence) -> None:
    """Let two matches whose values are apart have each other's partners, where names say that just as surely.

    A student's layers are called as its teacher's are.
    """
    left = [i for i, match in enumerate(matches) if match.links and not evidence.holds_alike(match)]
    said = agreement(*([getattr(matches[i], side).path for i in left] for side in SIDES)) >= SURE
    for a, b in np.argwhere(np.triu(said & said.T, 1)):
        one, other = matches[left[a]], matches[left[b]]
        turned = _partner(one, other), _partner(other, one)
        if all(match.links for match in turned) and any(map(evidence.holds_alike, turned)):
            matches[left[a]], matches[left[b]] = turned


def _sizes(match: UnitMatch, evidence: Evidence) -> tuple[float, float]:
    """Return the norm of what each side holds of a match: what is alike has it in any layout."""
    squares = [0.0, 0.0]
    for link in match.links:
        for side, held in enumerate(held_of(link, evidence.reference, evidence.candidate)):
            squares[side] += 0.0 if held is None else float(np.linalg.norm(held.astype(np.float64))) ** 2
    return squares[0] ** 0.5, squares[1] ** 0.5


def _first_inputs(trace: Trace) -> dict[str, int]:
    """Return the token of the tensor that each module takes first, by the module's path."""
    found: dict[str, int] = {}
    for call in trace.calls:
        if call.inputs and not call.module.operation:
            found.setdefault(call.path, call.inputs[0].token)
    return found


def _unnamed(matches: Sequence[UnitMatch], group: Sequence[int]) -> list[int]:
    names = [[matches[i].reference.path for i in group], [matches[i].candidate.path for i in group]]
    return [group[n] for n in in_doubt(*names)]


def _callers(known: Correspondence, alignment: Alignment) -> dict[HeldUnit, set[Key]]:
    """Return the calls that call each matched unit of the candidate's that is like others in the dataflow.

    What a matched call around them uses whole is no call of theirs: there is nothing to exchange.
    """
    found: dict[HeldUnit, set[Key]] = {}
    for match in known.matches:
        path = match.candidate.module.path
        if match.reference in known.symmetric and not match.candidate.name:
            calls = [pair for pair in alignment.using(path) if pair.candidate.path == path]
            found[match.candidate] = {pair.key for pair in map(alignment.around, calls) if pair is not None}
    return found


def _begun_before(suspicion: Suspicion) -> float:
    """Return the index of the candidate's calls before which a value was made: none that follows has a part in it."""
    spot = suspicion.spot
    return math.inf if spot is None or spot.what == "output" else spot.pair.candidate.index


def _cycles(below: Sequence[UnitMatch], alignment: Alignment, last: float, *, read: bool = True) -> Iterator[Cycle]:
    """Yield two, then three of some matched units of which each may have the next one's partner: it fits.

    One of them at least is called before the ``last`` call that is given what is wrong. What gives another shape than
    the other one cannot be fed in its place, which makes the code around right by itself. Where it is not ``read`` as
    it is now, two of them may: in another order of axes, the one that it is read in fits its present partner alone.
    """
    early = {match for match in below if any(pair.candidate.index < last for pair in _calls(alignment, (match,)))}
    for length in () if not early else (2, 3) if read else (2,):
        for first, *others in itertools.combinations(below, length):
            if early.isdisjoint((first, *others)):
                continue
            for order in itertools.permutations(others):
                cycle = (first, *order)
                if not all(link_roles(a.reference, b.candidate)[0] for a, b in _steps(cycle)):
                    continue
                pairs = _exchanged(alignment, cycle)
                if all(pair.outputs for pair in pairs) if read else _may_be_read_otherwise(pairs):
                    yield cycle


def _may_be_read_otherwise(pairs: Sequence[Pair]) -> bool:
    """Return whether all calls give what the other side's gives in some order of axes, and not all in the present."""
    shapes = [
        [sorted(sorted(leaf.shape) for leaf in call.outputs) for call in (pair.reference, pair.candidate)]
        for pair in pairs
    ]
    return not all(pair.outputs for pair in pairs) and all(ours == theirs for ours, theirs in shapes)


def _steps(cycle: Cycle) -> Iterator[tuple[UnitMatch, UnitMatch]]:
    """Yield each match of a cycle with the one whose partner it takes."""
    return zip(cycle, (*cycle[1:], cycle[0]), strict=True)


def _calls(alignment: Alignment, cycle: Cycle) -> list[Pair]:
    return [pair for match in cycle for pair in alignment.using(match.candidate.module.path)]


def _crossed(alignment: Alignment, cycle: Cycle) -> Alignment:
    gone = {pair.key for pair in _calls(alignment, cycle)}
    kept = [pair for pair in alignment.pairs if pair.key not in gone]
    pairs = sorted([*kept, *_exchanged(alignment, cycle)], key=lambda pair: pair.candidate.index)
    return attrs.evolve(alignment, pairs=pairs)


def _exchanged(alignment: Alignment, cycle: Cycle) -> list[Pair]:
    calls = {match: alignment.using(match.candidate.module.path) for match in cycle}
    return [
        Pair(ours.reference, theirs.candidate, ours.why)
        for match, following in _steps(cycle)
        for ours, theirs in zip(calls[match], calls[following], strict=False)
    ]


def _partner(match: UnitMatch, following: UnitMatch) -> UnitMatch:
    """Return a match with another one's partner, whose parameters lie there as they did for that one's like unit."""
    found, held = UnitMatch.of(match.reference, following.candidate), match.reference.roles
    known = [link for link in following.links if type(link) is Link and not any(link.orders)]
    alike = all(link.role in held and held[link.role].shape == link.reference.shape for link in known)
    if not alike or len(known) != len(found.links):
        return found
    return attrs.evolve(found, links=[attrs.evolve(link, reference=held[link.role]) for link in known])
