"""List the corners of the ranges of versions that padiff works with, each an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

__all__ = ["CHECKS", "CORNERS", "ROOT", "Corner"]

ROOT = Path(__file__).parents[2]
CHECKS = ("conformance", "first use", "planted faults", "real pairs", "other environments")
"""What is run in a corner."""
_FEW = CHECKS[:2]
"""What is run in a version between the ends."""
_TORCH, _PADDLE, _NUMPY_1, _NUMPY_2 = "2.13.0", "3.3.1", "1.26.4", "2.4.6"
"""What the others stand beside."""


@attrs.frozen
class Corner:
    """An environment, and which of its frameworks are tested in it."""

    name: str
    tested: tuple[str, ...]
    pins: Mapping[str, str]
    """Distribution -> version."""
    checks: tuple[str, ...] = CHECKS
    interpreter: str | None = None
    """Which Python, where it is another than that which runs `tests.versions`."""

    @property
    def home(self) -> Path:
        """Return the folder of the environment."""
        return ROOT / ".venv-versions" / self.name

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.home / "bin" / "python"

    @property
    def pair(self) -> tuple[str, str]:
        """Return the two frameworks that are compared in it, the reference's first."""
        return "torch", "mindspore" if "mindspore" in self.tested else "paddle"

    @property
    def file(self) -> Path:
        """Return where it is written down what was seen in it."""
        return ROOT / "docs" / "versions" / f"{self.name}.json"


def _torch(version: str, numpy: str) -> Corner:
    pins = {"torch": version, "paddlepaddle": _PADDLE, "numpy": numpy}
    return Corner(f"torch-{version}", ("torch",), pins)


def _other(
    framework: str, version: str, numpy: str, tested: tuple[str, ...] = (), checks: tuple[str, ...] = CHECKS
) -> Corner:
    distribution = "paddlepaddle" if framework == "paddle" else framework
    pins = {distribution: version, "torch": _TORCH, "numpy": numpy}
    return Corner(f"{framework}-{version}", tested or (framework,), pins, checks)


def _on(interpreter: str) -> Corner:
    """Return what the tests run with every day, on another Python; libraries of real models have no wheels for it."""
    pins = {"torch": _TORCH, "paddlepaddle": _PADDLE, "numpy": _NUMPY_2}
    checks = tuple(check for check in CHECKS if check != "real pairs")
    return Corner(f"python-{interpreter}", ("torch", "paddle"), pins, checks, interpreter)


CORNERS = (
    _torch("2.1.2", _NUMPY_1),
    _other("paddle", "3.3.1", _NUMPY_2, ("torch", "paddle")),
    _torch("2.15.0", _NUMPY_2),
    _other("paddle", "2.6.2", _NUMPY_1),
    _other("paddle", "3.0.0", _NUMPY_1),
    _other("paddle", "3.1.1", _NUMPY_1, checks=_FEW),
    _other("paddle", "3.2.2", _NUMPY_1, checks=_FEW),
    _other("mindspore", "2.8.0", _NUMPY_1),
    _other("mindspore", "2.10.0", _NUMPY_1),
    _on("3.12"),
    _on("3.13"),
)
"""The oldest and the newest that install of each framework, those between, and what the tests run with every day."""
