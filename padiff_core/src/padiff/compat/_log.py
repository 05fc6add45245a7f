"""Print lines as PaDiff marks its own, and write reports to the documented folder, destroying none that is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from padiff.compat._folders import first_free
from padiff.compat._forms import Form

FOLDERS = {Form.LAYER: "diff_log", Form.BASE: "padiff_log"}
"""Where the reports go, in the working directory: as documents 002 and 003 say, and as PaDiff 0.3 has it."""


def say(*lines: str) -> None:
    """Print lines as PaDiff marks its own."""
    for line in lines:
        print(f"[AutoDiff] {line}" if line else "")


def write_reports(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, by name, into a folder; what stands there under these names is moved to ``previous-1``, ...

    Raises ``OSError`` where that cannot be done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    earlier = [folder / name for name in files if (folder / name).exists()]
    if earlier:
        aside = first_free(folder / "previous")
        aside.mkdir()
        for path in earlier:
            path.rename(aside / path.name)
    for name, text in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
