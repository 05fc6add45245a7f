"""Find the folders of dumps, and write into none that holds what padiff did not make."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from padiff.errors import InputError

_MARK = ".padiff"
_RANKS = ("RANK", "PADDLE_TRAINER_ID", "RANK_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_PARTS = ("step_", "rank_")


class _Root:
    """Where dumps go, and which folders this process writes to."""

    path: str | None = None
    claimed: set[Path] = set()  # noqa: RUF012  one process, one set


def set_dump_root_path(path: str | os.PathLike[str]) -> None:
    """Say below which folder models created from now on dump."""
    _Root.path = os.fspath(path)


def get_dump_root_path() -> str:
    """Return the folder below which models dump: ``padiff_dump`` in the working directory unless set."""
    return _Root.path or os.path.join(os.getcwd(), "padiff_dump")


def claim(name: str) -> str:
    """Return a folder for a model of this name, which no other model of this process has."""
    root = Path(get_dump_root_path())
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
    folder = next(folder for one in names if (folder := root / one).absolute() not in _Root.claimed)
    _Root.claimed.add(folder.absolute())
    return str(folder)


def rank() -> int:
    """Return this process's number among those that train together, 0 where there is one."""
    return next((int(value) for name in _RANKS if (value := os.environ.get(name, "")).isdigit()), 0)


def put_aside(folder: Path) -> Path | None:
    """Move what an earlier process dumped for a model to ``<name>.previous-N``; return where to, None if nothing."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    return folder.rename(first_free(folder.with_name(f"{folder.name}.previous")))


def first_free(path: Path) -> Path:
    """Return the first of ``path-1``, ``path-2``, ... that does not exist."""
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(1))
    return next(one for one in names if not one.exists())


def cleared(folder: Path) -> Path:
    """Return a folder for values, empty: what an earlier dump wrote there goes, nothing else ever does.

    Raises `InputError` where it holds files that padiff did not make.
    """
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / _MARK).is_file():
            msg = (
                f"{folder} is not empty, and padiff did not make it: nothing is written there.\n"
                "Hint: dump to another directory."
            )
            raise InputError(msg)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder


def pairs_below(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> Iterator[tuple[Path, Path]]:
    """Yield the folders of all steps and ranks below two paths, those of one step and rank together.

    Raises `InputError` where a path is none, or one side has a step or rank that the other has not.
    """
    sides = [Path(path) for path in (first, second)]
    for side in sides:
        if not side.is_dir():
            msg = f"{side} is no directory.\nHint: give the path that was dumped to, or a step or rank below it."
            raise InputError(msg)
    below = [_parts(side) for side in sides]
    unmatched = sorted(below[0].keys() ^ below[1].keys(), key=_number)
    if unmatched:
        has = sides[unmatched[0] not in below[0]]
        msg = (
            f"only {has} has {', '.join(unmatched)}; expected the same steps and ranks on both sides.\n"
            "Hint: dump both models as often, or give the paths of two steps."
        )
        raise InputError(msg)
    if not below[0]:
        yield sides[0], sides[1]
    for name in sorted(below[0], key=_number):
        yield from pairs_below(below[0][name], below[1][name])


def _parts(folder: Path) -> dict[str, Path]:
    """Return the steps or ranks in a folder; none of one that was dumped to itself."""
    if any(folder.glob("*.json")):
        return {}
    return {path.name: path for path in folder.iterdir() if path.is_dir() and path.name.startswith(_PARTS)}


def _number(name: str) -> tuple[int, str]:
    digits = re.findall(r"\d+", name)
    return (int(digits[-1]) if digits else 0, name)
