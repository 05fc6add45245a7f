"""Write the reports of a failed comparison to the documented folder, and destroy none that is there."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from padiff.compat._forms import Form

__all__ = ["FOLDERS", "write"]

FOLDERS = {Form.LAYER: "diff_log", Form.BASE: "padiff_log"}
"""Where the reports go, in the working directory: as documents 002 and 003 say, and as PaDiff 0.3 has it."""


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, by name, into a folder; what stands there under these names is moved to ``previous-1``, ...

    Raises ``OSError`` where that cannot be done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    earlier = [folder / name for name in files if (folder / name).exists()]
    if earlier:
        aside = _new_folder(folder)
        for path in earlier:
            path.rename(aside / path.name)
    for name, text in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)


def _new_folder(folder: Path) -> Path:
    """Make the first folder ``previous-N`` that does not exist."""
    for number in itertools.count(1):
        aside = folder / f"previous-{number}"
        try:
            aside.mkdir()
        except FileExistsError:
            continue
        return aside
    raise AssertionError
