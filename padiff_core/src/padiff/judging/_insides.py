"""Ask whether two calls, each run freely as a whole in float64, compute the same: then no gradient inside is a fault.

Which tensor inside stands for which follows from values. Where two hold the same (what a relu takes, and what it gives,
if nothing of it is negative), each side may hold the other one's, and send it another gradient, while all that goes out
of the call is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench
from padiff.numerics import CONSTANT, NEGLIGIBLE_GRADIENT, Array, difference, epsilon_of


def right_as_a_whole(bench: Bench, pair: Pair, *, buffers: bool = False, bound: float | None = None) -> bool | None:
    """Return whether both calls give the same, and send the same gradients to all inputs and parameters, in float64.

    With ``buffers`` they also leave the same in these. No more than ``bound`` may be left of a difference, relative L2,
    by default what constants in float32 make. None where they do not run so.
    """
    free = attrs.evolve(bench, alignment=Alignment([pair], [], []))
    if any(_has_more(getattr(pair, what), pair, what) for what in ("inputs", "outputs")):
        return False
    try:
        ours = free.run_reference(pair, "float64")
        theirs = free.run_candidate(pair, ours.observed, "float64", own=False)
    except Exception:  # a kernel without float64, a hard-coded cast
        return None
    taken, made = ([getattr(pair.reference, what)[i] for i, _ in getattr(pair, what)] for what in ("inputs", "outputs"))
    compared = [
        *((ours.observed.value(leaf), theirs.observed.value(leaf)) for leaf in made),
        # Of several outputs one may be made of another.
        *((ours.observed.gradient(leaf), theirs.observed.gradient(leaf)) for leaf in (*taken, *made)),
        (_sorted(ours.gradients), _sorted(theirs.gradients)),
    ]
    if buffers:
        compared.append((_sorted(ours.buffers), _sorted(theirs.buffers)))
    known = [(a, b) for a, b in compared if a is not None or b is not None]
    return all(a is not None and b is not None and a.shape == b.shape for a, b in known) and _are_alike(known, bound)


def _are_alike(pairs: Sequence[tuple[Array | None, Array | None]], bound: float | None) -> bool:
    """Return whether arrays are together; of one that cancels, as far as the largest of all rounds."""
    apart = [difference(a, b) for a, b in pairs if a is not None and b is not None]
    largest = max((float(np.abs(a).max()) for a, _ in pairs if a is not None and a.size), default=0.0)
    bound = CONSTANT(0.0) if bound is None else bound
    rounded = min(bound, NEGLIGIBLE_GRADIENT(epsilon_of("float64"))) * largest
    return all(one.rel_l2 <= bound or one.max_abs <= rounded for one in apart)


def _has_more(tied: Sequence[tuple[int, int]], pair: Pair, what: str) -> bool:
    """Return whether gradients go through a tensor of either call that is compared with nothing."""
    for side, call in enumerate((pair.reference, pair.candidate)):
        compared = {both[side] for both in tied}
        if any(leaf.differentiable and i not in compared for i, leaf in enumerate(getattr(call, what))):
            return True
    return False


def _sorted(arrays: Mapping[str, Array]) -> Array:
    """Return all numbers in the gradients or buffers of a call, whatever their layouts: sorted."""
    floats = (one.astype(np.float64).ravel() for one in arrays.values() if one.dtype.kind == "f")
    return np.sort(np.concatenate([np.zeros(0), *floats]))
