"""Let padiff find the toy framework's adapters for a while, in a script or while a module is read."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from padiff.plugins import reset

SITE = str(Path(__file__).parent / "site")


@contextmanager
def announced() -> Iterator[None]:
    """Put the plugin on the path, and take it off again."""
    sys.path.insert(0, SITE)
    importlib.invalidate_caches()
    reset()
    try:
        yield
    finally:
        sys.path.remove(SITE)
        reset()
