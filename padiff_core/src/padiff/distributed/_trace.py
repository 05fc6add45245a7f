"""Merge what the ranks of a job did in one step into the trace of one model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading, behind, differing, merged, ways_of
from padiff.distributed._joined import joined_of
from padiff.distributed._like import Like, Shape, Whole, shape_left
from padiff.distributed._losses import Losses
from padiff.distributed._merged_store import MergedStore
from padiff.distributed._others import Other, Spot
from padiff.distributed._sketches import (
    Arrays,
    Held,
    Sketches,
    gathered,
    read,
    shapes_of,
    spread_over,
    whole_summary,
    with_nothing,
)
from padiff.distributed._whole import whole_shape
from padiff.kinds import Placement, Ranks, Spread, is_data, parts_of_a_batch
from padiff.numerics import Array
from padiff.trace import Call, Leaf, ParameterRecord, Samples, Summary, Trace


@attrs.frozen(eq=False)
class Parts:
    """What the ranks hold of one value, and how it is spread."""

    arrays: Mapping[int, Callable[[], Array]]
    spreading: Spreading
    whole: tuple[int, ...] | None = None
    added: Array | None = None
    """What is read with each part of a sum, and counts once."""


@attrs.define(eq=False)
class MergedStep:
    """One step of a job: as a trace, and what the ranks held of each value."""

    trace: Trace
    values: dict[Spot, Parts] = attrs.field(factory=dict)
    parameters: dict[tuple[str, str], Parts] = attrs.field(factory=dict)
    """``weights``, ``parameter_gradients``, ``updated``, ``buffers``, and the path -> what the ranks hold."""
    gradients: dict[int, Parts] = attrs.field(factory=dict)
    """Token in the merged trace -> what the ranks held of that value's gradient."""
    left: int = 0
    """How many values could not be put together."""
    grid: Grid = attrs.field(kw_only=True)
    open: dict[tuple[int, str], tuple[Arrays, Spread]] = attrs.field(factory=dict)
    """Token, and ``value`` or ``gradient``, that could not be put together -> what ranks hold, what is known of it."""

    def possible(self, token: int, kind: str) -> list[Whole]:
        """Return what a value may be that could not be put together."""
        arrays, known = self.open.get((token, kind), ({}, {}))

        def whole(how: Spread) -> Callable[[], Array]:
            return lambda: merged(read(arrays), self.grid, how)

        ways = ways_of(read(arrays), self.grid, known) if arrays else []
        return [(shape, whole(how)) for how, shape in ways]


def merge_step(
    traces: Mapping[int, Trace],
    grid: Grid,
    ranks: Mapping[int, Ranks],
    other: Other | None = None,
    *,
    stacked: bool = False,
    store: MergedStore | None = None,
    inner: Mapping[str, Collection[str]] | None = None,
    calls: bool = True,
    losses: Losses | None = None,
) -> MergedStep:
    """Return what the ranks did as one trace; without ``calls``, their parameters alone.

    ``other`` is another run, whose values tell how these are spread. ``stacked`` says that the other run's ranks lie
    alike: what nobody can put together is compared rank by rank, one behind the other. ``inner`` are the paths of
    modules, for ``input`` and ``output``, with whose values another run has nothing in common: what a stage of a
    pipeline hands on. ``losses`` are those of the whole job.
    """
    losses = losses or Losses({}, grid)
    return _Merger(traces, grid, ranks, other, stacked, store or MergedStore(), inner or {}, losses).merge(calls=calls)


