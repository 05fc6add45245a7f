"""Read what belongs to a remote model's modules and parameters ahead: many small answers for one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff.isolation._session import Session
from padiff.isolation._standin import StandIn
from padiff.kinds import Unit

__all__ = ["Readings", "Shelf"]

_AHEAD = 4 << 20
"""Bytes of parameters that come with the one that is asked for."""
_MOST = 64


class Shelf:
    """Hold what was read of the parameters of one model, until it is taken or something may have changed it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._order: list[tuple[StandIn, int]] = []
        self._places: dict[int, int] = {}
        self._found: dict[tuple[str, int], Any] = {}
        self._generation = session.generation

    def add(self, parameter: StandIn, size: int) -> None:
        """Take a parameter of so many bytes, in the model's order."""
        self._places[parameter._number] = len(self._order)
        self._order.append((parameter, size))

    def take(self, what: str, parameter: StandIn) -> Any:
        """Return what a request tells of a parameter; read it of the next small ones too, which are next as a rule."""
        if self._generation != self._session.generation:
            self._generation = self._session.generation
            self._found.clear()
        key = what, parameter._number
        if key not in self._found:
            batch = self._batch(self._places[parameter._number])
            for one, found in zip(batch, self._session.request(what, *batch), strict=True):
                self._found[what, one._number] = found
        return self._found.pop(key)

    def _batch(self, start: int) -> list[StandIn]:
        batch, total = [self._order[start][0]], self._order[start][1]
        for parameter, size in self._order[start + 1 : start + _MOST]:
            total += size
            if total > _AHEAD:
                break
            batch.append(parameter)
        return batch


class Readings:
    """Hold the hyper-parameters and the units of one model's modules, all of them read at once, again after a run."""

    def __init__(self, session: Session, model: StandIn) -> None:
        self._session = session
        self._model = model
        self._found: Mapping[str, tuple[Mapping[str, Any], Any]] = {}
        self._generation = -1

    def setting(self, path: str, name: str) -> tuple[Any, Any]:
        """Return a hyper-parameter in the catalogue's convention, and as the framework holds it."""
        found: tuple[Any, Any] = self._read(self._module(path)[0][name])
        return found

    def units(self, path: str) -> Mapping[str, Unit]:
        """Return the units of a module."""
        found: Mapping[str, Unit] = self._read(self._module(path)[1])
        return found

    def _module(self, path: str) -> tuple[Mapping[str, Any], Any]:
        if self._generation != self._session.generation:
            self._found = self._session.request("readings", self._model)
            self._generation = self._session.generation
        return self._found[path]

    def _read(self, answer: tuple[str, Any]) -> Any:
        kind, what = answer
        if kind == "raised":
            raise self._session.raised(what)
        return what
