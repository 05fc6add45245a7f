"""Tell whether the backward passes of two recorded steps started alike: else their gradients cannot be compared."""

from __future__ import annotations

from padiff.alignment import Alignment
from padiff.report import SIDES
from padiff.trace import Trace


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
