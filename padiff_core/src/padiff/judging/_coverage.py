"""Measure how much of the way from the inputs to the outputs was compared.

The reference's recorded dataflow, walked back from its outputs: a call without calls inside makes its outputs of its
inputs; what the own code of a call makes may be made of all that it was given and all that the calls inside gave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from padiff.alignment import Alignment
from padiff.judging._findings import place_of
from padiff.report import Coverage
from padiff.trace import Call, Leaf, Trace


def coverage_of(trace: Trace, alignment: Alignment, kept: Collection[int] | None = None) -> Coverage:
    """Return which of the reference's values that lead to its outputs were compared with the candidate's.

    ``kept`` are the tokens whose values both sides kept; None where they kept all.
    """
    compared = set(_compared(alignment)) if kept is None else set(_compared(alignment)) & set(kept)
    makers: dict[int, Call] = {}
    for call in reversed(trace.calls):
        # Inner calls begin later: what a call only hands on is the inner one's.
        for leaf in call.outputs:
            makers.setdefault(leaf.token, call)
    owners = {leaf.token: call.parent for call in reversed(trace.calls) for leaf in call.inputs if call.parent}
    tops = [call for call in trace.calls if call.parent is None]
    given = {leaf.token for call in tops for leaf in call.inputs}
    seen: set[int] = set()
    opened: set[int] = set()
    missing: dict[int, Call] = {}
    inside: dict[int, Call] = {}
    """Of regions that are compared as one."""
    todo = [leaf.token for call in tops for leaf in call.outputs]
    while todo:
        token = todo.pop()
        if token in seen:
            continue
        seen.add(token)
        maker = makers.get(token) or owners.get(token)
        if token not in compared:
            (inside if maker and alignment.is_inside(maker) else missing)[token] = maker or trace.root
        if token in given or maker is None or maker.index in opened:
            continue
        opened.add(maker.index)
        todo += [leaf.token for leaf in _sources(maker)]
    places = dict.fromkeys(place_of(call) for call in sorted(missing.values(), key=lambda call: call.index))
    total = len(seen) - len(inside)
    return Coverage(total - len(missing), total, tuple(places))


def _compared(alignment: Alignment) -> Iterator[int]:
    for pair in alignment.pairs:
        yield from (ours.token for ours, _ in (*pair.taken, *pair.made))


def _sources(call: Call) -> Iterator[Leaf]:
    """Yield what a call's own code may have made a tensor of."""
    yield from call.inputs
    for child in call.children:
        yield from child.outputs
        yield from child.inputs
