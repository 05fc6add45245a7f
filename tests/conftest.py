"""Fail at once, and say so, where a framework that must be tested is not there."""

from __future__ import annotations

import importlib.util
import os

import pytest


def pytest_configure() -> None:
    """Check ``PADIFF_REQUIRE`` (``torch,paddle``): a missing framework is a failure, never a skip."""
    required = [name.strip() for name in os.environ.get("PADIFF_REQUIRE", "").split(",") if name.strip()]
    missing = [name for name in required if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        msg = f"PADIFF_REQUIRE asks for {names}, which cannot be imported here.\nHint: make test installs it."
        pytest.exit(msg, returncode=4)
