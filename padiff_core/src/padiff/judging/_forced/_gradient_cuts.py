"""Give a wrong gradient of a module's own code the operation as its cause that lets none through on one side alone.

What both sides make of the same values tells: one side lets a gradient through to such a value, and the other does not.
Where it is cut off in the first one, too, and all gradients are those of the other side then, that is why.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Replayed, Slotted
from padiff.judging._findings import at_line, pair_of
from padiff.judging._forced._both_codes import BothCodes
from padiff.judging._forced._code import CELLS, Code, Value
from padiff.judging._forced._judge import Judge
from padiff.judging._forced._slips import fed
from padiff.numerics import CONSTANT, UNSETTLED, difference, epsilon
from padiff.report import SIDES, Cause, Evidence, Finding
from padiff.trace import Call, Key, as_called

_TRIES = 8
"""Lines of one call's code that are tried."""
_SIZE = -1
"""Stands for the size of all gradients of parameters together, among tokens of tensors whose gradients differ."""
_Cut = tuple[int, Call]
"""A tensor that cannot get a gradient, and the call that is given it, of which what it makes can."""
_Uses = dict[object, list[tuple[Slotted, _Cut | None]]]
"""By what is made of what: where that is taken, and what lets no gradient through on the way."""


def explained_by_cuts(sources: Sequence[Finding], judge: Judge, plain: Mapping[Key, Call]) -> Iterator[list[Finding]]:
    """Yield each source with what cuts gradients off on one side as its cause. ``plain`` is the candidate's run."""
    for source in sources:
        pair = pair_of(source, judge.alignment)
        yield [source if pair is None or not pair.outputs else _explained(source, pair, judge.settler.bench, plain)]


def _explained(source: Finding, pair: Pair, bench: Bench, plain: Mapping[Key, Call]) -> Finding:
    known, tops, ends = bench.alignment, (pair.reference, plain[pair.key]), _ends(pair, bench.alignment, plain)
    codes = [
        Code.of(top, fed(matched), top.outputs[index])
        for top, matched, index in zip(tops, (known.of_reference, known.of_candidate), pair.outputs[0], strict=True)
    ]

    shown = [
        {*code.keys, *(slot[0] for use in end.values() for slot, _ in use)}
        for code, end in zip(codes, ends, strict=True)
    ]
    if sum(math.prod(leaf.shape) for code in codes for leaf in code.leaves()) > CELLS:
        return source

    def run(side: int, put: Collection[Slotted] = ()) -> Replayed | None:
        cut = {at: runs[side].shown[at] for at in put}
        return bench.tried(pair, not side, dtype=dtype, shown=shown[side], put=cut)

    for dtype in ("float64", None):
        runs = [one for side in (0, 1) if (one := run(side)) is not None]
        if len(runs) < 2:  # a kernel without float64
            continue
        bound = (CONSTANT if dtype else UNSETTLED)(epsilon(np.dtype(np.float32)))
        before = _apart(runs, bound)
        both = BothCodes(codes[0], codes[1], codes[0].values(runs[0].shown), Value.of(np.zeros(1)), bound)
        for side, name, called, slots in _cuts(both, runs, ends) if before else ():
            again = run(1 - side, slots)
            left = before if again is None else _apart((runs[side], again), bound)
            if not left or (left == {_SIZE} != before):
                cause = Cause(name, {"side": SIDES[side], "called": as_called(called)}, verified=True)
                lines = [[call for call in code.calls if call.key == slots[0][0]] for code in codes]
                lines[side] = [called]
                places = [at_line(getattr(source, one), line) for one, line in zip(SIDES, lines, strict=True)]
                return attrs.evolve(source, cause=cause, reference=places[0], candidate=places[1])
        return _likely(source, codes, runs) if before else source
    return source


def _likely(source: Finding, codes: Sequence[Code], runs: Sequence[Replayed]) -> Finding:
    """Return a source with the one line that hands on a value without its gradient, if one side alone has such.

    Where both sides compute in other ways (a recurrence in chunks), no value of the other shows that it is the cause.
    """
    lines = [{call.frames[:1]: call for call in _handing_on(code, run)} for code, run in zip(codes, runs, strict=True)]
    side = next((at for at in (0, 1) if len(lines[at]) == 1 and not lines[1 - at]), None)
    if side is None:
        return source
    (called,) = lines[side].values()
    said = Evidence.of("unverified_cut", side=SIDES[side], called=as_called(called))
    told = attrs.evolve(source, evidence=(*source.evidence, said))
    if side:
        return attrs.evolve(told, candidate=at_line(source.candidate, [called]))
    return attrs.evolve(told, reference=at_line(source.reference, [called]))


def _handing_on(code: Code, run: Replayed) -> Iterator[Call]:
    """Yield the calls that give what they take, of which the first can get no gradient, and the second can."""
    for call in code.calls:
        given = [run.shown.get((call.key, "input", i)) for i, leaf in enumerate(call.inputs) if leaf.differentiable]
        made = [
            run.shown.get((call.key, "output", i)) for i, leaf in enumerate(call.outputs) if not leaf.differentiable
        ]
        if any(a is not None and b is not None and np.array_equal(a, b) for a in made for b in given):
            yield call


