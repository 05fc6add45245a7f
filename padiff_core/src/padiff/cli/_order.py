"""Import frameworks in the order and the environment that they need, where both sides are in this process.

Which ones are wanted is read from the sources that the SPECs name, before any of them is imported.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

_MOST = 200
"""Files that are read at most."""


def import_in_order(specs: Iterable[str]) -> None:
    """Import the frameworks that must come before others that the SPECs' sources import too, in their environment."""
    from padiff.garbage import collecting_later
    from padiff.plugins import adapters, principal, set_environment

    set_environment()
    files = [file for spec in specs for file in _sources(spec.rpartition(":")[0])]
    named = _imported(files)
    if not named:
        return
    infos = adapters()
    for info in infos:
        later = {root for other in infos if other.roots & info.load_before for root in other.roots}
        if info.roots & named and later & named:
            with collecting_later(), contextlib.suppress(ImportError, OSError):  # whoever needs it will say why
                importlib.import_module(principal(info))


def _sources(name: str) -> Iterator[Path]:
    """Yield the files that importing a module, or running a file, runs first: its packages', and its own."""
    if name.endswith(".py"):
        yield Path(name)
        return
    where: list[str] | None = None
    for end in [i for i, letter in enumerate(f"{name}.") if letter == "."]:
        path = [os.getcwd(), *sys.path] if where is None else where
        found = PathFinder.find_spec(name[:end], path)
        if found is None:
            return
        if found.origin and found.origin.endswith(".py"):
            yield Path(found.origin)
        where = list(found.submodule_search_locations or ())


def _imported(files: list[Path]) -> set[str]:
    """Return the top-level packages that files import, and the files of the same folders that these import."""
    folders = {file.resolve().parent for file in files}
    named: set[str] = set()
    seen: set[Path] = set()
    queue = list(files)
    while queue and len(seen) < _MOST:
        file = queue.pop().resolve()
        if file in seen:
            continue
        seen.add(file)
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for name, level in _names(tree):
            named.update([name.partition(".")[0]] if not level else ())
            queue += [near for folder in (file.parent, *folders) for near in _near(folder, name, level)]
    return named


def _names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield what a source imports: name, and how many dots came before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level
            if node.level and not node.module:
                yield from ((alias.name, node.level) for alias in node.names)


def _near(folder: Path, name: str, level: int) -> Iterator[Path]:
    """Yield the files of a module, where it lies in or below a folder."""
    for _ in range(level - 1):
        folder = folder.parent
    steps = [step for step in name.split(".") if step]
    for file in (folder.joinpath(*steps, "__init__.py"), folder.joinpath(*steps).with_suffix(".py")):
        if steps and file.is_file():
            yield file
