"""Name the folders of a recorded run that several ranks wrote, one each."""

from __future__ import annotations

import os
import re
from pathlib import Path

_RANK = re.compile(r"rank-(\d{5,9})")


def rank_folder(folder: str | os.PathLike[str], rank: int) -> str:
    """Return where a rank records to, below a local folder or a URL."""
    return f"{os.fspath(folder).rstrip('/')}/rank-{rank:05d}"


def rank_folders(folder: Path) -> dict[int, Path]:
    """Return where ranks recorded to, by rank, in order; links are not followed."""
    if not folder.is_dir():
        return {}
    named = ((_RANK.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(m[1]), path) for m, path in named if m and path.is_dir() and not path.is_symlink()))
