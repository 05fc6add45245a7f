"""Leave out what backward passes send that lead to no step: a script asks for it beside those that it steps with.

Of each task, to weigh their losses; of an input, to see what counts there; of another batch, to validate.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import TypeVar

import attrs
import numpy as np

from padiff.alignment import Alignment
from padiff.grouping import grouped
from padiff.judging import held, sampled, size_of
from padiff.numerics import ACCUMULATED, EXACT, SAME, Array, difference, epsilon_of
from padiff.paths import is_at
from padiff.refinement._cut_calls import Traces
from padiff.report import SIDES, Note
from padiff.trace import Leaf, Lent, Passes, ReadStore, Trace, summed

Name = TypeVar("Name", bound=Hashable)
_CALLS = 32
"""Calls of a model that are held to each other."""
_FEW = 6
"""Passes of which each sum is tried."""


def of_stepped_passes(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step without the gradients of passes that lead to no step, and notes; None where there is none."""
    idle = [_idle(trace) for trace in traces]
    if not any(idle):
        return None
    read = [_without(trace, keys) if keys else trace for trace, keys in zip(traces, idle, strict=True)]
    sides = [side for side, keys in zip(SIDES, idle, strict=True) if keys]
    return (read[0], read[1]), [Note("unused_passes", {"sides": sides})]


def is_told_more(before: tuple[Alignment, Traces], after: tuple[Alignment, Traces]) -> bool:
    """Return whether both sides send the same to as many values as before, and something else to fewer.

    Where a script forgets the gradients of some passes, what all of them send is what agrees with the other side's; but
    not where both call their models as often only without them.
    """
    alike, unlike = zip(_told(*before), _told(*after), strict=True)
    often = [len({len(trace.trained) for trace in traces}) == 1 for _, traces in (before, after)]
    return (unlike[1] < unlike[0] and alike[1] >= alike[0]) or (unlike[1] <= unlike[0] and often == [False, True])


def _told(alignment: Alignment, traces: Traces) -> tuple[int, int]:
    """Return to how many values both sides send the same, or nothing, and to how many they do not."""
    given = {(a.token, b.token) for pair in alignment.pairs for a, b in pair.made}
    alike = sum(_is_alike(both, traces) for both in given)
    left = zip((alignment.left_reference, alignment.left_candidate), traces, strict=True)
    alone = {(n, leaf.token) for n, (calls, _) in enumerate(left) for call in calls for leaf in call.outputs}
    return alike, len(given) - alike + sum(token in traces[n].gradients for n, token in alone)


def _is_alike(tokens: tuple[int, int], traces: Traces) -> bool:
    keys = [trace.gradients.get(token) for trace, token in zip(traces, tokens, strict=True)]
    if None in keys:
        return keys == [None, None]
    size = size_of(held(traces[0], keys[0]), held(traces[1], keys[1]))
    return size is not None and size.error <= SAME(size.eps)


def _idle(trace: Trace) -> frozenset[int]:
    """Return the keys of gradients that no optimizer stepped with, nor with any that they lead to.

    All of a pass, or what it sends to a call behind which there is nothing else to step: a critic's loss, to the maker.
    """
    passes = trace.passes
    used = None if passes is None or not trace.handed or _moves_by_hand(trace) else _used(trace, passes)
    if passes is None or not used:
        return frozenset()
    led_to = set[int]().union(*used.values())
    found = {key for key, number in passes.of_key.items() if number not in led_to}
    sent = {token: {passes.of_key[key]: key for key in keys} for token, keys in passes.values.items()}
    for call in trace.tops:
        own = {path: used.get(path) for path in passes.parameters if is_at(path, call.path)}
        given = {leaf.token for leaf in call.inputs}
        numbers = set[int]().union(*(sent.get(leaf.token, ()) for leaf in call.outputs))
        numbers -= set[int]().union(*(sent.get(token, ()) for token in given), *(one or () for one in own.values()))
        if not numbers or None in own.values():
            continue
        inside = {leaf.token for inner in call.subtree() for leaf in (*inner.inputs, *inner.outputs)} - given
        found |= {key for token in inside for number, key in sent.get(token, {}).items() if number in numbers}
    return frozenset(found)


def _used(trace: Trace, passes: Passes) -> dict[str, set[int]]:
    """Return the passes that each parameter is stepped with; nothing where one is stepped with what nobody knows.

    What an optimizer was given tells which of the gradients that had arrived it is made of. A parameter that is moved
    by what is not told is moved by all of them, and one that is not moved by none.
    """
    found, doubted, told = dict[str, set[int]](), dict[str, set[int]](), False
    for path, keys in passes.parameters.items():
        if path not in trace.handed:
            found[path] = {passes.of_key[key] for key in keys} if _is_moved(trace, path) else set()
            continue
        front = keys[: passes.first.get(path, 0)]
        given, parts = sampled(trace, trace.handed[path]), [sampled(trace, key) for key in front]
        numbers = [passes.of_key[key] for key in front]
        parameter = trace.parameters[path]
        few = given is None or len(parts) > 1 + given.size / 2
        summands = None if given is None or few else _summands(given, parts, epsilon_of(parameter.dtype))
        if few or (summands is None and min(front) < 0 and len(parameter.shape) > 1):  # sketched in another layout
            doubted[path] = {*numbers}
            continue
        if summands is None:
            return {}
        told = True
        found[path] = {numbers[one] for one in summands}
    for path, some in doubted.items():  # one number is a multiple of any other
        alike = [one for stepped in trace.stepped if path in (paths := stepped.parameters or ()) for one in paths]
        known = [found[one] for one in alike if one in trace.handed and one not in doubted and one in found]
        found[path] = set[int]().union(*known) if known else some
    return found if told else {}


