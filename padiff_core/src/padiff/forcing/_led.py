"""Record a run of the candidate that goes the reference's way: each matched call is fed, and what it calls is kept.

Behind a fault a model may go another way than the reference: tokens go to other experts, a detector finds other boxes.
Calls of a free run do not fit then that do where each is given what the reference's call is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs

from padiff.adapter import Module, Tensor
from padiff.forcing._forcer import Forcer
from padiff.recording import Recorder
from padiff.trace import Call, Leaf, Trace


class LedRecorder(Forcer):
    """A forcer that keeps its calls as a recorder does: the tensors that it put in are those whose place they take."""

    def __init__(self, recorder: Recorder, *given: Any, **named: Any) -> None:
        super().__init__(recorder.adapter, *given, live=recorder.live, **named)
        self._recorder = recorder
        self.calls = recorder.calls

    def opened(self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the arguments."""
        self._recorder.opened(call, module, args, kwargs)

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Keep where the inputs lie, and feed them."""
        self._recorder.arrive(call, tensors)
        return super().arrive(call, tensors)

    def closed(self, call: Call, module: Module) -> None:
        """Keep the hyper-parameters."""
        self._recorder.closed(call, module)

    def meet(self, leaf: Leaf, tensor: Tensor) -> None:
        """Keep a sample."""
        self._recorder.meet(leaf, tensor)

    def name_as_before(self) -> None:
        """Let what was put in be called what it stands for."""
        for call in self.calls:
            for leaves in (call.inputs, call.outputs):
                leaves[:] = [attrs.evolve(x, token=self._stands_for.get(x.token, x.token)) for x in leaves]


def with_calls_of(free: Trace, led: Trace) -> Trace:
    """Return a free run with the calls of one that was led, or as it is where these are the same ones.

    A tensor that both have at one place has one token, and the free run's sample. What the model itself gives is what
    it gave freely, but for another size: no pass stands against that.
    """
    if _signature(free.calls) == _signature(led.calls):
        return free
    known = {call.key: call for call in free.calls}
    times = [Counter(call.path for call in trace.calls) for trace in (free, led)]
    tokens: dict[int, int] = {}
    for call in led.calls:
        before = known[call.key] if times[0][call.path] == times[1][call.path] else call
        for what in ("input", "output") if before is not call else ():
            for ours, theirs in zip(before.leaves(what), call.leaves(what), strict=False):
                tokens.setdefault(theirs.token, ours.token)
    start = 1 + max((leaf.token for call in free.calls for leaf in (*call.inputs, *call.outputs)), default=0)
    samples = {tokens.get(token, start + token): sample for token, sample in led.samples.items()}
    new = attrs.evolve(free, calls=[], samples={**samples, **free.samples})
    found: dict[Call, Call] = {}

    def renamed(leaves: Sequence[Leaf]) -> list[Leaf]:
        return [attrs.evolve(leaf, token=tokens.get(leaf.token, start + leaf.token)) for leaf in leaves]

    for call in led.calls:
        parent = None if call.parent is None else found[call.parent]
        given = renamed(call.outputs)
        if parent is None and call.key in known and _shapes(known[call.key].outputs) == _shapes(given):
            given = known[call.key].outputs
        taken = renamed(call.inputs)
        found[call] = new.add(attrs.evolve(call, parent=parent, children=[], inputs=taken, outputs=given))
    return new


def _signature(calls: Sequence[Call]) -> list[object]:
    """Return which calls there are, and the shapes of what they take and give."""
    return [(call.key, _shapes(call.inputs), _shapes(call.outputs)) for call in calls]


def _shapes(leaves: Sequence[Leaf]) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in leaves]