class _Merger:
    def __init__(
        self,
        traces: Mapping[int, Trace],
        grid: Grid,
        ranks: Mapping[int, Ranks],
        other: Other | None,
        stacked: bool,
        store: MergedStore,
        inner: Mapping[str, Collection[str]],
        losses: Losses,
    ) -> None:
        self.traces, self.grid, self.ranks = traces, grid, ranks
        self.other, self.stacked, self.inner, self.losses = other, stacked, inner, losses
        self.lead = next(iter(traces))
        self.store = store
        self.step = MergedStep(Trace(self.store, summaries=self.store.summaries), grid=grid)
        self.calls = {rank: {call.key: call for call in trace.calls} for rank, trace in traces.items()}
        self.spreads: dict[int, Spreading] = {}
        """Token of the first rank -> how the tensor is spread."""
        self.lying: dict[tuple[int, ...], list[Spread]] = {}
        """Shape on the first rank -> how the tensors of that shape are spread of which a part lies there."""
        self.returned = {leaf.token for leaf in traces[self.lead].root.outputs}
        """What the model gives whoever calls it."""
        self.left: dict[str, Shape] = {}
        """Path of a parameter that could not be put together -> the shape that it may have."""
        self.names: dict[tuple[int, ...], int] = {}
        """Tokens of a tensor on the ranks -> its token in the merged trace."""

    def merge(self, *, calls: bool) -> MergedStep:
        """Return the merged step."""
        if calls:
            self._calls()
        self._parameters()
        trace, lead = self.step.trace, self.traces[self.lead]
        trace.loss = self.losses.whole
        trace.flow, trace.sampled = lead.flow, lead.sampled
        trace.samples = Samples(trace)
        return self.step

    def _calls(self) -> None:
        shared = [call for call in self.traces[self.lead].calls if all(call.key in one for one in self.calls.values())]
        made: dict[int, Call] = {}
        for call in sorted(shared, key=lambda call: call.path not in self.ranks[self.lead].outputs):
            self._decide(call, "output")  # what frameworks say first: what takes it is spread alike
        for call, side in itertools.product(shared, ("input", "output")):
            self._decide(call, side)
        for call, side in itertools.product(shared if self.other is not None else (), ("input", "output")):
            self._decide_alike(call, side)
        for call in shared:
            parent = next((made[above.index] for above in call.ancestors() if above.index in made), None)
            one = made[call.index] = attrs.evolve(call, index=len(self.step.trace.calls), parent=parent)
            one.children = []
            for side in ("input", "output"):
                leaves = [self._leaf(call, side, index) for index in range(len(_leaves(call, side)))]
                setattr(one, f"{side}s", leaves)
            self.step.trace.calls.append(one)
            if parent is not None:
                parent.children.append(one)

    def _held(self, call: Call, side: str, index: int) -> dict[int, Leaf] | None:
        found: dict[int, Leaf] = {}
        for rank, calls in self.calls.items():
            leaves = _leaves(calls[call.key], side)
            if index >= len(leaves):
                return None
            found[rank] = leaves[index]
        return found

    def _decide(self, call: Call, side: str) -> None:
        for index, own in enumerate(_leaves(call, side)):
            held = self._held(call, side, index)
            if held is None or own.token in self.spreads:
                continue
            arrays = self._arrays(held, "values")
            says = self._says(call, side, index, arrays)
            like = self._like((call.key, side, index))
            sums, added = own.token not in self.returned, self._added(own.token)
            spread = arrays and spread_over(arrays, self.grid, says, like, sums=sums, batch=True, added=added)
            if arrays and spread is None and self.other is None and any(map(is_data, self.grid.axes)):
                own_data: Spread = {**says, **parts_of_a_batch(self.grid.axes)}
                spread = spread_over(arrays, self.grid, own_data, None, sums=sums)
            if arrays and spread is None and self.stacked:
                spread = behind(arrays, self.grid)
            if spread:
                self.spreads[own.token] = spread
                if not spread.unlike and any(how.kind == "shard" for how in spread.placements.values()):
                    self.lying.setdefault(own.shape, []).append(spread.placements)

    def _says(self, call: Call, side: str, index: int, arrays: Arrays | None) -> Spread:
        """Return how a framework says that a value lies; a parameter that a layer hands on lies as it is held."""
        ranks, own = self.ranks[self.lead], _leaves(call, side)[index]
        if side == "input" or not index or isinstance(arrays, Sketches):  # which took it for any value
            return ranks.outputs.get(call.path, {}) if side == "output" and not index else {}
        held = self.traces[self.lead].parameters.items()
        alike = [path for path, one in held if path.rpartition(".")[0] == call.path and one.shape == own.shape]
        return ranks.parameters.get(alike[0], {}) if len(alike) == 1 else {}

    def _decide_alike(self, call: Call, side: str) -> None:
        """Let what nothing tells of lie as all lies that is known, and of that shape, on this rank."""
        for index, own in enumerate(_leaves(call, side)):
            held = self._held(call, side, index)
            if held is None or own.token in self.spreads or self._like((call.key, side, index)) is not None:
                continue
            arrays, found = self._arrays(held, "values"), self.lying.get(own.shape, [])
            if arrays and found and all(one == found[0] for one in found):
                self.spreads[own.token] = Spreading(found[0], inferred=True)

    def _added(self, token: int) -> Array | None:
        """Return what each rank's value of a tensor holds, and the code around is still to add."""
        lead = self.traces[self.lead]
        key = lead.added.get(token, -1)
        return None if key < 0 else lead.array(key)

    def _arrays(self, held: Mapping[int, Leaf], kind: str) -> Arrays | None:
        traces = self.traces
        return gathered({r: (traces[r], getattr(traces[r], kind).get(leaf.token)) for r, leaf in held.items()})

    def _like(self, place: Spot, kind: str = "value") -> Like | None:
        key, side, _ = place
        return None if self.other is None or key[0] in self.inner.get(side, ()) else self.other.value(place, kind)

    def _leaf(self, call: Call, side: str, index: int) -> Leaf:
        own = _leaves(call, side)[index]
        held = self._held(call, side, index)
        name = tuple(leaf.token for leaf in held.values()) if held else (own.token,)
        known = name in self.names
        token = self.names.setdefault(name, len(self.names) + 1)
        arrays = held and self._arrays(held, "values")
        spread = self.spreads.get(own.token)
        trace = self.step.trace
        shape = own.shape
        if held and spread is not None:
            place: Spot = (call.key, side, index)
            if arrays:
                added = self._added(own.token)
                parts = self.step.values[place] = Parts(arrays, spread, added=added)
                if not known:
                    trace.values[token] = self._promised(parts)
                shape = self._shape_of(trace.values[token]) if token in trace.values else shape
            self._gradient((call.key, side, index), token, held, (spread, shape if token in trace.values else None))
        elif arrays and not known:
            self.step.left += 1
            shape = shape_left(shape, self._like((call.key, side, index))) if own.token in self.returned else shape
            self._leave(token, held or {}, arrays, self._says(call, side, index, arrays))
        return attrs.evolve(own, token=token, shape=shape)

    def _leave(self, token: int, held: Mapping[int, Leaf], arrays: Arrays, says: Spread) -> None:
        """Keep what cannot be put together for the run that this one is compared with to tell."""
        self.step.open[token, "value"] = arrays, says
        gradients = self._arrays(held, "gradients")
        if gradients:
            self.step.open[token, "gradient"] = gradients, self._averaged(says, gradients)

    def _gradient(self, place: Spot, token: int, held: Mapping[int, Leaf], value: tuple[Spreading, Any]) -> None:
        of, shape = value  # what it is of, and its shape
        keys = {rank: self.traces[rank].gradients.get(leaf.token) for rank, leaf in held.items()}
        arrays = with_nothing(self.traces, keys, {rank: leaf.shape for rank, leaf in held.items()})
        if of.alike or len(arrays) < len(held) or token in self.step.trace.gradients:
            return
        like = self._like(place, "gradient")
        known = {axis: how for axis, how in of.placements.items() if how.kind == "shard"}
        if isinstance(arrays, Sketches):  # those of shards add up
            added = (axis for axis, how in of.placements.items() if how.kind == "partial")
            known |= {axis: of.placements[axis] for axis in added if is_data(axis) or not of.inferred}
        spread = spread_over(arrays, self.grid, self._averaged(known, arrays), like, batch=True, shape=shape)
        if spread is not None:
            parts = self.step.gradients[token] = Parts(arrays, spread)
            self.step.trace.gradients[token] = self._promised(parts)
        else:
            self.step.open[token, "gradient"] = arrays, self._averaged(known, arrays)

    def _averaged(self, known: Mapping[str, Placement], arrays: Mapping[int, Any]) -> dict[str, Placement]:
        """Return how a gradient is spread, where each rank has the loss of its own data: a share of the whole one's."""
        found = dict(known)
        given = [self.spreads.get(leaf.token) for leaf in self.traces[self.lead].root.inputs]
        split = {axis for one in given if one for axis in one.split}
        for axis in self.losses.axes(split):
            how = known.get(axis, Placement("partial"))
            same = how.kind == "partial" and not differing(read(arrays), self.grid, axis)
            found[axis] = Placement() if same else attrs.evolve(how, mean=not self.losses.summed)
        return found

    def _promised(self, parts: Parts) -> int:
        how = parts.spreading.placements
        if isinstance(parts.arrays, Sketches):
            return self.step.trace.summarized(whole_summary(parts.arrays, self.grid, parts.spreading))
        lent = {rank: one.lent if isinstance(one, Held) else None for rank, one in parts.arrays.items()}
        known = {rank: one for rank, one in lent.items() if one is not None}
        apart = len(known) < len(lent) or parts.added is not None
        place = None if apart else joined_of(known, self.grid, how, parts.whole)
        return self.store.promise(partial(self._made, parts), place)

    def _made(self, parts: Parts) -> Array:
        return merged(read(parts.arrays), self.grid, parts.spreading.placements, parts.whole, parts.added)

    def _shape_of(self, key: int) -> Shape:
        return self.store.summaries[key].shape if key < 0 else self.store.get(key).shape

    def _parameters(self) -> None:
        lead, says = self.traces[self.lead], self.ranks[self.lead].parameters
        for name in _OF_PARAMETERS:
            for path in dict.fromkeys(path for trace in self.traces.values() for path in getattr(trace, name)):
                keys = {rank: getattr(trace, name).get(path) for rank, trace in self.traces.items()}
                if name == "parameter_gradients":
                    arrays = with_nothing(self.traces, keys, self._shapes(path))
                else:
                    arrays = gathered({rank: (self.traces[rank], key) for rank, key in keys.items()}) or {}
                if len(arrays) == len(self.traces):
                    self._parameter(name, path, arrays, says.get(path, {}), self._shape(path))
        for path, record in lead.parameters.items():
            self.step.trace.parameters[path] = self._record(path, record)

    def _shapes(self, path: str) -> dict[int, Shape]:
        return {rank: one.parameters[path].shape for rank, one in self.traces.items() if path in one.parameters}

    def _parameter(self, name: str, path: str, arrays: Arrays, says: Spread, whole: tuple[int, ...] | None) -> None:
        known: dict[str, Placement] = dict(says)
        like: Like | None = None if self.other is None else self.other.parameter(name, path, whole)
        if name == "parameter_gradients":
            # Before a reduction each rank has its own gradient, of its own data; of another shape, of all elements.
            shards = {axis: how for axis, how in says.items() if how.kind == "shard"}
            known = self._averaged(shards if self._shapes(path) == shapes_of(arrays) else {}, arrays)
        spread = spread_over(arrays, self.grid, known, like, sums=name == "parameter_gradients")
        if spread is None:
            self.step.left += 1
            record = self.traces[self.lead].parameters[path]
            self.left[path] = shape_left(record.shape, like)
            if name == "parameter_gradients":  # there is one, which is another thing than none
                unknown = self.step.trace.summarized(Summary(record.dtype, whole or record.shape))
                self.step.trace.parameter_gradients[path] = unknown
            return
        parts = self.step.parameters[name, path] = Parts(arrays, spread, whole)
        getattr(self.step.trace, name)[path] = self._promised(parts)

    def _shape(self, path: str) -> tuple[int, ...] | None:
        """Return the shape of a whole parameter: as its framework says, or as the other run has it."""
        other = None if self.other is None else self.other.shape(path)
        return other or whole_shape(self.ranks[self.lead], self.traces[self.lead].parameters[path])

    def _record(self, path: str, record: ParameterRecord) -> ParameterRecord:
        for name in _OF_PARAMETERS:
            key = getattr(self.step.trace, name).get(path)
            if key is not None:
                return attrs.evolve(record, shape=self._shape_of(key))
        known = whole_shape(self.ranks[self.lead], record)
        return attrs.evolve(record, shape=known if known != record.shape else self.left.get(path, known))


_OF_PARAMETERS = ("weights", "updated", "buffers", "parameter_gradients")


def _leaves(call: Call, side: str) -> Sequence[Leaf]:
    return call.inputs if side == "input" else call.outputs
