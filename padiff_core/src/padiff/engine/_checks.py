"""Check both models and their inputs before anything runs, and name the side in what goes wrong."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np

from padiff.errors import (
    AdapterError,
    ForwardError,
    InputError,
    InternalError,
    UnusableReference,
    WorkerError,
    did_you_mean,
)
from padiff.forcing import Given, Side
from padiff.judging import place_of
from padiff.numerics import Array, is_array, is_float
from padiff.options import PAIR
from padiff.pytree import leaves
from padiff.recording import (
    Task,
    first_nonfinite,
    internal_errors,
    is_finite,
    is_masked,
    nonfinite_inputs,
    type_named,
)
from padiff.report import Note, few
from padiff.trace import Trace

P = ParamSpec("P")
R = TypeVar("R")


def with_known_options(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that names the option that was meant where it is called with one that it lacks."""
    signature = inspect.signature(function)
    known = [name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY]
    positional = [name for name in signature.parameters if name not in known]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        unknown = next((name for name in kwargs if name not in signature.parameters), None)
        if unknown is not None:
            msg = f"{function.__name__}() has no option {unknown!r}.\nHint: {_meant(unknown, kwargs[unknown], known)}"
            raise TypeError(msg)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            msg = f"{function.__name__}(): {error}.\nHint: {function.__name__}({', '.join(positional)})"
            raise TypeError(msg) from None
        with internal_errors():
            return function(*args, **kwargs)

    return checked


def _meant(name: str, value: Any, known: list[str]) -> str:
    if "tolerance" in known and name in ("atol", "rtol", "compare_mode", "metric", "min", "max"):
        return f"it is part of the tolerance: tolerance={{{name!r}: {value!r}}}."
    return did_you_mean(name, known, "{}=") or f"there are {', '.join(f'{one}=' for one in known)}."


@contextmanager
def of_side(name: str, side: Side | None = None, task: Task | None = None) -> Iterator[None]:
    """Say in an error which side it comes from, and of one in a run, where its inputs have not the weights' dtype."""
    try:
        yield
    except (AdapterError, ForwardError, InputError, InternalError, WorkerError) as error:
        hint = _in_inputs(name, side, task) if isinstance(error, ForwardError) and side and task else ""
        error.args = (f"the {name}: {error}{hint}", *error.args[1:])
        raise


def _in_inputs(name: str, side: Side, task: Task) -> str:
    """Return a hint where the inputs have not the dtype of the parameters, or hold keywords as one argument."""
    if len(task.args) == 1 and isinstance(task.args[0], Mapping):
        return " Its first argument is a dict: for keyword arguments give that dict itself, inputs={...}."
    if len(task.args) == 2 and all(isinstance(one, Mapping) for one in task.args):
        return " Its arguments are two dicts: give the candidate's own apart, inputs={...}, candidate_inputs={...}."
    listed = next((path for path, value in _named(task) if isinstance(value, list) and _holds_numbers(value)), None)
    if listed is not None:
        return f" Input {listed} is a list of numbers: give an array, numpy.asarray(...)."
    held = _float_dtypes(side)
    given = [(path, array) for path, array in named_arrays(task) if is_float(array) and array.dtype.name not in held]
    if len(held) != 1 or not given:
        whole = next((path for path, array in named_arrays(task) if _holds_indices(array)), None)
        said = f" Input {whole} holds whole numbers as floats: if these are indices, give int64."
        return "" if whole is None else said
    path, array = given[0]
    option = " in candidate_inputs=" if name == "candidate" else ""
    return f" Its parameters are {held[0]}, and input {path} is {array.dtype.name}: give it as {held[0]}{option}."


def _float_dtypes(side: Side) -> list[str]:
    return sorted({p.dtype for p in side.about.parameters.values() if not p.buffer and "float" in p.dtype})


def named_arrays(task: Task) -> Iterator[tuple[str, Array]]:
    """Yield the arrays among a task's arguments, in their order, each with its name."""
    for path, value in _named(task):
        yield from leaves(value, is_array, path)


