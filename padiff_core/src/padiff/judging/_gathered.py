"""Hold what the steps of a comparison showed so far, whether models were run or two recorded runs were read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Self

import attrs

from padiff.alignment import Alignment, Pair
from padiff.judging._findings import finding_of, given_to, place_of
from padiff.judging._misuses import Misuse, misuses
from padiff.judging._parameters import is_equal_tie, tied_on_one_side
from padiff.judging._parts import SHOWN, Ignored
from padiff.judging._suspicion import Suspicion
from padiff.parameters import Correspondence
from padiff.paths import is_at, joined, last, parent
from padiff.report import (
    SIDES,
    Cause,
    ComparedCall,
    Coverage,
    Evidence,
    Figures,
    Finding,
    Matching,
    Note,
    Phase,
    Place,
    Verdict,
    What,
)
from padiff.trace import Call, Key


@attrs.define(eq=False, kw_only=True)
class Gathered:
    """What is known so far."""

    ignored: Ignored
    findings: list[Finding] = attrs.field(factory=list)
    notes: list[Note] = attrs.field(factory=list)
    calls: list[ComparedCall] = attrs.field(factory=list)
    mapping: Matching = attrs.field(factory=Matching)
    output: Figures | None = None
    output_within: bool | None = None
    loss: tuple[float, float] | None = None
    coverage: Coverage | None = None

    def forked(self) -> Self:
        """Return the same, to which one may add without adding here."""
        own = {one.name: getattr(self, one.name) for one in attrs.fields(type(self))}
        copies: dict[str, Any] = {
            name: value.copy() for name, value in own.items() if isinstance(value, list | set | dict)
        }
        return attrs.evolve(self, **copies)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many calls got which verdict, in the verdicts' own order."""
        found = Counter(call.verdict for call in self.calls)
        return {verdict.value: found[verdict] for verdict in Verdict if found[verdict]}

    @property
    def differs(self) -> bool:
        """Return whether anything that counts was found."""
        return any(one.counts for one in self.findings)

    def judged(
        self, suspicions: Sequence[Suspicion], known: Correspondence, parameters: Sequence[Finding], step: int
    ) -> list[Finding]:
        """Return suspicions as findings: a source is what differs, is not ignored, and follows from no parameter."""
        modules, tied = tied_on_one_side(known, self.ignored)
        apart = (one for one in parameters if one.phase is Phase.PARAMETER and not is_equal_tie(one))
        changed = {one.candidate.path for one in apart}
        whole = {match.candidate.module.path for match in known.matches if match.candidate.special is not None}
        instead = misuses([one for one in suspicions if not self.is_ignored(one.pair)], known)
        crossed = {path for misuse in instead.values() for path in misuse.layers}
        tied |= {x.candidate.parameter.path for match, x in known.links if match.candidate.module.path in crossed}
        lacking = _lacking(parameters, known)
        told: dict[Misuse, Suspicion] = {}
        found = []
        for one in suspicions:
            ignored = self.is_ignored(one.pair)
            source = one.arises and one.verdict is Verdict.DIFFERS and not ignored
            explained = changed if one.phase is Phase.FORWARD else changed | modules
            source = source and not _is_explained(one.pair.candidate, explained, whole)
            source = source and (one.held is None or one in instead or one.held.parameter.path not in tied)
            layers = lacking.get(one.pair.key, ())
            if source and (taken := [path for path in layers if _takes(one, path, known.alignment)]):
                source = False
                if one.phase is Phase.FORWARD:  # what comes behind was fed, and is its own
                    lacking[one.pair.key] = [path for path in lacking[one.pair.key] if path not in taken]
            misuse = instead.get(one)
            source = source and (misuse is None or told.setdefault(misuse, one) is one)
            finding = finding_of(one, source=source, verdict=Verdict.IGNORED if ignored else None, step=step)
            if source and misuse is not None:
                finding = misuse.told(finding, one.pair)
            found.append(_with_other_rows(finding, known))
        return [*_of_merged(found, suspicions, known)]

    def is_ignored(self, pair: Pair) -> bool:
        """Return whether the user left a call out, on either side."""
        return pair.reference.path in self.ignored[0] or pair.candidate.path in self.ignored[1]

    def add_calls(self, calls: Iterable[ComparedCall]) -> None:
        """Add the compared tree of one step behind those of the others."""
        start = len(self.calls)
        self.calls += [attrs.evolve(one, parent=None if one.parent is None else one.parent + start) for one in calls]


