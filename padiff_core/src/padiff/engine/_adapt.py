"""Take what the caller of diff() gave, and make it two sides with a task each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from padiff.alignment import Resolved, resolve
from padiff.engine._checks import (
    check_inputs,
    check_optimizers,
    check_side,
    dtype_notes,
    finiteness_notes,
    named_arrays,
    of_side,
    sameness_notes,
)
from padiff.engine._padding import Padding, without_padding
from padiff.errors import InputError
from padiff.forcing import Given, Side, is_recorded
from padiff.isolation import side_of
from padiff.options import PAIR, DiffOptions
from padiff.recording import Task, arguments, narrowed, truth_values, type_named
from padiff.report import SIDES, Note


@attrs.frozen
class Request:
    """What the caller of diff() gave beside the models and plain options."""

    inputs: Any
    candidate_inputs: Any
    loss: Any
    optimizers: Any = attrs.field()
    mapping: Any
    inert: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    """Indices of the arrays among each side's inputs of which no gradient is asked."""

    @optimizers.validator
    def _pair(self, _: Any, value: Any) -> None:
        if value is not None and not (isinstance(value, tuple | list) and len(value) == 2):
            seen = f"the class {value.__qualname__}" if isinstance(value, type) else type_named(type(value))
            msg = f"optimizers is {seen}; expected a pair.\n{PAIR}."
            raise InputError(msg)


@attrs.frozen
class Prepared:
    """Both sides, ready to run, and what is known before they do."""

    sides: tuple[Side, Side]
    tasks: tuple[Task, Task]
    given: tuple[Given, Given]
    resolved: Resolved
    options: DiffOptions
    notes: list[Note]
    padding: Padding | None
    """The model that pads its vocabulary, and is read without that; None where neither does."""


def adapted(
    reference: Any,
    candidate: Any,
    request: Request,
    options: DiffOptions,
    within: tuple[Collection[str] | None, Collection[str] | None] = (None, None),
    *,
    tasks: tuple[Task, Task] | None = None,
) -> Prepared:
    """Return both sides with their tasks; raise `PadiffError`s for what cannot be compared.

    The reference may be a side already, of a recorded run, whose ``tasks`` are known. Operations are those ``within``
    the code of the modules of some paths, of each side.
    """
    found: list[Side] = []
    for name, model, paths in zip(SIDES, (reference, candidate), within, strict=True):
        with of_side(name):
            side = model if is_recorded(model) else side_of(model, operations=options.operations, within=paths)
            found.append(side)
    sides = found[0], found[1]
    for name, side in zip(SIDES, sides, strict=True):
        check_side(name, side)
    given = _given(sides, request)
    options, notes = _within_reach(options, sides)
    resolved = resolve(request.mapping, *sides)
    tasks, cast = _tasks(sides, request, options) if tasks is None else (tasks, [])
    for name, side, task in zip(SIDES, sides, tasks, strict=True):
        check_inputs(name, side, task)
    sides, padding = without_padding(sides, tasks)
    notes += [] if padding is None else [padding.note]
    notes += [*resolved.notes, *sameness_notes(*sides), *dtype_notes(*sides), *cast]
    notes += finiteness_notes(sides[1], transfer=options.transfer)
    return Prepared(sides, tasks, given, resolved, options, notes, padding)


def _given(sides: tuple[Side, Side], request: Request) -> tuple[Given, Given]:
    """Have both sides take the losses and optimizers, by name or as they are."""
    losses = request.loss if isinstance(request.loss, tuple | list) else (request.loss, request.loss)
    if len(losses) != 2 or not all(map(_is_loss, losses)):
        msg = "loss is neither a function nor a pair of functions.\nHint: loss=(for_the_reference, for_the_candidate)."
        raise InputError(msg)
    optimizers = (None, None) if request.optimizers is None else request.optimizers
    first, second = (
        side.prepare(loss, optimizer, index=index)
        for index, (side, loss, optimizer) in enumerate(zip(sides, losses, optimizers, strict=True))
    )
    if request.optimizers is not None:
        found = zip(SIDES, sides, optimizers, (first, second), strict=True)
        check_optimizers([one for one in found if not is_recorded(one[1])])
    return first, second


def _is_loss(value: Any) -> bool:
    """Return whether a value is a function, or names one as ``module:function``."""
    return value is None or callable(value) or (isinstance(value, str) and ":" in value)


def _within_reach(options: DiffOptions, sides: tuple[Side, Side]) -> tuple[DiffOptions, list[Note]]:
    """Return the options as far as both adapters offer them, and a note where that is less.

    Raises `InputError` where the backward pass was asked for by name and one side has none.
    """
    about = [side.about for side in sides]
    without = dict.fromkeys(one.framework for one in about if "gradients" not in one.capabilities)
    if not without or not options.backward:
        return options, []
    lacking = f"the {' and the '.join(without)} adapter does not offer gradients"
    if options.phase == "backward" or options.optimizers:
        msg = f"the backward pass was asked for, and {lacking}.\nHint: phase='forward', without optimizers."
        raise InputError(msg)
    return options.without_backward(lacking), [Note("forward_only", {"why": lacking})]


def _tasks(sides: tuple[Side, Side], request: Request, options: DiffOptions) -> tuple[tuple[Task, Task], list[Note]]:
    # The reference decides, so that both sides get the same bits.
    given = [arguments(inputs) for inputs in (request.inputs, request.candidate_inputs)]
    (ours, cast), (theirs, _) = (narrowed(one, sides[0].about) for one in given)
    tasks = [
        Task(args, kwargs, None, options.backward, options.seed, inert=truth_values(args, kwargs) | inert)
        for (args, kwargs), inert in zip((ours, theirs), request.inert, strict=True)
    ]
    notes = [Note("inputs_cast")] if cast else []
    if any(request.inert):
        named = [[path for path, _ in named_arrays(task)] for task in tasks]
        paths = {
            name for names, inert in zip(named, request.inert, strict=True) for name in map(names.__getitem__, inert)
        }
        notes.append(Note("inert_inputs", {"paths": sorted(paths)}))
    return (tasks[0], tasks[1]), notes
