"""Run a model under hooks and keep what its calls took, gave and got as gradients: a Trace."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Adapter, Model, Module, Tensor, as_it_is, recomputed
from padiff.errors import BackwardError, ForwardError, InputError, PadiffError
from padiff.numerics import disturbed, epsilon_of, is_array, is_float, sample
from padiff.progress import call_ended
from padiff.pytree import Memo, copied, leaves
from padiff.recording._describe import SettingsReader, parameter_record, plain
from padiff.recording._flow import Follower
from padiff.recording._frames import line_of, own_line, package_of
from padiff.recording._functions import plain_model
from padiff.recording._internal_errors import internal_errors
from padiff.recording._live import Live
from padiff.recording._loss_noise import with_noise
from padiff.recording._numbers import in_words, numbers_in
from padiff.recording._reduced import sampled
from padiff.recording._starts import at_line, check_loss, differentiator, listed
from padiff.recording._task import Task
from padiff.recording._watcher import Watcher
from padiff.trace import Call, Leaf, Trace, ValueStore


class Recorder(Watcher):
    """What fills a trace: with whole values, or with samples of them only."""

    def __init__(
        self, adapter: Adapter, trace: Trace, *, values: bool, gradients: bool, live: Live | None = None
    ) -> None:
        super().__init__(adapter, live)
        self.calls = trace.calls
        self.trace = trace
        self._values = values
        self._gradients = gradients
        self._settings = SettingsReader() if live is None else live.settings

    def opened(self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the arguments: as plain data in the trace, as they are with what is live."""
        call.args = tuple(map(plain, args))
        call.kwargs = {name: plain(value) for name, value in kwargs.items()}
        if self.live is not None:
            self.live.keep(call, module, args, kwargs)

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Keep where the inputs lie."""
        if self.live is not None:
            self.live.keep_places(call, tensors)
        return {}

    def closed(self, call: Call, module: Module) -> None:
        """Keep the hyper-parameters: after the call, since what some of them mean shows in it."""
        call.settings = self._settings.of(module)

    def meet(self, leaf: Leaf, tensor: Tensor) -> None:
        """Keep a tensor that was not seen before, and wait for its gradient."""
        trace, token = self.trace, leaf.token
        if self._values:
            array = tensor.numpy()
            trace.values[token], trace.samples[token] = trace.store.put(array), sample(array)
        else:
            trace.samples[token] = sampled(self.adapter, tensor)
        if self._gradients and leaf.differentiable:

            def keep(gradient: Tensor) -> None:
                if not self.running:
                    trace.gradients[token] = trace.store.put(gradient.numpy())

            self.hooks.add(tensor.on_gradient(keep).close)


class _Disturber(Recorder):
    """A recorder that disturbs what each call gives by up to one machine epsilon: what rounding may do to it."""

    def depart(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Return the outputs, disturbed."""
        found = {}
        for index, tensor in enumerate(tensors):
            eps = epsilon_of(tensor.dtype)
            if eps and tensor.dtype[0] != "c":
                found[index] = tensor.swapped(disturbed(tensor.view(), eps, (call.index, index)))
        return found


class _Bystander(Recorder):
    """A recorder to which every call is reported, and keeps none."""

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let a call begin."""

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Let a call end."""
        call_ended()


def record(
    model: Model,
    task: Task,
    store: ValueStore,
    *,
    values: bool = True,
    live: Live | None = None,
    rewritten: Callable[[], list[str]] = list,
) -> Trace:
    """Run a model on a task and return its trace.

    With ``values`` everything is kept: inputs, outputs and gradients of every call, gradients of parameters,
    buffers after the run. Without, the run is forward only and of each tensor a sample is kept. ``live`` keeps
    what replays of its calls need; ``rewritten`` tells which weights the run changed. The model comes back as it was,
    but for these. Raises `ForwardError` where the model does, `InputError` where the inputs do not fit its signature.
    """
    if task.loss is not None and task.loss_noise is not None:
        task = attrs.evolve(task, loss=with_noise(model, task.loss, task.loss_noise))
    trace = Trace(store)
    kind = _Bystander if task.ends else _Disturber if task.disturbed else Recorder
    recorder = kind(model.adapter, trace, values=values, gradients=values and task.backward, live=live)
    backward = task.backward and values

    def note_loss(loss: float) -> None:
        trace.loss = loss

    trace.input_gradients = recorder.input_gradients
    trace.start_seed = task.seed if backward and task.loss is None and task.sent is None else None
    with model.adapter.seeded(task.seed), model.preserved() as changed, ExitStack() as stack:
        if live is not None and not task.ends:
            stack.enter_context(live.begun())
        if task.evaluating:
            model.evaluate()
        if task.recomputing:
            stack.enter_context(as_it_is())
        if task.dtype is not None:
            stack.enter_context(model.lifted(task.dtype) if live is None else live.lifted(model, task.dtype))
        if task.narrowing:
            stack.enter_context(model.adapter.narrowing())
        follower = Follower(model, recorder) if task.flow and plain_model(model) is model else None
        differentiate = differentiator(model.adapter, task, note_loss)
        before, times = model.adapter.random_state(), recomputed()
        output = guarded_run(model, task, recorder, differentiate, backward=backward, follower=follower)
        trace.sampled = None if before is None else before != model.adapter.random_state()
        trace.recomputes = times != recomputed()
        trace.flow = None if follower is None else follower.flow
        given = recorder.results or [native for _, native in leaves(output, model.adapter.is_tensor)]
        trace.outputs = [model.adapter.tensor(native).numpy() for native in given]
        trace.numbers = numbers_in(output, model.adapter.is_tensor)
        trace.returned = "" if trace.outputs else in_words(output)
        trace.rewritten = rewritten()
        trace.state = changed() if changed and task.dtype is None else []
        for path, parameter in model.parameters().items() if values else ():
            trace.parameters[path] = parameter_record(parameter)
            if parameter.buffer or path in trace.rewritten:
                trace.buffers[path] = store.put(np.array(parameter.view()))
            if not parameter.buffer and backward and (gradient := parameter.gradient()) is not None:
                # The run's own: nothing writes to it any more, and the user's gradients come back in its place.
                trace.parameter_gradients[path] = store.put(gradient)
    return trace


