"""List what a trace holds in the order in which it came to be: what is wrong first is where it began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

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
    holds: dict[str, list[tuple[str, int]]] = {}
    for path, key in trace.weights.items():
        holder, _, name = path.rpartition(".")
        holds.setdefault(holder, []).append((name, key))
    todo: list[tuple[Call, bool]] = [(call, False) for call in reversed(trace.tops)]
    while todo:
        call, left = todo.pop()
        if left:
            yield from (Held(call, "gives", leaf.path, key) for leaf, key in _kept(call.outputs, trace.values))
            continue
        if not call.module.operation:
            yield from (Held(call, "holds", name, key) for name, key in holds.pop(call.path, ()))
        yield from (Held(call, "takes", leaf.path, key) for leaf, key in _kept(call.inputs, trace.values))
        todo += [(call, True), *((child, False) for child in reversed(call.children))]
    for call in reversed(trace.calls):
        yield from (Held(call, "is sent", leaf.path, key) for leaf, key in _kept(call.outputs, trace.gradients))
        yield from (Held(call, "sends", leaf.path, key) for leaf, key in _kept(call.inputs, trace.gradients))


def _kept(leaves: list[Leaf], named: Mapping[int, int]) -> Iterator[tuple[Leaf, int]]:
    return ((leaf, named[leaf.token]) for leaf in leaves if leaf.token in named)
