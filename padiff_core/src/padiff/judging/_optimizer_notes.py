"""Say which settings of two optimizers differ: a step or two, or a narrow type, may hide what they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from padiff.forcing import Given
from padiff.judging._optimizer_step import contrast, numbers_of
from padiff.parameters import Correspondence, Link
from padiff.report import Note

Settings = Mapping[str, Any]
Held = Callable[[Link], tuple[Settings | None, Settings | None]]
"""What gives the settings with which both sides' optimizers step a parameter, where these are known."""


def unlike_settings(both: tuple[Settings | None, Settings | None], counts: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the settings of both sides' optimizers that differ, as far as they count, by name."""
    ours, theirs = (found or {} for found in both)
    shared = [name for name in ours if counts(ours[name]) and counts(theirs.get(name))]
    cause = contrast({name: ours[name] for name in shared}, {name: theirs[name] for name in shared}, None)
    return {} if cause is None else dict(cause.parameters)


def setting_notes(held: Held, known: Correspondence) -> Iterator[Note]:
    """Yield a note on each number or switch that differs among the optimizers' settings, of whatever parameters."""
    for _, link in known.links:
        for name, both in (
            unlike_settings(held(link), _is_plain).items() if link.differentiated and not link.buffer else ()
        ):
            yield Note("optimizer_setting", {"name": name, **both})


def notes_of_optimizers(given: tuple[Given, Given], known: Correspondence) -> Iterator[Note]:
    """Yield the same of optimizers that were given with two models."""

    def held(link: Link) -> tuple[Settings | None, Settings | None]:
        ends = zip(given, (link.reference.parameter.path, link.candidate.parameter.path), strict=True)
        ours, theirs = (one.optimizer if one.stepped is None else one.stepped.get(path) for one, path in ends)
        return ours, theirs

    return setting_notes(held, known)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool) or bool(numbers_of(value))
