"""Fail at once where a framework that must be tested is not there; import MindSpore before any test imports Paddle."""

from __future__ import annotations

import importlib
import importlib.util
import os

import pytest
from hypothesis import HealthCheck, settings

from padiff.plugins import _registered


def pytest_configure() -> None:
    """Check ``PADIFF_REQUIRE`` (``torch,paddle,mindspore``): a missing framework is a failure, never a skip."""
    required = [name.strip() for name in os.environ.get("PADIFF_REQUIRE", "").split(",") if name.strip()]
    missing = [name for name in required if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        msg = f"PADIFF_REQUIRE asks for {names}, which cannot be imported here.\nHint: make test installs it."
        pytest.exit(msg, returncode=4)
    # How long an example takes says how busy the machine is, and nothing about padiff.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
    # Both ship a libdnnl.so.3, the first one loaded stays, and MindSpore cannot use Paddle's.
    if importlib.util.find_spec("mindspore") is not None:
        mindspore = importlib.import_module("mindspore")
        # Its kernels hand each other pieces of work, and wait by turning: on busy cores twenty times as long as alone.
        mindspore.set_context(runtime_num_threads=1)


@pytest.fixture(autouse=True)
def _own_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the special transfers that a test registers, or a page that it runs, end with it."""
    monkeypatch.setattr(_registered, "_REGISTERED", {})
