"""Run one call alone, on the reference's recorded values, on either side and in any precision.

This settles suspects: in float64 a fault stays what it is and rounding vanishes. The calls below are forced, on both
sides alike, so that what is left is the call's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import attrs
import ml_dtypes  # registers bfloat16 and float8 with numpy
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Adapter, Tensor
from padiff.alignment import Alignment, Pair
from padiff.forcing._forcer import Check, Forcer, Observed, Plan, Values
from padiff.pytree import leaves
from padiff.recording import at_input, fill, natively
from padiff.trace import Call, Leaf, Trace

__all__ = ["Alone", "Bench", "Reader", "is_float"]

Array = NDArray[Any]


@attrs.define(eq=False)
class Alone:
    """Hold what one call did alone."""

    observed: Observed
    checks: list[Check]
    gradients: dict[str, Array]
    """Parameter path in the whole model -> gradient, native layout."""
    buffers: dict[str, Array]


Reader = Callable[[Alone, bool], Array | None]
"""Takes one value from what a call did alone; the flag is true for the reference's side."""


@attrs.frozen
class Bench:
    """Know all that running calls alone needs."""

    reference: Adapter
    candidate: Adapter
    trace: Trace
    """The reference's."""
    alignment: Alignment
    own: Mapping[tuple[int, int], Array]
    """The candidate's own values of inputs that have no counterpart, or were kept."""
    backward: bool
    seed: int
    idle: frozenset[int] = frozenset()
    """Ids of calls, below those that are run alone, which only pass on their first input."""
    evaluating: bool = False
    """Whether calls are run in evaluation mode, where few draw random numbers; else in the mode they are in."""

    def run_reference(
        self, pair: Pair, dtype: str | None = None, *, seed: int = 0, jitter: float = 0.0, backward: bool = True
    ) -> Alone:
        """Run the reference's call alone; ``jitter`` disturbs by that much, relatively, all that it is fed."""
        call = pair.reference
        fed: Values = _Disturbed(self.trace, jitter) if jitter else self.trace
        inputs = [fed.value(leaf) for leaf in call.inputs]
        plan = _plan(call, {id(p.reference): Pair(p.reference, p.reference, p.why) for p in self._inside(pair)})
        return self._run(self.reference, call, inputs, plan, fed, None, dtype, pair, seed, ours=True, backward=backward)

    def run_candidate(
        self,
        pair: Pair,
        truth: Values | None,
        dtype: str | None = None,
        *,
        seed: int = 0,
        own: bool = True,
        backward: bool = True,
    ) -> Alone:
        """Run the candidate's call alone on the reference's values; ``own`` lets it keep masks of its own."""
        call = pair.candidate
        inputs: list[Array | None] = [self.own.get((id(call), index)) for index in range(len(call.inputs))]
        for ours, theirs in pair.inputs:
            if inputs[theirs] is None or not own:
                inputs[theirs] = self.trace.value(pair.reference.inputs[ours])
        plan = _plan(call, {id(p.candidate): p for p in self._inside(pair)})
        fed = self.trace
        return self._run(
            self.candidate, call, inputs, plan, fed, truth, dtype, pair, seed, ours=False, backward=backward
        )

    def _inside(self, pair: Pair) -> list[Pair]:
        below = {id(call) for call in pair.reference.subtree()}
        found = [self.alignment.of_candidate(call) for call in pair.candidate.subtree()]
        return [p for p in found if p is not None and id(p.reference) in below]

    def _run(
        self,
        adapter: Adapter,
        call: Call,
        inputs: list[Array | None],
        plan: Plan,
        fed: Values,
        truth: Values | None,
        dtype: str | None,
        pair: Pair,
        seed: int,
        *,
        ours: bool,
        backward: bool,
    ) -> Alone:
        backward = backward and self.backward
        model = adapter.wrap(call.module.native)
        observed = Observed()
        given = [v if v is None else at_input(adapter, call.module.native, i, v) for i, v in enumerate(inputs)]
        natives = [None if v is None else self._native(adapter, v, dtype, model.device) for v in given]
        # A tensor that is given twice (query, key and value) is one tensor here too: its gradient is the sum.
        once = {leaf.token: native for leaf, native in zip(call.inputs, natives, strict=True) if native is not None}
        natives = [once.get(leaf.token) for leaf in call.inputs]
        outputs = {(a if ours else b): pair.reference.outputs[a] for a, b in pair.outputs}

        def differentiate(output: Any) -> list[tuple[Any, Any | None]]:
            starts = []
            for index, (_, native) in enumerate(leaves(output, adapter.is_tensor)):
                tensor = adapter.tensor(native)
                leaf = outputs.get(index)
                gradient = None if leaf is None else self.trace.gradient(leaf)
                if gradient is not None and tensor.differentiable:
                    seed_array = np.asarray(gradient, dtype=tensor.view().dtype)
                    starts.append((native, adapter.from_numpy(natively(tensor, seed_array), device=tensor.device)))
            return starts

        with adapter.quiet(), adapter.seeded(self.seed + seed), model.preserved():
            if self.evaluating:
                model.evaluate()
            lift = model.lifted(dtype) if dtype else nullcontext()
            with lift:
                forcer = _Idling(
                    {key for key, below in _numbered(call) if id(below) in self.idle},
                    adapter,
                    plan,
                    fed,
                    truth=truth,
                    observed=observed,
                    loose=self.alignment.loose,
                    # Where they lie now: the lift may have moved them.
                    protected=[parameter.extent() for parameter in model.parameters().values()],
                    gradients=backward,
                )
                with model.attach(forcer), forcer.hooks:
                    args, kwargs = fill(call.args, natives), fill(call.kwargs, natives)
                    model.run(args, kwargs, differentiate if backward else None)
                    if backward:
                        forcer.finish()
                gradients, buffers = {}, {}
                for path, parameter in model.parameters().items():
                    full = f"{call.path}.{path}" if call.path else path
                    if parameter.buffer:
                        buffers[full] = np.array(parameter.view())
                    elif (gradient := parameter.gradient()) is not None:
                        gradients[full] = np.array(gradient)
        return Alone(observed, forcer.checks, gradients, buffers)

    def _native(self, adapter: Adapter, value: Array, dtype: str | None, device: str) -> Any:
        floating = is_float(value)
        if dtype and floating:
            value = value.astype(dtype)
        native = adapter.from_numpy(value, device=device, differentiable=floating and self.backward)
        # Not the leaf itself: a module may change its input in place, which a leaf forbids.
        return adapter.tensor(native).swapped(value) if floating and self.backward else native


