"""Find the steps and ranks of a dump: folders named after them, in each the file that tells what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from padiff.errors import InputError

_STEP, _RANK = re.compile(r"step_?(\d+)"), re.compile(r"(rank_?\d*|proc\d+)")


class Place(NamedTuple):
    """Where one rank of one step lies."""

    step: int
    rank: str
    """Empty where there are none."""
    folder: Path


def is_there(path: Path, file: str, beside: str = "") -> bool:
    """Return whether a path is, or holds, a folder with a file of that name, and with something beside it."""
    return any((place.folder / beside).exists() for place in _places(_split(path, file)[0], file))


def chosen(path: Path, file: str) -> dict[int, Path]:
    """Return the folder of each step: of the one rank there is, or of the one that is named behind a folder.

    ``dump/rank1`` names a rank of ``dump`` whether ``rank1`` lies in it, or in each of its steps. Raises `InputError`
    where there are several ranks and none is named, or the one that is named is not there.
    """
    folder, wanted = _split(path, file)
    found: dict[int, dict[str, Path]] = {}
    for place in _places(folder, file):
        found.setdefault(place.step, {})[place.rank] = place.folder
    ranks = sorted({rank for one in found.values() for rank in one}, key=_number)
    if wanted is not None:
        kept = {step: one[rank] for step, one in found.items() for rank in one if _plain(rank) == _plain(wanted)}
        if not kept:
            msg = f"{folder} has no {wanted}; it has {', '.join(filter(None, ranks)) or 'no ranks'}.\n"
            raise InputError(msg + "Hint: name one that is there.")
        return kept
    if any(len(one) > 1 for one in found.values()):
        asked = f", or on the command line --rank {_number(ranks[0])}" if ranks[0].startswith("rank") else ""
        msg = f"{path} holds {len(ranks)} ranks: {', '.join(ranks)}.\nHint: name one: {path}/{ranks[0]}{asked}."
        raise InputError(msg)
    return {step: next(iter(one.values())) for step, one in found.items()}


def _split(path: Path, file: str) -> tuple[Path, str | None]:
    """Return a folder, and the rank in it that is meant where a path names one that does not lie there itself."""
    if path.name == file and path.is_file():
        return path.parent, None
    return (path.parent, path.name) if not path.exists() and _RANK.fullmatch(path.name) else (path, None)


def _places(folder: Path, file: str) -> Iterator[Place]:
    """Yield every rank of every step at a folder."""
    if (folder / file).is_file():
        yield Place(_step(folder.parent if _RANK.fullmatch(folder.name) else folder), "", folder)
        return
    for found in (*sorted(folder.glob(f"*/*/{file}")), *sorted(folder.glob(f"*/{file}"))):
        inner = found.parent
        if _RANK.fullmatch(inner.name) and (inner.parent == folder or _STEP.fullmatch(inner.parent.name)):
            yield Place(_step(inner.parent), inner.name, inner)
        elif inner.parent == folder and _STEP.fullmatch(inner.name):
            yield Place(_step(inner), "", inner)


def _step(folder: Path) -> int:
    found = _STEP.fullmatch(folder.name)
    return int(found[1]) if found else 0


def _plain(rank: str) -> str:
    return rank.replace("_", "")


def _number(rank: str) -> int:
    return int(re.sub(r"\D", "", rank) or 0)
