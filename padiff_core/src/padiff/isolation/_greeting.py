"""Understand what a worker says of itself first, and say what is to be done where it cannot serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff._version import __version__
from padiff.errors import WorkerError
from padiff.isolation._channel import PROTOCOL
from padiff.isolation._process import Process
from padiff.plugins import FRAMEWORKS

__all__ = ["check"]


def check(process: Process, said: Mapping[str, Any]) -> None:
    """Raise `WorkerError` where an interpreter lacks padiff, or has one that this one cannot talk to."""
    python, there = process.python, said.get("padiff")
    install = f"{python} -m pip install"
    if said.get("protocol") == PROTOCOL:
        return
    process.end()
    missing = str(said.get("missing") or "")
    if missing == "padiff" or "padiff" not in said:
        adapters = [known.adapter for name, known in FRAMEWORKS.items() if known.adapter and name in said["frameworks"]]
        what = " ".join(["padiff-core", *adapters])
        what += "" if adapters else ", and the adapter of its framework: padiff-torch, padiff-paddle, padiff-mindspore"
        if missing != "padiff":
            msg = f"padiff does not load in {python} (Python {said['python']}):\n{said['trouble'].rstrip()}\n"
            msg += f"Hint: it needs Python 3.11 or newer; {install} --upgrade {what}."
            raise WorkerError(msg)
        msg = f"padiff is not installed in {python} (Python {said['python']}).\n"
        msg += f"Hint: {install} {what}."
        raise WorkerError(msg)
    if "protocol" in said or missing.startswith("padiff"):
        msg = f"padiff {there} in {python} and padiff {__version__} here cannot talk to each other.\n"
        msg += f"Hint: {install} padiff-core=={__version__}, and the adapters' same version."
        raise WorkerError(msg)
    if missing:
        msg = f"padiff {there} in {python} lacks {missing}.\n"
        msg += f"Hint: {install} --upgrade padiff-core."
        raise WorkerError(msg)
    msg = f"padiff {there} does not load in {python} (Python {said['python']}):\n{said['trouble'].rstrip()}\n"
    msg += f"Hint: {install} --upgrade padiff-core."
    raise WorkerError(msg)
