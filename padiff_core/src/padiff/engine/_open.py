"""Open what a run was recorded to: padiff's own directory, or what a plugin's reader knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from padiff.distributed import open_ranks
from padiff.errors import InputError, PadiffError, PluginError
from padiff.plugins import failure, readers
from padiff.trace import Run, is_url, open_run, rank_folder


def opened(path: str | os.PathLike[str], rank: int | None = None) -> Run:
    """Return the run at a path, of one rank where there are several.

    At a URL of fsspec's lies a directory of padiff's: readers know files of this machine. Raises `InputError` where
    nothing can be read, or the rank is not there, `PluginError` for a reader's fault.
    """
    if is_url(path):
        return open_run(path if rank is None else rank_folder(path, rank))
    place = Path(path)
    if rank is not None:
        own = Path(rank_folder(path, rank))
        place = own if own.is_dir() else place / f"rank{rank}"
    for reader in readers():
        try:
            if reader.recognizes(place):
                return reader.function(place)
        except PadiffError:
            raise
        except Exception as error:
            msg = f"the reader {reader.name!r} {failure(error)} at {place}.\nHint: tell its author."
            raise PluginError(msg) from error
    if rank is not None and not place.exists():
        msg = f"{path} has no rank {rank}: it is no dump of several ranks.\nHint: leave the rank out."
        raise InputError(msg)
    ranked = open_ranks(place)
    return open_run(place) if ranked is None else ranked


def finished_steps(run: Run, whose: str = "") -> Sequence[int]:
    """Return the steps that a run holds; raise `InputError` where it ended before the first."""
    if not run.steps:
        msg = f"{whose}{run.where} holds no finished step: it ended before the first.\n"
        raise InputError(msg + "Hint: call recorder.step() at the end of each step, and record it again.")
    return run.steps