def _named(task: Task) -> Iterator[tuple[str, Any]]:
    yield from ((f"[{index}]", value) for index, value in enumerate(task.args))
    yield from ((repr(name), value) for name, value in task.kwargs.items())


def _holds_numbers(value: Any) -> bool:
    return _holds_numbers(value[0]) if isinstance(value, list) and value else isinstance(value, int | float)


def _holds_indices(array: Array) -> bool:
    """Return whether floats are whole numbers, and more than a mask."""
    return is_float(array) and len(found := np.unique(array)) > 2 and bool(np.all(found == np.floor(found)))


def check_side(name: str, side: Side) -> None:
    """Raise `InputError` where a model is not built yet, or lies partly elsewhere."""
    try:
        about = side.about  # what is not built yet has no shape
    except InputError as error:
        msg = f"in the {name}, {error}"
        raise InputError(msg) from None
    devices = about.device.split(",")
    for path in about.parameters if devices == ["meta"] else ():
        with of_side(f"{name}'s {path!r}"):
            side.value(path)
    if len(devices) > 1 and "meta" in devices:
        msg = (
            f"the {name}'s parameters lie on several devices at once: {', '.join(devices)}.\n"
            "Hint: what lies on meta has no values: load them before diff()."
        )
        raise InputError(msg)


def check_inputs(name: str, side: Side, task: Task) -> None:
    """Raise `InputError` where an input is of a dtype that the side's framework lacks."""
    for path, array in named_arrays(task):
        if array.dtype.name in _EVERYWHERE:
            continue
        with of_side(f"{name}'s input {path} is {array.dtype.name}{list(array.shape)}"):
            # numpy does not read its own names of texts and dates
            side.check_dtype(array.dtype.str if array.dtype.kind in "USmM" else array.dtype.name)


_EVERYWHERE = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}
"""Dtypes that every framework has."""


def sameness_notes(reference: Side, candidate: Side) -> list[Note]:
    """Return a note where the two models are one, or hold the same parameters."""
    native = reference.native("")
    if native is not None and native is candidate.native(""):
        return [Note("same_object")]
    shared = candidate.shared(reference)
    return [Note("shared_parameters", {"paths": shared})] if shared else []


def dtype_notes(reference: Side, candidate: Side) -> list[Note]:
    """Return a note where the parameters of the two models are of different floating dtypes."""
    ours, theirs = _float_dtypes(reference), _float_dtypes(candidate)
    if ours == theirs or not ours or not theirs:
        return []
    return [Note("parameter_dtypes", {"reference": list(ours), "candidate": list(theirs)})]


def finiteness_notes(candidate: Side, *, transfer: bool) -> list[Note]:
    """Return a note where parameters of the candidate hold NaN or Inf before anything runs."""
    found = _nonfinite(candidate)
    return [Note("nonfinite_parameters", {"parameters": found, "transfer": transfer})] if found else []


def _nonfinite(side: Side) -> list[str]:
    """Return the parameters that hold NaN or Inf, and the buffers that hold NaN, each with how many elements."""
    found = []
    for path, parameter in side.about.parameters.items():
        values = side.value(path)
        if _seems_finite(values):
            continue
        values = values if values.dtype.kind in "fc" else values.astype(np.float32)
        # A mask may hold infinities.
        wrong = int(np.count_nonzero(np.isnan(values) if parameter.buffer else ~np.isfinite(values)))
        if wrong:
            found.append(f"{path!r} ({wrong} of {values.size} elements)")
    return found


def _seems_finite(values: Array) -> bool:
    """Return whether no element is NaN or Inf; the sum of all tells it at the cost of one reading."""
    if values.dtype.kind in "fc" and values.dtype.itemsize >= 4:
        with np.errstate(all="ignore"):
            return bool(np.isfinite(values.sum()))
    return is_finite(values)


