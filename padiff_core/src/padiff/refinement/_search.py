"""Search the layout, or the order, under which a call gives what the reference's does: each is put in and tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from padiff.alignment import Alignment, Pair
from padiff.numerics import SAME, TOGETHER, epsilon_of
from padiff.parameters import Correspondence, UnitMatch
from padiff.refinement._evidence import Evidence
from padiff.refinement._trials import RIGHT, WIDE, Trial, in_float64, is_drawn, trial_without_randomness
from padiff.trace import Key, Trace

Choice = TypeVar("Choice")
_Wrong = tuple[float, tuple[float, ...], tuple[float, ...]]
"""Of how many values a choice is wrong, how far off these are, and where none can be better, how far in float64."""
_Errors = Mapping[Hashable, float]
_SETTLED = TOGETHER(epsilon_of("float32")) / SAME(epsilon_of(WIDE))
"""An error in float64, in units of `SAME`, up to which suspects are called right: constants may be kept in float32."""
_NONE_RIGHT: _Wrong = math.inf, (), ()
_RIGHT: _Wrong = 0, (), ()


def best_of(
    correspondence: Correspondence,
    evidence: Evidence,
    matches: Sequence[UnitMatch],
    choices: Sequence[Choice],
    put: Callable[[Choice], None],
    *,
    first: bool = False,
    known: int = 0,
    varied: Callable[[Sequence[Choice]], bool] = lambda _: False,
    nearer: float = 1.0,
    righter: bool = False,
    handed: Sequence[UnitMatch] = (),
) -> tuple[Choice, bool]:
    """Put in each choice, up to the ``first`` that none outdoes; leave and return the best, and whether it is right.

    So many of the choices, the first ones, are ``known`` from elsewhere: for these float64 is not asked. ``varied``
    says whether some of them differ in all that is to be chosen: what is wrong under each alike is wrong for itself.
    One that is wrong in as much as one before it is better where its errors are less than ``nearer`` times as large.
    One that is as far off as zeros would be outdoes none in that way. Where ``righter`` is asked for, one is right that
    makes some values right that are wrong under the first, and none wrong: a fault beside them spoils the others.
    What is ``handed`` on may be called by other code in the reference: the errors of that code count too.
    """
    best, least = choices[0], _NONE_RIGHT

    def search(trials: Sequence[Trial]) -> tuple[Choice, _Wrong]:
        best, least = choices[0], _NONE_RIGHT
        exact: list[Trial | None] | None = None
        far = max((one.far for one in trials), default=math.inf)
        tried: list[tuple[Choice, _Errors]] = []
        for place, choice in enumerate(choices):
            put(choice)
            tried.append((choice, {(i, key): x for i, one in enumerate(trials) for key, x in one.errors().items()}))
            wrong = _wrong(tried[-1][1].values())
            # Query and key exchanged are nearly right where attention is nearly even; a fault may show little.
            if first and not wrong[0] and place >= known:
                exact = exact or [in_float64(trial) for trial in trials]
                errors = [error for trial in exact if trial is not None for error in trial.errors().values()]
                count, apart, _ = _wrong(errors) if all(map(math.isfinite, errors)) else _RIGHT
                # Beside a fault that float64 alone shows, what is right natively is still righter than what is not.
                wrong = (count / (count + 1), wrong[1], ()) if wrong[1] and count else (0, (), apart)
                if not place and max(errors, default=0.0) <= _SETTLED:
                    wrong = (0, (), ())  # right as it was, by what every call is judged by
            if _outdoes(wrong, least, nearer, far):
                best, least = choice, wrong
            if first and not any(least):
                break
            right = _right_beside(tried) if varied([one for one, _ in tried]) else []
            if len(right) == 1:
                return right[0], (0, (), ())
        if righter and least[0] and _wrong_ones(tried, best) < _wrong_ones(tried, choices[0]):
            least = _RIGHT
        return best, least

    def without_chance() -> tuple[Choice, _Wrong] | None:
        trials = [trial_without_randomness(bench, pair) for pair, bench in benches.items()]
        still = [trial for trial in trials if trial is not None]
        return search(still) if still else None

    # The first call of a recurrent layer may be given zeros, of which all choices make the same; and what is given
    # other numbers than the reference's (the last word, or all so far) cannot give what that does.
    paths = dict.fromkeys(match.candidate.module.path for match in matches)
    users = [found for found in map(correspondence.alignment.using, paths) if found]
    users = [[pair for pair in found if not pair.unfed] or found for found in users]
    ends = dict.fromkeys(end for found in users for end in (found[0], found[-1]))
    pairs = dict.fromkeys(judging_call(correspondence.alignment, user) for user in ends)
    if pairs:
        benches = {pair: evidence.bench(correspondence, evidence.own_inputs(correspondence, pair)) for pair in pairs}
        # What one side's code reads of its own, the other's may be handed by the code around it.
        readers = {match.reference.module.path for match in matches}
        reading = {one.key for one in correspondence.alignment.pairs if one.reference.path in readers}
        beside = frozenset(reading | _callers(correspondence.alignment, evidence.trace, handed))
        drawn = all(is_drawn(correspondence.alignment, pair) for pair in pairs)
        found = without_chance() if drawn else None
        if found is None:
            best, least = search([Trial(bench, pair, bench.trace, beside=beside) for pair, bench in benches.items()])
            if least[0] and not all(bench.is_whole(pair) for pair, bench in benches.items()):
                # What is matched inside may not be the same (a router that gives logits, or shares): as a whole, then.
                alone = [Trial(bench.whole(pair), pair, bench.trace) for pair, bench in benches.items()]
                whole, wrong = search(alone)
                best, least = (best, least) if wrong[0] else (whole, wrong)
            found = without_chance() if least[0] and not drawn else None
        best, least = found or (best, least)
    put(best)
    return best, not least[0]


def _callers(alignment: Alignment, trace: Trace, matches: Sequence[UnitMatch]) -> set[Key]:
    """Return the matched calls in which the reference calls the layers of some matches."""
    paths = {match.reference.module.path for match in matches}
    calls = (call for call in trace.calls if call.path in paths)
    around = (next(filter(None, map(alignment.of_reference, call.ancestors())), None) for call in calls)
    return {pair.key for pair in around if pair is not None}


def _wrong_ones(tried: Sequence[tuple[Choice, _Errors]], choice: Choice) -> set[Hashable]:
    """Return which values a choice makes wrong."""
    return {key for one, errors in tried if one is choice for key, error in errors.items() if error > RIGHT}


def _right_beside(tried: Sequence[tuple[Choice, _Errors]]) -> list[Choice]:
    """Return the choices that are right in all values but those that are as wrong under every choice."""
    keys = {key for _, errors in tried for key in errors}
    found = {key: {errors.get(key, 0.0) for _, errors in tried} for key in keys}
    telling = [key for key, values in found.items() if len(values) > 1 or math.inf in values]
    return [choice for choice, errors in tried if telling and not any(errors.get(key, 0.0) for key in telling)]


def _wrong(errors: Collection[float]) -> _Wrong:
    """Return of how many values an arrangement is wrong, all that a fault beside it spoils, and how far off."""
    ran = all(map(math.isfinite, errors))
    count = sum(error > RIGHT for error in errors) if ran else math.inf
    return count, tuple(sorted(filter(None, errors), reverse=True)), ()


def _outdoes(wrong: _Wrong, least: _Wrong, nearer: float, far: float) -> bool:
    if nearer < 1 and wrong[0] and wrong[0] == least[0]:
        return math.hypot(*wrong[1]) < min(nearer * math.hypot(*least[1]), far * math.sqrt(len(wrong[1])))
    return wrong < least


def judging_call(alignment: Alignment, pair: Pair) -> Pair:
    """Return the innermost call at or around a pair's that can be fed, and gives what the reference gives in shape."""
    around = (alignment.of_candidate(call) for call in pair.candidate.ancestors())
    fed = (one for one in (pair, *around) if one is not None and one.outputs and not (one.misfed or one.misfits))
    return next(fed, pair)
