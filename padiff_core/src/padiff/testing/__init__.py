"""Test adapters and models: the suite that specifies the adapter interface, and help for tests of one's own.

`AdapterTests` is inherited by an adapter's own tests, with a factory or two; docs/adapters.md shows how. It needs
pytest (``pip install padiff-core[testing]``); the rest does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from padiff.testing._aligned import assert_aligned
    from padiff.testing._fault import fault
    from padiff.testing._log import Log
    from padiff.testing._suite import AdapterTests

_HOME = {"AdapterTests": "_suite", "Log": "_log", "assert_aligned": "_aligned", "fault": "_fault"}

__all__ = [
    "AdapterTests",
    "Log",
    "assert_aligned",
    "fault",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use."""
    home = _HOME.get(name)
    if home is None:
        msg = f"module 'padiff.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"padiff.testing.{home}"), name)
