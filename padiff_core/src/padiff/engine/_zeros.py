"""Give both models other weights in place of zeros that hide what they compute.

A gate, or a last layer, that starts at zero (adaLN-Zero in DiT, B in LoRA, the last norm of a residual) makes zeros of
all that is multiplied with it, in both models, whatever they compute; behind two of them no gradient tells either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from padiff.forcing import RecordedSide, Side
from padiff.numerics import Array
from padiff.parameters import Correspondence, transfer
from padiff.trace import Trace

_SCALE = 0.1
"""Standard deviation of the values that stand in: small beside those of most layers, so that what runs still runs."""


def hiding_zeros(known: Correspondence, reference: Side | RecordedSide, trace: Trace) -> list[str]:
    """Return the reference's parameters that are zeros and may hide something, where no gradient shows what.

    What is added hides nothing. Where no gradient is zero throughout, each such parameter's own shows all that it is
    multiplied with.
    """
    held = (one.parameter for _, link in known.links if "bias" not in link.role for one in link.references)
    paths = dict.fromkeys(one.path for one in held if not one.buffer)
    zeros = [path for path in paths if _is_zero(reference.value(path))]
    if not zeros:
        return []
    gradients = {path: key for path, key in trace.parameter_gradients.items() if key >= 0}
    shown = gradients.keys() >= set(zeros)
    return [] if shown and not any(_is_zero(trace.array(key)) for key in gradients.values()) else zeros


def _is_zero(array: Array) -> bool:
    return array.size > 0 and not array.flat[0] and not array.any()


@contextmanager
def replaced(paths: list[str], known: Correspondence, sides: tuple[Side, Side]) -> Iterator[None]:
    """Give parameters of the reference, and what belongs to them in the candidate, other values than zeros."""
    reference, candidate = sides
    matches = [m for m in known.matches if any(one.parameter.path in paths for x in m.links for one in x.references)]
    zeros = {path: np.array(reference.value(path)) for path in paths}
    held = {link.candidate.parameter.path for match in matches for link in match.links}
    own = {path: np.array(candidate.value(path)) for path in held}
    try:
        reference.assign({path: _drawn(number, like) for number, (path, like) in enumerate(zeros.items())})
        transfer(matches, reference, candidate)
        yield
    finally:
        reference.assign(zeros)
        candidate.assign(own)


def _drawn(number: int, like: Array) -> Array:
    return np.random.default_rng(number).normal(0, _SCALE, like.shape).astype(np.float32)
