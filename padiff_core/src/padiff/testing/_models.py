"""Hold the forwards of the suite's little models: plain functions of a module, its children and tensors.

They use what every framework has: calls of children, ``+``, ``-`` and ``*``.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Fields:
    """Two outputs and something that is none."""

    left: Any
    right: Any
    label: str = "label"


OUTPUTS = {
    "tensor": lambda a, b: a,
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "dict": lambda a, b: {"left": a, "right": b},
    "named tuple": lambda a, b: Pair(a, b),
    "dataclass": lambda a, b: Fields(a, b),
    "None among them": lambda a, b: (a, None, b),
    "nested": lambda a, b: {"pairs": [Pair(a, None), (b, "text")], "more": ()},
}
"""What modules return, made of two tensors."""


def one(self: Any, x: Any) -> Any:
    """Call one child."""
    return self.first(x)


def chain(self: Any, x: Any) -> Any:
    """Call one child on what the other gave."""
    return self.second(self.first(x))


def twice(self: Any, x: Any) -> Any:
    """Call a child on what it gave."""
    return self.first(self.first(x))


def residual(self: Any, x: Any) -> Any:
    """Add the input, in code of the module's own."""
    return self.first(x) + x


def square(self: Any, x: Any) -> Any:
    """Use a child's output in two places."""
    hidden = self.first(x)
    return hidden * hidden + hidden * 3.0


def with_keywords(self: Any, x: Any, *, scale: float = 1.0, shift: Any = None) -> Any:
    """Take a number and a tensor by keyword."""
    hidden = self.first(x) * scale
    return hidden if shift is None else hidden + shift


def branches(self: Any, x: Any) -> Any:
    """Call both children on the input."""
    return self.first(x), self.second(x)


def nothing(self: Any, x: Any) -> Any:
    """Return the input itself."""
    return x
