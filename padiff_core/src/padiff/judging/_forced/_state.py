"""Judge what a run leaves behind: gradients of parameters and inputs, and buffers such as running statistics.

They are of a call whose own outputs and gradients were judged before; what these explain is no second source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Reader, Replayed, StateCheck, gradient_reader, is_recorded
from padiff.judging._causes import KEPT, OF_STATE, as_parameters
from padiff.judging._forced._cause_search import likened_of_parameter
from padiff.judging._forced._question import Question
from padiff.judging._forced._wholes import is_mask
from padiff.judging._running_variance import by_convention
from padiff.judging._suspicion import UNMEASURED, Ruling, Suspicion, negligible
from padiff.numerics import (
    ACCUMULATED,
    NEGLIGIBLE_GRADIENT,
    NEGLIGIBLE_LIBRARY,
    SAME,
    Array,
    difference,
    epsilon,
    is_suspect,
    relative,
)
from padiff.parameters import canonical
from padiff.report import SIDES, Cause, Evidence, Figures, Note, Phase, Verdict, What
from padiff.trace import Call, Key, ParameterRecord, contrasts

if TYPE_CHECKING:
    from padiff.judging._forced._judge import Judge


def of_state(judge: Judge, earlier: Sequence[Suspicion]) -> list[Suspicion]:
    """Settle the gradients of parameters and the buffers that no earlier source explains."""
    excused = judge.excused(earlier)
    if all(one.verdict is not Verdict.DIFFERS for one in earlier):
        excused -= {pair.key for pair in judge.unfit}  # another shape that nothing made wrong makes nothing wrong
    found = [_buffer(judge, check, excused) for check in judge.forced.buffers if check.link.buffer]
    return [*of_gradients(judge, earlier), *_frozen(judge), *filter(None, found), *_kept_alone(judge, excused)]


def of_gradients(judge: Judge, earlier: Sequence[Suspicion]) -> Iterator[Suspicion]:
    """Yield the gradients of parameters that no earlier source explains."""
    excused = judge.excused(earlier)
    suspects = [check for check in judge.forced.gradients if check.is_suspect(NEGLIGIBLE_GRADIENT)]
    return filter(None, (_parameter(judge, check, excused) for check in suspects))


def of_rewritten(judge: Judge) -> Iterator[Suspicion]:
    """Yield the weights that a forward changes, and the other side's does not, or otherwise: no replay tells that."""
    for check in judge.forced.buffers:
        pairs = judge.alignment.using(check.match.candidate.module.path)
        relevant = not (check.accumulated if check.close is None else check.close)
        if relevant and pairs and not check.link.buffer:
            ruling = Ruling(Verdict.DIFFERS, Figures.of(check.difference), (Evidence("weight_rewritten"),))
            what = What("rewritten_weight", check.link.candidate.part.parameter)
            yield _suspicion(pairs[0], Phase.BUFFER, what, ruling, check)


def _kept_alone(judge: Judge, excused: set[Key]) -> Iterator[Suspicion]:
    """Yield norms that keep statistics on one side alone, and hold no weights: else a parameter lacks a counterpart."""
    held = {match.candidate.module.path for match in judge.matches}
    for pair in judge.alignment.pairs:
        found = [one for one in contrasts(pair.reference, pair.candidate) if one.setting == KEPT]
        if found and pair.candidate.path not in held and pair.key not in excused:
            held.add(pair.candidate.path)
            cause = Cause("settings", as_parameters(found), verified=True)
            ruling = Ruling(Verdict.DIFFERS, UNMEASURED, (), hint=cause)
            yield Suspicion(pair, Phase.BUFFER, What("buffers", "running statistics"), ruling)


def _frozen(judge: Judge) -> Iterator[Suspicion]:
    """Yield the parameters that are frozen on one side only, where the other one's get a gradient."""
    differing = {id(check.link) for check in judge.forced.gradients}
    for match, link, side in judge.forced.frozen:
        if id(link) not in differing and link.candidate.parameter.path not in judge.forced.reached:
            continue
        what = What("parameter_gradient", link.candidate.part.parameter)
        cause = Cause("frozen", {"name": what.name, "side": side}, verified=True)
        pair = (judge.alignment.using(match.candidate.module.path) or judge.alignment.pairs)[0]
        ruling = Ruling(Verdict.DIFFERS, UNMEASURED, (), hint=cause)
        yield Suspicion(pair, Phase.BACKWARD, what, ruling, held=link.candidate)


