"""Read the switches that PaDiff has in the environment."""

from __future__ import annotations

import os

__all__ = ["api_check"]


def api_check() -> bool:
    """Return whether operations are compared too: ``PADIFF_API_CHECK=ON``, read whenever a comparison begins."""
    return os.environ.get("PADIFF_API_CHECK", "").strip().upper() in ("ON", "1", "TRUE")
