"""Give a source in a module's own code the operations that differ there as its cause."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from padiff.alignment import BY_PLACE, Pair
from padiff.forcing import Spot
from padiff.judging._causes import cause_between
from padiff.judging._findings import at_line, called_at, finding_of, place_of
from padiff.judging._forced._both_codes import Slip
from padiff.judging._forced._judge import Judge
from padiff.judging._forced._slips import RUNS, Search
from padiff.judging._suspicion import Suspicion
from padiff.paths import last
from padiff.report import SIDES, Cause, Evidence, Finding, Phase, Place, Verdict
from padiff.trace import Call, Key, as_called, called_alike, samples_otherwise

_ALL_RUNS = 256
"""Replays of all calls of a report, but for the few of each that what was found elsewhere takes."""
_LEAST_RUNS = 4


def explained_by_code(sources: Sequence[Finding], judge: Judge, plain: Mapping[Key, Call]) -> Iterator[list[Finding]]:
    """Yield of each source what it is with the operations that differ in its code as the cause, or that code's lines.

    A value of another shape is none where other operations make what is wrong behind it right: these are, each.
    ``plain`` holds the calls of the candidate's run, by key.
    """
    named = {_name(finding_of(one, source=True, step=0)): one for one in judge.forward(rough=True)}
    opened = [_call(one) for one in sources if _is_opening(one)]
    behind = [one for one in judge.forward(moved=False) if one.verdict is Verdict.DIFFERS] if opened else []
    named |= {_name(finding_of(one, source=True, step=0)): one for one in behind}
    explained = _Explained(judge, plain, named)
    found: list[list[Finding]] = []
    for source in sources:
        if not _is_opening(source):
            found.append([explained.by_code(source)[0]])
            continue
        seen = [finding_of(one, source=True, step=source.step) for one in behind]
        told = [explained.by_code(one) for one in seen if _call(one) == _call(source)]
        found.append([one for one, _ in told] if any(whole for _, whole in told) else [source])
    # What was found in one call of some code tells where to look in another one, whichever comes first.
    for place, source in enumerate(sources):
        if explained.is_told_more(source):
            found[place] = [explained.by_code(source)[0]]
    led = explained.consequences()
    for some in found:
        yield [attrs.evolve(one, source=False) if _name(one) in led else one for one in some]


class _Explained:
    """What tells of sources, by their names, what their code shows."""

    def __init__(self, judge: Judge, plain: Mapping[Key, Call], named: Mapping[object, Suspicion]) -> None:
        self._bench, self._plain, self._named = judge.settler.bench, plain, named
        self._hints: set[object] = set()
        self._searched: dict[object, Search] = {}
        self._in_vain: set[object] = set()
        """Places of some code that was searched in vain in one call: in another one too, unless hints come."""
        self._spent = 0
        self._told: dict[object, set[object]] = {}
        """What was found elsewhere before each was looked into."""

    def is_told_more(self, source: Finding) -> bool:
        """Return whether more was found elsewhere since the code of a source showed nothing: it is looked into anew."""
        name = _name(source)
        more = name in self._searched and not self._searched[name].slips[0] and self._hints - self._told[name]
        if more:
            self._spent += self._searched.pop(name).runs
            self._in_vain.clear()
        return bool(more)

    def by_code(self, source: Finding) -> tuple[Finding, bool]:
        """Return a source with what its code shows, and whether that explains all of it."""
        name = _name(source)
        found = self._named.get(name)
        spot = None if found is None else found.spot
        index = None if spot is None else _index(spot, self._plain)
        if found is None or spot is None or index is None:
            return source, False
        like = found.pair.candidate.module.class_name, source.between, source.what
        if name not in self._searched:  # in a step behind it is the same
            bench = attrs.evolve(self._bench, evaluating=source.rests_on("evaluation_mode"))
            left = _ALL_RUNS - self._spent - sum(one.runs for one in self._searched.values())
            most = _LEAST_RUNS if like in self._in_vain else min(RUNS, max(left, _LEAST_RUNS))
            self._told[name] = set(self._hints)
            self._searched[name] = Search(bench, found.pair, spot, index, self._plain, self._hints, most)
        slips, whole = self._searched[name].slips
        if self._searched[name].in_vain:
            self._in_vain.add(like)
        drawn = source.rests_on("distribution")  # two draws differ, however they are made
        slips = [slip for slip in slips if _draw_otherwise(slip)] if drawn else slips
        if slips:
            return _caused(source, spot, slips, whole=whole), whole
        return (source if drawn else _narrowed(source, self._searched[name].lines())), False

    def consequences(self) -> set[object]:
        """Return the names of sources in calls inside of another one's that are right once that one is put right.

        What such a call is handed beside what is fed (a mask that is made once for all blocks) is the code's around.
        """
        found: set[object] = set()
        for name, search in self._searched.items():
            call = self._named[name].pair.candidate
            inside = {one.key for one in call.subtree() if one is not call}
            others = [(one, self._named[one]) for one in self._searched if self._named[one].pair.key in inside]
            if others:
                found.update(one for one, seen in others if seen.spot is not None and seen.spot.key in search.mended)
        return found


def _is_opening(source: Finding) -> bool:
    """Return whether a source is a value of another shape, of which nothing showed that what is wrong follows."""
    return source.rests_on("other_input", "other_output") and not source.rests_on("right_when_given")


def _call(one: Finding) -> object:
    return one.candidate.path, one.candidate.call


def _index(spot: Spot, plain: Mapping[Key, Call]) -> int | None:
    """Return where the candidate's call has a value that both sides have in one shape, by which its code can be asked.

    Run freely, a call may be given another shape than when the calls before it are fed.
    """
    at, what = spot.pair, spot.what
    if spot.owner is None or not {at.key, spot.owner.key} <= plain.keys():
        return None
    ties = at.inputs if what == "input" else at.outputs
    same = (theirs for ours, theirs in ties if at.reference.leaves(what)[ours].token == spot.reference.token)
    return next(same, None) if spot.reference.shape == spot.candidate.shape else None


def _name(one: Finding) -> object:
    """Return what names a source: a module that calls no others has operations in it only while these are recorded."""
    return one.candidate.path, one.candidate.call, one.between or ("start", "end"), one.what


def _caused(source: Finding, spot: Spot, slips: Sequence[Slip], *, whole: bool) -> Finding:
    """Return a source with slips as its cause, at the lines of the first; ``whole`` says whether they explain all."""
    rounds: dict[Cause, list[Slip]] = {}
    for slip in slips:
        cause = _cause(slip)
        if cause is not None:
            rounds.setdefault(cause, []).append(slip)
    if not rounds:
        return source
    causes, first = list(rounds), next(iter(rounds.values()))[0]
    more = [] if whole else [Evidence("more_differs")]
    return attrs.evolve(
        source,
        evidence=(*itertools.chain(*map(_rounds, rounds.values())), *more, *source.evidence),
        cause=causes[0] if len(causes) == 1 else Cause("several", {"causes": causes}, verified=True),
        reference=at_line(source.reference, first.reference[-1:]),
        candidate=_at_slip(source.candidate, first, spot),
    )


def _at_slip(place: Place, slip: Slip, spot: Spot) -> Place:
    """Return a place at the line of what the candidate does otherwise; where it does nothing, of what it hands on.

    What it hands on may come from outside of the code that the place is in: then the line that takes it tells.
    """
    giver = None if slip.candidate or slip.taken is not None else slip.taker
    taker = spot.pair.candidate
    own = next((one.module.definition for one in taker.ancestors() if one.path == place.path), None)
    inside = giver is not None and any((frame.file, frame.start) == own for frame in giver.frames)
    if slip.taken is not None and slip.taker is not None:
        line = called_at(slip.taker)
    elif slip.candidate or spot.what != "input" or own is None or inside:
        return at_line(place, slip.candidate[-1:] or ((slip.taker,) if slip.taker else ()))
    else:
        line = called_at(taker)
    return attrs.evolve(place, location=line.location, stack=line.stack)


def _draw_otherwise(slip: Slip) -> bool:
    both = zip(slip.reference[-1:], slip.candidate[-1:], strict=False)
    return any(samples_otherwise(ours, theirs) for ours, theirs in both)


def _cause(slip: Slip) -> Cause | None:
    """Return a slip as a cause; None where its words would not tell both sides apart."""
    if slip.taken is not None and slip.taker is not None:
        taken = dict(zip(SIDES, slip.taken, strict=True))
        if slip.constant:
            return Cause("constants", taken, verified=True)
        return Cause("taken", {**taken, "taker": last(slip.taker.path)}, verified=True)
    single = len(slip.reference) == len(slip.candidate) == 1
    if single:
        found = cause_between(Pair(slip.reference[0], slip.candidate[0], BY_PLACE), Phase.FORWARD)
        ours, theirs = (slip.named[side] for side in SIDES)
        # Modules of other kinds that are given something else are no other spelling of one.
        same = _values(ours) == _values(theirs)
        same |= slip.reference[0].module.kind == slip.candidate[0].module.kind
        if found is not None and found.name == "settings" and same:
            return attrs.evolve(found, verified=True)
        if ours == theirs and called_alike(slip.reference[0], slip.candidate[0]):
            return Cause("kernel", {"name": last(slip.candidate[0].path)}, verified=True)
    names = {name for side in slip.named.values() for names in side for name in names}
    # Of one value alone, or on one side alone, names say nothing.
    plain = names <= {"a", "_", "other"} or not (slip.reference and slip.candidate)
    alike = "other" not in names
    called = [
        [
            as_called(call, [] if plain else [_shown(name) for name in names])
            for call, names in zip(calls, slip.named[side], strict=True)
        ]
        for side, calls in zip(SIDES, (slip.reference, slip.candidate), strict=True)
    ]
    if not all(called):
        side = SIDES[not called[0]]
        return Cause("code_alone", {"side": side, "called": [*called[0], *called[1]]}, verified=True)
    sides: dict[str, Any] = dict(zip(SIDES, map(", ".join, called), strict=True))
    letters = sorted({name[0] for name in names - {"_", "other"}})
    sides |= {} if plain else {"same": letters}
    operations = all(call.module.operation for call in (*slip.reference, *slip.candidate))
    name = "arguments" if single and operations and alike else "code"
    return None if called[0] == called[1] else Cause(name, sides, verified=True)


def _values(named: Sequence[Sequence[str]]) -> list[str]:
    """Return which values are taken, without the shapes in which they lie."""
    return [name.partition("[")[0] for names in named for name in names]


def _shown(name: str) -> str:
    return "_" if name == "other" else name


def _rounds(slips: Sequence[Slip]) -> Iterator[Evidence]:
    """Yield in which rounds it is, where the candidate's line runs several times."""
    times = slips[0].round[1]
    if times > 1:
        called = last(slips[0].candidate[-1].path)
        yield Evidence.of("rounds", called=called, which=sorted({slip.round[0] + 1 for slip in slips}), of=times)


def _narrowed(source: Finding, calls: tuple[Sequence[Call], Sequence[Call]]) -> Finding:
    """Return a source with the lines between what both sides know and what differs, at the first of them."""
    lines = [
        sorted({line for call in some if (line := place_of(call).location) is not None}, key=_number) for some in calls
    ]
    if not all(lines):
        return source
    told = {side: tuple(dict.fromkeys((some[0], some[-1]))) for side, some in zip(SIDES, lines, strict=True)}
    return attrs.evolve(
        source,
        evidence=(*source.evidence, Evidence("between_lines", told)),
        reference=at_line(source.reference, calls[0][:1]),
        candidate=at_line(source.candidate, calls[1][:1]),
    )


def _number(location: str) -> tuple[str, int]:
    file, _, line = location.rpartition(":")
    return file, int(line)
