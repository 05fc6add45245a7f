"""Record a model's runs to a directory: in a script's own loop, or one run on given inputs."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, get_args

from padiff.errors import InputError
from padiff.isolation import Remote
from padiff.plugins import adapter_for
from padiff.recording import Loop, operating
from padiff.trace import Kept

__all__ = ["record"]

_VALUES = get_args(Kept)


def record(
    model: Any,
    path: str | os.PathLike[str],
    *,
    values: Kept = "tensors",
    steps: int | Collection[int] | None = None,
    modules: str | Sequence[str] | None = None,
    operations: bool = False,
) -> Loop:
    """Record what a model does in a script's own loop; used as a context manager, whose ``step()`` ends each step.

    ``path`` becomes a directory, which must be new or empty. ``values`` says what is kept of each tensor: ``tensors``,
    a ``summary`` of it (mean, norm, smallest, largest, how many are not finite, a few elements), or the ``structure``
    alone. ``steps`` is how many steps are recorded, or their numbers, from 0; ``modules`` are paths, with ``*`` for
    anything, of the modules whose values are kept. With ``operations`` the functions, operators and tensor methods that
    the model's own code calls are recorded too.

    The model computes what it computed before. Raises `PadiffError`s for a model that cannot be watched; on entering
    `InputError` for a directory that holds something.
    """
    if values not in _VALUES:
        msg = f"values is {values!r}.\nHint: one of {', '.join(map(repr, _VALUES))}."
        raise InputError(msg)
    if isinstance(model, Remote):
        msg = "a model of another process cannot be watched from here.\nHint: call padiff.record() in that process."
        raise InputError(msg)
    wrapped = adapter_for(model).wrap(model)
    return Loop(operating(wrapped) if operations else wrapped, path, values=values, steps=steps, modules=modules)
