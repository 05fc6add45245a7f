"""Tell where PaDiff, the distribution ``padiff``, is installed beside this one.

Both have the import name ``padiff``: pip lets them overwrite each other's files, and uninstalling either takes files of
the other along.
"""

from __future__ import annotations

import importlib.metadata

_DISTRIBUTION = "padiff"


def found() -> str | None:
    """Return the version of PaDiff that is installed, or None."""
    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def message() -> str | None:
    """Return what is wrong and how to fix it, or None where PaDiff is not installed."""
    version = found()
    if version is None:
        return None
    return (
        f"PaDiff {version} (the distribution 'padiff') and padiff-core are installed together; both own the import "
        "name padiff, and each overwrites files of the other.\n"
        "Hint: pip uninstall padiff, then pip install --force-reinstall --no-deps padiff-core."
    )
