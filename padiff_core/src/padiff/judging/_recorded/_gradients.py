"""Tell which recorded gradients can be compared: of passes that started alike, and of the same uses."""

from __future__ import annotations

from collections.abc import Mapping

from padiff.alignment import Alignment, Pair
from padiff.forcing import Spot
from padiff.judging._cuts import cut_at, cut_side, own_code
from padiff.paths import below
from padiff.report import SIDES
from padiff.trace import Call, Key, Trace

_Place = tuple[Key, str, int]
"""A call of the candidate, ``inputs`` or ``outputs``, and which of them."""


class Sums:
    """Where matched calls make, take and give the tensors of both models.

    What comes to a tensor is the sum over all who take it. Where it was made, by a matched call or by the script, that
    is all of it on both sides; a copy or a view of it that one model's own code makes gets what was sent there alone.
    """

    def __init__(self, alignment: Alignment, traces: tuple[Trace, Trace]) -> None:
        self._alignment, self._traces = alignment, traces
        self._made: tuple[dict[int, _Place], dict[int, _Place]] = ({}, {})
        self._used: tuple[dict[int, set[_Place]], dict[int, set[_Place]]] = ({}, {})
        for side in (0, 1):
            for pair in alignment.tops:
                self._note(side, pair, "inputs", makes=True)
            for pair in sorted(alignment.pairs, key=lambda pair: (pair.reference, pair.candidate)[side].end):
                self._note(side, pair, "inputs", makes=False)
                self._note(side, pair, "outputs", makes=True)

    def _note(self, side: int, pair: Pair, what: str, *, makes: bool) -> None:
        leaves = getattr((pair.reference, pair.candidate)[side], what)
        for indices in getattr(pair, what):
            place, token = (pair.key, what, indices[1]), leaves[indices[side]].token
            self._used[side].setdefault(token, set()).add(place)
            if makes:
                self._made[side].setdefault(token, place)
        if what == "inputs" and not makes:  # a use is one, too, of a call that the other side gives another tensor
            fed = {indices[side] for indices in pair.inputs}
            for index, leaf in enumerate(leaves):
                if index not in fed:
                    self._used[side].setdefault(leaf.token, set()).add((pair.key, "unmatched", index))

    def is_one(self, spot: Spot) -> bool:
        """Return whether the gradients of both tensors of a spot are of the same uses."""
        tokens = spot.reference.token, spot.candidate.token
        made = [self._made[side].get(token) for side, token in enumerate(tokens)]
        if made != [None, None]:
            return made[0] == made[1]
        return self._used[0].get(tokens[0]) == self._used[1].get(tokens[1])

    def is_shared_alike(self, spot: Spot) -> bool:
        """Return whether a gradient comes to the same ones of the tensors that one call gives, from the same calls.

        One of them may be a copy of another: then it is the model's own business which of both it goes on with.
        """
        made = self._made[1].get(spot.candidate.token)
        pair = None if made is None or made[1] == "inputs" else self._alignment.of_key(made[0])
        if pair is None or max(len(pair.reference.outputs), len(pair.candidate.outputs)) < 2:
            return True
        for ours, theirs in pair.made:
            used = self._used[0].get(ours.token) == self._used[1].get(theirs.token)
            got = (ours.token in self._traces[0].gradients) == (theirs.token in self._traces[1].gradients)
            if not used or not got:
                return False
        return True


def cut_by(alignment: Alignment, spot: Spot, side: str) -> Pair:
    """Return which call first lets no gradient through to a tensor on one side."""
    around = None if spot.what == "output" else alignment.around(spot.pair)
    if around is None:
        return cut_at(alignment, spot.pair, side)
    return cut_at(alignment, around, side, spot.pair.candidate.index)


def sender(alignment: Alignment, spot: Spot, traces: tuple[Trace, Trace]) -> Pair:
    """Return the call whose code sends a gradient: the one that takes the tensor, or the code around all else.

    A call that is sent nothing sends nothing. Where one side alone lets none through it is the code that does not.
    """
    if side := cut_side(spot.reference, spot.candidate):
        return own_code(alignment, cut_by(alignment, spot, side))
    pair = spot.owner or spot.pair
    calls = zip((pair.reference, pair.candidate), traces, strict=True)
    unused = all(leaf.token not in trace.gradients for call, trace in calls for leaf in call.outputs)
    around = alignment.around(pair) if unused and spot.what == "input" else None
    return around or pair


