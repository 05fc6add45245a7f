"""Give a page that holds files a folder of its own, as its reader would have after following it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from padiff import plugins

from .pages import Block

__all__ = ["imported", "write"]


@contextmanager
def imported(folder: Path) -> Iterator[Path]:
    """Let Python import from a folder, with what is installed there, and forget all of it afterwards."""
    sys.path.insert(0, str(folder))
    plugins.reset()
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        _forget(folder)


def write(block: Block, folder: Path) -> None:
    """Write a block to its file; a project file also installs what it describes."""
    assert block.file is not None
    name, adds = block.file
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if adds else ""
    path.write_text(before + block.content.partition("\n")[2], encoding="utf-8")
    if name == "pyproject.toml":
        _install(tomllib.loads(block.content), folder)
    _forget(path)


def _install(settings: dict[str, Any], folder: Path) -> None:
    """Do what an editable install does: describe the distribution where Python looks for it."""
    project = settings["project"]
    name, version = project["name"], project["version"]
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = "".join(f"{key} = {value}\n" for key, value in project["entry-points"]["padiff"].items())
    info.joinpath("entry_points.txt").write_text(f"[padiff]\n{points}")


def _forget(place: Path) -> None:
    """Forget the modules of a file, or below a folder, and all plugins."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and (Path(file) == place or Path(file).is_relative_to(place)):
            del sys.modules[name]
    plugins.reset()
