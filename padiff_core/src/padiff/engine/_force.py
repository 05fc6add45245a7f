"""Run a model against a recorded run: diff(), of which the reference is what a run recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np

from padiff.engine._adapt import Request, adapted
from padiff.engine._open import finished_steps
from padiff.engine._run import Run as Way
from padiff.errors import InputError
from padiff.forcing import RecordedReference
from padiff.garbage import collecting_seldom
from padiff.isolation import served
from padiff.numerics import Array, is_array
from padiff.options import DiffOptions
from padiff.progress import shown
from padiff.pytree import leaves
from padiff.recording import Task, arguments, by_value, fill, narrowed
from padiff.report import Note, Report
from padiff.trace import Call, Run, SharedStore, Text, Trace, ValueStore, listed, without_step


@attrs.frozen
class Forced:
    """What the caller of compare() gave for a model that is run against a recorded run."""

    model: Any
    inputs: Any = None
    loss: Any = None
    optimizer: Any = None
    mapping: Any = None
    tolerance: Mapping[str, Any] | None = None
    backward: bool = True
    """Whether the backward pass is compared too, where one was recorded."""


def force_model(run: Run, steps: Sequence[int], asked: Forced, like: Run | None = None) -> Report:
    """Tell what diff() tells of the model of a run and another one, which alone is run.

    ``like`` is a run of the other model, whose recorded inputs it is given where the caller gave none.
    """
    started = time.perf_counter()
    trace = run.trace(steps[0])
    operations = any(call.module.operation for call in trace.calls)
    reference = RecordedReference(run, steps[0])
    if trace.root.outputs and not reference.trace.outputs:
        msg = f"the ranks of the run {run.where} returned other values each, and nothing says how these make one.\n"
        raise InputError(msg + "Hint: compare it with another run, or force against the folder of one rank.")
    held = bool(trace.gradients or trace.parameter_gradients)
    phase = "both" if held and asked.backward else "forward"
    options = DiffOptions(1, phase, True, asked.tolerance, reference.seed, operations, asked.optimizer is not None)
    if not held:
        options = options.without_backward(f"the run {run.where} holds no gradients")
    optimizers = None if asked.optimizer is None else (None, asked.optimizer)
    request = Request(None, None, (asked.loss, asked.loss), optimizers, asked.mapping)

    def tasks(step: int) -> tuple[Task, Task]:
        return _tasks(reference, step, asked, like, backward=options.backward)

    with collecting_seldom(), served(asked.model) as shared:
        prepared = adapted(reference, asked.model, request, options, tasks=tasks(steps[0]))
        if prepared.padding is not None:  # what the recorded backward pass was sent is read without it
            prepared = attrs.evolve(prepared, tasks=tasks(steps[0]))
        notes = [Note("recorded_reference", {"run": run.where, "steps": list(steps)}), *prepared.notes]
        with shown() as progress, ExitStack() as stack:
            way = Way(prepared, progress, stack, SharedStore if shared else ValueStore)
            for step in steps:
                if step != steps[0]:
                    reference.open(step)
                    way.begin(tasks(step))
                way.step(step)
            return way.report(notes, time.perf_counter() - started)


def forced_steps(run: Run, step: int | None, *, optimizer: bool) -> list[int]:
    """Return the steps of a run that a model can be run against; raise `InputError` where there is none."""
    if run.values != "tensors":
        msg = f"the run {run.where} holds no values to feed a model with (values={run.values!r}).\n"
        raise InputError(msg + "Hint: record it with values='tensors', or compare it with another run, without force.")
    if step is not None and step not in run.steps:
        raise without_step(run, step)
    held = [one for one in finished_steps(run) if (one == step or step is None) and _holds_weights(run, one)]
    if not held:
        msg = f"the run {run.where} does not hold the weights that step {step} started from: "
        msg += f"step {(step or 0) - 1} was not recorded.\nHint: force step {run.steps[0]}, or record all steps."
        raise InputError(msg)
    if optimizer and held != list(range(len(held))):
        msg = f"an optimizer was given, and of the run {run.where} the steps {listed(held)} would be forced: what an "
        msg += "optimizer keeps from the steps before is not recorded.\nHint: leave the optimizer out; or record, and "
        raise InputError(msg + "force, every step from the first.")
    return held


def _holds_weights(run: Run, step: int) -> bool:
    """Return whether the values of all parameters before a step are known."""
    trace = run.trace(step)
    lacking = [path for path in run.about.parameters if trace.weights.get(path, -1) < 0]
    if not lacking:
        return True
    earlier = run.trace(step - 1).updated if step - 1 in run.steps else {}
    return all(earlier.get(path, -1) >= 0 for path in lacking)


def _root(run: Run, trace: Trace) -> Call:
    """Return the one call of the model in a step; raise `InputError` where it was called otherwise."""
    roots = [call for call in trace.calls if call.parent is None]
    if len(roots) == 1 and not roots[0].path:
        return roots[0]
    seen = f"calls its part {roots[0].path!r} by itself" if roots[0].path else f"calls the model {len(roots)} times"
    msg = f"a step of the run {run.where} {seen}; a model that is run against it is called once in a step.\n"
    raise InputError(msg + "Hint: end a step behind each call of the model, with recorder.step().")


def _tasks(
    reference: RecordedReference, step: int, asked: Forced, like: Run | None, *, backward: bool
) -> tuple[Task, Task]:
    """Return what the model of a run was run on in a step, and what the other one is to be run on."""
    run, trace = reference.run, reference.trace
    root = _root(run, trace)
    sent: dict[int, Array] | None = None
    if backward and asked.loss is None and (trace.by_value or trace.start_seed is None):
        sent = _sent(root, trace)
    given = _values(root, trace)
    if asked.inputs is not None:
        theirs, _ = narrowed(arguments(asked.inputs), reference.about)
    else:
        theirs = _inputs_of(*((run, trace) if like is None else (like, like.trace(step))))
    _check_same(given, theirs, run, step)
    ours = Task(tuple(value for _, value, _ in given), {}, None, backward, reference.seed, sent=sent)
    inert = frozenset(_without_gradient(given, theirs))
    return ours, attrs.evolve(ours, args=theirs[0], kwargs=theirs[1], inert=inert)


def _sent(root: Call, trace: Trace) -> dict[int, Array]:
    """Return what the backward pass starts from, by the index of an output.

    That is known where it follows from the outputs; else it is the gradient of the one that was made last, most likely.
    """
    found = {index: value for index, leaf in enumerate(root.outputs) if (value := trace.gradient(leaf)) is not None}
    if trace.by_value:
        ends = {index: trace.value(root.outputs[index]) for index in found}
        return {index: by_value(np.asarray(value)) for index, value in ends.items() if value is not None}
    inner = trace.calls[root.index + 1 :]
    made = {leaf.token: call.index for call in inner for leaf in call.outputs}
    last = max(found, key=lambda index: (made.get(root.outputs[index].token, len(trace.calls)), -index), default=0)
    return {last: np.asarray(found[last])} if found else {}


def _values(root: Call, trace: Trace) -> list[tuple[str, Array, bool]]:
    """Return what the model of a run was given: names, values, and whether a gradient came to each."""
    found = ((leaf.path, trace.value(leaf), leaf.differentiable) for leaf in root.inputs)
    return [(path, np.asarray(value), graded) for path, value, graded in found if value is not None]


def _inputs_of(run: Run, trace: Trace) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the recorded arguments of a model; raise `InputError` where they hold what was not recorded."""
    root = _root(run, trace)
    held = [repr(value) for _, value in leaves((root.args, dict(root.kwargs)), lambda value: isinstance(value, Text))]
    if held:
        msg = f"the run {run.where} does not hold all that its model was given: {held[0]} was not kept.\n"
        raise InputError(msg + "Hint: give the inputs, inputs= or --inputs.")
    natives = [None if (value := trace.value(leaf)) is None else np.asarray(value) for leaf in root.inputs]
    return tuple(fill(root.args, natives)), dict(fill(root.kwargs, natives))


