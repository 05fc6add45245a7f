"""Tell a mask or an index that says the same in the candidate's own spelling: it is left as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Tensor
from padiff.forcing._checks import Spot

_MASKED = -1e3


def keeps_its_own(spot: Spot, reference: NDArray[Any], tensor: Tensor) -> bool:
    """Return whether a different value is left as it is: it may say the same in the candidate's own spelling."""
    return not tensor.differentiable and says_the_same(spot, reference, tensor.view())


def says_the_same(spot: Spot, reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    """Return whether what a call is given may say the same in another spelling: a mask, or an index."""
    if spot.what == "output" or reference.shape != candidate.shape:
        return False
    if reference.dtype.kind == "b":
        return candidate.dtype.kind == "b" and bool((reference != candidate).all())
    if reference.dtype.kind in "iu":
        kinds = spot.pair.reference.module.kind, spot.pair.candidate.module.kind
        return spot.reference.path != spot.candidate.path and (kinds[0] is None or kinds[0] != kinds[1])
    ours, theirs = (np.asarray(array, dtype=np.float32) for array in (reference, candidate))
    return bool(
        ((ours == 0) | (ours <= _MASKED)).all()
        and ((theirs == 0) | (theirs <= _MASKED)).all()
        and ((ours == 0) == (theirs == 0)).all()
    )