def _apart(runs: Sequence[Replayed], bound: float) -> set[int]:
    """Return the tokens of which two runs give other gradients."""
    seen = [run.observed.gradients for run in runs]
    pairs = ((token, [side.get(token, np.zeros(())) for side in seen]) for token in {*seen[0], *seen[1]})
    found = {
        token
        for token, (a, b) in pairs
        if (difference(a, b).rel_l2 > bound if a.shape == b.shape else a.any() or b.any())
    }
    sizes = [float(np.linalg.norm([np.linalg.norm(one) for one in run.gradients.values()])) for run in runs]
    return found | ({_SIZE} if abs(sizes[0] - sizes[1]) > bound * max(sizes) else set())


def _ends(pair: Pair, known: Alignment, plain: Mapping[Key, Call]) -> tuple[_Uses, _Uses]:
    """Return, on both sides, what a call's own code gives: to the calls inside, and to whoever calls it."""
    found: tuple[_Uses, _Uses] = {}, {}
    inside = ((one, "input", one.inputs) for one in known.pairs if known.around(one) is pair)
    for one, what, tied in ((pair, "output", pair.outputs), *inside):
        for tie in tied:
            for uses, call, index in zip(found, (one.reference, plain[one.key]), tie, strict=True):
                leaf = call.leaves(what)[index]
                uses[one.key, tie] = [((call.key, what, index), None if leaf.differentiable else (leaf.token, call))]
    return found


def _cuts(
    both: BothCodes, runs: Sequence[Replayed], ends: tuple[_Uses, _Uses]
) -> Iterator[tuple[int, str, Call, list[Slotted]]]:
    """Yield what cuts gradients off on one side alone: which side, how, the call, and where to do it on the other."""
    codes, values = (both.ours, both.theirs), (both.reference, both.theirs.values(runs[1].shown))
    labels = [{token: min(known) for token, one in side.items() if one.tells and (known := both.known.same(one))}
              for side in values]  # fmt: skip
    shared = {*labels[0].values()} & {*labels[1].values()}
    labels = [{token: label for token, label in side.items() if label in shared} for side in labels]
    uses = [_uses(code, label) | end for code, label, end in zip(codes, labels, ends, strict=True)]
    stopped = [{label[leaf.token] for leaf in code.leaves() if leaf.token in label and not leaf.differentiable}
               for code, label in zip(codes, labels, strict=True)]  # fmt: skip
    lines: dict[object, tuple[int, str, Call, list[Slotted]]] = {}
    partly: dict[object, bool] = {}  # zeros in the shape of a value get no gradient, and what is beside them does
    for use in [one for one in uses[0] if one in uses[1]]:
        lets = [{cut is None for _, cut in one[use]} for one in uses]
        if lets[0] != lets[1]:
            side = next((at for at in (0, 1) if True not in lets[at]), int(False in lets[1]))
            slots = [at for at, cut in uses[1 - side][use] if cut is None]
            for cut in dict.fromkeys(cut for _, cut in uses[side][use] if cut is not None):
                for called, name in _told(codes[side], cut, labels[side], stopped[1 - side]):
                    key = side, name, called.path, called.frames[:1]
                    lines.setdefault(key, (side, name, called, []))[3].extend(slots)
                    partly[key] = partly.get(key, True) and True in lets[side]
    found = sorted(lines.items(), key=lambda line: (partly[line[0]], line[1][1], line[1][2].index))
    yield from (line for _, line in found[:_TRIES])


def _uses(code: Code, labels: Mapping[int, int]) -> _Uses:
    """Return of what, by its label, each value with a label is made in some code, where that can get a gradient."""
    found: _Uses = {}
    made = [leaf for call in code.calls for leaf in call.outputs if leaf.differentiable and leaf.token in labels]
    for token in (leaf.token for leaf in made):
        left: list[tuple[int, _Cut | None]] = [(token, None)]
        for one, cut in left:
            call = code.makers.get(one)
            for index, leaf in enumerate(call.inputs if call else ()):
                here = cut or (None if call is None or leaf.differentiable else (leaf.token, call))
                if call is not None and leaf.token in labels:
                    at = call.key, "input", index
                    found.setdefault((labels[token], labels[leaf.token]), []).append((at, here))
                elif (leaf.token, here) not in left:
                    left.append((leaf.token, here))
    return found


def _told(code: Code, cut: _Cut, labels: Mapping[int, int], stopped: Collection[int]) -> Iterator[tuple[Call, str]]:
    """Yield the calls that let no gradient through to a tensor, or that take what gets none on the other side, too."""
    left = [cut]
    for one, taker in left:
        call = code.makers.get(one)
        if call is not None and labels.get(one) in stopped:
            if next(_told(code, (one, taker), {}, ()), None):
                yield taker, "cut_given"
        elif call is not None:
            if any(leaf.differentiable for leaf in call.inputs):
                yield call, "cut"
            further = ((leaf.token, call) for leaf in call.inputs if not leaf.differentiable)
            left += [one for one in further if one not in left]