def _arrays(given: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Iterator[tuple[str, Array]]:
    for index, value in enumerate(given[0]):
        yield from ((f"[{index}]{path}", np.asarray(one)) for path, one in leaves(value, is_array))
    for name, value in given[1].items():
        yield from ((f"{name}{path}", np.asarray(one)) for path, one in leaves(value, is_array))


def _without_gradient(recorded: Sequence[tuple[str, Array, bool]], given: Any) -> Iterator[int]:
    """Yield the indices of the arrays that no gradient came to in the recorded run, nor to any input like them."""
    some = any(graded for _, _, graded in recorded)
    for index, (_, array) in enumerate(_arrays(given)):
        alike = [graded for _, other, graded in recorded if _is_alike(array, other)]
        if not (any(alike) if alike else some):
            yield index


def _is_alike(array: Array, other: Array) -> bool:
    """Return whether two arrays hold the same numbers, in whatever order."""
    if array.size != other.size or array.dtype.kind != other.dtype.kind:
        return False
    if np.array_equal(array, other):
        return True
    first, second = (np.sort(np.asarray(one), axis=None) for one in (array, other))
    return bool(np.array_equal(first, second.astype(first.dtype)))


def _check_same(recorded: Sequence[tuple[str, Array, bool]], given: Any, run: Run, step: int) -> None:
    """Raise `InputError` where the inputs are not those that a step was recorded on."""
    arrays = list(_arrays(given))
    for path, value, _ in recorded:
        if any(_is_alike(array, value) for _, array in arrays):
            continue
        said = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays) or "no array"
        other = any(array.size == value.size for _, array in arrays)
        trouble = "other values" if other else "nothing of that size"
        msg = f"the inputs are not those of step {step} of the run {run.where}, which was given {path} "
        msg += f"{value.dtype}{list(value.shape)}: the inputs hold {trouble} ({said}).\n"
        raise InputError(msg + "Hint: leave the inputs out, and the recorded ones are given; or name another step.")
