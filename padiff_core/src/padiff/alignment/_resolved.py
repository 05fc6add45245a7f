"""Hold what a user says of two models in the models' own paths, whichever way it was said."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from padiff.paths import upwards
from padiff.report import Note


@attrs.frozen
class Group:
    """Modules of which one, or several together, do what one or several of the other side do: a packed layer."""

    reference: tuple[str, ...]
    candidate: tuple[str, ...]
    groups: int | None = None
    """In how many groups (heads) the packed one holds its members, in the order that they are given; None: unsaid."""


@attrs.frozen
class MappedParameter:
    """The parameter of the candidate that one of the reference is, and how it lies there, where that was said."""

    path: str
    transposed: bool | None = None
    place: str = attrs.field(default="", eq=False)
    """Where it was said: ``file:line:column``."""


@attrs.frozen
class Resolved:
    """A mapping in paths: pairs of them, reference to candidate, and those of ignored modules of either side."""

    pairs: Mapping[str, str] = attrs.field(factory=dict)
    """Modules that are compared as a whole: what is inside of them has no counterpart."""
    ignored: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    named: Mapping[str, str] = attrs.field(factory=dict)
    """Modules that belong together, and what is inside of them too, as far as it finds its counterpart there."""
    groups: tuple[Group, ...] = ()
    parameters: Mapping[str, MappedParameter] = attrs.field(factory=dict)
    notes: tuple[Note, ...] = ()
    """What a reader of the report should know of the mapping: rules that did nothing."""
    called: Mapping[str, str] = attrs.field(factory=dict)
    """Every module of which the name, followed through a mapping file, is that of one of the candidate's."""

    def __bool__(self) -> bool:
        """Return whether any modules or parameters are mapped."""
        return bool(self.pairs or self.named or self.groups or self.parameters)

    @property
    def whole(self) -> Resolved:
        """Return only what is compared as a whole."""
        return Resolved(self.pairs, self.ignored)

    @property
    def inverted(self) -> Resolved:
        """Return the same, candidate to reference."""
        return Resolved(
            {theirs: ours for ours, theirs in self.pairs.items()},
            self.ignored[::-1],
            {theirs: ours for ours, theirs in self.named.items()},
            tuple(Group(group.candidate, group.reference, group.groups) for group in self.groups),
            {one.path: attrs.evolve(one, path=ours) for ours, one in self.parameters.items()},
            self.notes,
            {theirs: ours for ours, theirs in self.called.items()},
        )

    def regions(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of each mapped module, on both sides: what is below belongs below one of that number."""
        found: tuple[dict[str, int], dict[str, int]] = ({}, {})
        mapped: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
            ((a,), (b,)) for a, b in (*self.named.items(), *self.pairs.items())
        ]
        mapped += [(group.reference, group.candidate) for group in self.groups]
        for number, tops in enumerate(mapped):
            for side, paths in zip(found, tops, strict=True):
                side.update(dict.fromkeys(paths, number))
        return found


def region_of(path: str, tops: Mapping[str, int]) -> int | None:
    """Return the number of the innermost of some modules that a path is at or below."""
    return next((tops[one] for one in upwards(path) if one in tops), None)
