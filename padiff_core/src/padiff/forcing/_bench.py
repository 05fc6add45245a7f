"""Run calls by themselves, on the reference's recorded values, on either side and in any precision.

This settles suspects: in float64 a fault stays what it is and rounding vanishes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing._checks import Spot, Values
from padiff.forcing._masks import is_added_mask
from padiff.forcing._messages import Replayed, ReplayRequest, Slotted
from padiff.forcing._side import Side
from padiff.numerics import Array, is_float, root_mean_square
from padiff.recording import warn_if_internal
from padiff.trace import Call, Key, Leaf, Trace

Reader = Callable[[Replayed, bool], Array | None]
"""Takes one value from what a call did by itself; the flag is true for the reference's side."""


@attrs.frozen
class Bench:
    """What replaying calls takes: both sides, the reference's values, and what belongs to what."""

    reference: Side
    candidate: Side
    trace: Trace
    """The reference's."""
    alignment: Alignment
    own: Mapping[tuple[Key, int], Array]
    """The candidate's own values of inputs that have no counterpart, or were kept."""
    backward: bool
    seed: int
    idle: tuple[frozenset[Key], frozenset[Key]] = (frozenset(), frozenset())
    """Keys of the reference's and of the candidate's calls, below those that are replayed, which only hand on their
    first input."""
    evaluating: bool = False
    """Whether calls are run in evaluation mode, where few draw random numbers; else in the mode they are in."""
    orders: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """Value of the reference, by its token -> the order of its last axis in which calls are fed it."""
    noise: float = 0.0
    """How much noise is added to all that calls are fed, in sizes of the values; gradients are noise alone then."""

    def whole(self, pair: Pair) -> Bench:
        """Return what replays a call as a whole: nothing inside of it is matched, and fed."""
        return attrs.evolve(self, alignment=Alignment([pair], [], []))

    def is_whole(self, pair: Pair) -> bool:
        """Return whether nothing inside of a call is matched anyhow."""
        return not any(one is not pair for one in self._inside(pair, ours=False))

    def condition(self, pair: Pair) -> Hashable | None:
        """Return all that replays of a pair rest on: under another alignment they show the same; None where not.

        That is so of an operation, which has nothing inside, and no weights that a refinement exchanges.
        """
        calls = pair.reference, pair.candidate
        own = any((pair.key, index) in self.own for index in range(len(pair.candidate.inputs)))
        if own or any(call.children or not call.module.operation for call in calls):
            return None
        sides = self.reference, self.candidate, self.idle, self.evaluating
        return (*sides, self.alignment.loose, pair.reference.key, pair.key, pair.inputs, pair.outputs)

    def of_reference(self, pair: Pair) -> Hashable:
        """Return all that replays of a pair's call in the reference rest on: its weights stay as they are."""
        below = tuple((one.reference.key, one.inputs, one.outputs) for one in self._inside(pair, ours=True))
        returned = tuple(ours for ours, _ in pair.outputs)
        return self.reference, self.idle[0], self.evaluating, self.alignment.loose, pair.reference.key, returned, below

    def tried(self, pair: Pair, ours: bool, truth: Values | None = None, **condition: Any) -> Replayed | None:
        """Replay a call as `run` does; None where it does not run so.

        What ran in the whole model may not run alone, or lacks a kernel in float64, or a mode.
        """
        try:
            return self.run(pair, ours, truth, **condition)
        except Exception as error:
            warn_if_internal(error)
            return None

    def run(
        self,
        pair: Pair,
        ours: bool,
        truth: Values | None = None,
        *,
        dtype: str | None = None,
        seed: int = 0,
        own: bool = True,
        jitter: float = 0.0,
        backward: bool = True,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        watching: bool = False,
        rounding: float = 0.0,
        kernels: int = 0,
        uncast: float = 0.0,
        narrowing: bool = False,
        shown: Collection[Key] = (),
        put: Mapping[Slotted, Array] | None = None,
        thawed: bool = False,
        swapping: bool = False,
    ) -> Replayed:
        """Replay the call of one side on the reference's values, compared with the ``truth`` where there is one.

        The candidate keeps masks of its ``own``, unless told otherwise. ``jitter`` disturbs by that much, relatively,
        all that the call is fed, ``rounding`` by so many machine epsilons what functions give in it, ``kernels`` what
        those of them give that compute in a narrower type, in so many a draw. ``uncast`` leaves out casts to narrower
        types of an epsilon up to that, without which the code of a call may not run in a wider one; ``narrowing`` lets
        functions without a kernel there compute in float32. ``settings`` are hyper-parameters to set for the run, by
        the path of the module below the call's; raises `NotOffered` where one cannot be set. ``shown`` are calls
        without counterpart below it of which what they take and give is asked for, ``put`` what is put in its place.
        ``thawed`` lets frozen parameters get gradients too; ``swapping`` leaves wrong tensors as they are for whoever
        takes them next.
        """
        below, tied = self._inside(pair, ours=ours), pair
        fed: Values = Disturbed(self.trace, jitter) if jitter else self.trace
        fed = Noisy(self.trace, self.noise) if self.noise else fed
        fed = Reordered(fed, self.orders) if self.orders else fed
        if ours:
            tied = with_itself(pair.reference, pair)
            inputs = [fed.value(leaf) for leaf in pair.reference.inputs]
        else:
            inputs = [self.own.get((pair.key, index)) for index in range(len(pair.candidate.inputs))]
            for mine, yours in pair.inputs:
                if inputs[yours] is None or not own:
                    inputs[yours] = fed.value(pair.reference.inputs[mine])
        request = ReplayRequest(
            call=tied.candidate,
            inputs=inputs,
            outputs={yours: pair.reference.outputs[mine] for mine, yours in tied.outputs},
            pairs=below,
            values=fed,
            truth=truth,
            dtype=dtype,
            seed=self.seed + seed,
            backward=backward and self.backward,
            differentiable=_differentiable(pair, ours=ours) if self.backward else (),
            evaluating=self.evaluating,
            idle=self.idle[not ours],
            loose=self.alignment.loose,
            settings=settings or {},
            watching=watching,
            rounding=rounding,
            kernels=kernels,
            uncast=uncast,
            narrowing=narrowing,
            shown=shown,
            put=put or {},
            thawed=thawed,
            swapping=swapping,
        )
        return (self.reference if ours else self.candidate).replay(request)

    def _inside(self, pair: Pair, *, ours: bool) -> list[Pair]:
        """Return the pairs of calls below a pair's, or of the reference's with themselves."""
        below = set(pair.reference.subtree())
        known = (self.alignment.of_candidate(call) for call in pair.candidate.subtree())
        found = [one for one in known if one is not None and one.reference in below]
        return [with_itself(one.reference, one) for one in found] if ours else found


