"""Say what a framework cannot do on the CPU, and why: such cases are not made, and a test holds each reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["LIMITS", "Limit", "forward_only", "possible"]


@attrs.frozen
class Limit:
    """Name what does not run: a pair in one framework, with these options."""

    framework: str
    pair: str
    options: Mapping[str, Any]
    why: str
    backward: bool = False
    """Whether it runs forward, and only its backward pass is missing."""

    def meets(self, pair: str, frameworks: tuple[str, ...], options: Mapping[str, Any]) -> bool:
        """Return whether a case runs into it."""
        given = {"train": True, "dtype": "float32", **options}
        return (
            self.pair == pair
            and self.framework in frameworks
            and all(given.get(name) == value for name, value in self.options.items())
        )


LIMITS = (
    Limit("mindspore", "convnet", {"dtype": "float64"}, "Conv2d has no float64 kernel"),
    Limit("mindspore", "recurrent", {"dtype": "float64"}, "LSTMCell refuses float64"),
    Limit("mindspore", "vae", {"dtype": "float64"}, "Conv2d has no float64 kernel"),
    Limit("paddle", "recurrent", {"train": False}, "recurrent kernels keep nothing in evaluation", backward=True),
)


def possible(pair: str, frameworks: tuple[str, ...], options: Mapping[str, Any]) -> bool:
    """Return whether the pair can run, forward at least, in all these frameworks with these options."""
    return not any(limit.meets(pair, frameworks, options) for limit in LIMITS if not limit.backward)


def forward_only(pair: str, frameworks: tuple[str, ...], options: Mapping[str, Any]) -> bool:
    """Return whether one of the frameworks has no backward pass for the pair with these options."""
    return any(limit.meets(pair, frameworks, options) for limit in LIMITS if limit.backward)
