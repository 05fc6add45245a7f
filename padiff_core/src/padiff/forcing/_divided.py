"""Read a reference that ran on several batches in one as if it had run on each, as a candidate does that is run twice.

A port of guidance may run the network once for each half of what the reference runs it on. What acts on each row by
itself, does on a share of the rows what it does on all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing._bench import Disturbed, Noisy, with_itself
from padiff.forcing._messages import Replayed, ReplayRequest
from padiff.forcing._side import Side
from padiff.numerics import Array
from padiff.recording import Task
from padiff.trace import Call, Key, Leaf, ReadStore, Samples, Summary, Trace, ValueStore

Place = tuple[str, int, str, int]
"""Path and ordinal of a call, ``input`` or ``output``, index of the tensor."""


@attrs.frozen
class Share:
    """One of several equal parts of a value along an axis, or some of these parts: those of the ``rows`` of a batch."""

    axis: int
    number: int
    """Which batch it is of; without ``rows``, which part too."""
    count: int
    """How many parts there are."""
    rows: tuple[int, ...] | None = None
    scattered: bool = False
    """Whether it takes every ``count``-th place of the axis: a time step, where each batch has its times in a row."""
    grown: bool = False
    """Whether it holds what is of earlier parts, too, whose gradient is theirs (a cache)."""
    dropped: bool = False
    """Whether it is one place of the axis, and has no such axis itself: a time step that is called by itself."""
    lengths: tuple[int, int] = (0, 0)
    """To which length it pads its rows (to the longest text of its own), and to which the whole does; 0 where alike."""
    padded: tuple[int, ...] = ()
    """The axes that are as long; that of the rows, where rows and what is padded are joined in one."""

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the part."""
        if self.dropped:
            return (*shape[: self.axis], *shape[self.axis + 1 :])
        parts = 1 if self.rows is None else len(self.rows)
        inside = self.lengths[0] if self.axis in self.padded else shape[self.axis] // self.count
        found = [self.lengths[0] if axis in self.padded else size for axis, size in enumerate(shape)]
        return (*found[: self.axis], inside * parts, *found[self.axis + 1 :])

    def read(self, array: Array) -> Array:
        """Return the part of a value; a view where it is in one piece."""
        step = array.shape[self.axis] // self.count
        rows = (self.number,) if self.rows is None else self.rows
        where: Any = slice(rows[0] * step, (rows[-1] + 1) * step)
        if self.scattered:
            where = slice(self.number, None, self.count)
        elif self.axis in self.padded or rows != tuple(range(rows[0], rows[-1] + 1)):
            inside = self.lengths[0] if self.axis in self.padded else step
            where = [row * step + inner for row in rows for inner in range(inside)]
        index: list[Any] = [slice(self.lengths[0] if axis in self.padded else None) for axis in range(array.ndim)]
        index[self.axis] = rows[0] if self.dropped else where
        found: Array = array[tuple(index)]
        return found


@attrs.frozen(eq=False)
class Summand:
    """What one of several batches makes of a value that is the sum, or the mean, of what all of them make."""

    offset: Array
    """What makes it of that."""
    times: float
    """How many times the gradient of that its own is."""

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of it."""
        return tuple(shape)

    def read(self, array: Array) -> Array:
        """Return it: what makes all of them another value makes this one another by as much."""
        found: Array = (array + self.offset).astype(array.dtype)
        return found


@attrs.frozen
class Picked:
    """Some rows of a value, all axes in front of which are joined in one."""

    axes: int
    """How many axes are joined."""
    count: int
    """How many rows there are."""
    rows: tuple[int, ...]
    grown: bool = False
    """Whether others than these may get a gradient, too."""
    lead: int = 0
    """How many axes of one stand in front of the rows: a batch of one sequence, say."""

    @property
    def shared(self) -> Picked:
        """Return them of what more than these calls may take."""
        return attrs.evolve(self, grown=True)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the rows."""
        return *(1,) * self.lead, len(self.rows), *shape[self.axes :]

    def fits(self, whole: Sequence[int], part: Sequence[int]) -> bool:
        """Return whether a value of one shape has as many rows, and these another shape."""
        return math.prod(whole[: self.axes]) == self.count and self.shape(whole) == tuple(part)

    def read(self, array: Array) -> Array:
        """Return the rows."""
        found: Array = array.reshape(self.count, *array.shape[self.axes :])[list(self.rows)]
        return found.reshape(self.shape(array.shape))


@attrs.frozen
class Scaled:
    """A gradient so many times."""

    times: float

    def read(self, array: Array) -> Array:
        """Return it."""
        found: Array = (array * self.times).astype(array.dtype)
        return found


Part = Share | Summand | Picked


@attrs.frozen
class Division:
    """Which calls of the reference ran on several batches in one, and what of them is of one batch."""

    shares: tuple[Share, ...]
    """In the order in which the candidate runs on them."""
    calls: frozenset[Key]
    places: frozenset[Place]
    """The tensors of these calls that hold all batches; the others are alike in each."""
    parts: Mapping[Place, Sequence[Part]] = attrs.field(factory=dict)
    """What of one of them is of each batch, where that is another part than the shares say."""


