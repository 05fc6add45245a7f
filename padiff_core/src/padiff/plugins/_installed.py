"""Describe the state of each installed adapter, and of each other contribution of a plugin."""

from __future__ import annotations

from enum import StrEnum

import attrs

from padiff.plugins._framework import findable, principal, version_of
from padiff.plugins._registry import Registry, Row, registry


class State(StrEnum):
    """The state of an adapter, or of another contribution."""

    AVAILABLE = "available"
    """Usable; of an adapter, not imported yet."""
    LOADED = "loaded"
    """In use in this process."""
    MISSING = "framework missing"
    """The adapter is there, its framework is not, or does not import."""
    BROKEN = "broken"
    """The plugin or what it gave raised, or was written for another interface."""
    CONFLICT = "conflict"
    """Another adapter claims the same package, or another contribution of the sort has the same name."""


@attrs.frozen
class Installed:
    """One adapter and its state; ``why`` explains every state but available and loaded."""

    name: str
    roots: tuple[str, ...]
    distribution: str
    version: str | None
    state: State
    why: str | None = None
    framework_version: str | None = None


@attrs.frozen
class Contributed:
    """One contribution of a plugin, or a plugin without a usable one; ``why`` as for `Installed`."""

    sort: str
    """adapter, metric, special transfer, renderer; plugin where it is of no use."""
    name: str
    distribution: str
    version: str | None
    state: State
    why: str | None = None
    doc: str = ""


def installed() -> tuple[Installed, ...]:
    """Return one row for each adapter, and for each plugin that does not load; imports no framework."""
    found = registry()
    return tuple(_described(found, row) for row in found.adapters)


def contributed() -> tuple[Contributed, ...]:
    """Return one row for each contribution, adapters too, padiff's own last; imports no framework."""
    found = registry()
    rows = []
    for row in sorted(found.all, key=lambda row: row.builtin):
        state, why = _state(found, row)
        doc = f"classes of {', '.join(row.roots)}" if row.info else getattr(row.item, "doc", "")
        rows.append(Contributed(row.sort, row.name, row.distribution, row.version, state, why, doc))
    return tuple(rows)


def _described(found: Registry, row: Row) -> Installed:
    state, why = _state(found, row)
    version = version_of(principal(row.info)) if row.info else None
    return Installed(row.name, row.roots, row.distribution, row.version, state, why, version)


def _state(found: Registry, row: Row) -> tuple[State, str | None]:
    if row.broken:
        return State.BROKEN, row.broken
    rivals = found.rivals(row)
    if rivals:
        claims = (f"{key!r} is also claimed by {_labels(others)}" for key, others in rivals.items())
        return State.CONFLICT, "; ".join(claims)
    if row.adapter is not None:
        return State.LOADED, None
    if row.failed:
        return (State.MISSING if row.missing else State.BROKEN), row.failed
    if row.info and not findable(principal(row.info)):
        return State.MISSING, f"{principal(row.info)} is not installed"
    return State.AVAILABLE, None


def _labels(rows: list[Row]) -> str:
    return " and ".join(row.label for row in rows)
