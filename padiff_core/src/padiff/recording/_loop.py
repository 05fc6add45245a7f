"""Record what a model does in a script's own loop, step after step, to a directory."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from padiff.adapter import Hook, Listener, Model, Module
from padiff.errors import InputError
from padiff.garbage import collecting_later
from padiff.recording._describe import describe, parameter_record
from padiff.recording._flow import Follower
from padiff.recording._functions import plain_model
from padiff.recording._optimizer_settings import MasterWeights, settings_by_path, step_settings
from padiff.recording._places import Places
from padiff.recording._step_recorder import Chosen, StepRecorder
from padiff.trace import Background, Flow, Kept, RunWriter, SteppedRecord, Trace


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
        self._recorder: StepRecorder | None = None
        self._follower: Follower | None = None
        """What follows the dataflow of the first step that is recorded: which parameters' values reach which."""
        self._masters = MasterWeights()
        self._written = 0
        """The number behind that of the last step that was written."""
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
        self._hook = Hook(self.model.attach(self).close)
        with self._hook.opening() as hook:
            for number, optimizer in enumerate(self.optimizers):
                hook.add(self.model.adapter.on_step(optimizer, partial(self._about_to_step, number)).close)
            if not self.optimizers:
                hook.add(self.model.adapter.on_any_step(self._any_about_to_step).close)
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
            with collecting_later():
                self._recorder = self._opened()
            if not self._written and plain_model(self.model) is self.model:
                self._follower = Follower(self.model, self._recorder)
        elif self._recorder.open_call() is None:
            self._recorder.watch_parameters(self.model)
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

    def _opened(self) -> StepRecorder:
        assert self._background is not None
        store = self._background.store()
        trace = Trace(store)
        recorder = StepRecorder(self.model, trace, store, self.values, self._chosen, self._places)
        for path, parameter in self.model.parameters().items() if self.values != "structure" else ():
            if self._written and self._written == self.number:  # what it was after the step before
                trace.weights[path] = recorder.glimpse(parameter)
            else:
                trace.weights[path] = recorder.state(parameter, f"{path}.value")
        trace.parameters = {path: parameter_record(parameter) for path, parameter in self.model.parameters().items()}
        recorder.watch_parameters(self.model)
        for number in range(len(self.optimizers)):  # now, where nobody tells of its step
            recorder.stepped[number] = self._step_settings(number)
        return recorder

    def _step_settings(self, number: int) -> list[SteppedRecord]:
        about = self.model.adapter, self.model.parameters().values(), self.optimizers[number]
        self._masters.find(*about)
        return step_settings(*about, self._masters.paths)

    def _about_to_step(self, number: int, gradients: Iterable[tuple[Any, Any]]) -> None:
        """Keep what an optimizer steps with, as the script left it: behind its clipping and its schedule."""
        if self._recorder is not None:
            self._recorder.stepped[number] = self._step_settings(number)
            paths = {id(one.native): path for path, one in self.model.parameters().items()}
            self._recorder.about_to_step({**self._masters.paths, **paths}, gradients)

    def _any_about_to_step(self, optimizer: Any, gradients: Iterable[tuple[Any, Any]]) -> None:
        """Keep it of whichever optimizer holds parameters of the model, where the user named none."""
        about = self.model.adapter, self.model.parameters().values(), optimizer
        self._masters.find(*about)
        numbers = [number for number, one in enumerate(self.optimizers) if one is optimizer]
        if numbers or settings_by_path(*about, self._masters.paths) is not None:
            self.optimizers = self.optimizers if numbers else [*self.optimizers, optimizer]
            self._about_to_step((numbers or [len(self.optimizers) - 1])[0], gradients)

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
                msg += "Hint: call recorder.step() once for each step, behind the model's calls and the optimizer. "
                msg += "Within a transform (vmap, a functional grad) calls are not seen: differentiate by backward()."
                raise InputError(msg)
            return
        recorder.finish()
        with collecting_later():
            self._write(number, recorder, flow, loss)

    def _write(self, number: int, recorder: StepRecorder, flow: Flow | None, loss: Any) -> None:
        """Keep what the step left behind, and write its records."""
        assert self._background is not None
        trace, parameters = recorder.trace, self.model.parameters()
        trace.parameters |= {
            path: parameter_record(parameter) for path, parameter in parameters.items() if path not in trace.parameters
        }
        for path, parameter in parameters.items() if self.values != "structure" else ():
            if parameter.buffer:
                trace.buffers[path] = recorder.state(parameter, f"{path}.after", ended=True)
            trace.updated[path] = recorder.state(parameter, f"{path}.updated", ended=True, extremes=False)
        recorder.fetch()
        trace.loss, trace.flow = self._number(loss), flow
        trace.start_seed, trace.by_value = self.start_seed, self.by_value
        trace.samples = {}
        self._background.finish(number, trace)
        self._written = number + 1

    def _number(self, loss: Any) -> float | None:
        adapter = self.model.adapter
        if loss is None:
            return None
        return float(np.asarray(adapter.tensor(loss).view() if adapter.is_tensor(loss) else loss).reshape(()))


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
