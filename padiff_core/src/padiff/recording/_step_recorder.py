"""Fill the trace of one step of a script's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from padiff.adapter import Model, Module, Parameter, Reduction, Tensor
from padiff.codec import name_of
from padiff.numerics import sample, work_of
from padiff.recording._passes import PassCounter
from padiff.recording._places import Places, Where
from padiff.recording._record import Recorder
from padiff.recording._reduced import Reductions
from padiff.trace import Call, Kept, Leaf, QueuedStore, SteppedRecord, Summary, Trace, summarized, summed

Chosen = Callable[[str], bool]


class StepRecorder(Recorder):
    """What fills the trace of one step; of the values of modules that were not chosen it keeps nothing."""

    def __init__(
        self, model: Model, trace: Trace, store: QueuedStore, values: Kept, chosen: Chosen, places: Places
    ) -> None:
        super().__init__(model.adapter, trace, values=False, gradients=False)
        self._store, self._kind, self._chosen, self._places = store, values, chosen, places
        self._reductions = Reductions(model.adapter, trace)
        self._seen: set[int] = set()
        self._awaited: set[int] = set()
        """Tokens of what a gradient is awaited for."""
        self._path = ""
        self._gives = False
        """Whether what comes next is the first output of the module at that path."""
        self._watched: set[str] = set()
        """Paths of parameters whose gradients are waited for."""
        self._partial: dict[str, list[int]] = {}
        self._sent: dict[int, list[int]] = {}
        """Token of a value -> the gradients that came to it, one of each backward pass."""
        self.stepped: dict[int, list[SteppedRecord]] = {}
        """Number of an optimizer -> what it steps with."""
        self._steps: dict[str, int] = {}
        """Path of a parameter -> how many times it was stepped."""
        self._stepping: dict[str, int] = {}
        """Path of a parameter that was stepped -> how many gradients had arrived by then."""
        self._last_stepping: dict[str, int] = {}
        """The same, where it was stepped for the last time."""
        self._passes = PassCounter(model.adapter, trace)

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Open a call; one of the model itself is nobody's part, though one before it may have raised."""
        if not module.path:
            self._stack.clear()
            self._modules.clear()
            self._places.begin()
        self._path, self._gives = module.path, False
        return super().enter(module, args, kwargs)

    def opened(self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the arguments, and the casts that are on."""
        super().opened(call, module, args, kwargs)
        call.casting = self.adapter.casting()

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Close a call."""
        self._path, self._gives = module.path, not module.operation
        return super().leave(module, args, kwargs, output)

    def meet(self, leaf: Leaf, tensor: Tensor) -> None:
        """Leave a tensor to the call that keeps it, which may be a later one."""

    def _leaf(self, path: str, tensor: Tensor) -> Leaf:
        leaf = super()._leaf(path, tensor)
        if self._kind != "structure" and self._chosen(self._path):
            if not self._path and not self._gives:
                self._places.given(leaf)
            where = self._places.of_value(leaf.shape, self._path if self._gives else None)
            if leaf.token not in self._seen:
                self._seen.add(leaf.token)
                self._keep(leaf, tensor, f"{self._path}.{path}", where)
            if leaf.differentiable and leaf.token not in self._awaited:  # what is computed again is so from then on
                self._awaited.add(leaf.token)
                self._await(leaf, tensor, f"{self._path}.{path}", where)
        self._gives = False
        return leaf

    def _keep(self, leaf: Leaf, tensor: Tensor, name: str, where: Where) -> None:
        trace, token = self.trace, leaf.token
        trace.values[token] = self._kept(tensor, name, where)
        if tensor.added is not None:
            added = self.adapter.tensor(tensor.added)
            trace.added[token] = self._kept(added, f"{name}.added", self._places.of_value(tuple(added.shape)))

    def _await(self, leaf: Leaf, tensor: Tensor, name: str, where: Where) -> None:
        def arrived(gradient: Tensor) -> None:
            key = self._kept(gradient, f"{name}.gradient", where)
            self._passes.met(leaf.token, key)
            self._sent.setdefault(leaf.token, []).append(key)

        self.hooks.add(tensor.on_gradient(arrived).close)

    def _kept(
        self, value: Tensor | Parameter, name: str, where: Where, *, ended: bool = False, extremes: bool = True
    ) -> int:
        """Keep what a tensor or parameter holds now: all of it, or what a device, or numpy here, makes of it."""
        if self._kind == "tensors":
            return (self._store.lend if ended else self._store.put)(value.view(), name)
        whole = self._kind == "summary"
        reduction = Reduction(extremes=extremes) if whole else where.reduction
        key = None if reduction is None else self._reductions.keep(value, reduction, steady=ended)
        if key is not None:
            return key
        view = value.view()
        return self.trace.summarized(summarized(view, extremes=extremes) if whole else where.sketched(view))

    def glimpse(self, parameter: Parameter) -> int:
        """Keep a few elements of a parameter: enough to see whether it is another than it was."""
        reduction = Reduction(norm=False, sketched=self._kind == "sketch")
        key = None if self._kind == "tensors" else self._reductions.keep(parameter, reduction)
        return self.trace.summarized(_glimpse(parameter, self._kind)) if key is None else key

    def state(self, parameter: Parameter, name: str, *, ended: bool = False, extremes: bool = True) -> int:
        """Keep what a parameter or buffer holds now; return its key. ``ended``: it stays until the step is written."""
        where = self._places.of_parameter(parameter.path)
        return self._kept(parameter, name, where, ended=ended, extremes=extremes)

    def watch_parameters(self, model: Model) -> None:
        """Wait for the gradients of parameters, which a script may clear before the step is over.

        What is frozen may be no more for a later call, and is waited for from then on.
        """
        wanted = "gradients" in model.adapter.capabilities and self._kind != "structure"
        for path, parameter in model.parameters().items() if wanted else ():
            known = path in self._watched or not parameter.trainable
            if not known and model.adapter.tensor(parameter.native).differentiable:
                self._watched.add(path)
                self.hooks.add(model.on_gradient(parameter, self._adding(path, tuple(parameter.shape))).close)

    def _adding(self, path: str, shape: tuple[int, ...]) -> Callable[[Tensor], None]:
        def arrived(gradient: Tensor) -> None:
            where = self._places.of_gradient(path, tuple(gradient.shape), shape)
            key = self._kept(gradient, f"{path}.gradient", where)
            self._passes.met(path, key)
            self._partial.setdefault(path, []).append(key)

        return arrived

    def about_to_step(self, paths: Mapping[int, str], gradients: Iterable[tuple[Any, Any]]) -> None:
        """Keep what is known of the gradients that an optimizer steps with; ``paths`` are those of native parameters.

        Of a parameter that is stepped again nothing is.
        """
        self._passes.stepped()
        if self.trace.stepped_at is None:
            self.trace.stepped_at = len(self.trace.calls)
        for native, gradient in gradients if self._kind != "structure" else ():
            path = paths.get(id(native))
            if path is None:
                continue
            self._steps[path] = self._steps.get(path, 0) + 1
            self._last_stepping[path] = len(self._partial.get(path, ()))
            if path in self._stepping:
                self.trace.handed.pop(path, None)
            else:
                self._stepping[path] = len(self._partial.get(path, ()))
                tensor = self.adapter.tensor(gradient)
                key = self._reductions.keep(tensor, Reduction())
                self.trace.handed[path] = self.trace.summarized(tensor.read(summarized)) if key is None else key

    def finish(self) -> None:
        """Let go of every tensor, and add up what several backward passes gave to a parameter."""
        self.hooks.close()
        self.trace.stepped = [self._counted(one) for number in sorted(self.stepped) for one in self.stepped[number]]
        if self._kind == "sketch" and any(len(one) > 1 for one in (*self._partial.values(), *self._sent.values())):
            self.fetch()
        self.trace.passes = self._passes.found(self._sent, self._partial, self._stepping, self._last_stepping)
        for token, keys in self._sent.items():
            self.trace.gradients[token] = self._sum(keys, f"{token}.gradient")
        for path, keys in self._partial.items():
            first = self._stepping.get(path, len(keys))
            if not first or (first > 1 and self._kind == "summary"):
                self.trace.handed.pop(path, None)
            elif first < len(keys):
                self.trace.arrived[path] = self._sum(keys[:first], f"{path}.arrived")
            last = self._last_stepping.get(path, len(keys))
            if 0 < last < len(keys):
                self.trace.used[path] = (
                    self.trace.arrived[path] if last == first else self._sum(keys[:last], f"{path}.used")
                )
            if path in self._stepping and first > 1:
                self.trace.latest[path] = keys[first - 1]
            self.trace.parameter_gradients[path] = self._sum(keys, f"{path}.gradient")

    def _counted(self, stepped: SteppedRecord) -> SteppedRecord:
        """Return what parameters were stepped with, and how many times, where that is more than once."""
        times = max((self._steps.get(path, 0) for path in stepped.parameters or ()), default=0)
        return stepped if times < 2 else attrs.evolve(stepped, settings={**stepped.settings, "steps": times})

    def _sum(self, keys: Sequence[int], name: str) -> int:
        """Return the key of a sum of gradients; of summaries, of which no sum is known, that of the last one."""
        if len(keys) > 1 and self._kind == "tensors":
            return self._store.put_sum(keys, name)
        if len(keys) > 1 and self._kind == "sketch":
            return self.trace.summarized(summed([self.trace.summaries[one] for one in keys]))
        return keys[-1]

    def fetch(self) -> None:
        """Bring over what devices computed."""
        self._reductions.fetch()


def _glimpse(parameter: Parameter, values: Kept) -> Summary:
    """Return a few elements of a parameter: enough to see whether it is another than it was."""
    view = parameter.view()
    found = sample(view)
    # As a sketch's summary holds them: what is there already is not written again.
    kept = found.astype(work_of(view.dtype)) if values == "sketch" else found
    return Summary(name_of(view.dtype), tuple(view.shape), sample=kept)
