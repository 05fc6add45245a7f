"""Cover what calls use: a call covers what it uses itself, and what the calls inside of it do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from padiff.paths import upwards
from padiff.trace import Call

Covers = dict[Call, set[int]]
"""Call -> the numbers of the executions that it covers."""


def calls_of(paths: Collection[str], calls: Mapping[str, list[Call]]) -> list[Call]:
    """Return the calls of some modules, in execution order."""
    found = [call for path in paths for call in calls.get(path, ())]
    return sorted(found, key=attrgetter("index")) if len(paths) > 1 else found


def around_modules(paths: Collection[str], calls: Mapping[str, list[Call]]) -> list[Call]:
    """Return the calls that all calls of the innermost modules lie in, or are, that are called and hold some others."""
    users = {next((above for above in upwards(path) if calls.get(above)), "") for path in paths}
    return around(calls_of(users, calls), own=True)


def around(calls: Sequence[Call], *, own: bool = False) -> list[Call]:
    """Return the calls that all of some lie in, one of a kind also itself where it counts as its ``own``."""
    chains = [[call, *call.ancestors()] if own else [*call.ancestors()] for call in calls]
    return [call for call in chains[0] if all(call in chain for chain in chains[1:])] if chains else []


def cover(call: Call, number: int, covers: Covers, without: Collection[Call] = ()) -> None:
    """Let a call cover an execution, and those around it, but for some."""
    for one in (call, *call.ancestors()):
        if one not in without:
            covers.setdefault(one, set()).add(number)


def goes_on(call: Call, rest: set[int], covers: Covers) -> bool:
    """Return whether a call beside this one, right before or behind it, does some of the rest."""
    beside = call.parent.children if rest and call.parent is not None else ()
    near = (other for other in beside if other is not call and (_hands(call, other) or _hands(other, call)))
    return any(covers.get(other) and covers[other] <= rest for other in near)


def _hands(call: Call, other: Call) -> bool:
    """Return whether the first thing that a call takes is what another one gives."""
    return bool(other.inputs) and other.inputs[0].token in {leaf.token for leaf in call.outputs}
