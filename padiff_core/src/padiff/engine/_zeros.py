"""Give both models other weights in place of zeros that hide what they compute.

A gate, or a last layer, that starts at zero (adaLN-Zero in DiT, B in LoRA, the last norm of a residual) makes zeros of
all that is multiplied with it, in both models, whatever they compute; behind two of them no gradient tells either.
Where no gradients are asked for at all, neither tells what becomes of a bias of zeros, or of a norm's weight of ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from padiff.forcing import RecordedSide, Side, holding
from padiff.numerics import Array
from padiff.parameters import Correspondence, transfer
from padiff.trace import Trace

_SCALE = 0.1
"""Standard deviation of what is added: small beside those of most layers, so that what runs still runs."""


def unproven(known: Correspondence, reference: Side, trace: Trace, *, backward: bool) -> tuple[list[str], bool]:
    """Return the reference's parameters whose values hide what is made of them; and whether these are no zeros.

    Then no gradient reaches them, whatever it is that lets none through.
    """
    zeros = hiding(known, reference, trace) if backward else _unproven_forward(known, reference)
    return (zeros, False) if zeros or not backward else (_unreached(known, trace), True)


def hiding(known: Correspondence, reference: Side | RecordedSide, trace: Trace) -> list[str]:
    """Return the reference's parameters that are zeros and may hide something, where no gradient shows what.

    What is added hides nothing. Where no gradient is zero throughout, each such parameter's own shows all that it is
    multiplied with.
    """
    zeros = zero_weights(known, reference)
    gradients = {path: key for path, key in trace.parameter_gradients.items() if key >= 0}
    if not zeros or not gradients.keys() >= set(zeros):
        return zeros
    return zeros if any(_is_uniform(trace.array(key), 0) for key in gradients.values()) else []


def zero_weights(known: Correspondence, reference: Side | RecordedSide) -> list[str]:
    """Return the reference's matched parameters that are zeros and no biases."""
    return [path for path in _weights(known, "bias") if _is_uniform(reference.value(path), 0)]


def _unreached(known: Correspondence, trace: Trace) -> list[str]:
    """Return the reference's weights whose gradients are zeros throughout: the outputs tell nothing of their use.

    What is behind them gives the same whatever it takes (a ReLU that lets nothing through, a softmax over one value).
    """
    keys = ((path, trace.parameter_gradients.get(path, -1)) for path in _weights(known, "bias"))
    return [path for path, key in keys if key >= 0 and _is_uniform(trace.array(key), 0)]


def _unproven_forward(known: Correspondence, reference: Side) -> list[str]:
    """Return the reference's parameters that are zeros or ones: a forward pass may do without them unnoticed."""
    return [path for path in _weights(known) if any(_is_uniform(reference.value(path), one) for one in (0, 1))]


def _weights(known: Correspondence, *but: str) -> list[str]:
    """Return the paths of the reference's matched parameters, ``but`` those of some roles."""
    held = (
        one.parameter
        for _, link in known.links
        if not any(role in link.role for role in but)
        for one in link.references
    )
    return list(dict.fromkeys(one.path for one in held if not one.buffer))


def _is_uniform(array: Array, value: int) -> bool:
    return array.size > 0 and bool(array.flat[0] == value) and bool((array == value).all())


@contextmanager
def replaced(paths: list[str], known: Correspondence, sides: tuple[Side, Side]) -> Iterator[None]:
    """Give parameters of the reference, and what belongs to them in the candidate, other values than they have."""
    reference, candidate = sides
    matches = [m for m in known.matches if any(one.parameter.path in paths for x in m.links for one in x.references)]
    others = {path: _drawn(number, reference.value(path)) for number, path in enumerate(paths)}
    held = {link.candidate.parameter.path for match in matches for link in match.links}
    own = {path: np.array(candidate.value(path)) for path in held}
    with holding(reference, others):
        try:
            transfer(matches, reference, candidate)
            yield
        finally:
            candidate.assign(own)


def _drawn(number: int, like: Array) -> Array:
    added = np.random.default_rng(number).normal(0, _SCALE, like.shape)
    return np.asarray(like + added, np.float32)
