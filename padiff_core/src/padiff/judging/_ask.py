"""Ask how far apart two values of two runs are, in words that any process understands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff._version import __version__
from padiff.judging._sizes import Size, size_of
from padiff.judging._tolerance import Rule, rule_of
from padiff.parameters import Link, read_of
from padiff.trace import Lent, ParameterRecord


@attrs.frozen(eq=False)
class Ask:
    """Two values of which somebody wants to know how far apart they are: plain data, without the values."""

    ours: Mapping[str, Lent]
    """What reads the reference's; of a link between parameters by the paths of those that the reference has."""
    theirs: Lent
    link: Link | None = None
    gradient: bool = False

    @property
    def weight(self) -> int:
        """Return how many bytes are to be read."""
        return sum(one.bytes for one in (*self.ours.values(), self.theirs))

    @property
    def name(self) -> str | None:
        """Return what nothing else is called, in any comparison; None where the runs have no names."""
        names = [(path, one.name) for path, one in self.ours.items()] + [("", self.theirs.name)]
        if not all(name for _, name in names):
            return None
        text = repr((__version__, names, self.link, self.gradient))
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()

    def measured(self, rule: Rule | None) -> Size | None:
        """Read both values, and measure; None where a link has nothing to be compared with."""
        values: dict[str, NDArray[Any]] = {path: one.read() for path, one in self.ours.items()}
        theirs = self.theirs.read()
        if self.link is None:
            return size_of(next(iter(values.values())), theirs, rule)

        def native(parameter: ParameterRecord) -> NDArray[Any] | None:
            return values.get(parameter.path)

        both = read_of(self.link, native, lambda _: theirs, gradient=self.gradient)
        return None if both is None else size_of(*both, rule)


def measured(asks: Sequence[Ask], tolerance: Mapping[str, Any] | None) -> list[Size | None]:
    """Measure pairs of values, one after the other: what a worker does."""
    rule = rule_of(tolerance)
    return [ask.measured(rule) for ask in asks]