def _differentiable(pair: Pair, *, ours: bool) -> set[int]:
    """Return which inputs of one side's call carry gradients in the whole model, or in the other one: not all may."""
    call = pair.reference if ours else pair.candidate
    found = {index for index, leaf in enumerate(call.inputs) if leaf.differentiable}
    for tie in pair.inputs:
        both = (pair.reference.inputs[tie[0]], pair.candidate.inputs[tie[1]])
        found |= {tie[not ours]} if any(leaf.differentiable for leaf in both) else set()
    return found


def with_itself(call: Call, pair: Pair) -> Pair:
    """Return the pair of a reference's call with itself, fed only what a pair's candidate can be fed, too."""
    found = copy.copy(pair)  # past the matching of its tensors, which takes longest
    found.reference = found.candidate = call
    found.inputs, found.outputs = (tuple([(i, i) for i, _ in tied]) for tied in (pair.inputs, pair.outputs))
    found.apart, found.maybe, found.put = False, (), frozenset()
    return found


@attrs.frozen
class Disturbed:
    """A trace's values, each element disturbed by up to ``jitter``, relatively: the calls below are fed too."""

    trace: Trace
    jitter: float

    def value(self, leaf: Leaf) -> Array | None:
        """Return the value of a leaf, disturbed."""
        value = self.trace.value(leaf)
        if value is None or not is_float(value):
            return value
        noise = np.random.default_rng(leaf.token).uniform(-self.jitter, self.jitter, value.shape)
        disturbed: Array = value.astype(np.float64) * (1.0 + noise)
        return disturbed

    def gradient(self, leaf: Leaf) -> Array | None:
        """Return the gradient of a leaf, as it is."""
        return self.trace.gradient(leaf)


@attrs.frozen(eq=False)
class Noisy:
    """Other values than a trace's, as large as these: noise is added, and gradients are noise alone."""

    trace: Trace
    size: float
    """Of the noise, in sizes of the values."""

    def value(self, leaf: Leaf) -> Array | None:
        """Return the value of a leaf with noise, unless it is a mask that is added.

        What holds one number or two (ones, marks) gets it, too: weights that see nothing else show in no other way.
        """
        value = self.trace.value(leaf)
        if value is None or not is_float(value) or is_added_mask(value):
            return value
        scale = root_mean_square(value) or 1.0
        noisy: Array = value.astype(np.float64) + self.size * scale * self._noise(leaf)
        return noisy

    def gradient(self, leaf: Leaf) -> Array | None:
        """Return a gradient, relative to the value's size: what it makes of a parameter's is relative, too."""
        value = self.trace.value(leaf)
        size = 0.0 if value is None or not is_float(value) else root_mean_square(value) * math.sqrt(value.size)
        return self._noise(leaf) / (size or 1.0)

    def _noise(self, leaf: Leaf) -> Array:
        return np.random.default_rng((int(self.size), leaf.token)).standard_normal(leaf.shape)


@attrs.frozen(eq=False)
class Reordered:
    """Values, some of which have what lies along their last axis in another order."""

    values: Values
    orders: Mapping[int, tuple[int, ...]]
    """By the tokens of the reference."""

    def value(self, leaf: Leaf) -> Array | None:
        """Return the value of a leaf, in its order."""
        value, order = self.values.value(leaf), self.orders.get(leaf.token)
        return value if value is None or order is None else value.take(order, -1)

    def gradient(self, leaf: Leaf) -> Array | None:
        """Return the gradient of a leaf, as it is."""
        return self.values.gradient(leaf)


def value_reader(spot: Spot, given: Array | None) -> Reader:
    """Return what reads a value: the candidate's where it was seen; it may hold several for one of the reference's.

    ``given`` is the reference's where its code was fed with it.
    """

    def read(alone: Replayed, ours: bool) -> Array | None:
        whole = alone.observed.values.get(spot.reference.token)
        if ours:
            return whole if given is None else given
        return alone.observed.spots.get(spot.key, whole)

    return read


def gradient_reader(token: int) -> Reader:
    """Return what reads a gradient by the token of its tensor."""
    return lambda alone, _: alone.observed.gradients.get(token)
