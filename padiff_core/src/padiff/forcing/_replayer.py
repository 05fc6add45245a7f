"""What judging asks of a side."""

from __future__ import annotations

from typing import Any, Protocol

from padiff.forcing._messages import Replayed, ReplayRequest
from padiff.numerics import Array


class Replayer(Protocol):
    """What judging asks of a side: its framework, its parameters, and to replay calls."""

    @property
    def about(self) -> Any:
        """Return what is known of the model, its ``framework`` among it."""

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run one call by itself."""

    def value(self, path: str) -> Array:
        """Return the value of a parameter or buffer as it is now."""
