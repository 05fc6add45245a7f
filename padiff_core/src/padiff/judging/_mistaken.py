"""Name the value of the reference that a wrong value is: an output in another's place, the operand of a step left out.

The call was fed with the reference's own values in float64, where two values that agree are one.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Reader, Replayed, Spot
from padiff.judging._ruling import Ruling
from padiff.numerics import ROUNDING, SAME, difference, epsilon, numpy_dtype
from padiff.report import Evidence
from padiff.trace import Leaf


def with_value_named(
    ruling: Ruling,
    owner: Pair,
    spot: Spot,
    read: Reader,
    runs: tuple[Replayed | None, Replayed | None],
    alignment: Alignment,
) -> Ruling:
    """Return the ruling on a value of a call's own code, with the name of the reference's value that it is, if any.

    ``runs`` is what both sides of the call did by themselves.
    """
    ours, theirs = runs
    wrong = None if theirs is None else read(theirs, False)
    eps = epsilon(numpy_dtype(spot.reference.dtype))
    if ruling.figures.rel_l2 <= SAME(eps) or ours is None or wrong is None or not wrong.any():
        return ruling
    for name, leaf in _named(owner, alignment):
        value = ours.observed.values.get(leaf.token)
        if leaf.token == spot.reference.token or value is None or value.shape != wrong.shape:
            continue
        if difference(value, wrong).rel_l2 <= ROUNDING(eps):
            return attrs.evolve(ruling, evidence=(*ruling.evidence, Evidence("mistaken_value", {"value": name})))
    return ruling


def _named(owner: Pair, alignment: Alignment) -> Iterator[tuple[str, Leaf]]:
    """Yield the values around a call's own code, as the reference has them, by names that repeated blocks share."""
    call = owner.reference
    for what, leaves in (("output", call.outputs), ("input", call.inputs)):
        yield from ((f"{what} {leaf.path}".rstrip(), leaf) for leaf in leaves)
    for inner in call.subtree():
        pair = None if inner is call else alignment.of_reference(inner)
        if pair is not None:
            name = inner.path.removeprefix(f"{call.path}.")
            yield from ((" ".join(filter(None, ("output", leaf.path, "of", name))), leaf) for leaf in inner.outputs)
