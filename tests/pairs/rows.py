"""Describe one planted fault: what is planted, and what a diff must name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from . import zoo
from .arguments import Maker

__all__ = ["BACKWARD", "END", "EVERYWHERE", "PARAMETER", "ROOT", "UPDATE", "Row", "at", "leaf"]

EVERYWHERE = "*"
"""The place of a fault that touches every module with parameters."""

BACKWARD = ("backward",)
PARAMETER = ("parameter", "forward")
UPDATE = ("update",)

Sides = Mapping[str, Any]


def at(torch: Any, paddle: Any, mindspore: Any) -> Sides:
    """Return a thing that each framework's model has under another name."""
    return {"torch": torch, "paddle": paddle, "mindspore": mindspore}


def leaf(place: Sides, torch: str, paddle: str | None = None, mindspore: str | None = None) -> Sides:
    """Return something below a place; what is left out is called as in torch."""
    tails = at(torch, paddle or torch, mindspore or torch)
    return {framework: f"{path}.{tails[framework]}" for framework, path in place.items()}


ROOT = at("", "", "")
END = at("end", "end", "end")


@attrs.frozen
class Row:
    """Describe one fault.

    A place is a candidate path. ``a|b`` accepts either, where two names are honest; a tuple asks for all.
    """

    id: str
    """``pair-fault``, with ``@variant`` where one fault has several rows."""
    places: Sides
    """Framework of the candidate -> where it must be named."""
    phases: tuple[str, ...] = ("forward",)
    """The phases of which one must be named at each place."""
    before: Sides | None = None
    """For glue: the child whose input parts, the second of ``Finding.between``."""
    cause: tuple[str, ...] = ()
    """Words that the cause must hold; ``a|b`` for either."""
    train: bool = True
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """What both builders get."""
    extra: Maker | None = None
    """Makes further arguments of `padiff.diff`."""
    tamper: Callable[[Any, str], None] | None = None
    """What is done to the candidate after its build."""
    transfer: bool = True
    """False: padiff transfers, then the candidate is tampered with, then diffed with ``transfer=False``."""
    directions: tuple[tuple[str, str], ...] = zoo.DIRECTIONS
    """The directions, reference first, in which it makes sense."""
    leftover: bool = False
    """Whether a source without a candidate path may stand beside: what is left over of the reference."""

    @property
    def pair(self) -> str:
        """Return the pair's name."""
        return self.id.partition("-")[0]

    @property
    def fault(self) -> str:
        """Return the fault's name."""
        return self.id.partition("-")[2].partition("@")[0]

    @property
    def planted(self) -> frozenset[str]:
        """Return what the builder plants: nothing where the candidate or the arguments are spoilt instead."""
        return frozenset({self.fault} if self.tamper is None and self.extra is None else ())
