"""Hold what each of several backward passes of a step sent."""

from __future__ import annotations

import attrs


@attrs.frozen
class Passes:
    """Which of several backward passes sent each gradient, and which of these an optimizer stepped with."""

    of_key: dict[int, int]
    """Key of a gradient -> number of the pass that sent it."""
    values: dict[int, list[int]]
    """Token -> the keys of the gradients that came to a value, one of each pass."""
    parameters: dict[str, list[int]]
    """Path -> the same of a parameter."""
    first: dict[str, int]
    """Path of a parameter that an optimizer stepped -> how many of its gradients had arrived by then."""
    last: dict[str, int]
    """The same, where it was stepped for the last time."""
