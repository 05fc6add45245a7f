"""What runs tell of a correspondence: the free run under it, the forced run, calls by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.errors import PadiffError
from padiff.forcing import Bench, ForceRequest, Side, Spot, force, is_turned, says_the_same, with_calls_of
from padiff.judging import (
    Ends,
    Gradients,
    Judge,
    LossRounding,
    Measures,
    Replays,
    Rule,
    Runs,
    assessing,
    is_rounding,
    prove,
)
from padiff.numerics import (
    ROUNDING,
    SAME,
    Array,
    Difference,
    difference,
    epsilon,
    epsilon_of,
    is_suspect,
    numpy_dtype,
    root_mean_square,
)
from padiff.parameters import Correspondence, Link, UnitMatch, held_of, transfer
from padiff.recording import Orders, Task, exact
from padiff.report import SIDES, Note
from padiff.trace import Flow, Key, Leaf, Trace, flow_of, temporary_store


@attrs.define(eq=False)
class Evidence:
    """The sides of one step, the reference's trace, and what the candidate's runs showed so far."""

    reference: Side
    candidate: Side
    ours: Task
    """The reference's."""
    task: Task
    """The candidate's."""
    trace: Trace
    """The reference's."""
    run: Callable[[Side, Task], Trace]
    """Runs the candidate freely."""
    measures: Measures
    rule: Rule | None = None
    loss: bool = False
    """Whether the user gave a loss."""
    transfer: bool = True
    """Whether the candidate is given the reference's parameters."""
    measured: Callable[[Link], Difference | None] = lambda link: None
    """What measures how far apart recorded sides hold a parameter; None where both are to be read for that."""
    own: dict[str, Array] = attrs.field(factory=dict)
    """What the candidate held where it has the reference's constants until the diff ends."""
    seen: Trace | None = attrs.field(init=False, default=None)
    """The candidate's free run before it was given constants: what a user sees."""
    state: set[tuple[str, str]] = attrs.field(init=False, factory=set)
    """Buffers that were taken for state, before they were copied: paths of the reference and of the candidate."""
    notes: list[Note] = attrs.field(factory=list)
    """What did not go as it should, and is told."""
    followed: bool = False
    """Whether the dataflow is followed beside a free run, since names alone do not tell what belongs to what."""
    _free: dict[tuple[Any, ...], Trace] = attrs.field(init=False, factory=dict)
    _permuted: dict[tuple[Any, ...], Side] = attrs.field(init=False, factory=dict)
    _flows: tuple[Flow, Flow] | None = attrs.field(init=False, default=None)
    _judges: dict[Correspondence, Judge] = attrs.field(init=False, factory=dict)
    _replays: Replays[Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Keep what replays show for all judges, in what the recorded values leave of the memory budget."""
        self._replays = Replays.beside(self.trace.store)

    def side(self, axes: Orders) -> Side:
        """Return the candidate, with its tensors read in an order of axes."""
        if not axes:
            return self.candidate
        key = tuple(sorted(axes.items()))
        if key not in self._permuted:
            self._permuted[key] = self.candidate.permuted(axes)
        return self._permuted[key]

    def assign(self, matches: Iterable[UnitMatch]) -> None:
        """Give the candidate the reference's parameters, where that was asked for."""
        if self.transfer:
            transfer(matches, self.reference, self.candidate)

    def give(self, known: Correspondence) -> None:
        """Give the candidate the reference's parameters as matched; what it did before is forgotten."""
        self.assign(known.matches)
        self.forget_runs()

    def free(self, axes: Orders | None = None) -> Trace:
        """Return the candidate's free run: what a user sees. It is run where nothing is known of it yet."""
        axes = axes or {}
        key = tuple(sorted(axes.items()))
        if key not in self._free:
            task = attrs.evolve(self.task, flow=self.followed and not (axes or self.knows_flows))
            self._free = {key: self.run(self.side(axes), task)}
        return self._free[key]

    def leads(self, correspondence: Correspondence) -> bool:
        """Take the free run from now on as one that goes the reference's way; return whether it goes another one.

        A run that is fed may not run where the free one does: then nothing is known of it.
        """
        axes, calls = correspondence.axes, correspondence.alignment
        free = self.free(axes)
        try:
            led = self.side(axes).led(ForceRequest(self.task, calls.pairs, self.trace, calls.loose))
        except PadiffError:
            return False
        self._free = dict.fromkeys(self._free, with_calls_of(free, led))
        return self.free(axes) is not free

    def goes_back(self, free: Trace) -> None:
        """Take the free run again as it was before it was led."""
        self._free = dict.fromkeys(self._free, free)

    def agrees(self, axes: Orders | None = None) -> bool:
        """Return whether the candidate's free run gives what the reference gave, to one rounding."""
        ours, theirs = self.trace.outputs, self.free(axes).outputs
        return len(ours) == len(theirs) and bool(ours) and all(map(_agree, ours, theirs))

    def gives_alike(self) -> bool:
        """Return whether the candidate's free run gives what the reference gave, but for accumulated rounding.

        What all is near one number tells nothing: that is relative to how far the outputs are spread.
        """
        ours, theirs = self.trace.outputs, self.free().outputs
        return len(ours) == len(theirs) and bool(ours) and all(map(_are_near, ours, theirs))

    def holds_alike(self, match: UnitMatch) -> bool:
        """Return whether both sides hold the same values there, but for rounding."""
        if not match.links:
            return False
        for link in match.links:
            apart = self.measured(link)
            if apart is None:
                ours, theirs = held_of(link, self.reference, self.candidate)
                if ours is None:
                    return False
                apart = difference(ours, theirs)
            if is_suspect(apart, numpy_dtype(link.candidate.parameter.dtype)):
                return False
        return True

    def keep_exact(self, known: Correspondence) -> None:
        """Let the candidate know the reference's values that it holds in narrower types, as near as these allow.

        It holds what it held; in float64 it computes with the reference's.
        """
        exact: dict[str, Array] = {}
        for _, link in known.links:
            path, dtype = link.candidate.parameter.path, link.reference.parameter.dtype
            if epsilon_of(link.candidate.parameter.dtype) > epsilon_of(dtype):
                ours, theirs = held_of(link, self.reference, self.candidate)
                if ours is not None and np.array_equal(ours.astype(theirs.dtype), theirs):
                    current = partial(
                        np.array, exact.get(path, self.candidate.value(path)), numpy_dtype(dtype), order="C"
                    )
                    exact[path] = link.written(ours, current)
        self.candidate.assign(exact)

    def is_rounding(self, correspondence: Correspondence) -> bool:
        """Return whether rounding explains, without another run, what is left between the two free runs."""
        gaps = Ends(correspondence.alignment).gaps(Runs(self.trace, self.free(correspondence.axes)))
        return bool(gaps) and is_rounding(gaps, self.judged(correspondence))

    def gives_gradients(self, correspondence: Correspondence) -> bool:
        """Return whether the candidate, run freely, gives the reference's gradients, but for rounding."""
        side, calls = self.side(correspondence.axes), correspondence.alignment
        tasks = self.ours, exact(self.ours, self.task, calls.pairs[0].inputs)
        wholes = Gradients(calls, correspondence.matches)
        with temporary_store() as store:
            free = side.record(tasks[1], store, values=True)
            return prove((self.reference, side), tasks, Runs(self.trace, free), wholes).gap is None

    @property
    def knows_flows(self) -> bool:
        """Return whether the dataflow was recorded."""
        return self._flows is not None

    def flows(self) -> tuple[Flow, Flow]:
        """Return the dataflow of both sides; each is run for it where it was not followed in another run."""
        if self._flows is None:
            # Without a transfer, what is run freely is run once.
            free = self._free.get(()) if self.transfer else self.free()
            found = (
                _followed(self.trace) or self.reference.flow(self.ours),
                (free and _followed(free)) or self.candidate.flow(self.task),
            )
            for side, one in zip(SIDES, found, strict=True):
                if one.refused:
                    self.notes.append(Note("flow_refused", {"side": side, "error": one.refused}))
            self._flows = (
                flow_of(self.trace) if found[0].refused else found[0],
                flow_of(self.free()) if found[1].refused else found[1],
            )
        return self._flows

    @contextmanager
    def whole(self, axes: Orders) -> Iterator[Trace]:
        """Give the candidate's free run, forward only, with all its values."""
        with temporary_store() as store:
            yield self.side(axes).record(attrs.evolve(self.task, backward=False), store, values=True)

    def forget_runs(self) -> None:
        """Forget what the candidate did: it has other weights now."""
        self._free.clear()
        self._judges.clear()

    def bench(self, correspondence: Correspondence, own: Mapping[Any, Array] | None = None) -> Bench:
        """Return what replays calls under a correspondence."""
        side, task = self.side(correspondence.axes), self.task
        calls = correspondence.alignment
        return Bench(self.reference, side, self.trace, calls, own or {}, task.backward, task.seed)

    def own_inputs(self, correspondence: Correspondence, pair: Pair) -> dict[tuple[Key, int], Array]:
        """Return the candidate's own values of a call's inputs that have no counterpart, or spell it otherwise.

        Those are masks and indices, which a forced run leaves as they are, too. The candidate runs for them.
        """
        spelled = self._other_values(correspondence, pair)
        alone = set(range(len(pair.candidate.inputs))) - {theirs for _, theirs in pair.inputs}
        if not (alone or spelled):
            return {}
        with self.whole(correspondence.axes) as whole:
            call = next((one for one in whole.calls if one.key == pair.key), None)
            wanted = sorted(alone | spelled.keys())
            leaves = {} if call is None else {index: call.inputs[index] for index in wanted if index < len(call.inputs)}
            values = {
                index: whole.value(leaf) if index in alone else self._spelled(pair, *spelled[index], whole.value(leaf))
                for index, leaf in leaves.items()
            }
            return {(pair.key, index): np.array(value) for index, value in values.items() if value is not None}

    def _other_values(self, correspondence: Correspondence, pair: Pair) -> dict[int, tuple[Leaf, Leaf]]:
        """Return the inputs of a call that no gradient comes to and that differ in the free runs, with what they are.

        By the candidate's index.
        """
        pairs = [(j, pair.reference.inputs[i], pair.candidate.inputs[j]) for i, j in pair.inputs]
        plain = [(j, ours, theirs) for j, ours, theirs in pairs if not (ours.differentiable or theirs.differentiable)]
        if not plain:
            return {}
        free = self.free(correspondence.axes)
        call = next((one for one in free.calls if one.key == pair.key), None)
        found: dict[int, tuple[Leaf, Leaf]] = {}
        if call is None or len(call.inputs) != len(pair.candidate.inputs):
            return found
        for j, ours, theirs in plain:
            mine, yours = self.trace.samples.get(ours.token), free.samples.get(call.inputs[j].token)
            if mine is not None and yours is not None and not np.array_equal(mine, yours):
                found[j] = ours, theirs
        return found

    def _spelled(self, pair: Pair, ours: Leaf, theirs: Leaf, value: Array | None) -> Array | None:
        truth, spot = self.trace.value(ours), Spot("input", pair, None, ("", ""), ours, theirs)
        if truth is None or value is None:
            return None
        return ~truth if is_turned(spot, truth, value) else value if says_the_same(spot, truth, value) else None

    def judged(self, correspondence: Correspondence) -> Judge:
        """Return the judge of the candidate's forced run under a correspondence; it is run once."""
        known = self._judges.get(correspondence)
        if known is None:
            assess = assessing(self.rule, self.measures)
            side, calls = self.side(correspondence.axes), correspondence.alignment
            forced = force(self.reference, side, self.task, calls, self.trace, correspondence.matches, assess)
            bench = self.bench(correspondence, forced.own)
            sides, tasks = (self.reference, side), (self.ours, self.task)
            known = Judge(
                bench,
                self.trace,
                forced,
                loss=LossRounding(sides, tasks, calls.pairs[0]) if self.loss else None,
                matches=correspondence.matches,
                measures=self.measures,
                replays=self._replays,
            )
            self._judges[correspondence] = known
        return known

    def replaced(self, before: Correspondence, after: Correspondence) -> Correspondence:
        """Return a correspondence under which runs show what they showed under another: only notes differ."""
        if before in self._judges:
            self._judges[after] = self._judges[before]
        return after

    def keep(self, correspondence: Correspondence) -> Correspondence:
        """Forget the forced runs under all correspondences but one, and return that."""
        self._judges = {one: judge for one, judge in self._judges.items() if one is correspondence}
        return correspondence


def _followed(trace: Trace) -> Flow | None:
    """Return the dataflow that was noted beside a run."""
    return None if trace.flow is None or trace.flow.refused else trace.flow


def _are_near(ours: Array, theirs: Array) -> bool:
    if ours.shape != theirs.shape or ours.dtype.kind != "f":
        return False
    spread = float(np.std(ours.astype(np.float64)))
    return spread > 0.0 and root_mean_square(ours.astype(np.float64) - theirs) <= SAME(epsilon(ours.dtype)) * spread


def _agree(ours: Array, theirs: Array) -> bool:
    bound = ROUNDING(max(epsilon(ours.dtype), epsilon(theirs.dtype)))
    return difference(ours, theirs).rel_l2 <= bound
