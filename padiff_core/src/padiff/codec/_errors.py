"""Say what cannot be written, and what cannot be read."""

from __future__ import annotations

from typing import NoReturn


class Unsendable(Exception):
    """A message that holds what cannot be sent; nothing of it was."""


class Malformed(Exception):
    """A message that is none."""


def refuse(why: str) -> NoReturn:
    """Raise `Malformed`."""
    raise Malformed(why)
