"""Name a value by its elements, whatever their order and their type: so inputs of two models are told apart."""

from __future__ import annotations

import numpy as np

from padiff.numerics._dtypes import Array

_MIXERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Odd numbers without a pattern: Knuth's golden ratio, and that of splitmix64."""
_SHIFT = np.uint64(31)


def fingerprint(array: Array) -> str:
    """Return the same for two arrays with the same elements in float32, in any order; else something else.

    The elements' bits are mixed each by itself, and added up without rounding: that is the same in any order.
    """
    bits = (array.astype(np.float32) + np.float32(0)).ravel().view(np.uint32).astype(np.uint64)
    mixed = bits * _MIXERS[0]
    mixed = (mixed ^ mixed >> _SHIFT) * _MIXERS[1]
    return f"{array.size} {int(np.sum(mixed ^ mixed >> _SHIFT)):x}"
