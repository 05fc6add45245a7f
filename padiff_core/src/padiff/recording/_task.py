"""What a model is run on, and under which conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from padiff.numerics import Array


@attrs.frozen
class Task:
    """What a model is run on: arguments as numpy arrays or plain values, the loss, the seed."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None = None
    backward: bool = True
    seed: int = 0
    dtype: str | None = None
    """What the whole model and its inputs are held in; None for their own types."""
    narrowing: bool = False
    """Whether functions without a kernel for `dtype` compute in float32."""
    exact: Mapping[int, Array] | None = None
    """Index of an array in the arguments -> what it was before it was rounded to this side's type: `dtype` holds it."""
    evaluating: bool = False
    """Whether it runs in evaluation mode, whatever mode it is in."""
    disturbed: bool = False
    """Whether what each call gives is disturbed, element by element, by up to one machine epsilon, relatively."""
    loss_noise: tuple[float, int] | None = None
    """By how much the values are disturbed that a loss computes with, relatively, and the number of the draw."""
    starts: tuple[tuple[int, int], ...] | None = None
    """Without a loss: the outputs that backward starts from, by index, and which one's gradient each gets (see
    `cotangent`); None for all, each its own."""
    sent: Mapping[int, Array] | None = None
    """Without a loss: index of an output -> the gradient that backward starts from there, as a run recorded it; None
    for random ones (see `cotangent`)."""
    by_value: bool = False
    """Without a loss: whether what backward starts from at an output follows from the output's values."""
    inert: frozenset[int] = frozenset()
    """Indices of the arrays in the arguments that carry no gradient."""
    flow: bool = False
    """Whether its dataflow is followed too."""
    ends: bool = False
    """Whether only what the whole model gives is asked for: outputs, loss, and gradients, of no call inside."""

    recomputing: bool = False
    """Whether what is computed again in the backward pass is left to the framework: what calls inside give counts less
    then than the gradients that the whole model gets."""

    @property
    def plain(self) -> bool:
        """Return whether the model runs as it is."""
        changed = self.evaluating or self.disturbed or self.loss_noise or self.ends or self.recomputing
        return self.dtype is None and not changed