def _moves_by_hand(trace: Trace) -> bool:
    """Return whether a model makes something else of the same while no optimizer steps: by what it was sent, maybe."""
    groups = grouped(trace.tops, lambda call: (call.path, call.index < (trace.stepped_at or 0)))
    return any(
        _is_same(trace, ours.inputs, theirs.inputs) and not _is_same(trace, ours.outputs, theirs.outputs)
        for calls in groups.values()
        for ours, theirs in itertools.combinations(calls[:_CALLS], 2)
    )


def _is_same(trace: Trace, ours: Sequence[Leaf], theirs: Sequence[Leaf]) -> bool:
    """Return whether two calls of a run took, or gave, the same, as far as a few elements tell."""
    for mine, yours in zip(ours, theirs, strict=False):
        a, b = (trace.samples.get(leaf.token) for leaf in (mine, yours))
        if a is None or b is None or a.shape != b.shape or difference(a, b).rel_l2 > SAME(epsilon_of(mine.dtype)):
            return False
    return len(ours) == len(theirs)


def _is_moved(trace: Trace, path: str) -> bool:
    """Return whether a parameter is another one behind a step than before it, as far as that is known."""
    before, after = (sampled(trace, kept.get(path)) for kept in (trace.weights, trace.updated))
    return before is None or after is None or not np.array_equal(before, after)


def _summands(given: Array, parts: Sequence[Array | None], eps: float) -> list[int] | None:
    """Return which parts a value, or a multiple of one, is the sum of; None where it is none of them.

    As many as make it up as they are; else as few of all as do by any factors, and the later ones.
    """
    known = [one for one in parts if one is not None]
    if len(known) < len(parts) or any(one.shape != given.shape for one in known):
        return None
    length, near = float(np.linalg.norm(given)), ACCUMULATED(eps)
    numbers = [number for number, one in enumerate(known) if one.any()]
    if not numbers:
        return [] if not length else None

    def explains(some: Sequence[int]) -> bool:
        if not some:
            return not length
        matrix = np.stack([known[one] for one in some], 1)
        times = np.linalg.lstsq(matrix, given, rcond=None)[0]
        return float(np.linalg.norm(matrix @ times - given)) <= near * length

    within = EXACT(eps) * max(float(np.linalg.norm(known[one])) for one in numbers)
    for count in range(len(numbers), 0, -1) if len(numbers) <= _FEW else ():
        for some in itertools.combinations(numbers, count):
            if np.linalg.norm(np.sum([known[one] for one in some], 0) - given) <= within:
                return [*some]
    if not explains(numbers):
        return None
    for number in list(numbers):
        rest = [one for one in numbers if one != number]
        numbers = rest if explains(rest) else numbers
    return numbers


@attrs.frozen
class _Sum:
    """What adds other values to one."""

    others: tuple[Lent, ...]

    def read(self, array: Array) -> Array:
        found: Array = np.sum([array, *(one.read() for one in self.others)], 0, dtype=array.dtype)
        return found


def _without(trace: Trace, idle: Set[int]) -> Trace:
    """Return a trace without some gradients, by their keys."""
    passes = trace.passes
    assert passes is not None
    store = ReadStore(trace.store)
    found = attrs.evolve(trace, store=store, summaries=dict(trace.summaries))

    def kept(keys: Sequence[int]) -> list[int]:
        return [key for key in keys if key not in idle]

    def total(keys: Sequence[int]) -> int:
        lent = [store.lent(key) for key in keys[1:] if key >= 0]
        if len(keys) == 1 or None in lent:
            return keys[-1]
        if keys[0] < 0:
            return found.summarized(summed([found.summaries[key] for key in keys]))
        return store.add(keys[0], _Sum(tuple(one for one in lent if one is not None)))

    def summed_up(named: Mapping[Name, Sequence[int]], whole: Mapping[Name, int]) -> dict[Name, int]:
        left = {name: (keys, kept(keys)) for name, keys in named.items()}
        some = {name: total(own) for name, (keys, own) in left.items() if 0 < len(own) < len(keys)}
        return {name: key for name, key in {**whole, **some}.items() if name not in left or left[name][1]}

    found.gradients = summed_up(passes.values, trace.gradients)
    found.parameter_gradients = summed_up(passes.parameters, trace.parameter_gradients)
    found.arrived, found.used, found.latest = ({**one} for one in (trace.arrived, trace.used, trace.latest))
    first, last = dict(passes.first), dict(passes.last)
    for path, keys in passes.parameters.items():
        own = kept(keys)
        for named, count in ((found.arrived, first), (found.used, last)):
            by_then = kept(keys[: count.get(path, 0)])
            named.pop(path, None)
            if 0 < len(by_then) < len(own):
                named[path] = total(by_then)
            if path in count:
                count[path] = len(by_then)
        found.latest.pop(path, None)
        if first.get(path, 0) > 1:
            found.latest[path] = own[first[path] - 1]
    values = {token: kept(keys) for token, keys in passes.values.items()}
    parameters = {path: kept(keys) for path, keys in passes.parameters.items()}
    found.passes = attrs.evolve(passes, values=_some(values), parameters=_some(parameters), first=first, last=last)
    return found


def _some(named: Mapping[Name, list[int]]) -> dict[Name, list[int]]:
    return {name: keys for name, keys in named.items() if keys}
