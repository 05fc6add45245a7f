"""Record the runs of one model as its user makes them: each call of it, and the backward pass behind."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection
from typing import Any

import attrs

from padiff.adapter import Model, Tensor
from padiff.recording import Live, Recorder
from padiff.trace import Call, Leaf, Trace, ValueStore


@attrs.define(eq=False)
class Item:
    """A recorded call, or its backward pass, as PaDiff's reports list them."""

    type: str
    """``forward`` or ``backward``."""
    step: int
    net: Any
    net_str: str
    net_id: int
    call: Call
    trace: Trace

    def tensors_for_compare(self) -> list[Any]:
        """Return the outputs of a forward item, the gradients of the inputs of a backward one, as arrays."""
        forward = self.type == "forward"
        leaves, read = (
            self.call.leaves("output" if forward else "input"),
            self.trace.value if forward else self.trace.gradient,
        )
        return [array for array in map(read, leaves) if array is not None]

    def __str__(self) -> str:
        """Return it in three lines."""
        return f"ReportItem: \n    type={self.type}\n    step_idx: {self.step}\n    net: {self.net_str}\n"


class RunReport:
    """What a model's runs did: the calls of the listed modules."""

    def __init__(self, live: Live, recorded: Collection[str], trace: Trace) -> None:
        self.trace = trace
        self._live = live
        self._recorded = frozenset(recorded)
        self._numbers = {path: number for number, path in enumerate(live.model.modules())}

    @property
    def calls(self) -> list[Call]:
        """Return the recorded calls, in execution order."""
        return [call for call in self.trace.calls if _home(call).path in self._recorded]

    @property
    def items(self) -> list[Item]:
        """Return an item for each recorded call, and behind them one for its backward pass, the last call's first."""
        forward = [("forward", call) for call in self.calls]
        backward = [("backward", call) for call in reversed(self.calls)]
        return [self._item(step, *one) for step, one in enumerate([*forward, *backward])]

    def _item(self, step: int, sort: str, call: Call) -> Item:
        name = call.module.class_name.rpartition(".")[2]
        return Item(sort, step, self._live.native(call), name, self.number(call), call, self.trace)

    def number(self, call: Call) -> int:
        """Return the number of a call's module in the order of definition."""
        return self._numbers[_home(call).path]

    def traces(self) -> list[Trace]:
        """Return a trace of each run, of the recorded calls alone."""
        found: list[Trace] = []
        made: dict[Call, Call] = {}
        ordinals: Counter[str] = Counter()
        for call in self.calls:
            parent = next((made[above] for above in call.ancestors() if above in made), None)
            if parent is None:
                found.append(Trace(ValueStore(sys.maxsize)))  # it holds what is held already
                ordinals.clear()
            trace, ordinal = found[-1], ordinals[call.path]
            ordinals[call.path] += 1
            copy = attrs.evolve(call, index=len(trace.calls), ordinal=ordinal, parent=parent, children=[])
            made[call] = trace.add(copy)
            for leaves, read, kept in (
                (call.outputs, self.trace.value, trace.values),
                (call.inputs, self.trace.gradient, trace.gradients),
            ):
                for leaf in leaves:
                    array = None if leaf.token in kept else read(leaf)
                    if array is not None:
                        kept[leaf.token] = trace.store.put(array)
        return found

    def __str__(self) -> str:
        """Return the items, one a line."""
        return "\n".join(["Report:", *(f"    {item.step}: [{item.net_str}]" for item in self.items)])


class Keeper(Recorder):
    """What accumulates, over a model's runs, the outputs of the listed calls and the gradients of their inputs."""

    live: Live

    def __init__(self, model: Model, recorded: Collection[str]) -> None:
        super().__init__(model.adapter, Trace(ValueStore()), values=True, gradients=True, live=Live(model))
        self.recorded = frozenset(recorded)
        self._awaited: set[int] = set()

    def close(self) -> None:
        """Let go of every value and every hook."""
        self.hooks.close()
        self.trace.store.close()

    def meet(self, leaf: Leaf, tensor: Tensor) -> None:
        """Wait with keeping a tensor until a recorded call takes or gives it."""

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Wait for the gradients of the inputs."""
        if _home(call).path in self.recorded:
            for leaf, tensor in zip(call.inputs, tensors, strict=True):
                if leaf.differentiable and leaf.token not in self._awaited:
                    self._await(leaf.token, tensor)
        return {}

    def depart(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Keep the outputs."""
        if _home(call).path in self.recorded:
            for leaf, tensor in zip(call.outputs, tensors, strict=True):
                if leaf.token not in self.trace.values:
                    self.trace.values[leaf.token] = self.trace.store.put(tensor.numpy())
        return {}

    def _await(self, token: int, tensor: Tensor) -> None:
        def keep(gradient: Tensor) -> None:
            self.trace.gradients[token] = self.trace.store.put(gradient.numpy())

        self._awaited.add(token)
        self.hooks.add(tensor.on_gradient(keep).close)


def _home(call: Call) -> Call:
    """Return the call of the module that a list may name: of an operation, the one in whose code it is."""
    return call if call.parent is None or not call.module.operation else call.parent