def _with_other_rows(finding: Finding, known: Correspondence) -> Finding:
    """Return a finding on code with the order of rows as its cause under which the code is right."""
    way = known.other_rows.get(finding.candidate.path or "")
    if way is None or finding.cause is not None or finding.phase is not Phase.FORWARD:
        return finding
    rows = next(iter(way.values()))[:SHOWN]
    return attrs.evolve(finding, cause=Cause("other_rows", {"layers": list(way), "rows": list(rows)}, verified=True))


def _of_merged(found: list[Finding], suspicions: Sequence[Suspicion], known: Correspondence) -> Iterator[Finding]:
    """Yield findings, those on what weights were to make that one side merged at the layers that hold these, once.

    What other inputs alone show is told of the parameters.
    """
    told: list[Group] = []
    for finding, one in zip(found, suspicions, strict=True):
        group = None if one.spot is None or not finding.source else known.astray.get(one.spot.key)
        if group is None:
            yield finding
            continue
        rest: dict[str, Any] = _layers_of(group, known)
        yield attrs.evolve(finding, cause=_cause_of(group), between=None, given=(), source=group not in told, **rest)
        told.append(group)
    for group in dict.fromkeys((*known.astray.values(), *known.hidden)):
        if group not in told:
            what = What("parameter", last(min(group[1])))
            places = {"reference": Place(None), "candidate": Place(None), **_layers_of(group, known)}
            evidence = (Evidence("on_other_inputs"),)
            told_of: dict[str, Any] = {**places, "what": what, "evidence": evidence, "cause": _cause_of(group)}
            yield Finding(Verdict.DIFFERS, Phase.PARAMETER, source=True, **told_of)


Group = tuple[frozenset[str], frozenset[str]]
"""Parameters of both sides that were to make the same together."""


def _cause_of(group: Group) -> Cause:
    return Cause("merged", {name: sorted(paths) for name, paths in zip(SIDES, group, strict=True)})


def _layers_of(group: Group, known: Correspondence) -> dict[str, Place]:
    """Return the first layers of both sides that are called and hold some parameters."""
    calls, found = known.alignment, {}
    for side, paths, left in zip(SIDES, group, (calls.left_reference, calls.left_candidate), strict=True):
        layers = {parent(path) for path in paths}
        inside = (call for call in (*(getattr(p, side) for p in calls.pairs), *left) if call.path in layers)
        first = min(inside, key=lambda call: call.index, default=None)
        if first is not None:
            found[side] = place_of(first)
    return found


Lacking = tuple[str, str]
"""Whose layer the other side lacks, or lacks a part of; and its path."""


def _lacking(parameters: Sequence[Finding], known: Correspondence) -> dict[Key, list[Lacking]]:
    """Return the layers that one side alone has or ties, or that lack a part, by the calls whose code calls them."""
    found: dict[Key, list[Lacking]] = {}
    calls = known.alignment
    for one in parameters:
        path, cause = one.candidate.path, one.cause
        if cause is not None and cause.name in ("missing_module", "tied") and not is_equal_tie(one):
            side = str(cause.parameters["side"])
            path = getattr(one, side).path
            left = calls.left_reference if side == "reference" else calls.left_candidate
            holding = calls.of_reference if side == "reference" else calls.of_candidate
            for call in left:
                around = next(filter(None, map(holding, call.ancestors())), None) if call.path == path else None
                if around is not None:
                    found.setdefault(around.key, []).append((side, path))
        elif one.verdict is Verdict.UNMATCHED and one.reference.path is not None and path is not None:
            for pair in calls.using(path):
                if pair.candidate.path != path:
                    found.setdefault(pair.key, []).append(("candidate", path))
    return found


def _takes(suspicion: Suspicion, lacking: Lacking, calls: Alignment) -> bool:
    """Return whether the code that a value comes of takes what a layer gives, as far as that is known.

    A call without counterpart is such code, too.
    """
    side, path = lacking
    owner = getattr(suspicion.pair, side)
    given = {joined(owner.path, name) for name in given_to(suspicion, side)}
    left = {call.key for call in (calls.left_reference if side == "reference" else calls.left_candidate)}
    for call in reversed(owner.children):
        if call.key in left and call.path in given:
            taken = {leaf.token for leaf in call.inputs}
            given |= {one.path for one in owner.children if any(leaf.token in taken for leaf in one.outputs)}
    return suspicion.between is None or any(is_at(path, one) for one in given)


def _is_explained(call: Call, changed: Collection[str | None], whole: Collection[str]) -> bool:
    """Return whether a call's own parameters are known to differ; those below it too, where it is taken as a whole."""
    if call.path in whole:
        return any(path is not None and is_at(path, call.path) for path in changed)
    return call.path in changed and call.leaf
