"""Whoever can run a model: the one interface through which the engine, refinements and judges reach it.

What crosses is plain data: records, arrays, numbers, names. A local side wraps an adapter's model; a remote one is a
worker that holds a local side and passes these messages on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, cached_property
from typing import Any, Protocol, TypeVar

import attrs
import numpy as np

from padiff.adapter import Model
from padiff.errors import ForwardError, InternalError
from padiff.forcing._checks import Assess
from padiff.forcing._forcer import Forcer
from padiff.forcing._led import LedRecorder
from padiff.forcing._messages import Fed, ForceRequest, Given, Replayed, ReplayRequest
from padiff.forcing._replay import replay
from padiff.numerics import Array, numpy_dtype
from padiff.recording import (
    Cuts,
    Live,
    Orders,
    Recorder,
    Task,
    Weights,
    composed,
    describe,
    differentiator,
    guarded_run,
    mark_sampling,
    numbers_in,
    permuted_input,
    permuted_model,
    plain_model,
    record,
    refused,
    settings_by_path,
)
from padiff.trace import Description, Flow, Trace, ValueStore, temporary_store

T = TypeVar("T")


class Side(Protocol):
    """One of the two models of a diff, wherever it lives."""

    @property
    def about(self) -> Description:
        """Return what is known of the model before it runs."""

    def prepare(self, loss: Any, optimizer: Any, *, index: int) -> Given:
        """Take the loss and the optimizer that a user gave, and keep them.

        Functions, objects, or names (``module:function``); of a pair that a name leads to, ``index`` is the side's
        own: 0 for the reference. Said once, before anything runs. Raises `InputError` for a name that leads nowhere.
        """

    def takes(self, optimizer: Any) -> bool:
        """Return whether an object is an optimizer of this side's framework."""

    def check_dtype(self, dtype: str) -> None:
        """Raise `InputError` where the framework has no tensors of a dtype."""

    def find(self, native: Any) -> str | None:
        """Return the path of a live object of this process that is one of the model's modules, else None."""

    def shared(self, other: Side) -> list[str]:
        """Return the paths of the parameters that another side holds too: the very same, in this process."""

    def record(self, task: Task, store: ValueStore, *, values: bool = True) -> Trace:
        """Run the model freely on a task and return its trace; see `padiff.recording.record`.

        The calls of the last record are those that later requests name.
        """

    def flow(self, task: Task) -> Flow:
        """Run the model forward and return its dataflow, or why it does not run so."""

    def force(self, request: ForceRequest, assess: Assess | None = None) -> AbstractContextManager[Fed]:
        """Run the model with each matched call fed from the reference; the run stays open until the context is left.

        Within, gradients and buffers can be read; behind it the model is as it was. ``assess`` is called, on the
        engine's side, with each value that is not the reference's to the bit: (the pair whose code made it, the
        difference, the reference's array, this side's array) -> what the user's own rule and metrics say.
        """

    def led(self, request: ForceRequest) -> Trace:
        """Run the model forward as `force` does, and return the calls of that run: it is the last record from then on.

        What is put in is what it stands for.
        """

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run one call by itself. Raises what the framework raises: a reader of the report gets class and message."""

    def permuted(self, axes: Orders, cuts: Cuts | None = None) -> Side:
        """Return the side, with some tensors read in another order of axes from the next record on.

        Of each parameter of ``cuts`` only some rows are, and the others stay as they are.
        """

    def value(self, path: str) -> Array:
        """Return the value of a parameter or buffer as it is now, native layout; never write to it or keep it."""

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite parameters or buffers in place: native layout, converted to the dtype, seen by optimizers too."""

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        """Set the gradients of parameters (None: it has none), and let the optimizer that was given take one step."""

    def preserved(self) -> AbstractContextManager[Any]:
        """Put back, on leaving, what runs and steps change, but for the values of parameters."""

    def native(self, path: str) -> Any | None:
        """Return the live module of a path where it lives in this process, else None."""