def check_reference(side: Side, trace: Trace, *, backward: bool) -> None:
    """Raise `UnusableReference` where the reference returned no tensor, or NaN or Inf.

    Where a finite loss stands for the outputs, or no gradient is asked for, -Inf may mask some of them.
    """
    if not trace.outputs:
        msg = f"the reference returned no tensor{_instead(trace)}, so there is nothing to compare.\n{_returning(trace)}"
        raise UnusableReference(msg)
    if not any(output.size for output in trace.outputs):
        shapes = ", ".join(f"{output.dtype}{list(output.shape)}" for output in trace.outputs)
        msg = f"the reference's outputs hold no element ({shapes}), so there is nothing to compare.\n"
        msg += "Hint: give a batch with at least one sample."
        raise UnusableReference(msg)
    finite, masked = (all(map(one, trace.outputs)) for one in (is_finite, is_masked))
    if (finite or (masked and (trace.loss is not None or not backward))) and np.isfinite(trace.loss or 0.0):
        return
    where = "in its loss"
    # An infinity inside may be meant (a mask), and so may one among the inputs, while the outputs are finite.
    call = None if finite else first_nonfinite(trace)
    if call is not None:
        line = place_of(call).location
        where = (
            f"first in the output of {call.path or 'the root'!r} ({call.module.class_name}){f', {line}' * bool(line)}"
        )
    spoiled = [] if finite else _nonfinite(side)
    msg = (
        f"{'' if finite else nonfinite_inputs(trace)}"
        f"{f'parameters of the reference hold NaN or Inf: {few(spoiled)}; ' if spoiled else ''}"
        f"the reference computes NaN or Inf, {where}; nothing can be compared with that.\n"
        f"Hint: {'load or initialize its weights' if spoiled else 'give inputs and weights'} "
        f"{'again, so that' if spoiled else 'under which'} the reference is finite."
    )
    if masked and not (finite or spoiled):
        msg += " Where -Inf masks an output on purpose, let both models return what it masks,"
        msg += " give a loss that it leaves finite, or phase='forward'."
    raise UnusableReference(msg)


def check_candidate(side: Side, trace: Trace) -> None:
    """Raise `InputError` where the candidate returned no tensor."""
    if not trace.outputs:
        name = side.about.class_name
        msg = f"the candidate {name} returned no tensor{_instead(trace)}.\n{_returning(trace)}"
        raise InputError(msg)


def _instead(trace: Trace) -> str:
    return f" but {trace.returned}" if trace.returned else ""


def _returning(trace: Trace) -> str:
    why = next((hint for word, hint in _RETURNED if word in trace.returned), "")
    return f"Hint: {why}padiff looks into tuples, lists, dicts, named tuples and dataclasses; return tensors in them."


_RETURNED = (
    ("None", "does its forward end with a return? "),
    ("generator", "a generator runs only while it is read; return a list of what it yields. "),
    ("numpy.", "return the tensor itself, not what .numpy() makes of it. "),
    ("float", "return the tensor itself, not what .item() or float() makes of it. "),
)


def check_optimizers(given: Sequence[tuple[str, Side, Any, Given]]) -> None:
    """Raise `InputError` where one of some optimizers is none of its side's framework, and no function."""
    for name, side, optimizer, found in given:
        if found.fits and optimizer is not None:
            continue
        seen = f"class {optimizer.__qualname__}" if isinstance(optimizer, type) else type_named(type(optimizer))
        others = zip(reversed(given), given, strict=True)
        swapped = len(given) > 1 and all(one[1].takes(other[2]) for one, other in others)
        trouble = "the two stand in each other's place" if swapped else f"that of the {name} is {seen}"
        hint = f"{PAIR}, in the order of the models."
        if isinstance(optimizer, type):
            hint = f"Hint: build it, on the parameters of the {name}: {optimizer.__name__}(...)."
        framework = side.about.framework
        msg = f"optimizers: {trouble}; expected an optimizer of {framework}, or a function that steps.\n{hint}"
        raise InputError(msg)
