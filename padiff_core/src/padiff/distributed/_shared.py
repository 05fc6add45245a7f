"""Know which calls ranks made together: all of them, or those that alone hold a module, as they do an expert."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from padiff.trace import INPUT, Call, Flow, Key, Leaf, Source, Trace, joint_of, outputs_of

Homes = Mapping[int, Collection[str]]
"""Rank -> the paths of the modules that it holds."""


@attrs.frozen(eq=False)
class Shared:
    """A call of the merged model: the first rank's that made it, and the ranks that did."""

    call: Call
    ranks: tuple[int, ...]

    @property
    def lead(self) -> int:
        """Return the rank whose call it is."""
        return self.ranks[0]


def shared_calls(calls: Mapping[int, Mapping[Key, Call]], homes: Homes) -> list[Shared]:
    """Return the calls that all ranks made that hold the module, in the order of the first rank's.

    What that rank does not hold stands before what the others call next. A module that some ranks alone hold need not
    be called by all of these: an expert of which one has no token.
    """
    order: dict[Key, None] = {}
    for own in calls.values():
        order = _woven(order, list(own))
    found = []
    for key in order:
        made = tuple(rank for rank, own in calls.items() if key in own)
        if len(made) == len(calls) or not all(key[0] in homes.get(rank, (key[0],)) for rank in calls):
            found.append(Shared(calls[made[0]][key], made))
    return found


def held_of(one: Shared, calls: Mapping[int, Mapping[Key, Call]], side: str, index: int) -> dict[int, Leaf] | None:
    """Return one tensor of a shared call on each of its ranks; None where a rank's call has fewer."""
    found: dict[int, Leaf] = {}
    for rank in one.ranks:
        leaves = calls[rank][one.call.key].leaves(side)
        if index >= len(leaves):
            return None
        found[rank] = leaves[index]
    return found


def _woven(order: dict[Key, None], keys: list[Key]) -> dict[Key, None]:
    """Return an order with further keys in it, each before that of its own order which stands in both."""
    if all(key in order for key in keys):
        return order
    before: dict[Key, list[Key]] = {}
    waiting: list[Key] = []
    for key in keys:
        waiting.append(key)
        if key in order:
            before[key], waiting = waiting, []
    found: dict[Key, None] = {}
    for key in order:
        found.update(dict.fromkeys(before.get(key, [key])))
    return found | dict.fromkeys(waiting)


def shared_flow(traces: Mapping[int, Trace]) -> Flow | None:
    """Return the dataflow of the model that ranks hold together: where one holds more than the first, all of theirs."""
    lead, *others = traces.values()
    flows = [trace.flow for trace in others if trace.parameters.keys() - lead.parameters.keys()]
    if lead.flow is None or not flows or any(flow is None or flow.refused for flow in flows):
        return lead.flow
    takes: dict[str, frozenset[Source]] = dict(lead.flow.takes)
    gives = lead.flow.gives
    for flow in flows:
        assert flow is not None
        for holder, sources in flow.takes.items():
            takes[holder] = takes.get(holder, frozenset()) | sources
        gives |= flow.gives
    return Flow(takes, gives)


def chained(flows: Sequence[Flow | None], copies: Mapping[str, str]) -> Flow | None:
    """Return the dataflow of stages that hand on what they give; ``copies`` are `Ranks.copies`.

    None where that of one is not known, or several are chunks of one rank, whose flow is noted as one.
    """
    if any(flow is None or flow.refused for flow in flows) or len(set(map(id, flows))) < len(flows):
        return None
    takes: dict[str, frozenset[Source]] = {}
    gives: frozenset[Source] = frozenset({(INPUT, frozenset())})
    for number, flow in enumerate(flows):
        assert flow is not None
        before = frozenset((holder, names - outputs_of(names)) for holder, names in gives)

        def name(holder: str, number: int = number) -> str:
            return copies.get(holder, holder) if joint_of(holder) is None else f"{holder} {number}"

        def follow(sources: frozenset[Source], before: frozenset[Source] = before) -> frozenset[Source]:
            own = {(name(holder), through) for holder, through in sources if holder != INPUT}
            given = (through for holder, through in sources if holder == INPUT)
            return frozenset(own | {(holder, on | through) for through in given for holder, on in before})

        for holder, sources in flow.takes.items():
            takes[name(holder)] = takes.get(name(holder), frozenset()) | follow(sources)
        gives = follow(flow.gives)
    return Flow(takes, gives)
