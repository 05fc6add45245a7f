"""Hold what is known of the models as wholes: how much was compared, and what the free runs prove."""

from __future__ import annotations

from typing import Literal

import attrs

from padiff.report._finding import Place


@attrs.frozen
class Coverage:
    """The share of the reference's values, from its inputs to its outputs, that was compared with the candidate's."""

    compared: int
    total: int
    missing: tuple[Place, ...] = ()
    """The calls whose own code gave, or took, a value that was compared nowhere."""

    @property
    def share(self) -> float:
        """Return the share, from 0 to 1; 1 where there are no values."""
        return self.compared / self.total if self.total else 1.0


By = Literal["sight", "float64", "disturbed", "candidate", "evaluation", "random", "distribution", "infinite"]


@attrs.frozen
class FreeRuns:
    """What the two models, each run freely, prove: whether rounding explains how far apart they are."""

    explained: bool
    by: By
    """What showed it: ``sight`` (no more than one rounding), ``float64`` (both models whole in float64), ``disturbed``
    (the reference's response to disturbances of one machine epsilon at every call), ``candidate`` (the candidate's,
    where the reference is a recorded run), ``evaluation`` (one of these in evaluation mode, since the reference
    disagrees with itself under another seed), ``random`` (it does so in every mode, and over seeds both models give one
    distribution), ``distribution`` (they do not), or ``infinite`` (one side alone has NaN or Inf)."""
    native: float
    """The largest relative L2 between matched outputs, or losses, in the models' own types."""
    bound: float
    """Up to what rounding explains the figure."""
    figure: float
    """The relative L2 that was decided upon: in float64, for example."""


@attrs.frozen
class RecordedRuns:
    """The runs that were compared as they were recorded: nothing was fed, and nothing run again."""

    where: tuple[str, ...]
    """The directory of the reference, and that of the candidate."""
    values: str
    """What they keep of each tensor, the one that keeps less: ``tensors``, ``sketch`` or ``summary``."""
    steps: tuple[int, ...]
    """The steps that were compared."""
