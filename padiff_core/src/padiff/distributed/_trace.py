"""Merge what the ranks of a job did in one step into the trace of one model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from padiff.distributed._expected import Expected, Shape, shape_left
from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading, behind, differing
from padiff.distributed._joined import joined_of
from padiff.distributed._losses import Losses
from padiff.distributed._merged_step import MergedStep, MergedStore, Parts
from padiff.distributed._optimizers import keep_last_pass, keep_optimizer_gradient, stepped_with
from padiff.distributed._others import Other, Spot
from padiff.distributed._shared import Homes, Shared, held_of, shared_calls, shared_flow
from padiff.distributed._sketches import (
    Arrays,
    Held,
    Sketches,
    gathered,
    read,
    shapes_of,
    spread_over,
    were_reduced,
    whole_summary,
    with_nothing,
)
from padiff.distributed._whole import whole_shape
from padiff.kinds import Placement, Ranks, Spread, is_data, parts_of_data, shares_data, unreduced
from padiff.numerics import Array
from padiff.paths import parent
from padiff.trace import OF_PARAMETERS, Call, Leaf, ParameterRecord, Samples, Summary, Trace


@attrs.define(eq=False, slots=False)
class Merger:
    """What makes the traces of ranks one."""

    traces: Mapping[int, Trace]
    grid: Grid
    ranks: Mapping[int, Ranks]
    other: Other | None
    """Another run, whose values tell how these are spread."""
    stacked: bool
    """Whether its ranks lie alike: what nobody can put together is compared rank by rank, one behind the other."""
    store: MergedStore
    inner: Mapping[str, Collection[str]]
    """Paths of modules, for ``input`` and ``output``, with whose values another run has nothing in common: what a stage
    of a pipeline hands on."""
    losses: Losses
    """Those of the whole job."""
    homes: Homes
    ends: dict[str, bool]
    """Which grows: along which axes ranks have parts from both ends of what the model is given."""

    def __attrs_post_init__(self) -> None:
        """Begin with nothing."""
        traces, grid = self.traces, self.grid
        self.lead = next(iter(traces))
        self.cut = any(grid.lacks(list(traces), axis) for axis in grid.axes)
        self.step = MergedStep(Trace(self.store, summaries=self.store.summaries), grid=grid)
        self.calls = {rank: {call.key: call for call in trace.calls} for rank, trace in traces.items()}
        self.spreads: dict[tuple[int, int], Spreading] = {}
        """The first rank that holds a tensor, and its token there -> how the tensor is spread."""
        self.lying: dict[tuple[int, ...], list[Spread]] = {}
        """Shape on the first rank -> how the tensors of that shape are spread of which a part lies there."""
        self.told = self.other is not None and len(traces[self.lead].trained) == len(self.other.trace.trained)
        """Whether the other run's values are of the same parts of a batch, so that they tell how these are spread."""
        self.returned = {(self.lead, leaf.token) for leaf in traces[self.lead].root.outputs}
        """What the model gives whoever calls it."""
        self.own: set[str] = set()
        """The axes along which ranks have losses of their own, though all told one."""
        self.left: dict[str, Shape] = {}
        """Path of a parameter that could not be put together -> the shape that it may have."""
        self.guessed: set[tuple[int, int]] = set()
        """What is in `spreads` because ranks that share data have each a part of a batch, along its first axis."""
        self.strides: set[int] = set()
        """How often parts of what ranks share come behind each other where the axes before the shared one are one."""
        self.names: dict[tuple[tuple[int, int], ...], int] = {}
        """Tokens of a tensor on the ranks -> its token in the merged trace."""

    def merge(self, *, calls: bool) -> MergedStep:
        """Return the merged step; without ``calls``, the ranks' parameters alone."""
        if calls:
            self._calls()
        self._parameters()
        trace, lead = self.step.trace, self.traces[self.lead]
        trace.loss = self.losses.whole
        trace.stepped = stepped_with(self.traces)
        trace.flow, trace.sampled = shared_flow(self.traces), lead.sampled
        trace.samples = Samples(trace)
        return self.step

    def _calls(self) -> None:
        shared = shared_calls(self.calls, self.homes)
        made: dict[Any, Call] = {}
        for one in shared:
            if one.call.parent is None:  # it says where each rank's data lie in those of all
                self._decide(one, "input")
        for one in sorted(shared, key=lambda one: one.call.path not in self.ranks[one.lead].outputs):
            self._decide(one, "output")  # what frameworks say first: what takes it is spread alike
        for one, side in itertools.product(shared, ("input", "output")):
            self._decide(one, side)
        for one, side in itertools.product(shared if self.told else (), ("input", "output")):
            self._decide_alike(one, side)
        for one in shared:
            parent = next((made[above.key] for above in one.call.ancestors() if above.key in made), None)
            call = made[one.call.key] = attrs.evolve(one.call, index=len(self.step.trace.calls), parent=parent)
            call.children = []
            for side in ("input", "output"):
                leaves = [self._leaf(one, side, index) for index in range(len(one.call.leaves(side)))]
                setattr(call, f"{side}s", leaves)
            self.step.trace.add(call)

    def _decide(self, one: Shared, side: str) -> None:
        for index, own in enumerate(one.call.leaves(side)):
            held, name = held_of(one, self.calls, side, index), (one.lead, own.token)
            if held is None or name in self.spreads:
                continue
            arrays = self._arrays(held, "values")
            if isinstance(arrays, Sketches) and len(held) < len(self.traces):
                continue  # nobody knew which of all tokens these are
            says = self._says(one, side, index, arrays)
            expected = self._expected((one.call.key, side, index))
            given = side == "input" and one.call.parent is None
            how: dict[str, Any] = {"sums": name not in self.returned, "strides": self.strides}
            how["ends"] = self.ends if given or self.ends else None
            spread = arrays and spread_over(
                arrays, self.grid, says, expected, batch=True, added=self._added(name), **how
            )
            if arrays and spread is None and not self.told and any(map(is_data, self.grid.axes)):
                own_data: Spread = {**says, **parts_of_data(self.grid.axes)}
                spread = spread_over(arrays, self.grid, own_data, None, **how)
                self.guessed.update([name] if spread else [])
                if len(own.shape) > _FLAT:
                    self.step.strides.update(n * own.shape[0] for n in (1, *map(self.grid.size, self.grid.axes)))
            if arrays and spread is None and self.stacked:
                spread = behind(arrays, self.grid)
            if spread:
                self.spreads[name] = spread
                if given and expected is not None:
                    shards = {axis: how.ends for axis, how in spread.placements.items() if how.kind == "shard"}
                    self.ends.update({axis: both for axis, both in shards.items() if axis not in self.ends})
                dims = [how.dim % len(own.shape) for how in spread.placements.values() if how.kind == "shard"]
                self.strides.update(self._before(own.shape, spread, dim) for dim in dims if dim)
                if not spread.unlike and dims and len(held) == len(self.traces):
                    self.lying.setdefault(own.shape, []).append(spread.placements)

    def _before(self, shape: Shape, spread: Spreading, dim: int) -> int:
        """Return how many elements the axes before one have in the whole, of which a shape is that of a rank's part."""
        parts = (axis for axis, how in spread.placements.items() if how.kind == "shard" and how.dim % len(shape) < dim)
        return math.prod(shape[:dim]) * math.prod(map(self.grid.size, parts))

    def _says(self, one: Shared, side: str, index: int, arrays: Arrays | None) -> Spread:
        """Return how a framework says that a value lies; a parameter that a layer hands on lies as it is held."""
        call, ranks, own = one.call, self.ranks[one.lead], one.call.leaves(side)[index]
        if side == "input" or not index or isinstance(arrays, Sketches):  # which took it for any value
            return ranks.outputs.get(call.path, {}) if side == "output" and not index else {}
        held = self.traces[one.lead].parameters.items()
        alike = [path for path, one in held if parent(path) == call.path and one.shape == own.shape]
        return ranks.parameters.get(alike[0], {}) if len(alike) == 1 else {}

    def _decide_alike(self, one: Shared, side: str) -> None:
        """Let what nothing tells of lie as all lies that is known, and of that shape, on this rank."""
        for index, own in enumerate(one.call.leaves(side)):
            held, name = held_of(one, self.calls, side, index), (one.lead, own.token)
            known = name in self.spreads or self._expected((one.call.key, side, index)) is not None
            if held is None or known or len(held) < len(self.traces):
                continue
            arrays, found = self._arrays(held, "values"), self.lying.get(own.shape, [])
            if arrays and found and all(how == found[0] for how in found):
                self.spreads[name] = Spreading(found[0], inferred=True)

    def _added(self, name: tuple[int, int]) -> Array | None:
        """Return what each rank's value of a tensor holds, and the code around is still to add."""
        lead = self.traces[name[0]]
        key = lead.added.get(name[1], -1)
        return None if key < 0 else lead.array(key)

    def _arrays(self, held: Mapping[int, Leaf], kind: str) -> Arrays | None:
        traces = self.traces
        return gathered({r: (traces[r], getattr(traces[r], kind).get(leaf.token)) for r, leaf in held.items()})

    def _expected(self, place: Spot, kind: str = "value") -> Expected | None:
        key, side, _ = place
        known = self.told and self.other is not None and key[0] not in self.inner.get(side, ())
        return self.other.value(place, kind) if known and self.other is not None else None

    def _leaf(self, one: Shared, side: str, index: int) -> Leaf:
        own, first = one.call.leaves(side)[index], (one.lead, one.call.leaves(side)[index].token)
        held = held_of(one, self.calls, side, index)
        name = tuple((rank, leaf.token) for rank, leaf in held.items()) if held else (first,)
        known = name in self.names
        token = self.names.setdefault(name, len(self.names) + 1)
        arrays = held and self._arrays(held, "values")
        spread = self.spreads.get(first)
        trace, shape, place = self.step.trace, own.shape, (one.call.key, side, index)
        if held and spread is not None:
            if arrays:
                parts = self.step.values[place] = Parts(arrays, spread, self.grid, added=self._added(first))
                if not known:
                    trace.values[token] = self._promised(parts)
                shape = self._shape_of(trace.values[token]) if token in trace.values else shape
            self._gradient(place, token, held, (spread, shape if token in trace.values else None))
            if arrays and first in self.guessed:
                self._leave(token, held, arrays, self._says(one, side, index, arrays))
        elif first in self.returned and (not arrays or isinstance(arrays, Sketches) or self.cut):
            theirs = None if self.other is None else self.other.leaf(place)
            shape = shape_left(shape, None if theirs is None else theirs.shape)
        if arrays and not known and spread is None:
            self._leave(token, held or {}, arrays, self._says(one, side, index, arrays), left=1)
        return attrs.evolve(own, token=token, shape=shape)

    def _leave(self, token: int, held: Mapping[int, Leaf], arrays: Arrays, says: Spread, left: int = 0) -> None:
        """Keep what cannot be put together for the other run to tell."""
        self.step.open[token, "value"], self.step.left = (arrays, says), self.step.left + left
        gradients = self._arrays(held, "gradients")
        if gradients:
            self.step.open[token, "gradient"] = gradients, self._averaged(says, gradients)

    def _gradient(self, place: Spot, token: int, held: Mapping[int, Leaf], value: tuple[Spreading, Any]) -> None:
        of, shape = value  # what it is of, and its shape
        keys = {rank: self.traces[rank].gradients.get(leaf.token) for rank, leaf in held.items()}
        arrays = with_nothing(self.traces, keys, {rank: leaf.shape for rank, leaf in held.items()})
        if of.alike or len(arrays) < len(held) or token in self.step.trace.gradients:
            return
        expected = self._expected(place, "gradient")
        known = {axis: how for axis, how in of.placements.items() if how.kind == "shard"}
        if self.lead in held and (self.lead, held[self.lead].token) in self.returned:
            self.own |= self.losses.own(self._split(), arrays, known, expected)
        if isinstance(arrays, Sketches):  # those of shards add up
            added = (axis for axis, how in of.placements.items() if how.kind == "partial")
            known |= {axis: of.placements[axis] for axis in added if shares_data(axis) or not of.inferred}
        spread = spread_over(arrays, self.grid, self._averaged(known, arrays), expected, batch=True, shape=shape)
        if spread is not None:
            parts = self.step.gradients[token] = Parts(arrays, spread, self.grid)
            self.step.trace.gradients[token] = self._promised(parts)
        else:
            self.step.open[token, "gradient"] = arrays, self._averaged(known, arrays)

    def _averaged(
        self, known: Mapping[str, Placement], arrays: Mapping[int, Any], *, parameter: bool = False
    ) -> dict[str, Placement]:
        """Return how a gradient is spread, where each rank has the loss of its own data: a share of the whole one's.

        One that a rank alone of those with other data has is the sum of what all make of it, if it is not the mean.
        """
        found = dict(known)
        for axis in self.losses.axes(self._split(), self.own):
            how = known.get(axis, Placement("partial"))
            alone = all(len(group) == 1 for group in self.grid.groups(arrays, axis))
            reduced = parameter and alone and were_reduced(self.traces, self.grid, axis)
            same = how.kind == "partial" and not differing(read(arrays), self.grid, axis) and (reduced or not alone)
            found[axis] = Placement() if same else attrs.evolve(how, mean=not self.losses.summed)
        return found

    def _split(self) -> set[str]:
        given = [self.spreads.get((self.lead, leaf.token)) for leaf in self.traces[self.lead].root.inputs]
        return {axis for one in given if one for axis in one.split}

    def _promised(self, parts: Parts) -> int:
        how = parts.spreading.placements
        if isinstance(parts.arrays, Sketches):
            return self.step.trace.summarized(whole_summary(parts.arrays, self.grid, parts.spreading))
        lent = {rank: one.lent if isinstance(one, Held) else None for rank, one in parts.arrays.items()}
        known = {rank: one for rank, one in lent.items() if one is not None}
        apart = len(known) < len(lent) or parts.added is not None
        place = None if apart else joined_of(known, self.grid, how, parts.whole)
        return self.store.promise(parts.value, place)

    def _shape_of(self, key: int) -> Shape:
        return self.store.summaries[key].shape if key < 0 else self.store.get(key).shape

    def _parameters(self) -> None:
        for name in OF_PARAMETERS:
            for path in dict.fromkeys(path for trace in self.traces.values() for path in getattr(trace, name)):
                held = {rank: trace for rank, trace in self.traces.items() if path in trace.parameters}
                keys = {rank: getattr(trace, name).get(path) for rank, trace in held.items()}
                if name == "parameter_gradients":
                    arrays = with_nothing(self.traces, keys, self._shapes(path))
                else:
                    arrays = gathered({rank: (self.traces[rank], key) for rank, key in keys.items()}) or {}
                if len(arrays) == len(held):
                    self._parameter(name, path, arrays)
        for path in dict.fromkeys(path for trace in self.traces.values() for path in trace.parameters):
            self.step.trace.parameters[path] = self._record(path)
            keep_optimizer_gradient(self.step, self.traces, path)
            keep_last_pass(self.step, self.traces, path, self._promised)

    def _shapes(self, path: str) -> dict[int, Shape]:
        return {rank: one.parameters[path].shape for rank, one in self.traces.items() if path in one.parameters}

    def _parameter(self, name: str, path: str, arrays: Arrays) -> None:
        rank, whole = next(iter(arrays)), self._shape(path)
        says, record = self.ranks[rank].parameters.get(path, {}), self.traces[rank].parameters[path]
        known: dict[str, Placement] = dict(says)
        expected: Expected | None = None if self.other is None else self.other.parameter(name, path, whole)
        if name == "parameter_gradients":
            # Before a reduction each rank has its own gradient, of its own data; of another shape, of all elements.
            alike, weights = self._shapes(path) == shapes_of(arrays), self.step.weights(path)
            lying = weights.spreading.placements if alike and weights is not None else says
            shards: Spread = {axis: how for axis, how in lying.items() if how.kind == "shard"}
            shards = shards if alike or not whole else unreduced(shards, shapes_of(arrays)[rank], whole)
            known = self._averaged(shards, arrays, parameter=True)
        spread = spread_over(arrays, self.grid, known, expected, sums=name == "parameter_gradients")
        if spread is None:
            self.step.left += 1
            self.left[path] = shape_left(record.shape, None if expected is None else expected.of)
            if name == "parameter_gradients":  # there is one, which is another thing than none
                unknown = self.step.trace.summarized(Summary(record.dtype, whole or record.shape))
                self.step.trace.parameter_gradients[path] = unknown
            return
        parts = self.step.parameters[name, path] = Parts(arrays, spread, self.grid, whole)
        getattr(self.step.trace, name)[path] = self._promised(parts)

    def _first(self, path: str) -> tuple[Ranks, ParameterRecord]:
        """Return what the first rank knows of a parameter that holds it, and of itself."""
        rank = next(rank for rank, trace in self.traces.items() if path in trace.parameters)
        return self.ranks[rank], self.traces[rank].parameters[path]

    def _shape(self, path: str) -> tuple[int, ...] | None:
        """Return the shape of a whole parameter: as its framework says, or as the other run has it."""
        other = None if self.other is None else self.other.shape(path)
        return other or whole_shape(*self._first(path))

    def _record(self, path: str) -> ParameterRecord:
        ranks, record = self._first(path)
        for name in OF_PARAMETERS:
            key = getattr(self.step.trace, name).get(path)
            if key is not None:
                return attrs.evolve(record, shape=self._shape_of(key))
        known = whole_shape(ranks, record)
        return attrs.evolve(record, shape=known if known != record.shape else self.left.get(path, known))


_FLAT = 2
"""Axes of a value of which all but the last may be one where it has fewer: (tokens, features)."""
