"""Take the inputs of a diff as users give them, and bring them into neutral form: numpy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from padiff.errors import InputError
from padiff.numerics import Array, epsilon, is_array, numpy_dtype
from padiff.plugins import adapter_of_tensor
from padiff.pytree import copied, leaves, map_leaves
from padiff.recording._task import Task
from padiff.trace import Description

_GLANCE = 64
"""Elements that are looked at before all are."""


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments with every tensor, of whatever framework, as a numpy array.

    A dict is keyword arguments, a tuple or list positional ones; a single array or tensor is the only argument.
    Raises `InputError` for anything else.
    """
    if isinstance(inputs, Mapping):
        wrong = [key for key in inputs if not isinstance(key, str)]
        if wrong:
            msg = (
                f"inputs has the key {wrong[0]!r} of type {type(wrong[0]).__qualname__}; keys are argument names.\n"
                "Hint: inputs={'x': array} for keyword arguments, inputs=(array,) for positional ones."
            )
            raise InputError(msg)
        return (), {name: _neutral(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_neutral(value) for value in inputs), {}
    if isinstance(inputs, np.ndarray) or adapter_of_tensor(inputs) is not None:
        return (_neutral(inputs),), {}
    msg = (
        f"inputs is {type(inputs).__qualname__}; expected a dict (keyword arguments) or a tuple (positional).\n"
        f"Hint: inputs={{'x': array}}, of numpy arrays or any framework's tensors{_instead(inputs)}."
    )
    raise InputError(msg)


def _instead(inputs: Any) -> str:
    """Return what to pass in place of something that batches are taken from, or made by."""
    if isinstance(inputs, Iterator):
        return "; of an iterator one item: next(inputs)"
    if hasattr(inputs, "__iter__") and hasattr(inputs, "__len__") and hasattr(inputs, "dataset"):
        return "; of a loader one batch: next(iter(inputs))"
    if callable(inputs) and not isinstance(inputs, type):
        return "; call a function that makes them"
    return ""


def _neutral(value: Any) -> Any:
    def is_tensor(leaf: Any) -> bool:
        return _is_foreign(leaf) if _plain(leaf) else adapter_of_tensor(leaf) is not None

    def to_numpy(_: str, leaf: Any) -> Array:
        if is_array(leaf):
            own = np.asarray(leaf)
            return own.view(np.dtype(f"u{own.itemsize}")).view(numpy_dtype(own.dtype.name))
        adapter = adapter_of_tensor(leaf)
        assert adapter is not None
        return adapter.tensor(leaf).numpy()

    return copied(value, is_tensor, to_numpy)


def _is_foreign(leaf: Any) -> bool:
    """Return whether an array is of a framework's own bfloat16: MindSpore gives it the name that ml_dtypes' has."""
    if not is_array(leaf) or not hasattr(ml_dtypes, leaf.dtype.name):
        return False
    return bool(leaf.dtype != numpy_dtype(leaf.dtype.name))


def _plain(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, str | bytes | int | float | complex | np.ndarray | np.generic)


def truth_values(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> frozenset[int]:
    """Return which arrays beside others hold zeros and ones alone: masks, to which code need not send a gradient.

    One side multiplies by a mask, the other asks where it is zero: both are right.
    """
    given = [np.asarray(leaf) for _, leaf in leaves((args, dict(kwargs)), is_array)]
    found = {i for i, one in enumerate(given) if one.dtype.kind == "f" and marks(one.flat[:_GLANCE]) and marks(one)}
    found = {i for i in found if given[i].any() and not given[i].all()}
    return frozenset(found) if len(found) < len(given) else frozenset()


def marks(array: Array) -> bool:
    """Return whether an array holds zeros and ones alone."""
    return bool(((array == 0) | (array == 1)).all())


def arrays_of(task: Task) -> list[Array]:
    """Return the arrays that a model is given, in the order of its inputs."""
    return [np.asarray(leaf) for _, leaf in leaves((*task.args, task.kwargs), is_array)]


def exact(ours: Task, theirs: Task, matched: Iterable[tuple[int, int]]) -> Task:
    """Return the candidate's task, which knows of what the reference's inputs lost in its own narrower types."""
    first, second = map(arrays_of, (ours, theirs))
    known = {}
    for a, b in matched:
        if a < len(first) and b < len(second):
            wide, narrow = first[a], second[b]
            wider = epsilon(narrow.dtype) > epsilon(wide.dtype) > 0
            if wider and np.array_equal(wide.astype(narrow.dtype), narrow):
                known[b] = wide
    return attrs.evolve(theirs, exact=known) if known else theirs


def narrowed(value: Any, model: Description) -> tuple[Any, bool]:
    """Return arguments with float64 arrays cast where the model's parameters are all of one narrower float type.

    ``np.random.randn`` gives float64; no float32 model takes it. Also return whether anything was cast.
    """
    floats = {p.dtype for p in model.parameters.values() if "float" in p.dtype}
    if len(floats) != 1 or "float64" in floats:
        return value, False
    (dtype,) = floats
    if not any(_is_double(leaf) for _, leaf in leaves(value, _is_double)):
        return value, False

    return map_leaves(value, _is_double, lambda _, leaf: leaf.astype(numpy_dtype(dtype))), True


def _is_double(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype == np.float64
