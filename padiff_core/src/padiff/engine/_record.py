"""Record a model's runs to a directory: in a script's own loop, or one run on given inputs."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, get_args

from padiff.adapter import Model
from padiff.engine._checks import with_known_options
from padiff.errors import InputError, check_one_of
from padiff.forcing import LocalSide
from padiff.isolation import Remote
from padiff.plugins import adapter_for
from padiff.recording import (
    Loop,
    Task,
    Watcher,
    arguments,
    differentiator,
    guarded_run,
    narrowed,
    operating,
    type_named,
)
from padiff.trace import Kept, rank_folder

_VALUES = tuple(one for one in get_args(Kept) if one != "checksum")  # which other tools keep


@with_known_options
def record(
    model: Any,
    path: str | os.PathLike[str],
    *,
    values: Kept = "tensors",
    steps: int | Collection[int] | None = None,
    modules: str | Sequence[str] | None = None,
    operations: bool = False,
    optimizer: Any = None,
) -> Loop:
    """Record what a model does in a script's own loop; used as a context manager, whose ``step()`` ends each step.

    ``path`` becomes a directory, which must be new or empty. ``values`` says what is kept of each tensor: ``tensors``,
    a ``sketch`` (a random projection of 1 kB, which tells how far apart two values are), a ``summary`` (mean, norm,
    smallest, largest, how many are not finite, a few elements), or the ``structure`` alone. ``steps`` is how many steps
    are recorded, or their numbers, from 0; ``modules`` are paths, with ``*`` for anything, of the modules whose values
    are kept. With ``operations`` the functions, operators and tensor methods that the model's own code calls are
    recorded too. Where the ``optimizer`` is given (or several, as a list), its settings are recorded with each step,
    and a comparison names those that differ; DeepSpeed's engine knows its own.

    In a job of several ranks each records to a folder of its own below ``path``, and none waits for another.

    The model computes what it computed before. Raises `PadiffError`s for a model that cannot be watched; on entering
    `InputError` for a directory that holds something.
    """
    return _loop(model, path, values, steps, modules, operations=operations, optimizer=optimizer)


def record_once(
    model: Any,
    inputs: Any,
    path: str | os.PathLike[str],
    *,
    loss: Any = None,
    values: Kept = "tensors",
    modules: str | Sequence[str] | None = None,
    backward: bool = True,
    operations: bool = False,
    seed: int = 0,
) -> None:
    """Run a model once on inputs, as `diff` runs its reference, and record it; the arguments are those of these two."""
    loop = _loop(model, path, values, None, modules, operations=operations)
    side = LocalSide(loop.model)
    side.prepare(loss, None, index=0)
    (args, kwargs), _ = narrowed(arguments(inputs), side.about)
    losses: list[float] = []
    wrapped = loop.model
    backward = backward and "gradients" in side.about.capabilities
    task = Task(args, kwargs, wrapped.loss(loss, 0), backward, seed, by_value=loss is None)
    start = differentiator(wrapped.adapter, task, losses.append)
    loop.by_value = backward and loss is None
    loop.start_seed = seed if loop.by_value else None
    with loop, wrapped.adapter.seeded(seed):
        guarded_run(wrapped, task, Watcher(wrapped.adapter), start, backward=task.backward)
        loop.step(losses[0] if losses else None)


def _loop(
    model: Any,
    path: str | os.PathLike[str],
    values: Kept,
    steps: int | Collection[int] | None,
    modules: str | Sequence[str] | None,
    *,
    operations: bool,
    optimizer: Any = None,
) -> Loop:
    check_one_of("values", values, _VALUES)
    if isinstance(model, Remote):
        msg = "a model of another process cannot be watched from here.\nHint: call padiff.record() in that process."
        raise InputError(msg)
    wrapped = adapter_for(model).wrap(model)
    ranks = wrapped.ranks()
    if ranks is not None and ranks.world > 1:
        path = rank_folder(path, ranks.rank)
    kept: dict[str, Any] = {"values": values, "steps": steps, "modules": modules}
    kept["optimizers"] = _optimizers(wrapped, model, optimizer)
    return Loop(operating(wrapped) if operations else wrapped, path, **kept)


def _optimizers(wrapped: Model, model: Any, given: Any) -> list[Any]:
    """Return the optimizers that a user gave, or the model itself where it is one."""
    if given is None:
        return [model] if wrapped.adapter.is_optimizer(model) else []
    several = list(given) if isinstance(given, list | tuple) else [given]
    for one in several:
        # One that a user wrote, or a job wraps around others, may be of no class of the framework's.
        if not (wrapped.adapter.is_optimizer(one) or hasattr(one, "step")):
            msg = f"optimizer is {type_named(type(one))}; expected an optimizer of {wrapped.adapter.name}.\n"
            msg += "Hint: give what steps the model's parameters, or leave it out."
            raise InputError(msg)
    return several
