"""Tell where a run's backward pass starts: at the user's loss, or at outputs that each get a fixed random gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Adapter
from padiff.errors import ForwardError, InputError
from padiff.numerics import numpy_dtype
from padiff.pytree import leaves
from padiff.recording._axes import natively
from padiff.recording._frames import line_of, package_of
from padiff.recording._task import Task


def differentiator(
    adapter: Adapter, task: Task, note_loss: Callable[[float], None]
) -> Callable[[Any], list[tuple[Any, Any | None]]]:
    """Return what tells a run where backward starts: the loss, or without one every floating output that is asked for.

    Without a loss each of these gets a fixed random gradient (see `cotangent`): a mean or a sum would vanish
    behind a normalisation or a softmax and hide the backward pass. Or each gets what it got in a recorded run.
    """

    def differentiate(output: Any) -> list[tuple[Any, Any | None]]:
        if task.loss is not None:
            value = _lost(task.loss, output, adapter)
            if not adapter.is_tensor(value):
                msg = f"the loss returned {type(value).__qualname__}, not a tensor of {adapter.name}.\n{_LOSSES}"
                raise InputError(msg)
            tensor = adapter.tensor(value)
            note_loss(float(np.asarray(tensor.view(), dtype=np.float64).sum()))
            return [(value, None)] if tensor.differentiable else []
        starts = []
        numbers = None if task.starts is None else dict(task.starts)
        for index, (_, native) in enumerate(leaves(output, adapter.is_tensor)):
            tensor = adapter.tensor(native)
            number = index if numbers is None else numbers.get(index)
            if tensor.differentiable and number is not None:
                start = by_value(tensor.view()) if task.by_value else _start(task, number, tensor.shape)
                if start is not None:
                    start = natively(tensor, start.astype(numpy_dtype(tensor.dtype)))
                    starts.append((native, adapter.from_numpy(start, device=tensor.device)))
        return starts

    return differentiate


def check_loss(starts: Iterable[tuple[Any, Any | None]], adapter: Adapter, error: Exception) -> None:
    """Raise `InputError` where a backward pass that failed, with an ``error``, started at a loss of several numbers."""
    for tensor in (adapter.tensor(native) for native, start in starts if start is None):
        if math.prod(tensor.shape) != 1:
            seen = f"{tensor.dtype}{list(tensor.shape)}"
            msg = f"the loss returned {seen}, not one number, and the backward pass raised {type(error).__name__}: "
            msg += f"{error}\nHint: reduce the loss, by .mean() or .sum()."
            raise InputError(msg) from error


def _start(task: Task, number: int, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """Return the gradient that backward starts from at an output; None where none comes there."""
    if task.sent is None:
        return cotangent(task.seed, number, shape)
    sent = task.sent.get(number)
    return None if sent is None or sent.shape != shape else sent


_LOSSES = (
    "Hint: a loss takes what the model returns, and nothing else; pass loss=(for_the_reference, for_the_candidate) "
    "where one function cannot serve both."
)


def _lost(loss: Callable[[Any], Any], output: Any, adapter: Adapter) -> Any:
    """Return the loss of an output; say that it was the loss, and where, if it raises."""
    try:
        return loss(output)
    except Exception as error:
        line = line_of(error, adapter, {package_of(loss)})
        tensors = ((path, adapter.tensor(native)) for path, native in leaves(output, adapter.is_tensor))
        msg = (
            f"the loss raised {type(error).__name__}{at_line(line)}, given the {adapter.name} model's output "
            f"({listed((path, t.dtype, t.shape) for path, t in tensors)}): {error}\n{_LOSSES}"
        )
        raise ForwardError(msg) from error


def cotangent(seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the gradient that the default loss gives to output leaf ``index``: random, L2 norm about 1."""
    size = int(np.prod(shape))
    values = np.random.default_rng((seed, index)).standard_normal(size, dtype=np.float32)
    scaled: NDArray[np.float32] = values / np.sqrt(max(size, 1), dtype=np.float32)
    return scaled.reshape(shape)


def by_value(values: NDArray[Any]) -> NDArray[Any]:
    """Return a gradient of an output, each element of which follows from the output's own element there.

    So two models whose outputs stand at other places, or have their axes in another order (a cache), start from the
    same gradient without knowing of each other. The function is bounded, wavy, and moves by rounding where the output
    does: neither a normalisation nor a softmax before the output makes it vanish.
    """
    work: NDArray[Any] = np.asarray(values, np.float64 if values.dtype == np.float64 else np.float32)
    size: NDArray[Any] = np.abs(work)
    scale = float(size.mean(where=np.isfinite(size), dtype=np.float64)) if np.isfinite(size).any() else 0.0
    scale = scale if scale > 0 else 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        bent: NDArray[Any] = np.where(np.isinf(work), np.sign(work), work / (scale + size)).astype(
            work.dtype, copy=False
        )
    found: NDArray[Any] = np.sin(4 * bent + 1) / np.sqrt(max(work.size, 1), dtype=work.dtype)
    return found


def at_line(line: str | None) -> str:
    """Return the words that name a line of code, if one is known."""
    return f" at {line}" if line else ""


def listed(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> str:
    """Return tensors' names, dtypes and shapes in words."""
    words = [f"{f'{path}: ' if path else ''}{dtype}{list(shape)}" for path, dtype, shape in tensors]
    return ", ".join(words) or "no tensor"
