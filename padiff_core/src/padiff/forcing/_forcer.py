"""Run a model with each matched call fed from the reference: every call becomes a unit test of its own.

On entry a call's inputs are compared with the reference's, then the reference's are put in; on exit the outputs;
in the backward pass the complete gradient of every such tensor. No error accumulates, so every fault is seen in one
run, at its own place: what differs on entry was made by the code of the enclosing call, between its children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Adapter, Extent, Tensor
from padiff.alignment import Pair
from padiff.forcing._checks import UNLIKE, Check, Plan, Spot, Values, read_of_array, wrapper
from padiff.forcing._comparer import Comparer
from padiff.forcing._masks import gives_alike, is_turned, keeps_its_own, with_mask_kept
from padiff.forcing._overwrite import Memory, in_place_of
from padiff.numerics import ROUNDING, SAME, Array, difference, epsilon
from padiff.recording import read_as, sampled
from padiff.trace import Call, Key

Starts = Callable[[Any], list[tuple[Any, Any | None]]]
"""Takes what a model gives, and returns tensors with the gradients that backward begins with there."""


class Forcer(Comparer):
    """A listener that feeds a running model from the reference's values.

    ``force`` (the reference's trace) is what is put in; ``truth`` is what is compared with: the same in the
    model's own precision, and in float64 what the reference computes there. Without ``truth`` nothing is compared;
    with ``observed`` what the run computed itself is kept.
    """

    def __init__(
        self, adapter: Adapter, plan: Plan, force: Values, *, protected: list[Extent | None], **how: Any
    ) -> None:
        super().__init__(adapter, force, **how)
        self.consumers: dict[int, list[Pair]] = {}
        """Token of the candidate -> the calls that took the tensor."""
        self.own: dict[tuple[Key, int], Array] = {}
        """(key of the candidate's call, input index) -> value of an input without counterpart, or in its spelling."""
        self.samples: dict[tuple[Key, str, int], Array] = {}
        """A few elements of what operations that have no counterpart took or gave, of a run of the whole model."""
        self.unreached: set[Key] = set()
        """Keys of the pairs whose outputs got no gradient, though the reference's did."""
        self.starved: set[Key] = set()
        """Keys of the pairs whose own code made a tensor that got no gradient, though the reference's did."""
        self._plan = plan
        self._memory = Memory(protected)
        self._holds: dict[int, int] = {}
        self._open, self._around = dict[Call, Pair](), dict[Key, Pair | None]()
        self._last, self._last_call = dict[Call | None, str](), dict[Call | None, Call]()
        self._tainted: set[Call | None] = set()  # calls whose own code works on what a fault gave another shape
        self._spoiled: set[int] = set()  # tokens of such values
        self._made: dict[int, Call] = {}
        self._seen: dict[int, int] = {}
        """Token of a tensor that was compared and keeps its value -> token of the one that it stands for."""
        self._stands_for: dict[int, int] = {}
        """Token of a tensor that was put in -> token of the one whose place it takes."""
        self._cut: list[tuple[Any, Any]] = []
        """Tensors in whose place others of another shape were put, and zeros: there backward begins as well."""

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Compare and feed the inputs."""
        pair = self._plan.get(call.key)
        if pair is None:
            self._sample(call, "input", tensors)
            return {}
        parent, owner = self._owner(call)
        self._open[call] = pair
        self._around[pair.key] = owner
        between = (self._last.get(parent, "start"), call.path if owner is None else owner.name_of(call))
        changed, fed = dict[int, Any](), set[int]()
        for ours, theirs in pair.inputs:
            if theirs < len(tensors):
                fed.add(theirs)
                leaf = call.inputs[theirs]
                self.consumers.setdefault(self._stands_for.get(leaf.token, leaf.token), []).append(pair)
                made = self._made.get(leaf.token) or wrapper(call, parent, self._last_call.get(parent))
                spot = Spot("input", pair, owner, between, pair.reference.inputs[ours], leaf, made)
                self._feed(spot, tensors[theirs], changed, theirs, tainted=parent in self._tainted)
        for ours, theirs in pair.misordered:
            if theirs < len(tensors):
                spot = Spot("input", pair, owner, between, pair.reference.inputs[ours], call.inputs[theirs])
                self.checks.append(Check(spot, False, UNLIKE, tainted=parent in self._tainted))
        for index, tensor in enumerate(tensors):
            if index not in fed:
                self.own[pair.key, index] = tensor.numpy()
                if call.inputs[index].token in self._spoiled:
                    self._tainted.add(call)
        return changed

    def depart(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Compare and feed the outputs."""
        pair = self._open.get(call)
        if pair is None:
            self._sample(call, "output", tensors)
            # A framework's own module or function only computes what it is told; it is the user's code that tells it.
            for leaf in () if call.module.operation or call.module.kind is not None else call.outputs:
                if leaf.token not in self._holds:
                    self._made.setdefault(leaf.token, call)
            return {}
        parent, owner = self._owner(call)
        maker, between = self._maker(call, pair)
        changed: dict[int, Any] = {}
        for ours, theirs in pair.outputs:
            if theirs < len(tensors):
                leaf = call.outputs[theirs]
                made = self._made.get(leaf.token)
                spot = Spot("output", pair, maker, between, pair.reference.outputs[ours], leaf, made)
                tainted = call in self._tainted or (pair.misfed and parent in self._tainted)
                self._feed(spot, tensors[theirs], changed, theirs, tainted=tainted)
        for ours, theirs in pair.misfits:
            if theirs < len(tensors):
                spot = Spot("output", pair, maker, between, pair.reference.outputs[ours], call.outputs[theirs])
                self.checks.append(Check(spot, False, UNLIKE, tainted=call in self._tainted or pair.misfed))
                if call in self._tainted or not pair.misfed:
                    # Else the code around chose the shapes: what it makes of them in the end is its own.
                    self._tainted.add(parent)
        # What is given another shape behind a fault hands it on.
        if call in self._tainted or (pair.misfits and (not pair.misfed or parent in self._tainted)):
            self._spoiled |= {leaf.token for leaf in call.outputs} - {call.outputs[j].token for _, j in pair.outputs}
        if pair.outputs or gives_alike(pair, tensors, self._force):  # else it belongs to the code around
            self._last[parent] = call.path if owner is None else owner.name_of(call)
        self._last_call[parent] = call
        return changed

    def _sample(self, call: Call, what: str, tensors: list[Tensor]) -> None:
        if call.module.operation and self._observed is None:
            self.samples |= {(call.key, what, i): sampled(self.adapter, tensor) for i, tensor in enumerate(tensors)}

    def _maker(self, call: Call, pair: Pair) -> tuple[Pair, tuple[str, str]]:
        """Return whose own code made what a call gives, and between which calls.

        Where the code around chose another shape, by no fault before, it chose the module's settings with it: what is
        padded by hand on one side is padded by the module on the other. The two are judged as one.
        """
        (parent, owner), before = self._owner(call), self._last.pop(call, "start")
        if owner is None or not (pair.apart or (pair.misfed and parent not in self._tainted)):
            return pair, (before, "end")
        return owner, (self._last.get(parent, "start"), owner.name_of(call))

    def begun_by(self, differentiate: Starts) -> Starts:
        """Return what tells where the backward pass begins: there, and in front of what was cut off."""
        return lambda output: [*differentiate(output), *self._cut]

    def finish(self) -> None:
        """After the backward pass: compare the gradients that never came with zero."""
        cut, missing = dict[Key | None, Spot](), list[Spot]()
        for spot in self._awaited.values():
            expected = self._force.gradient(spot.reference)
            if expected is not None and expected.any():
                missing.append(spot)
                if not spot.candidate.differentiable:
                    self._check_gradient(spot, *read_of_array(np.zeros_like(expected)))
                if spot.what == "input" and spot.owner is not None:
                    self.starved.add(spot.owner.key)
        self._awaited.clear()
        tokens = {spot.candidate.token for spot in missing}
        handed: dict[Key, set[int]] = {}
        for call in self.calls:
            pair = self._open.get(call)
            if pair is not None:
                handed[pair.key] = {self._stands_for.get(leaf.token, leaf.token) for leaf in call.outputs}
                if not handed[pair.key].isdisjoint(tokens):
                    self.unreached.add(pair.key)
        for spot in missing:
            if not spot.candidate.differentiable:
                continue
            # Of what one code made, the last is where the gradient was cut off; the rest follows.
            user = self._user(spot, handed)
            cut[None if user is None else user.key] = spot
        for owner, spot in cut.items():
            expected = self._force.gradient(spot.reference)
            if expected is not None and owner not in self.unreached and not self._starves(spot):
                self._check_gradient(spot, *read_of_array(np.zeros_like(expected)))

    def _user(self, spot: Spot, handed: Mapping[Key, set[int]]) -> Pair | None:
        """Return the call whose own code takes a tensor: around its maker, and around whoever hands it on outwards."""
        if spot.what == "input":
            return spot.owner
        user = self._around.get(spot.pair.key)
        while user is not None and spot.candidate.token in handed.get(user.key, ()):
            user = self._around.get(user.key)
        return user

    def _starves(self, spot: Spot) -> bool:
        """Return whether an input of the root got no gradient because what was made of it got none."""
        takers = {pair.key for pair in self.consumers.get(spot.candidate.token, ())}
        return spot.owner is None and not takers.isdisjoint(self.unreached | self.starved)

    def _owner(self, call: Call) -> tuple[Call | None, Pair | None]:
        """Return the nearest enclosing matched call, and its pair."""
        around = ((above, self._open.get(above)) for above in call.ancestors())
        return next((both for both in around if both[1] and not both[1].apart), (None, None))

    def _feed(self, spot: Spot, tensor: Tensor, changed: dict[int, Any], index: int, *, tainted: bool) -> None:
        """Compare one tensor, wait for its gradient, and put the reference's value in."""
        token = spot.candidate.token
        if self._holds.get(token) == spot.reference.token:
            return
        unlike = spot.reference.shape != spot.candidate.shape
        if unlike and (self._top is None or self._truth is not None):
            self.checks.append(Check(spot, False, UNLIKE, tainted=tainted))
        if unlike and self._top is None and (spot.what, index) not in spot.pair.put:
            self._tainted.update(self._stack[-1:])  # the code around chose another size
            return
        new = token not in self._holds
        # What shares memory may be changed through another tensor, and gets no gradient of its own then.
        alone = spot.what == "input" or spot.pair.memory == {"own"}
        if new and alone and self._gradients and not unlike and spot.reference.token not in self._graded:
            # Further tensors of the candidate that stand for the same one (copies) get a part of its gradient only.
            self._graded.add(spot.reference.token)
            self._await(spot, tensor)
        if self._observed is not None:
            values = self._observed.spots[spot.key] = tensor.numpy()
            self._observed.values.setdefault(spot.reference.token, values)
        value = self._force.value(spot.reference)
        if value is None:
            return
        if unlike:
            changed[index] = self._put(spot, tensor, value)
            return
        known = self._seen.get(token) == spot.reference.token
        truth, gross = None if self._truth is None else self._truth.value(spot.reference), False
        if truth is not None:
            apart = tensor.read(difference, truth)
            if apart.equal and truth is value:
                if alone:
                    self._hold(tensor, token, spot)
                else:
                    self._seen[token] = spot.reference.token  # whoever takes it waits for its gradient
                return
            if spot.what in spot.pair.maybe and not apart.rel_l2 <= ROUNDING(epsilon(truth.dtype)):
                self._note(spot, False, apart, truth, tensor.view, kept=True)
                return
            gross = apart.rel_l2 > SAME(epsilon(truth.dtype))
            if gross and is_turned(spot, truth, tensor.view()):
                value = truth = self.own[spot.pair.key, index] = ~truth
                apart = tensor.read(difference, truth)
            kept = gross and keeps_its_own(spot, value, tensor)
            if not (apart.equal or known):
                parts = spot.hidden(apart, truth, tensor.read)
                self._note(spot, False, apart, truth, tensor.view, kept=kept, tainted=tainted, parts=parts)
            if kept:
                self._holds[token] = spot.reference.token
                self.own[spot.pair.key, index] = tensor.numpy()
                return
            masked = with_mask_kept(spot, truth, tensor.view(), self._force) if gross else None
            if masked is not None:
                value = truth = self.own[spot.pair.key, index] = masked
        if spot.what == "output" and spot.pair.candidate.module.memory == "same":
            self._memory.take_back(tensor)
        # What is only rounding is swapped: a backward pass may look for its own output's bits (max pooling). What is
        # wrong is overwritten, so that later code with the same tensor is not blamed for it; but not twice, when it
        # stands for two of the reference's. A replay in a wider type goes on with what the reference has there.
        right = value if truth is None else truth
        if gross and new and self._memory.overwrite(tensor, right) and right is value:
            self._hold(tensor, token, spot)
        else:
            self._swap(spot, tensor, changed, index, value, gross=gross)

    def _swap(
        self, spot: Spot, tensor: Tensor, changed: dict[int, Any], index: int, value: Array, *, gross: bool
    ) -> None:
        """Put another tensor in its place, with the reference's value, where that is possible."""
        token, module = spot.candidate.token, spot.pair.candidate.module
        if module.memory != "own" or (module.operation and self._memory.is_protected(tensor)):
            # Another tensor in its place would not share the memory, a buffer's that is written to among it. Whoever
            # takes this one next is fed.
            self._seen[token] = spot.reference.token
            if gross and spot.what == "input":
                self._tainted.add(self._stack[-1])
            return
        changed[index] = tensor.swapped(value)
        self._stand_in(spot, tensor, changed[index])

    def _put(self, spot: Spot, tensor: Tensor, value: Array) -> Any:
        """Return a value of another shape, to be put in a tensor's place: no gradient comes from there to that."""
        graded = self._gradients and tensor.differentiable
        native, start = in_place_of(tensor, self.adapter, value, graded=graded)
        self._cut += [start] if graded else []
        put, token = self._stand_in(spot, tensor, native)
        if graded and spot.reference.token not in self._graded:
            self._graded.add(spot.reference.token)
            leaf = attrs.evolve(spot.candidate, token=token, shape=spot.reference.shape)
            self._await(attrs.evolve(spot, candidate=leaf), put)
        return native

    def _stand_in(self, spot: Spot, tensor: Tensor, native: Any) -> tuple[Tensor, int]:
        """Let another tensor stand for one, and for the reference's; return it with its token."""
        put, before = read_as(tensor, self.adapter, native), spot.candidate.token
        token = self.tokens.of(put)[0]
        self._stands_for[token] = self._stands_for.get(before, before)
        self._hold(put, token, spot)
        return put, token

    def _hold(self, tensor: Tensor, token: int, spot: Spot) -> None:
        self._holds[token] = spot.reference.token
        self._memory.give(tensor)
