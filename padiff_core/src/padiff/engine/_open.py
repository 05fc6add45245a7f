"""Open what a run was recorded to: padiff's own directory, or what a plugin's reader knows."""

from __future__ import annotations

import os
from pathlib import Path

from padiff.errors import PadiffError, PluginError
from padiff.plugins import readers, told
from padiff.trace import Run, open_run

__all__ = ["opened"]


def opened(path: str | os.PathLike[str]) -> Run:
    """Return the run at a path; raise `InputError` where nothing can be read, `PluginError` for a reader's fault."""
    place = Path(path)
    for reader in readers():
        try:
            if reader.recognizes(place):
                return reader.function(place)
        except PadiffError:
            raise
        except Exception as error:
            msg = f"the reader {reader.name!r} {told(error)} at {place}.\nHint: tell its author."
            raise PluginError(msg) from error
    return open_run(place)
