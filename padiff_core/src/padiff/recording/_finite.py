"""Find NaN and Inf in what a run recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from padiff.numerics import Array
from padiff.trace import Call, Leaf, Trace


def first_nonfinite(trace: Trace) -> Call | None:
    """Return the innermost call that first gave NaN or Inf, or None.

    An infinity below zero may be a mask: it is none of the trouble where a later call makes finite values of it.
    """
    masking = None
    for call in sorted(trace.calls, key=lambda call: call.end):
        wrong = list(_nonfinite(trace, call.outputs))
        if not all(map(is_masked, wrong)):
            return masking or call
        if wrong:
            masking = masking or call
        elif any(True for _ in _nonfinite(trace, call.inputs)):
            masking = None
    return masking


def _nonfinite(trace: Trace, tensors: Iterable[Leaf]) -> Iterator[Array]:
    values = map(trace.value, tensors)
    return (value for value in values if value is not None and not is_finite(value))


def is_masked(array: Array) -> bool:
    """Return whether -Inf is all that is not finite."""
    if array.dtype.kind == "c":
        return False
    values = array if array.dtype.kind == "f" else array.astype(np.float32)
    return bool((values[~np.isfinite(values)] == -np.inf).all())


def nonfinite_inputs(trace: Trace) -> str:
    """Return which of the inputs that the model was given hold NaN or Inf, as the beginning of a sentence."""
    found = ""
    for leaf in trace.root.inputs:
        value = trace.value(leaf)
        if value is not None and not is_finite(value):
            worst = "NaN" if np.isnan(value.astype(np.complex128)).any() else "Inf"
            found += f"input {leaf.path!r} holds {worst}; "
    return found


def is_finite(array: Array) -> bool:
    """Return whether no element of an array is NaN or Inf; integers always are."""
    if array.dtype.kind in "iub":
        return True
    if array.dtype.kind not in "fc":
        array = array.astype(np.float32)
    return bool(np.isfinite(array).all())
