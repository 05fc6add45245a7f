"""Go wrong while a model is built, in every way that a user's module does. Imports no framework."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

number = 3


def raises() -> Any:
    """Raise, one call down."""
    return deeper()


def deeper() -> Any:
    msg = "no weights here"
    raise ValueError(msg)


def needs(width: int) -> Any:
    """Need an argument."""


def nothing() -> None:
    """Forget to return the model."""


def exits() -> Any:
    """End the process politely."""
    sys.exit("enough")


def leaves() -> Any:
    """End the process at once."""
    print("my last words")
    sys.stdout.flush()
    os._exit(7)


def lacks() -> Any:
    """Need a framework that is not there."""
    import tensorflow_nowhere

    return tensorflow_nowhere


def inputs() -> dict[str, Any]:
    """Return inputs."""
    rng = np.random.default_rng(0)
    return {"ids": rng.integers(0, 20, (4, 6)), "x": rng.standard_normal((4, 6, 16), dtype="float32")}
