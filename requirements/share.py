"""Share distributions of another environment as hard links: ``.venv-flax/bin/python share.py .venv torch sympy``.

The frameworks are most of what an install unpacks. One that is unpacked already is linked; pip, run afterwards, finds
it there, or replaces it where another version is asked for, which leaves the other environment's alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib.metadata import Distribution, distributions
from pathlib import Path


def packages_of(environment: str) -> Path:
    """Return where an environment holds its packages."""
    return Path(sysconfig.get_path("purelib", vars={"base": environment, "platbase": environment}))


def share(found: Distribution, there: Path, here: Path) -> None:
    """Link what a distribution has installed, but for its scripts: these name their environment's Python.

    What says that it is installed comes last, so that a share that was broken off is not taken for one.
    """
    for file in sorted(found.files or (), key=lambda file: file.parts[0].endswith(".dist-info")):
        if ".." in file.parts or not (there / file).exists():
            continue
        (here / file).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(there / file, here / file)
        except OSError:  # another disk, or one without links
            shutil.copy2(there / file, here / file)


def main(environment: str, *names: str) -> None:
    """Share what is there of these; what this environment has already stays as it is."""
    there, here = packages_of(environment), packages_of(sys.prefix)
    held = {found.name for found in distributions(path=[str(here)])}
    for found in distributions(path=[str(there)]):
        if found.name in names and found.name not in held:
            share(found, there, here)


if __name__ == "__main__":
    main(*sys.argv[1:])