class Divided:
    """A trace as it would be had the calls of each division been made for each batch by itself."""

    def __init__(self, whole: Trace, *divisions: Division) -> None:
        self.whole, self._of = whole, {key: one for one in divisions for key in one.calls}
        self._store = ReadStore(whole.store)
        self.trace = attrs.evolve(
            whole, store=self._store, calls=[], values=dict(whole.values), gradients=dict(whole.gradients)
        )
        self.origins: dict[Key, Call] = {}
        """Key of a call -> the call that was made."""
        self.parts: dict[int, tuple[int, Part]] = {}
        """Token of a part -> that of the whole, and which part."""
        self._tokens: dict[tuple[int, Part], int] = {}
        self._next = max((leaf.token for call in whole.calls for leaf in (*call.inputs, *call.outputs)), default=0)
        self._ordinals: dict[str, int] = {}
        self._add_all([call for call in whole.calls if call.parent is None], None, None)
        if whole.stepped_at is not None:
            made = [self.origins[call.key].index for call in self.trace.calls]
            self.trace.stepped_at = sum(index < whole.stepped_at for index in made)
        self.trace.samples = Samples(self.trace)

    def _add(self, call: Call, parent: Call | None, share: Share | None) -> None:
        ordinal = self._ordinals.get(call.path, 0)
        self._ordinals[call.path] = ordinal + 1
        inputs, outputs = (
            [
                self._leaf(leaf, (*call.key, what, index), share, self._of.get(call.key))
                for index, leaf in enumerate(leaves)
            ]
            for what, leaves in (("input", call.inputs), ("output", call.outputs))
        )
        new = attrs.evolve(
            call,
            index=len(self.trace.calls),
            ordinal=ordinal,
            parent=parent,
            inputs=inputs,
            outputs=outputs,
            children=[],
        )
        self.origins[self.trace.add(new).key] = call
        self._add_all(call.children, new, share)

    def _add_all(self, calls: Sequence[Call], parent: Call | None, share: Share | None) -> None:
        runs = itertools.groupby(calls, lambda call: self._of.get(call.key) if share is None else None)
        for division, run in runs:
            together = list(run)
            for part in (share,) if division is None else division.shares:  # one behind the other, for each batch once
                for call in together:
                    self._add(call, parent, part)

    def _leaf(self, leaf: Leaf, place: Place, share: Share | None, division: Division | None) -> Leaf:
        if share is None or division is None or place not in division.places:
            return leaf
        part: Part = division.parts[place][share.number] if place in division.parts else share
        token = self._tokens.get((leaf.token, part))
        if token is None:
            self._next += 1
            token = self._tokens[leaf.token, part] = self._next
            self.parts[token] = leaf.token, part
            grown = isinstance(part, Share | Picked) and part.grown
            for named, how, known in (
                (self.trace.values, part, True),
                (self.trace.gradients, Scaled(part.times) if isinstance(part, Summand) else part, not grown),
            ):
                key = named.get(leaf.token)
                if key is not None and (key < 0 or not known):
                    named[token] = self.trace.summarized(Summary(leaf.dtype, part.shape(leaf.shape)))
                elif key is not None:
                    named[token] = self._store.add(key, how)
        return attrs.evolve(leaf, token=token, shape=part.shape(leaf.shape))


class _DividedSide:
    """The reference as it would be had it run on each batch by itself."""

    def __init__(self, side: Side, first: Divided, division: Division) -> None:
        self._side, self._first, self._division = side, first, division

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    def record(self, task: Task, store: ValueStore, *, values: bool = True) -> Trace:
        """Run the model freely, and divide what it did."""
        return Divided(self._side.record(task, store, values=values), self._division).trace

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run a call by itself: on the rows of one batch, or on all where it was made for all."""
        origin = self._first.origins[request.call.key]
        if origin.key in self._division.calls:
            call = attrs.evolve(request.call, ordinal=origin.ordinal)
            pairs = [with_itself(call, pair) if pair.candidate is request.call else pair for pair in request.pairs]
            return self._side.replay(attrs.evolve(request, call=call, pairs=pairs))
        made: dict[Call, Pair] = {}
        for pair in request.pairs:
            call = self._first.origins[pair.reference.key]
            made.setdefault(call, pair if call.key not in self._division.calls else Pair(call, call, pair.why))
        pairs = [with_itself(call, pair) for call, pair in made.items()]
        values = request.values
        whole = (
            attrs.evolve(values, trace=self._first.whole)
            if isinstance(values, Disturbed | Noisy)
            else self._first.whole
        )
        found = self._side.replay(attrs.evolve(request, call=origin, pairs=pairs, values=whole))
        for named in (found.observed.values, found.observed.gradients):
            self._add_parts(named)
        return found

    def _add_parts(self, named: dict[int, Array]) -> None:
        for token, (whole, share) in self._first.parts.items():
            if whole in named:
                named[token] = np.asarray(share.read(named[whole]))


def divided(side: Side, trace: Trace, division: Division) -> tuple[Side, Trace]:
    """Return the reference, and its trace, as they would be had it run on each batch by itself."""
    first = Divided(trace, division)
    return cast("Side", _DividedSide(side, first, division)), first.trace