def _parameter(judge: Judge, check: StateCheck, excused: set[Key]) -> Suspicion | None:
    path = check.link.candidate.parameter.path
    shared = [one.match for one in judge.forced.gradients if one.link.candidate.parameter.path == path]
    pairs = [pair for match in shared for pair in judge.alignment.using(match.candidate.module.path)]
    around = [p for p in map(judge.alignment.around, pairs) if p is not None]
    if not pairs or any(link is check.link for _, link, _ in judge.forced.frozen):
        return None
    if any(pair.key in excused | judge.forced.unreached for pair in pairs):
        # What cut the gradients off was told, or the free runs will tell.
        judge.unproven |= not any(pair.key in excused for pair in pairs)
        return None
    without = path not in judge.forced.reached
    cut_off = without and any(pair.key in judge.forced.starved for pair in pairs)
    if cut_off or any(judge.leaks(pair, excused) for pair in pairs):
        judge.unproven = True
        return None  # further on
    read = of_parameter(judge, check)
    what = What("parameter_gradient", check.link.candidate.part.parameter)
    truth = check.reference if len(pairs) == 1 else None
    recorded = is_recorded(judge.settler.bench.reference)
    asked = [Question(pair, read, check.difference, truth, check.scale, what=what) for pair in pairs]
    rulings = [judge.settler.settle(one) for one in asked]
    if any(ruling.verdict is Verdict.STOCHASTIC for ruling in rulings):
        return None
    ruling = rulings[-1]
    told = any(one.settled for one in rulings)  # what calls without gradients (`no_grad`) send does not arise
    for one, ruling in zip(asked, rulings, strict=True):
        # What a run recorded of a parameter is also what the code around sent that uses it, and so is what does not
        # arise when the module is called by itself.
        doubts = recorded, not ruling.settled, any(pair.key in excused for pair in around)
        if ruling.verdict is Verdict.DIFFERS and sum(doubts) < 2 and ruling.settled >= told:
            return _suspicion(one.pair, Phase.BACKWARD, what, likened_of_parameter(ruling, one, judge.settler), check)
    if (
        ruling is None
        or check.accumulated
        or any(pair.key in excused for pair in around)
        or any(map(judge.settler.randomness.takes_numbers, pairs))
        or any(judge.settler.rounds(one, ours=True) for one in asked)
    ):
        return None
    if any(judge.settler.rounds(one, ours=False) for one in asked):
        if recorded:
            return None  # whichever side rounds there: nothing tells
        ruling = attrs.evolve(ruling.resting_on(Evidence("narrow_gradient")), verdict=Verdict.PRECISION)
        return _suspicion(pairs[0], Phase.BACKWARD, what, ruling, check)
    if _calling_more(judge, pairs) is not None or any(pair.key in excused for pair in _enclosing(judge, pairs)):
        judge.unproven = True  # by calls that have no counterpart, or code that derives what is made inside: both told
        return None
    root = judge.alignment.pairs[0]
    if root not in pairs:
        # Code around may use the parameter as well: of the whole model what was recorded is all that comes to it.
        all_of_it = Question(root, read, check.difference, check.reference, check.scale)
        whole = judge.settler.settle(all_of_it)
        if whole.settled and whole.verdict is Verdict.ROUNDING:
            return None
        if whole.settled and whole.verdict is Verdict.PRECISION and judge.settler.rounds(all_of_it, ours=False):
            return _suspicion(pairs[0], Phase.BACKWARD, what, whole.resting_on(Evidence("narrow_gradient")), check)
        ruling = whole if whole.settled and whole.verdict is Verdict.DIFFERS else ruling
    evidence = (Evidence.of("gradient_changed", rel_l2=check.difference.rel_l2),)
    ruling = attrs.evolve(ruling, verdict=Verdict.DIFFERS, evidence=evidence)
    return _suspicion(pairs[0], Phase.BACKWARD, what, ruling, check)


