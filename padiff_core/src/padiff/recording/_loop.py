"""Record what a model does in a script's own loop, step after step, to a directory."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from padiff.adapter import Hook, Listener, Model, Module, Parameter, Reduction, Tensor
from padiff.codec import name_of
from padiff.errors import InputError
from padiff.numerics import sample, work_of
from padiff.recording._describe import describe, parameter_record
from padiff.recording._flow import Follower
from padiff.recording._functions import plain_model
from padiff.recording._places import Places, Where
from padiff.recording._record import Recorder
from padiff.recording._reduced import Reductions
from padiff.recording._stepped import stepped_with
from padiff.trace import Background, Flow, Kept, Leaf, QueuedStore, RunWriter, Summary, Trace, summarized, summed

Chosen = Callable[[str], bool]


class _StepRecorder(Recorder):
    """What fills the trace of one step; of the values of modules that were not chosen it keeps nothing."""

    def __init__(
        self, model: Model, trace: Trace, store: QueuedStore, values: Kept, chosen: Chosen, places: Places
    ) -> None:
        super().__init__(model.adapter, trace, values=False, gradients=False)
        self._store, self._kind, self._chosen, self._places = store, values, chosen, places
        self._reductions = Reductions(model.adapter, trace)
        self._seen: set[int] = set()
        self._path = ""
        self._gives = False
        """Whether what comes next is the first output of the module at that path."""
        self._partial: dict[str, list[int]] = {}

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Open a call; one of the model itself is nobody's part, though one before it may have raised."""
        if not module.path and not module.operation:
            self._stack.clear()
            self._modules.clear()
        self._path, self._gives = module.path, False
        return super().enter(module, args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Close a call."""
        self._path, self._gives = module.path, not module.operation
        return super().leave(module, args, kwargs, output)

    def meet(self, leaf: Leaf, tensor: Tensor) -> None:
        """Leave a tensor to the call that keeps it, which may be a later one."""

    def _leaf(self, path: str, tensor: Tensor) -> Leaf:
        leaf = super()._leaf(path, tensor)
        if leaf.token not in self._seen and self._kind != "structure" and self._chosen(self._path):
            self._seen.add(leaf.token)
            where = self._places.of_value(self._path if self._gives else None)
            self._keep(leaf, tensor, f"{self._path}.{path}", where)
        self._gives = False
        return leaf

    def _keep(self, leaf: Leaf, tensor: Tensor, name: str, where: Where) -> None:
        trace, token = self.trace, leaf.token
        trace.values[token] = self._kept(tensor, name, where)
        if tensor.added is not None:
            trace.added[token] = self._kept(
                self.adapter.tensor(tensor.added), f"{name}.added", self._places.of_value(None)
            )
        if leaf.differentiable:

            def arrived(gradient: Tensor) -> None:
                trace.gradients[token] = self._kept(gradient, f"{name}.gradient", where)

            self.hooks.add(tensor.on_gradient(arrived).close)

    def _kept(self, tensor: Tensor, name: str, where: Where) -> int:
        if self._kind == "tensors":
            return self._store.put(tensor.view(), name)
        key = self._reduced(tensor, where, extremes=True)
        if key is not None:
            return key
        if self._kind == "summary":
            return self.trace.summarized(tensor.read(summarized))
        return self.trace.summarized(where.sketched(tensor.view()))

    def _reduced(self, value: Tensor | Parameter, where: Where, *, extremes: bool, steady: bool = False) -> int | None:
        """Let a device summarize what lies there; return the key, or None where the value is to be read here."""
        asked = Reduction(extremes=extremes) if self._kind == "summary" else where.reduction
        return None if asked is None else self._reductions.keep(value, asked, steady=steady)

    def glimpse(self, parameter: Parameter) -> int:
        """Keep a few elements of a parameter: enough to see whether it is another than it was."""
        asked = Reduction(norm=False, sketched=self._kind == "sketch")
        key = None if self._kind == "tensors" else self._reductions.keep(parameter, asked)
        return self.trace.summarized(_glimpse(parameter, self._kind)) if key is None else key

    def state(self, parameter: Parameter, name: str, *, ended: bool = False, extremes: bool = True) -> int:
        """Keep what a parameter or buffer holds now; return its key. ``ended``: it stays until the step is written."""
        where = self._places.of_parameter(parameter.path)
        tensors = self._kind == "tensors"
        key = None if tensors else self._reduced(parameter, where, extremes=extremes, steady=ended)
        if key is not None:
            return key
        view = parameter.view()
        if self._kind == "tensors":
            return (self._store.lend if ended else self._store.put)(view, name)
        if self._kind == "summary":
            return self.trace.summarized(summarized(view, extremes=extremes))
        return self.trace.summarized(where.sketched(view))

    def watch_parameters(self, model: Model) -> None:
        """Wait for the gradients of parameters, which a script may clear before the step is over."""
        for path, parameter in model.parameters().items():
            if parameter.trainable and "gradients" in model.adapter.capabilities and self._kind != "structure":
                tensor = model.adapter.tensor(parameter.native)
                if tensor.differentiable:
                    self.hooks.add(tensor.on_gradient(self._adding(path)).close)

    def _adding(self, path: str) -> Callable[[Tensor], None]:
        where = self._places.of_parameter(path)

        def arrived(gradient: Tensor) -> None:
            self._partial.setdefault(path, []).append(self._kept(gradient, f"{path}.gradient", where))

        return arrived

    def finish(self) -> None:
        """Let go of every tensor, and add up what several backward passes gave to a parameter."""
        self.hooks.close()
        if self._kind == "sketch" and any(len(keys) > 1 for keys in self._partial.values()):
            self.fetch()
        for path, keys in self._partial.items():
            key = keys[-1]
            if len(keys) > 1 and self._kind == "tensors":
                key = self._store.put_sum(keys, f"{path}.gradient")
            elif len(keys) > 1 and self._kind == "sketch":
                key = self.trace.summarized(summed([self.trace.summaries[one] for one in keys]))
            self.trace.parameter_gradients[path] = key

    def fetch(self) -> None:
        """Bring over what devices computed."""
        self._reductions.fetch()


class Loop(Listener):
    """What records the steps of a script: everything that the model does between two calls of `step` is one.

    A context manager: within it the model is watched. A step is there for good once `step` has returned.
    """

    def __init__(
        self,
        model: Model,
        folder: Any,
        *,
        values: Kept,
        steps: int | Collection[int] | None,
        modules: str | Sequence[str] | None,
        optimizers: Sequence[Any] = (),
    ) -> None:
        self.model, self.values, self.optimizers = model, values, optimizers
        self.number = 0
        """The number of the step that is open."""
        self.start_seed: int | None = None
        """See `Trace.start_seed`."""
        self.by_value = False
        """See `Trace.by_value`."""
        self._folder, self._steps = folder, steps
        self._chosen = _chosen(model, modules)
        self._recorder: _StepRecorder | None = None
        self._follower: Follower | None = None
        """What follows the dataflow of the first step that is recorded: which parameters' values reach which."""
        self._written = False
        self._counted = False
        self._hook = Hook()
        self._places: Places
        self._background: Background | None = None

    def __enter__(self) -> Loop:
        """Make the directory, and watch the model."""
        about = describe(self.model)
        self._places = Places(about)
        writer = RunWriter(self._folder, about, self.values)
        self._background = Background(writer)
        self._hook = self.model.attach(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Watch the model no longer; what is open is a step only where `step` was never called, and all went well."""
        assert self._background is not None
        self._hook.close()
        try:
            if kind is None and not self._counted and self._recorder is not None:
                self.step()
            elif self._recorder is not None:
                self._recorder.hooks.close()
                self._background.discard()
            if kind is not None and not self._written:
                self._background.withdraw()
        finally:
            self._unfollowed()
            self._recorder = None
            self._background.close()

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record that a call begins; the first one opens a step."""
        if self._recorder is None:
            if not self._wanted():
                return None
            self._recorder = self._opened()
            if not self._written and plain_model(self.model) is self.model:
                self._follower = Follower(self.model, self._recorder)
        return (self._follower or self._recorder).enter(module, args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Record that a call ended."""
        if self._recorder is None or self._recorder.open_call() is None:
            return None
        return (self._follower or self._recorder).leave(module, args, kwargs, output)

    def _unfollowed(self) -> Flow | None:
        """Follow the dataflow no longer; return what it was, where it was followed."""
        follower, self._follower = self._follower, None
        if follower is None:
            return None
        follower.close()
        return follower.flow

    def _wanted(self) -> bool:
        """Return whether the step that is open is one to record."""
        if self._steps is None:
            return True
        return self.number < self._steps if isinstance(self._steps, int) else self.number in self._steps

    def _opened(self) -> _StepRecorder:
        assert self._background is not None
        store = self._background.store()
        trace = Trace(store)
        recorder = _StepRecorder(self.model, trace, store, self.values, self._chosen, self._places)
        for path, parameter in self.model.parameters().items() if self.values != "structure" else ():
            if self._written:  # what it was after the step before
                trace.weights[path] = recorder.glimpse(parameter)
            else:
                trace.weights[path] = recorder.state(parameter, f"{path}.value")
        recorder.watch_parameters(self.model)
        if self.optimizers:  # now: a schedule is stepped behind the optimizer
            trace.stepped = stepped_with(self.model.adapter, self.model.parameters().values(), self.optimizers)
        return recorder

    def step(self, loss: Any = None) -> None:
        """End a step, which the run holds from now on; ``loss`` is its loss, where that is to be compared too.

        Raises `InputError` where the model was not called since the last step, or the directory cannot be written to.
        """
        assert self._background is not None
        recorder, number, wanted, flow = self._recorder, self.number, self._wanted(), self._unfollowed()
        self._recorder, self._counted = None, True
        self.number += 1
        if recorder is None:
            if wanted:
                msg = f"step {number} of the recording is empty: the model was not called.\n"
                msg += "Hint: call recorder.step() once for each step, behind the model's calls and the optimizer."
                raise InputError(msg)
            return
        trace = recorder.trace
        recorder.finish()
        parameters = self.model.parameters()
        trace.parameters = {path: parameter_record(parameter) for path, parameter in parameters.items()}
        for path, parameter in parameters.items() if self.values != "structure" else ():
            if parameter.buffer:
                trace.buffers[path] = recorder.state(parameter, f"{path}.after", ended=True)
            trace.updated[path] = recorder.state(parameter, f"{path}.updated", ended=True, extremes=False)
        recorder.fetch()
        trace.loss, trace.flow = self._number(loss), flow
        trace.start_seed, trace.by_value = self.start_seed, self.by_value
        trace.samples = {}
        self._background.finish(number, trace)
        self._written = True

    def _number(self, loss: Any) -> float | None:
        adapter = self.model.adapter
        if loss is None:
            return None
        return float(np.asarray(adapter.tensor(loss).view() if adapter.is_tensor(loss) else loss).reshape(()))


def _glimpse(parameter: Parameter, values: Kept) -> Summary:
    """Return a few elements of a parameter: enough to see whether it is another than it was."""
    view = parameter.view()
    found = sample(view)
    # As a sketch's summary holds them: what is there already is not written again.
    kept = found.astype(work_of(view.dtype)) if values == "sketch" else found
    return Summary(name_of(view.dtype), tuple(view.shape), sample=kept)


def _chosen(model: Model, modules: str | Sequence[str] | None) -> Chosen:
    """Return what tells the modules whose values are kept; of the model itself they always are."""
    if modules is None:
        return lambda path: True
    patterns = [modules] if isinstance(modules, str) else list(modules)
    known = list(model.modules())
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            msg = f"no module of the model has a path like {pattern!r}.\n"
            msg += f"Hint: paths are such as {', '.join(map(repr, known[1:4]))}; * stands for anything."
            raise InputError(msg)
    named = {path for pattern in patterns for path in fnmatch.filter(known, pattern)}
    return lambda path: not path or path in named
