"""Put the stages of a pipeline together: micro-batch by micro-batch, and in each stage by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.distributed._grid import PIPELINE
from padiff.distributed._merged_step import MergedStep, MergedStore, Parts
from padiff.distributed._shared import chained
from padiff.kinds import Ranks
from padiff.numerics import difference
from padiff.paths import is_at, parent
from padiff.trace import OF_PARAMETERS, Call, Leaf, Samples, Slot, Trace

Member = tuple[int, Call]
"""A call, and the number of its stage."""


def stages_of(traces: Mapping[int, Trace], ranks: Mapping[int, Ranks]) -> list[dict[int, Trace]]:
    """Return what the ranks of each stage did, in the order in which values pass through them.

    Of a rank that holds several chunks of the model each is a stage: the first chunks of all ranks come first.
    """
    found: dict[tuple[int, int], dict[int, Trace]] = {}
    for rank, trace in traces.items():
        group = ranks[rank].groups.get(PIPELINE, (rank,))
        for number, chunk in enumerate(_chunks(trace, ranks[rank].chunks)):
            found.setdefault((number, group.index(rank)), {})[rank] = chunk
    return [found[key] for key in sorted(found)]


def _chunks(trace: Trace, paths: Sequence[Sequence[str]]) -> list[Trace]:
    """Return what each chunk did, its calls numbered as if it were alone; all parameters stay with the first."""
    if len(paths) < 2:
        return [trace]
    kept: list[list[Call]] = [[] for _ in paths]
    for call in trace.tops:
        kept[_chunk_of(call, paths)].append(call)
    found: list[Trace] = []
    for tops in kept:
        one = attrs.evolve(trace, calls=[])
        for name in (*OF_PARAMETERS, "parameters") if found else ():
            setattr(one, name, {})
        one.loss = None if found else trace.loss
        counts: Counter[str] = Counter()
        for top in tops:
            _copied(top, None, one, counts)
        found.append(one)
    return found


def _copied(call: Call, parent: Call | None, trace: Trace, counts: Counter[str]) -> None:
    one = attrs.evolve(call, index=len(trace.calls), parent=parent, ordinal=counts[call.path], children=[])
    counts[call.path] += 1
    trace.add(one)
    for child in call.children:
        _copied(child, one, trace, counts)


def _chunk_of(call: Call, paths: Sequence[Sequence[str]]) -> int:
    for one in call.subtree():
        for number, own in enumerate(paths):
            if any(is_at(one.path, path) for path in own):
                return number
    return 0


class Joiner:
    """What makes the steps of several stages one model's: their values lie in one store; see `Ranks.copies`."""

    def __init__(self, stages: Sequence[MergedStep], store: MergedStore, copies: Mapping[str, str]) -> None:
        self.stages, self.store, self.copies = stages, store, copies
        self.step = MergedStep(Trace(store, summaries=store.summaries), grid=stages[0].grid)
        self.tokens: dict[tuple[int, int], int] = {}
        """Number of a stage, and a token in its trace -> the token in the joined one."""
        self.counts: Counter[str] = Counter()
        self.given: dict[int, Leaf] = {}
        """Token -> a parameter that the open call of the model is given: another stage's, of which one has a copy."""

    def join(self) -> MergedStep:
        """Return the joined step."""
        trace = self.step.trace
        for number, (stage, later) in enumerate(zip(self.stages, self.stages[1:], strict=False)):
            self._link(number, stage.trace.tops, later.trace.tops)
        tops = [(number, stage.trace.tops) for number, stage in enumerate(self.stages)]
        for members in _together(tops):
            given = self.given = {}
            self._call(members, None).inputs.extend(given.values())
        for stage in self.stages:
            for path, record in stage.trace.parameters.items():
                if path not in self.copies:
                    trace.parameters.setdefault(path, record)
            for name in OF_PARAMETERS:
                for path, key in getattr(stage.trace, name).items():
                    self._hold(name, self.copies.get(path, path), key, stage.parameters.get((name, path)))
            trace.handed.update(stage.trace.handed)
            self.step.left += stage.left
        trace.flow = chained([stage.trace.flow for stage in self.stages], self.copies)
        trace.loss = self.stages[0].trace.loss
        trace.stepped = [one for stage in self.stages for one in stage.trace.stepped]
        sampled = {stage.trace.sampled for stage in self.stages}
        trace.sampled = True if True in sampled else None if None in sampled else False
        trace.samples = Samples(trace)
        return self.step

    def _hold(self, name: str, path: str, key: int, parts: Parts | None) -> None:
        """Keep what a stage holds of a parameter; where one before it does too, both should hold the same."""
        trace, known = self.step.trace, self.step.parameters.get((name, path))
        first = getattr(trace, name).setdefault(path, key)
        if first == key and parts is not None:
            self.step.parameters[name, path] = parts
        if first == key or known is None or parts is None:
            return
        if name == "parameter_gradients":  # each stage's is what it makes of it
            total = self.store.promise(lambda: np.add(self.store.get(first), self.store.get(key)))
            trace.parameter_gradients[path] = total
            del self.step.parameters[name, path]
            return
        same = difference(self.store.get(first), self.store.get(key)).equal
        unlike = (*known.spreading.unlike, *(() if same else parts.arrays))
        spreading = attrs.evolve(known.spreading, unlike=tuple(sorted(set(unlike))))
        arrays = {**known.arrays, **parts.arrays}
        self.step.parameters[name, path] = attrs.evolve(known, arrays=arrays, spreading=spreading)

    def _link(self, number: int, calls: Sequence[Call], later: Sequence[Call]) -> None:
        """Let what a stage takes be what the one before it gave, where it has its bits."""
        for call, taker in zip(calls, later, strict=False):
            for leaf in _received(taker):
                given = (one for one in call.outputs if one.shape == leaf.shape and one.dtype == leaf.dtype)
                giver = next((one for one in given if self._same(number, one, leaf)), None)
                if giver is not None:
                    self.tokens[number + 1, leaf.token] = self._token(number, giver.token)

    def _same(self, number: int, one: Leaf, other: Leaf) -> bool:
        first, second = self.stages[number].trace, self.stages[number + 1].trace
        for name in ("value", "gradient"):
            held, taken = getattr(first, name)(one), getattr(second, name)(other)
            if (held is None or taken is None) and name == "gradient":
                continue
            if held is None or taken is None or not difference(held, taken).equal:
                return False
        return True

    def _token(self, number: int, token: int) -> int:
        return self.tokens.setdefault((number, token), len(self.tokens) + 1)

    def _call(self, members: Sequence[Member], parent: Call | None) -> Call:
        """Add what stages did in one call: what went in first, and came out last."""
        trace, (_, first) = self.step.trace, members[0]
        one = attrs.evolve(
            first, index=len(trace.calls), parent=parent, ordinal=self.counts[first.path], children=[], inputs=[]
        )
        self.counts[first.path] += 1
        trace.add(one)
        for member in members:
            self._take(one, member)
        number, last = members[-1]
        one.outputs = [self._leaf(one, "output", i, number, last, i) for i in range(len(last.outputs))]
        for inner in _together([(number, call.children) for number, call in members]):
            self._call(inner, one)
        return one

    def _take(self, one: Call, member: Member) -> None:
        """Let a call take what a stage is given, and no stage before it was."""
        number, call = member
        known = {leaf.path for leaf in one.inputs}
        moved = {}
        for index, leaf in enumerate(call.inputs):
            if leaf.path not in known:
                moved[index] = len(one.inputs)
                one.inputs.append(self._leaf(one, "input", len(one.inputs), number, call, index))
        slots = {old: Slot(new) for old, new in moved.items()}
        given = {name: slots.get(value.index) for name, value in call.kwargs.items() if isinstance(value, Slot)}
        one.kwargs = {**one.kwargs, **{name: slot for name, slot in given.items() if slot is not None}}
        if len(one.args) == len(call.args):
            pairs = zip(one.args, call.args, strict=True)
            one.args = tuple(slots.get(b.index, a) if isinstance(b, Slot) else a for a, b in pairs)

    def _leaf(self, one: Call, side: str, place: int, number: int, call: Call, index: int) -> Leaf:
        stage, leaf = self.stages[number], call.leaves(side)[index]
        trace, token = self.step.trace, self._token(number, leaf.token)
        copies = (stage.trace.parameters[path] for path in self.copies if path in stage.trace.parameters)
        # What a stage makes of its copy is a part of the gradient of the one that all have.
        part = any(call.path == parent(one.path) and one.shape == leaf.shape for one in copies)
        if part:
            self.given[token] = attrs.evolve(leaf, token=token)
        for name in ("values",) if part else ("values", "gradients"):
            if leaf.token in getattr(stage.trace, name):
                getattr(trace, name).setdefault(token, getattr(stage.trace, name)[leaf.token])
        if leaf.token in stage.gradients and not part:
            self.step.gradients.setdefault(token, stage.gradients[leaf.token])
        parts = stage.values.get((call.key, side, index))
        spot = one.key, side, place
        if parts is not None:
            self.step.values[spot] = parts
        for kind in ("value", "gradient"):
            left = stage.open.get((leaf.token, kind))
            if left is not None:
                self.step.open[token, kind] = left
        return attrs.evolve(leaf, token=token)


def _together(calls: Sequence[tuple[int, Sequence[Call]]]) -> list[list[Member]]:
    """Return the calls below one, stage by stage: of those of one path the first of each stage are one, and so on."""
    found: dict[Any, list[Member]] = {}
    for number, own in calls:
        counts: Counter[str] = Counter()
        for call in own:
            found.setdefault((call.path, counts[call.path]), []).append((number, call))
            counts[call.path] += 1
    return list(found.values())


def _received(call: Call) -> Iterator[Leaf]:
    """Yield what calls within one take that neither it was given nor one of them gave."""
    known = {leaf.token for leaf in call.inputs}
    for one in call.subtree():
        for leaf in one.inputs:
            if leaf.token not in known:
                known.add(leaf.token)
                yield leaf
        known.update(leaf.token for leaf in one.outputs)