def _enclosing(judge: Judge, pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the calls around some, outwards: a derivative that their code takes comes to parameters deep inside."""
    for pair in pairs:
        outer = judge.alignment.around(pair)
        while outer is not None:
            yield outer
            outer = judge.alignment.around(outer)


def _suspicion(pair: Pair, phase: Phase, what: What, ruling: Ruling, check: StateCheck) -> Suspicion:
    held = check.link.candidate
    return Suspicion(pair, phase, what, ruling, held=held, measured=check.measured)


def _buffer(judge: Judge, check: StateCheck, excused: set[Key]) -> Suspicion | None:
    pairs = judge.alignment.using(check.match.candidate.module.path)
    what = What("updated_buffer", check.link.candidate.part.parameter)
    if not pairs or any(pair.key in excused for pair in pairs):
        return None
    if check.candidate is not None and check.reference.size != check.candidate.size:
        sizes = Evidence.of("buffer_of_other_size", reference=check.reference.size, candidate=check.candidate.size)
        return _suspicion(pairs[0], Phase.BUFFER, what, Ruling(Verdict.DIFFERS, UNMEASURED, (sizes,)), check)
    if _is_by_convention(judge, check, _calls_of(judge, check), check.reference, check.candidate):
        judge.notes.append(Note("running_variance", dict(zip(SIDES, _frameworks(judge), strict=True))))
        return None
    if not check.is_suspect(negligible(pairs[0])):
        return None
    read = of_parameter(judge, check)
    truth = check.reference if len(pairs) == 1 else None
    asked = Question(pairs[0], read, check.difference, truth, check.scale, backward=False)
    ruling = judge.settler.settle(asked)
    if ruling.verdict is Verdict.DIFFERS:
        ours, theirs = judge.settler.runs(pairs[0], "float64").values(read)
        if _is_by_convention(judge, check, [pairs[0].reference], ours, theirs):
            ruling = attrs.evolve(ruling, verdict=Verdict.ROUNDING)
    alike = ruling.verdict in (Verdict.ROUNDING, Verdict.PRECISION)
    beyond = not (check.accumulated or any(judge.settler.rounds(asked, ours=ours) for ours in (True, False)))
    if alike and (beyond or _differs_in_all(judge, asked, check)):
        # Its module alone leaves it alike: other calls differ, or there are more.
        ruling = attrs.evolve(ruling, verdict=Verdict.DIFFERS, evidence=(Evidence("buffer_in_model_only"),))
        caller = _calling_more(judge, pairs)
        if caller is not None:
            return None if caller.key in excused else _called_more(judge, caller, what, ruling, check)
    if ruling.verdict is Verdict.ROUNDING:
        return None
    return _suspicion(pairs[0], Phase.BUFFER, what, attrs.evolve(ruling, hint=_by_momentum(judge, check)), check)


def _differs_in_all(judge: Judge, asked: Question, check: StateCheck) -> bool:
    """Return whether all calls of a module together leave a buffer otherwise in float64, where rounding hides nothing.

    Statistics that two batches moved in the other order are less far apart than a narrow type rounds.
    """
    calls, root = _calls_of(judge, check), judge.alignment.pairs[0]
    if len(calls) < 2:
        return False
    ruling = judge.settler.settle(attrs.evolve(asked, pair=root, truth=check.reference))
    if not ruling.settled or ruling.verdict is not Verdict.DIFFERS:
        return False
    ours, theirs = judge.settler.runs(root, "float64").values(asked.read)
    return not _is_by_convention(judge, check, calls, ours, theirs)


def _by_momentum(judge: Judge, check: StateCheck) -> Cause | None:
    """Return the momenta of the two modules as the cause where these explain how far a running statistic moved.

    No call tells the settings of a norm that is compared with the code around it: one that holds its activation.
    """
    found = [one for one in contrasts(check.match.reference, check.match.candidate) if one.setting in OF_STATE]
    calls = _calls_of(judge, check)
    if len(found) != 1 or len(calls) != 1 or check.candidate is None:
        return None
    ours, theirs = (unit.settings[found[0].setting].value for unit in (check.match.reference, check.match.candidate))
    if not ours or not theirs:  # one averages over all batches, or keeps what it held: no ratio tells
        return None
    before = _before(judge, check)
    scaled = before + (check.candidate - before) * (ours / theirs)
    ways = [scaled, *by_convention(calls, judge.trace, (before, before), check.reference, scaled, _size(check))]
    apart = min(difference(check.reference - before, way - before).rel_l2 for way in ways)
    explains = apart <= SAME(epsilon(check.reference.dtype))
    return Cause("settings", as_parameters(found), verified=True) if explains else None


def _calling_more(judge: Judge, pairs: Sequence[Pair]) -> Pair | None:
    """Return the matched call around one of the modules' calls that one side makes and the other does not."""
    alignment = judge.alignment
    for calls, paths, found in (
        (alignment.left_candidate, {pair.candidate.path for pair in pairs}, alignment.of_candidate),
        (alignment.left_reference, {pair.reference.path for pair in pairs}, alignment.of_reference),
    ):
        for call in calls:
            if call.path in paths:
                return next((pair for above in call.ancestors() if (pair := found(above)) is not None), None)
    return None


def _called_more(judge: Judge, caller: Pair, what: What, ruling: Ruling, check: StateCheck) -> Suspicion:
    """Return a buffer that another number of calls leaves otherwise, at the code that makes them."""
    paths = check.match.reference.module.path, check.match.candidate.module.path
    root = judge.alignment.pairs[0]
    counts = {
        side: sum(one.path == path for one in call.subtree())
        for side, path, call in zip(SIDES, paths, (root.reference, root.candidate), strict=True)
    }
    cause = Cause("calls", {"name": paths[1], **counts}, verified=True)
    return Suspicion(caller, Phase.BUFFER, what, attrs.evolve(ruling, hint=cause))


def _is_by_convention(
    judge: Judge, check: StateCheck, calls: Sequence[Call], ours: Array | None, theirs: Array | None
) -> bool:
    """Return whether two running variances differ by Bessel's correction n/(n-1) of the batches of some calls alone."""
    if check.link.role != "running_var" or len(set(_frameworks(judge))) == 1 or ours is None or theirs is None:
        return False
    before = _before(judge, check)
    found = by_convention(calls, judge.trace, (before, before), ours, theirs, _size(check))
    eps = np.dtype(np.float32)
    return any(not is_suspect(difference(ours, one), eps, negligible=NEGLIGIBLE_LIBRARY) for one in found)


def _calls_of(judge: Judge, check: StateCheck) -> list[Call]:
    """Return the reference's calls of the module that holds a buffer."""
    path = check.match.reference.module.path
    return [call for call in judge.trace.calls if call.path == path and not call.module.operation]


def _before(judge: Judge, check: StateCheck) -> Array:
    """Return what the reference's buffer held before the run, as the candidate holds it."""
    held = check.link.reference
    return check.link.to_candidate(canonical(held, judge.settler.bench.reference.value(held.parameter.path)))


def _size(check: StateCheck) -> int:
    """Return how many numbers the reference's buffer holds, of which a packed norm's counterpart has some."""
    return math.prod(check.link.reference.parameter.shape)


def _frameworks(judge: Judge) -> tuple[str, str]:
    bench = judge.settler.bench
    return bench.reference.about.framework, bench.candidate.about.framework


def of_parameter(judge: Judge, check: StateCheck) -> Reader:
    """Return what reads a parameter's gradient, or a buffer, in the candidate's layout."""
    link = check.link

    def read(alone: Replayed, ours: bool) -> Array | None:
        def native(parameter: ParameterRecord) -> Array | None:
            table = alone.buffers if link.buffer else alone.gradients
            known = next((table[path] for path in parameter.paths if path in table), None)
            if known is None and link.buffer and not parameter.buffer:
                # A buffer may be made of parameters too, which a run does not change.
                bench = judge.settler.bench
                return (bench.reference if ours else bench.candidate).value(parameter.path)
            return known

        if ours:
            return link.expected(native) if link.buffer else link.gradient(native)
        values = native(link.candidate.parameter)
        return None if values is None else canonical(link.candidate, values)

    return read


def of_inputs(judge: Judge, excused: set[Key]) -> Iterator[Suspicion]:
    """Yield the model's inputs to which another gradient comes, though what the calls sent was put right."""
    root = judge.alignment.pairs[0]
    for check in judge.forced.inputs:
        apart = check.difference
        known = any(pair.key in excused for pair in (root, *check.users))
        users = [pair for pair in check.users if pair is not root]
        if any(pair.key in judge.forced.unreached for pair in users):
            judge.unproven = True  # cut off further on
            continue
        if known or relative(apart) <= ACCUMULATED(epsilon(check.reference.dtype)) or judge.leaks(root, excused):
            continue
        if check.alone is None and judge.is_right(root):
            judge.unproven = True
            continue
        leaf = root.reference.inputs[check.index]
        if check.alone is None and judge.settler.rounding(users, gradient_reader(leaf.token), apart) is not None:
            continue  # what takes the input sends that gradient, in a narrower type on one side
        evidence, pair = Evidence("model_changes_gradient"), root
        if check.alone:
            if is_mask(judge.trace.value(leaf)):
                continue
            evidence = Evidence.of("gradient_to_one", side=check.alone)
            # What took it got a gradient, and sent none on.
            pair = max(users, key=lambda pair: pair.candidate.index, default=root)
        ruling = Ruling(Verdict.DIFFERS, Figures.of(apart), (evidence,))
        what = What("input_gradient", leaf.path, check.index)
        measured = judge.measures(check.reference, check.candidate)
        yield Suspicion(pair, Phase.BACKWARD, what, ruling, measured=measured)
