"""Read the documents' blocks, run them, and compare what they print with what the documents show.

The conventions of README.md and docs/*.md:

- Every ``python`` block runs, in order, in one namespace for each page, in an empty folder, with examples/
  importable. A ``text`` block right behind one shows what it prints.
- A ``python`` or ``toml`` block whose first line is ``# path/of/a/file.py`` is that file, in the page's folder;
  ``# path/of/a/file.py, continued`` adds to it.
- In a ``console`` block each line ``$ padiff ...`` or ``$ pytest ...`` runs, in examples/ or in the folder of a page
  that has files, and the lines below show its standard output; ``$ echo $?`` shows its exit status.
- A line ``...`` in what is shown stands for any number of lines.
- ``sh`` blocks, and ``text`` blocks elsewhere (signatures, layouts), are only shown.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

__all__ = ["ROOT", "Block", "anchors", "blocks", "commands", "links", "printed", "shows", "stable"]

ROOT = Path(__file__).parents[2]

_FILE = re.compile(r"# (\S+\.(?:py|toml))(, continued)?\n")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Block:
    """Hold one fenced block, the line on which its content begins, and what it is shown to print."""

    language: str
    content: str
    line: int
    output: str | None = None

    @property
    def file(self) -> tuple[str, bool] | None:
        """Return which file the block is, and whether it only adds to it; None for a block that runs."""
        found = _FILE.match(self.content) if self.language in ("python", "toml") else None
        return (found[1], bool(found[2])) if found else None


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page; a ``text`` block right behind a ``python`` block is its output."""
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        language, content = match.groups()
        behind = found and found[-1].language == "python" and not text[end : match.start()].strip()
        if language == "text" and behind:
            found[-1] = attrs.evolve(found[-1], output=content)
        else:
            found.append(Block(language, content, text.count("\n", 0, match.start(2)) + 1))
        end = match.end()
    return found


def printed(block: Block, namespace: dict[str, Any], file: Path) -> str:
    """Run a ``python`` block; return what it prints. Its frames say that it stands in ``file``."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block.content, str(file), "exec"), namespace)
    return out.getvalue()


_PROGRAMS = {"padiff": ("padiff.cli",), "pytest": ("pytest", "-p", "no:cacheprovider")}


def commands(block: Block, folder: Path = ROOT / "examples") -> Iterator[tuple[str, str, str]]:
    """Run each command of a ``console`` block in a folder; yield it, what it prints, and what is shown."""
    status = 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    for step in re.split(r"^\$ ", block.content, flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        if command == "echo $?":
            yield command, f"{status}\n", shown
            continue
        program, *arguments = shlex.split(command)
        assert program in _PROGRAMS, command
        line = [sys.executable, "-W", "ignore", "-m", *_PROGRAMS[program], *arguments]
        done = subprocess.run(line, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        status = done.returncode
        assert program != "pytest" or status == 0, f"{command}\n{done.stdout}"
        yield command, done.stdout, shown


_FIGURE = re.compile(r"(?<![\w.:\]])-?\d+(\.\d+)?(e[+-]?\d+)?(?!\w|\.\w)")
_VERSION = re.compile(r"(?<![\w.])\d+(\.\d+){2,}(\+\w+)?")
_FOLDER = re.compile(r"\S*/(site-packages/|(?=(first_use|my_port)\.py))")
_MACHINE = re.compile(r"\s+(took|verdicts|torch|paddle) {2,}")


def stable(line: str) -> str | None:
    """Return a line without what depends on the machine, or None where nothing else is in it.

    That is: figures (but for those of a ``cause``), counts, versions, column widths, and where files lie.
    """
    if _MACHINE.match(line) or not line.strip():
        return None
    line = _FOLDER.sub("", line)
    if not line.strip().startswith("cause"):
        line = _FIGURE.sub("#", _VERSION.sub("#", line))
    return " ".join(line.split())


def shows(shown: str, actual: str) -> str | None:
    """Return None where what is shown is what was printed, as far as that is stable; else what is missing."""
    lines = [line for line in map(stable, actual.splitlines()) if line is not None]
    parts: list[list[str]] = [[]]
    for line in map(stable, shown.splitlines()):
        if line == "...":
            parts.append([])
        elif line is not None:
            parts[-1].append(line)
    at = 0
    for number, part in enumerate(parts):
        starts = range(at, len(lines) - len(part) + 1)
        if number == 0:
            starts = starts[:1]
        if number == len(parts) - 1:
            starts = starts[-1:] if number else (starts if len(lines) == len(part) else starts[:0])
        found = next((start for start in starts if lines[start : start + len(part)] == part), None)
        if found is None:
            return "\n".join(["not printed:", *part, "", "printed:", *lines[at:]])
        at = found + len(part)
    return None


_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def links(text: str) -> Iterator[str]:
    """Yield the targets of a page's links, outside of blocks."""
    return (match[1] for match in _LINK.finditer(_FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