def is_frozen(alignment: Alignment, spot: Spot, frozen: Mapping[str, bool]) -> bool:
    """Return whether all that ran by then, and got gradients on one side alone, was frozen: see `Leaps.frozen`."""
    last = spot.pair.candidate.end[0] if spot.what == "output" else spot.pair.candidate.index - 1
    ran = {pair.candidate.path for pair in alignment.pairs if pair.candidate.index <= last}
    return any(frozen.values()) and all(frozen[path] for path in ran & frozen.keys())


def given(trace: Trace) -> set[int]:
    """Return the tokens of what the script gave to a model."""
    return {leaf.token for call in trace.tops for leaf in call.inputs}


def tells_nothing(*traces: Trace) -> tuple[bool, bool]:
    """Return whether a run tells no values that calls were given, and no gradients that came to them: some dumps."""

    def tells(side: str, named: Mapping[int, int], trace: Trace) -> bool:
        return any(leaf.token in named for call in trace.calls for leaf in call.leaves(side))

    taken = all(tells("input", trace.values, trace) for trace in traces)
    return not taken, not all(tells("output", trace.gradients, trace) for trace in traces)


def is_awaited(spot: Spot, traces: tuple[Trace, Trace], given: tuple[set[int], set[int]]) -> bool:
    """Return whether both runs would have kept a gradient if it had come.

    What a script has ``given`` it may have asked for none of; not what can get one on both sides.
    """
    ran = all(trace.gradients for trace in traces)
    made = spot.reference.token not in given[0] and spot.candidate.token not in given[1]
    asked = made or (spot.reference.differentiable and spot.candidate.differentiable)
    return is_told(spot, traces) and ran and asked


def is_told(spot: Spot, traces: tuple[Trace, Trace]) -> bool:
    """Return whether both runs keep what a value is, and none computes it again."""
    kept = spot.reference.token in traces[0].values and spot.candidate.token in traces[1].values
    return kept and not any(map(is_computed_again, (spot.pair.reference, spot.pair.candidate), traces))


def why_forward_only(traces: tuple[Trace, Trace], alignment: Alignment) -> str | None:
    """Return why the gradients of two steps cannot be compared, in words; None where they can.

    A script's own loss belongs to its run. Where a run was asked for none, backward started at every output: an output
    that one model alone returns, a cache say, sent a gradient that the other one never got.
    """
    without = [name for name, trace in zip(SIDES, traces, strict=True) if not trace.gradients]
    if without:
        return f"the run of the {' and that of the '.join(without)} holds no gradients"
    starts = [_start(trace) for trace in traces]
    if starts[0] != starts[1]:
        said = " and ".join(f"that of the {name} {start}" for name, start in zip(SIDES, starts, strict=True))
        return f"the backward passes started elsewhere, {said}"
    root = alignment.pairs[0]
    if traces[0].start_seed is None or not root.outputs:
        return None
    for index, name in enumerate(SIDES):
        matched = {pair[index] for pair in root.outputs}
        leaves = (root.reference, root.candidate)[index].outputs
        for place, leaf in enumerate(leaves):
            if place not in matched and leaf.token in traces[index].gradients:
                return f"the backward pass of the {name} started at output {leaf.path} too, which is its alone"
    return None


def _start(trace: Trace) -> str:
    if trace.start_seed is None:
        return "at a loss"
    return "at its outputs" if trace.by_value else f"at its outputs, from random gradients (seed {trace.start_seed})"


def is_computed_again(call: Call, trace: Trace) -> bool:
    """Return whether a call was made without gradients, in a module whose parameters got theirs all the same.

    That is recomputation: what gets the gradients inside is not what was seen. Where it is none, parameters tell.
    """
    for above in (call, *call.ancestors()):
        given = [leaf for leaf in above.outputs if "float" in leaf.dtype]
        blind = above.path and given and not any(leaf.differentiable for leaf in given)
        if blind and any(below(path, above.path) for path in trace.parameter_gradients):
            return True
    return False
