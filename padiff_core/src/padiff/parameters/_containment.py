"""Ask whether what lies together in one model lies together in the other: containment is evidence of a matching."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from padiff.parameters._roles import UnitMatch


def out_of_place(matches: Sequence[UnitMatch]) -> int:
    """Return how many matched units lie outside the composite that what is beside them was matched into.

    Two composites belong together where more than half of what lies in either is matched within both. What one model
    nests and the other does not has no such counterpart, and says nothing.
    """
    found = [match for match in matches if match.links]
    inside: tuple[dict[str, set[int]], dict[str, set[int]]] = {}, {}
    for index, match in enumerate(found):
        for held, unit in zip(inside, match.units, strict=True):
            for path in composites(unit.module.path):
                held.setdefault(path, set()).add(index)
    stray: set[int] = set()
    for ours in inside[0].values():
        near = Counter(path for index in ours for path in composites(found[index].candidate.module.path))
        apart = (ours ^ inside[1][path] for path, both in near.items() if 2 * both > len(ours | inside[1][path]))
        stray |= min(apart, key=len, default=set())
    return len(stray)


def composites(path: str) -> Iterator[str]:
    """Yield the paths of what a module lies in, but for the model itself."""
    while path := path.rpartition(".")[0]:
        yield path