def guarded_run(
    model: Model,
    task: Task,
    watcher: Watcher,
    differentiate: Callable[[Any], list[tuple[Any, Any | None]]],
    *,
    backward: bool,
    follower: Follower | None = None,
) -> Any:
    """Run a model under a watcher; turn what goes wrong in it into padiff's errors that say where."""
    adapter = model.adapter
    args, kwargs = native_arguments(model, task, watcher)
    check_signature(model, args, kwargs, watcher.live)
    begun: list[list[tuple[Any, Any | None]]] = []

    def after_forward(output: Any) -> list[tuple[Any, Any | None]]:
        begun.append(differentiate(output))
        return begun[0]

    with ExitStack() as stack:
        stack.enter_context(internal_errors(adapter))
        stack.enter_context(adapter.quiet())
        stack.enter_context(model.attach(watcher) if follower is None else follower.attached())
        stack.enter_context(watcher.hooks)
        try:
            if backward:
                return model.run(args, kwargs, after_forward)
            output = model.run(args, kwargs)
            if task.loss is not None:
                differentiate(output)
            return output
        except PadiffError:
            raise
        except Exception as error:
            if own_line(error, (adapter,)) is not None:
                raise
            if begun:
                check_loss(begun[0], adapter, error)
                msg = (
                    f"{_named(model)} ran forward and raised {type(error).__name__} in the backward pass: "
                    f"{error}\nHint: phase='forward' compares without it."
                )
                raise BackwardError(msg) from error
            said = _where(watcher, model, error)
            stack.close()
            msg = f"{said}\nHint: {_hint(model, task, isinstance(watcher, Recorder) and follower is None)}"
            raise ForwardError(msg) from error


def _hint(model: Model, task: Task, recorded: bool) -> str:
    """Return what to do about a model that raised; where it was only recorded, whether it runs without is tried."""
    plain = "call the model on these inputs without padiff first."
    if not recorded:
        return plain
    try:
        with model.adapter.quiet():
            args, kwargs = native_arguments(model, task, Watcher(model.adapter))
            model.run(args, kwargs)
    except Exception:
        return plain
    does = "without padiff's hooks it runs. What transforms or compiles a module (vmap, jit) takes none"
    return f"{does}: call the module itself there, on the whole batch, to compare."


def native_arguments(model: Model, task: Task, watcher: Watcher) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a task's arguments as the model's own tensors: fresh ones; floating ones carry gradients."""
    adapter = model.adapter
    device = model.device.partition(",")[0] if watcher.live is None else watcher.live.home
    count = itertools.count()

    def convert(value: Any) -> Any:
        index = next(count)
        floating = is_float(value)
        if floating and task.dtype is not None:
            value = np.asarray((task.exact or {}).get(index, value)).astype(task.dtype)
        differentiable = task.backward and floating and index not in task.inert
        native = adapter.convert(value, device=device, differentiable=differentiable)
        if differentiable:
            leaf = adapter.tensor(native)

            def keep(gradient: Tensor) -> None:
                watcher.input_gradients[index] = gradient.numpy()

            watcher.hooks.add(leaf.on_gradient(keep).close)
            # Not the leaf itself: a model may change its input in place, which a leaf forbids.
            native = leaf.swapped(np.asarray(value))
        return native

    # Copies, every time: a model may write into a cache that it is given.
    memo = Memo()
    args = tuple(copied(value, is_array, lambda _, leaf: convert(leaf), memo=memo) for value in task.args)
    kwargs = {k: copied(value, is_array, lambda _, leaf: convert(leaf), memo=memo) for k, value in task.kwargs.items()}
    return args, kwargs


def check_signature(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any], live: Live | None = None) -> None:
    """Raise `InputError` where the arguments do not fit the model's forward signature."""
    forward = (model.modules() if live is None else live.modules)[""].forward
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        held = any(True for _ in leaves((args, dict(kwargs)), model.adapter.is_tensor)) or not (args or kwargs)
        keywords = f"the keywords {', '.join(map(repr, kwargs))}" if kwargs else "no arguments"
        given = f"{len(args)} positional" if args else keywords
        msg = (
            f"the inputs do not fit {type(model.native).__qualname__}.{forward.__name__}{signature}: "
            f"{error}; given were {given}{'' if held else ', no array or tensor among them'}.\n"
            "Hint: pass a dict of this model's argument names, or a tuple by position; where the other "
            "model's names differ, give candidate_inputs=."
        )
        raise InputError(msg) from None


def _where(watcher: Watcher, model: Model, error: Exception) -> str:
    call = watcher.open_call()
    homes = {package_of(module.native) for module in model.modules().values()}
    at = at_line(line_of(error, model.adapter, homes))
    if call is None:
        place = f"{'after' if watcher.calls else 'before'} its forward{at}"
    else:
        name = f"module {call.path!r}" if call.path else "the model itself"
        shapes = listed((leaf.path, leaf.dtype, leaf.shape) for leaf in call.inputs)
        place = f"in {name} ({call.module.class_name}){at}, given {shapes}"
    return f"{_named(model)} raised {type(error).__name__} {place}: {error}"


def _named(model: Model) -> str:
    return f"the {model.adapter.name} model {type(model.native).__qualname__}"
