"""What is recorded of a model's parameters and buffers."""

from __future__ import annotations

import attrs


@attrs.frozen
class ParameterRecord:
    """A parameter or buffer of a model: where it hangs and what it is like; its values stay at its side."""

    path: str
    paths: tuple[str, ...]
    """Every path under which the same parameter hangs: more than one where weights are tied."""
    dtype: str
    shape: tuple[int, ...]
    """In the framework's own layout."""
    buffer: bool = False
    trainable: bool = True
