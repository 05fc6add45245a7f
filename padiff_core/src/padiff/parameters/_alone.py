"""Find the parts of parameters that one side alone has: the values' bias in a packed one, of which a port has two.

The parameter has a counterpart then, and no comparison of what belongs together looks at the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from padiff.numerics import NEGLIGIBLE_GRADIENT, epsilon, root_mean_square
from padiff.parameters._links import canonical
from padiff.parameters._roles import UnitMatch
from padiff.parameters._units import Held, HeldUnit, Native


@attrs.frozen(eq=False)
class PartAlone:
    """A part of one side's parameter, of a unit whose counterpart has no such role."""

    match: UnitMatch
    role: str
    held: Held
    ours: bool
    """Whether it is the reference's."""

    @property
    def unit(self) -> HeldUnit:
        """Return the unit that it is a role of."""
        return self.match.units[not self.ours]

    @property
    def partner(self) -> HeldUnit:
        """Return the other side's unit, which has no such role."""
        return self.match.units[self.ours]

    def is_idle(self, gradient: Native) -> bool:
        """Return whether no gradient comes to it, but for rounding: keys are all moved alike by a bias of theirs.

        ``gradient`` reads those of its side. What comes to the rest of its layer tells how large rounding is, or to the
        rest of the parameter where no layer is known.
        """
        found = {held: gradient(held.parameter) for held in self.unit.roles.values()}
        sizes = {held: root_mean_square(canonical(held, one)) for held, one in found.items() if one is not None}
        own = found[self.held]
        if own is None:
            return True
        beside = sizes.values() if self.unit.kind else [root_mean_square(own)]
        rounding = NEGLIGIBLE_GRADIENT(epsilon(np.dtype(own.dtype))) * max(beside)
        return sizes[self.held] <= rounding


def parts_alone(matches: Sequence[UnitMatch], *, whole: bool = False) -> list[PartAlone]:
    """Return the parts of parameters that one side alone has, where other parts of these have a counterpart.

    Also where no part has one, if that is asked for: as a ``whole`` they have none then. A parameter that has a
    counterpart as a whole has one for each part.
    """
    lacking = [
        PartAlone(match, role, held, ours)
        for match in matches
        for role, held, ours in match.missing
        if held.part.partial and not held.parameter.buffer
    ]
    links = [link for match in matches if lacking for link in match.links]
    linked = [[held for link in links for held in link.references], [link.candidate for link in links]]
    paths = [{held.parameter.path for held in side} for side in linked]
    wholes = [{held.parameter.path for held in side if not held.part.partial} for side in linked]
    places = [{(held.parameter.path, held.part) for held in side} for side in linked]
    return [
        one
        for one in lacking
        if (whole or one.held.parameter.path in paths[not one.ours])
        and one.held.parameter.path not in wholes[not one.ours]
        and (one.held.parameter.path, one.held.part) not in places[not one.ours]
    ]
