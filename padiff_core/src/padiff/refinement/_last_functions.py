"""Read what models give in front of the function that one of them ends with, and the other's script applies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence, Set

import attrs
import numpy as np

from padiff.alignment import Alignment
from padiff.forcing import Divided
from padiff.judging import HARMLESS_TWICE, named_function
from padiff.numerics import ORDER, ROUNDING, SAME, Array, difference, epsilon_of
from padiff.refinement._cut_calls import Traces
from padiff.report import SIDES, Note
from padiff.trace import Call, Leaf, Trace

_MOST_AXES = 4
"""Axes of which each order is tried."""


@attrs.frozen
class _End:
    """A tensor that a model gives, or what a call inside of it gives and it makes that of."""

    leaf: Leaf
    function: str | None = None
    """By which function it does."""


def without_last_functions(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step in which models give what they make their outputs of, and notes; None where they give the same.

    One model gives scores, the other their log-softmax, and each script makes a loss of what it is given. What stands
    in front of the function tells whether both make the same, and so do the gradients that come there; where these have
    little to do with each other (a script that applies another function once more) nothing is read so.
    """
    found: tuple[dict[int, Leaf], dict[int, Leaf]] = {}, {}
    told: dict[tuple[int, str, str], None] = {}
    made = [{call.key: call for call in trace.tops} for trace in traces]  # as recorded: in their own order of axes
    for pair in alignment.tops:
        calls = made[0][pair.reference.key], made[1][pair.candidate.key]
        for i, j in pair.outputs:
            leaves = calls[0].outputs[i], calls[1].outputs[j]
            alike = {(side, function) for side, _, function in told}
            for side, end in enumerate(_same_ends(calls, leaves, traces, alike)):
                if end.function is not None:
                    found[side][leaves[side].token] = end.leaf
                    told[side, calls[side].path, end.function] = None
    if not told:
        return None
    read = [_ending(trace, ends) if ends else trace for trace, ends in zip(traces, found, strict=True)]
    notes = [Note("last_function", {"side": SIDES[side], "name": name, "function": by}) for side, name, by in told]
    return (read[0], read[1]), notes


def _same_ends(
    calls: tuple[Call, Call], leaves: tuple[Leaf, Leaf], traces: Traces, alike: Set[tuple[int, str]]
) -> tuple[_End, ...]:
    """Return where both models' values, and the gradients that come to them, are nearest: their outputs, as a rule.

    Gradients are not asked where values are one and a script that applies the functions once more does no harm.
    Of values that get no gradient (a frozen model's) either side's function is ``alike`` another model's there, or they
    are one.
    """
    plain, same = _far(leaves, traces, gradients=False), SAME(epsilon_of(leaves[0].dtype, leaves[1].dtype))
    if plain is None or plain <= same:
        return ()
    best: tuple[_End, ...] = ()
    nearest = ORDER(0.0) * plain
    ends = [[_End(leaves[side]), *_inner(calls[side], leaves[side], traces[side])] for side in (0, 1)]
    for both in itertools.product(*ends):
        inner = both[0].leaf, both[1].leaf
        apart = None if inner == leaves else _far(inner, traces, gradients=False)
        if apart is None or apart >= nearest:
            continue
        if any(leaf.token in trace.gradients for leaf, trace in zip(inner, traces, strict=True)):
            sent = _far(inner, traces, gradients=True)
            harmless = apart <= same and HARMLESS_TWICE.issuperset(filter(None, (end.function for end in both)))
            near = sent is not None and (harmless or sent <= ORDER(0.0))
        else:
            known = all((side, end.function) in alike for side, end in enumerate(both) if end.function is not None)
            near = all(trace.gradients for trace in traces) and (known or apart <= same)
        if near:
            best, nearest = both, apart
    return best


def _inner(call: Call, made: Leaf, trace: Trace) -> Iterator[_End]:
    """Yield what calls inside of one give, of which it makes an output by a function: the last one that does."""
    value = trace.value(made)
    taken = {leaf.token for one in trace.calls for leaf in one.inputs}
    if value is None or made.token in taken or value.dtype.kind != "f":
        return
    inside = [leaf for one in list(call.subtree())[:0:-1] for leaf in one.outputs]
    for leaf in dict.fromkeys(one for one in inside if one.token != made.token):
        other = trace.value(leaf) if math.prod(leaf.shape) == value.size else None
        for one in () if other is None else _shaped(other, value.shape):
            name = named_function(value, one, ROUNDING(epsilon_of(made.dtype)))
            if name is not None:
                yield _End(leaf, name)
                return


def _shaped(array: Array, shape: Sequence[int]) -> Iterator[Array]:
    """Yield an array with its axes in each order that gives a shape; where none does, with its elements in that."""
    orders = itertools.permutations(range(array.ndim)) if array.ndim <= _MOST_AXES else [tuple(range(array.ndim))]
    fitting = [order for order in orders if tuple(array.shape[axis] for axis in order) == tuple(shape)]
    yield from (np.transpose(array, order) for order in fitting)
    if not fitting and array.size == math.prod(shape) and array.shape[-1:] == tuple(shape[-1:]):
        yield array.reshape(shape)


def _far(leaves: tuple[Leaf, Leaf], traces: Traces, *, gradients: bool) -> float | None:
    """Return how far two values, or their gradients, are apart in the nearest order of axes; None if not known."""
    ours, theirs = (
        trace.gradient(leaf) if gradients else trace.value(leaf) for trace, leaf in zip(traces, leaves, strict=True)
    )
    if ours is None or theirs is None:
        return None
    return min((difference(ours, one).rel_l2 for one in _shaped(theirs, ours.shape)), default=None)


def _ending(trace: Trace, ends: dict[int, Leaf]) -> Trace:
    """Return a trace in which what calls give is what they make it of, by its token."""
    found = Divided(trace).trace
    for call in found.calls:
        inside = {leaf.token for one in list(call.subtree())[1:] for leaf in one.outputs}
        call.outputs[:] = [
            attrs.evolve(ends[leaf.token], path=leaf.path)
            if leaf.token in ends and ends[leaf.token].token in inside
            else leaf
            for leaf in call.outputs
        ]
    return found