class LocalSide:
    """A side whose model lives in this process, or looks as if it did."""

    def __init__(self, model: Model, axes: Orders | None = None, cuts: Cuts | None = None) -> None:
        self._plain, self._axes, self._cuts = model, axes or {}, cuts or {}
        self.model = permuted_model(model, self._axes, self._cuts) if axes or cuts else model
        self._loss: Any = None
        self._optimizer: Any = None
        self._live = Live(self.model)
        self._parameters = self._live.parameters
        self._weights = Weights(self._parameters.values())
        self._rebuilt: dict[str, None] = {}
        """What modules keep of their weights, and made anew."""

    @cached_property
    def about(self) -> Description:
        """Return what is known of the model before it runs."""
        return describe(self.model, self._live)

    def prepare(self, loss: Any, optimizer: Any, *, index: int) -> Given:
        """Take the loss and the optimizer that a user gave."""
        self._loss = self.model.loss(loss, index)
        self._optimizer = None if optimizer is None else self.model.optimizer(optimizer, index)
        adapter, known = self.model.adapter, self._optimizer
        steps = adapter.is_optimizer(known)
        settings = dict(adapter.optimizer_settings(known)) if steps else {}
        fits = steps or known is None or (callable(known) and not isinstance(known, type))
        stepped = settings_by_path(adapter, self._parameters.values(), known) if steps else None
        return Given(self._loss is not None, _defined(self._loss), settings, stepped, fits)

    def takes(self, optimizer: Any) -> bool:
        """Return whether an object is an optimizer of this side's framework."""
        return self.model.adapter.is_optimizer(optimizer)

    def check_dtype(self, dtype: str) -> None:
        """Raise `InputError` where the framework has no tensors of a dtype."""
        self.model.adapter.from_numpy(np.zeros(1, numpy_dtype(dtype)))

    def find(self, native: Any) -> str | None:
        """Return the path of a live object that is one of the model's modules."""
        return self._live.find(native)

    def shared(self, other: Side) -> list[str]:
        """Return the paths of the parameters that another side in this process holds too."""
        theirs = other._parameters.values() if isinstance(other, LocalSide) else ()
        known = {id(parameter.native) for parameter in theirs}
        return [path for path, parameter in self._parameters.items() if id(parameter.native) in known]

    def record(self, task: Task, store: ValueStore, *, values: bool = True) -> Trace:
        """Run the model freely on a task and return its trace."""
        task = attrs.evolve(task, loss=self._loss)
        with self._weights.kept() as rewritten:
            try:
                trace = record(self.model, task, store, values=values, live=self._live, rewritten=rewritten)
            except (ForwardError, InternalError):
                if not task.flow:
                    raise
                task = attrs.evolve(task, flow=False)  # what does not run while it is followed is matched without
                trace = record(self.model, task, store, values=values, live=self._live, rewritten=rewritten)
            if task.plain:
                mark_sampling(self.model, task, trace, self._live)
        trace.rebuilt = list(self._rebuilt)
        return trace

    def flow(self, task: Task) -> Flow:
        """Run the model forward and return its dataflow, or why it does not run so."""
        task = attrs.evolve(task, backward=False, loss=None, ends=True, flow=True)
        try:
            with self._weights.kept(), temporary_store() as store:
                found = record(plain_model(self._plain), task, store, values=False).flow
            assert found is not None
            return found
        except Exception as error:  # what does not run while it is followed is matched without, and told
            return refused(error)

    @contextmanager
    def force(self, request: ForceRequest, assess: Assess | None = None) -> Iterator[Fed]:
        """Run the model with each matched call fed from the reference."""
        model, adapter = self.model, self.model.adapter
        task = attrs.evolve(request.task, loss=self._loss)
        forcer = self._forcer(Forcer, adapter, request, assess=assess, gradients=task.backward, live=self._live)
        losses: list[float] = []
        with self._weights.kept() as rewritten, adapter.seeded(task.seed), model.preserved():
            differentiate = differentiator(adapter, task, losses.append)
            output = guarded_run(model, task, forcer, forcer.begun_by(differentiate), backward=task.backward)
            if task.backward:
                forcer.finish()
            root = forcer.calls[0]
            yield Fed(
                checks=forcer.checks,
                consumers=forcer.consumers,
                own=forcer.own,
                samples=forcer.samples,
                unreached=frozenset(forcer.unreached),
                starved=frozenset(forcer.starved),
                loss=losses[0] if losses else None,
                numbers=numbers_in(output, adapter.is_tensor),
                input_gradients={
                    index: permuted_input(adapter, root, index, gradient)
                    for index, gradient in forcer.input_gradients.items()
                },
                input_tokens=[leaf.token for leaf in root.inputs],
                reached=frozenset(p for p, x in self._parameters.items() if not x.buffer and x.gradient() is not None),
                rewritten=frozenset(rewritten()),
                gradient=lambda path: self._parameters[path].gradient(),
                buffer=self._now(),
            )

    def led(self, request: ForceRequest) -> Trace:
        """Run the model forward as `force` does, and return the calls of that run."""
        model, adapter = self.model, self.model.adapter
        task = attrs.evolve(request.task, loss=None)
        trace = Trace(ValueStore())
        recorder = Recorder(adapter, trace, values=False, gradients=False, live=self._live)
        forcer = self._forcer(LedRecorder, recorder, request, gradients=False)
        with self._weights.kept(), adapter.seeded(task.seed), model.preserved(), self._live.begun():
            guarded_run(model, task, forcer, differentiator(adapter, task, lambda _: None), backward=False)
        forcer.name_as_before()
        return trace

    def _forcer(self, kind: Callable[..., T], run: Any, request: ForceRequest, **how: Any) -> T:
        """Return what feeds a run as a request says."""
        return kind(
            run,
            {pair.candidate.key: pair for pair in request.pairs},
            request.values,
            truth=request.values,
            loose=request.loose,
            protected=[parameter.extent() for parameter in self._parameters.values()],
            **how,
        )

    def _now(self) -> Callable[[str], Array]:
        """Return what reads a parameter or buffer behind a run, which may have put another tensor in its place."""
        found = cache(self.model.parameters)  # where a buffer is asked for at all
        return lambda path: found().get(path, self._parameters[path]).view()

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run one call by itself."""
        with self._weights.kept(whole=False):
            found = replay(self._live, request)
            found.buffers.update(self._weights.changing())
            return found

    def permuted(self, axes: Orders, cuts: Cuts | None = None) -> LocalSide:
        """Return the side, with some tensors read in another order of axes, and some rows of some parameters."""
        other = LocalSide(self._plain, composed(self._axes, axes), {**self._cuts, **(cuts or {})})
        other._loss, other._optimizer, other._weights = self._loss, self._optimizer, self._weights
        other._live.share(self._live)
        other._rebuilt = self._rebuilt
        return other

    def value(self, path: str) -> Array:
        """Return the value of a parameter or buffer as it is now."""
        return self._parameters[path].view()

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite parameters or buffers in place; modules make anew what they keep of them."""
        self._live.assign(arrays)
        if arrays:
            self._weights.renew()
            self._rebuilt |= dict.fromkeys(self.model.rebuild())

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        """Set the gradients of parameters, and let the optimizer take one step."""
        for path, gradient in gradients.items():
            self._parameters[path].set_gradient(gradient)
        self.model.step(self._optimizer)

    def preserved(self) -> AbstractContextManager[Any]:
        """Put back, on leaving, what runs and steps change."""
        return self.model.preserved()

    def native(self, path: str) -> Any | None:
        """Return the live module of a path."""
        return self._live.modules[path].native


@contextmanager
def holding(side: Side, values: Mapping[str, Array]) -> Iterator[None]:
    """Let a side hold other values of some parameters or buffers within."""
    before = {path: np.array(side.value(path), order="C") for path in values}
    side.assign(values)
    try:
        yield
    finally:
        side.assign(before)


def _defined(function: Any) -> str | None:
    code = getattr(function, "__code__", None)
    place = (code.co_filename, code.co_firstlineno) if code else getattr(function, "definition", None)
    return f"{place[0]}:{place[1]}" if place else None
