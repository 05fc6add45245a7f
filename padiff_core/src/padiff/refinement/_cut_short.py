"""Tell whether what one script's model makes of more than the other is given has no effect: a text's last word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from padiff.forcing import Division, Picked, Share
from padiff.numerics import NEGLIGIBLE, SAME, Array, difference, epsilon_of
from padiff.refinement._cut_calls import Traces, is_trained
from padiff.trace import Call, Leaf, Summary, Trace


def is_rest_unused(whole: Call, part: Call, traces: Traces, cut: Mapping[int, Sequence[Share]], *, alike: bool) -> bool:
    """Return whether nothing shows that what a call makes of more than another is given has any effect.

    No gradient comes to it, neither at what the call gives nor inside. Of a call that gets none at all (a frozen model)
    the piece that both make is the same, or another model's call is cut ``alike``.
    """
    if not is_trained(whole, traces[0]):
        return alike or _is_same(whole, part, traces, cut)
    told = [call for call in whole.subtree() if _tells(call, traces[0], cut)]
    for call in whole.subtree():
        for leaf in call.outputs:
            gradient = traces[0].gradient(leaf) if call is whole or leaf.token in cut else None
            if gradient is None or not gradient.any() or (leaf.token in cut and is_held(gradient, cut[leaf.token][0])):
                continue
            if leaf.token in cut or told in ([], [whole]):  # what it is made of inside tells of a loss that it gives
                return False
    return True


def _tells(call: Call, trace: Trace, cut: Mapping[int, Sequence[Share]]) -> bool:
    """Return whether a gradient comes to what a call makes of each piece."""
    return any(leaf.token in cut and trace.gradient(leaf) is not None for leaf in call.outputs)


def _is_same(whole: Call, part: Call, traces: Traces, cut: Mapping[int, Sequence[Share]]) -> bool:
    """Return whether a call gives in a piece what another one gives."""
    found = []
    for ours, theirs in zip(whole.outputs, part.outputs, strict=False):
        value, other = traces[0].value(ours), traces[1].value(theirs)
        if ours.token in cut and value is not None and other is not None:
            size = difference(cut[ours.token][0].read(value), other)
            found.append(size.rel_l2 <= SAME(epsilon_of(ours.dtype)))
    return bool(found) and all(found)


def is_held(gradient: Array, part: Share | Picked) -> bool:
    """Return whether all of a gradient lies in a part of it, but for what rounding leaves elsewhere."""
    whole, own = (float(np.square(one, dtype=np.float64).sum()) for one in (gradient, part.read(gradient)))
    return whole - own <= NEGLIGIBLE(epsilon_of(gradient.dtype.name)) * whole


def without_ends(trace: Trace, divisions: Sequence[Division]) -> Trace:
    """Return a trace without what calls that are given more make of all of it, and nothing takes: a last state."""
    taken = {leaf.token for call in trace.calls for leaf in call.inputs}
    found = attrs.evolve(trace, values=dict(trace.values), summaries=dict(trace.summaries))
    for division in divisions:
        for call in (call for call in trace.calls if call.key in division.calls):
            given = any((*call.key, "input", index) in division.places for index in range(len(call.inputs)))
            for index, leaf in enumerate(call.outputs if given else ()):
                used = leaf.token in taken or (*call.key, "output", index) in division.places or _is_sent(leaf, trace)
                if not used:
                    found.values[leaf.token] = found.summarized(Summary(leaf.dtype, leaf.shape))
    return found


def _is_sent(leaf: Leaf, trace: Trace) -> bool:
    """Return whether a gradient comes to a tensor: zeros are none, which some frameworks send to each output."""
    gradient = trace.gradient(leaf)
    return leaf.token in trace.gradients and (gradient is None or bool(gradient.any()))
