"""Understand what a worker says of itself first, and say what is to be done where it cannot serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff._version import __version__
from padiff.errors import WorkerError
from padiff.isolation._connection import PROTOCOL
from padiff.isolation._process import Process
from padiff.plugins import FRAMEWORKS

__all__ = ["check"]


def check(process: Process, said: Mapping[str, Any]) -> None:
    """Raise `WorkerError` where an interpreter lacks padiff, or has one that this one cannot talk to."""
    if said.get("protocol") == PROTOCOL:
        return
    process.end()
    python, there, missing = process.python, said.get("padiff"), str(said.get("missing") or "")
    trouble = f"(Python {said.get('python')}):\n{str(said.get('trouble')).rstrip()}"
    install = f"{python} -m pip install"
    if missing == "padiff" or there is None:
        found = said.get("frameworks") or []
        adapters = [known.adapter for name, known in FRAMEWORKS.items() if known.adapter and name in found]
        what = " ".join(["padiff-core", *adapters])
        what += "" if adapters else ", and the adapter of its framework: padiff-torch, padiff-paddle, padiff-mindspore"
        msg = f"padiff is not installed in {python} (Python {said.get('python')}).\nHint: {install} {what}."
        if missing != "padiff":
            msg = f"padiff does not load in {python} {trouble}\n"
            msg += f"Hint: it needs Python 3.11 or newer; {install} --upgrade {what}."
    elif "protocol" in said or missing.startswith("padiff"):
        msg = f"padiff {there} in {python} and padiff {__version__} here cannot talk to each other.\n"
        msg += f"Hint: {install} padiff-core=={__version__}, and the adapters' same version."
    elif missing:
        msg = f"padiff {there} in {python} lacks {missing}.\nHint: {install} --upgrade padiff-core."
    else:
        msg = f"padiff {there} does not load in {python} {trouble}\nHint: {install} --upgrade padiff-core."
    raise WorkerError(msg)