def is_float(array: Array) -> bool:
    """Return whether an array's dtype is real floating point, of numpy's or of ml_dtypes."""
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and hasattr(ml_dtypes, array.dtype.name))


def _plan(top: Call, pairs: Mapping[int, Pair]) -> dict[tuple[int, int], Pair]:
    """Return the pairs of the calls below ``top``."""
    return {key: pairs[id(call)] for key, call in _numbered(top) if id(call) in pairs}


def _numbered(top: Call) -> Iterator[tuple[tuple[int, int], Call]]:
    """Number the calls below ``top`` as a run of it alone will."""
    seen: dict[int, int] = {}
    for call in top.subtree():
        key = id(call.module.native)
        ordinal = seen.get(key, 0)
        seen[key] = ordinal + 1
        yield (key, ordinal), call


class _Idling(Forcer):
    """Feed a running model, and let some calls without counterpart pass on what they got: the bits and the gradient."""

    def __init__(self, idle: Collection[tuple[int, int]], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._idle = idle
        self._passed: dict[int, Any] = {}

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Keep a copy of the first input of what is idle: the call itself may change it in place."""
        if tensors and (id(call.module.native), call.ordinal) in self._idle:
            self._passed[id(call)] = tensors[0].swapped(tensors[0].numpy())
        return super().arrive(call, tensors)

    def depart(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Return it in place of the output."""
        changed = super().depart(call, tensors)
        passed = self._passed.pop(id(call), None)
        return changed if passed is None or not tensors else {0: passed, **changed}


@attrs.frozen
class _Disturbed:
    """Give a trace's values, each element disturbed by up to ``jitter``, relatively: the calls below are fed too."""

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
