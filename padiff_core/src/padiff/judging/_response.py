"""Tell how far accumulated rounding moves a model's output, by the gradients that its recording kept.

The backward pass starts from a fixed random gradient c of the output y, with independent elements. What comes to a
value v is g = J'c, so a disturbance d of v, of independent elements, moves c'y by g'd, and y by as much for each of its
elements: in the mean, its root mean square is that of the sum over all values of ||g d||^2. This is the first order of
what a run shows whose every call is disturbed by one machine epsilon; to first order rounding is all there is to it.
"""

from __future__ import annotations

import math

import numpy as np

from padiff.numerics import epsilon, product_norm
from padiff.trace import Trace


def response_by_gradients(trace: Trace) -> float | None:
    """Return by how much, relative L2, the output moves where each element that a call gives does by up to an epsilon.

    None where the gradients do not tell: there are several outputs, a loss, or no backward pass.
    """
    if len(trace.outputs) != 1 or trace.start_seed is None or not trace.root.outputs:
        return None
    output, size = trace.outputs[0], np.linalg.norm(trace.outputs[0])
    sent = trace.gradient(trace.root.outputs[0])
    started = 0.0 if sent is None else float(np.linalg.norm(sent))
    if not (size > 0 and started > 0):
        return None
    moved = 0.0
    for token in {leaf.token for call in trace.calls for leaf in call.outputs}:
        value, gradient = trace.values.get(token), trace.gradients.get(token)
        if value is None or gradient is None:
            continue
        given, sent = trace.array(value), trace.array(gradient)
        if given.shape == sent.shape and given.dtype.kind == "f":
            # A disturbance that is uniform within one epsilon is in the mean this fraction of it.
            moved += (epsilon(given.dtype) * product_norm(given, sent)) ** 2 / 3
    return math.sqrt(moved * output.size) / started / float(size)
