"""List what a trace holds in the order in which it came to be: what is wrong first is where it began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from padiff.grouping import grouped
from padiff.paths import last, parent
from padiff.trace._records import Call, Leaf, Trace


@attrs.frozen
class Held:
    """A value of a trace, and the call at which it is first seen so."""

    call: Call
    verb: str
    """What the call does with it: ``holds``, ``takes``, ``gives``; ``sends`` and ``is sent`` of gradients."""
    name: str
    key: int


def in_time(trace: Trace) -> Iterator[Held]:
    """Yield values, then gradients, as they came: what a call holds and takes, what is inside of it, what it gives."""
    holds = grouped(trace.weights, parent)

    def within(call: Call) -> Iterator[Held]:
        for path in () if call.module.operation else holds.pop(call.path, ()):
            yield Held(call, "holds", last(path), trace.weights[path])
        yield from (Held(call, "takes", leaf.path, key) for leaf, key in _kept(call.inputs, trace.values))
        for child in call.children:
            yield from within(child)
        yield from (Held(call, "gives", leaf.path, key) for leaf, key in _kept(call.outputs, trace.values))

    for call in trace.tops:
        yield from within(call)
    for call in reversed(trace.calls):
        yield from (Held(call, "is sent", leaf.path, key) for leaf, key in _kept(call.outputs, trace.gradients))
        yield from (Held(call, "sends", leaf.path, key) for leaf, key in _kept(call.inputs, trace.gradients))


def _kept(leaves: list[Leaf], named: Mapping[int, int]) -> Iterator[tuple[Leaf, int]]:
    return ((leaf, named[leaf.token]) for leaf in leaves if leaf.token in named)
