"""Know in which type calls compute that give a wider one: the gradients of their weights show it.

A product of what is cast (to float16, say) to which a bias is added in float32 looks like float32. What comes back to
the weight went through the cast: it lies on the grid of the narrower type.
"""

from __future__ import annotations

from collections.abc import Mapping

from padiff.alignment import Pair
from padiff.judging._recorded._parameter_values import Kept
from padiff.judging._sizes import held
from padiff.kinds import PRODUCTS, SLIDING
from padiff.numerics import epsilon_of, narrowest, sample
from padiff.parameters import Correspondence
from padiff.parameters import Held as HeldParameter
from padiff.trace import Call, Key, Leaf, Summary

_PRODUCTS = PRODUCTS | SLIDING
Types = tuple[str, str]
"""Names of types: the reference's, and the candidate's."""
_TAKEN_UP = "embedding"
"""The kind whose weight gets what comes to its output as it is: whoever rounded that, its own code did not."""


def computed_in(gradients: tuple[Kept, Kept], known: Correspondence) -> dict[Key, Types]:
    """Return in which types the code of matched calls computes, where those are narrower than their weights'."""
    found: dict[Key, Types] = {}
    for match, link in known.links:
        product = len(link.candidate.shape) > 1 and _TAKEN_UP not in (match.reference.kind, match.candidate.kind)
        if link.buffer or not product:
            continue
        for pair in known.alignment.using(match.candidate.module.path):
            ours = _coarsest(*(_shown(gradients[0], one, pair.reference) for one in link.references))
            theirs = _shown(gradients[1], link.candidate, pair.candidate)
            before = found.get(pair.key, ("", ""))
            if ours or theirs:
                found[pair.key] = _coarsest(before[0], ours), _coarsest(before[1], theirs)
    return found


def types_of(ours: Leaf, theirs: Leaf, maker: Pair | None, computing: Mapping[Key, Types]) -> Types:
    """Return in which types a value was made: its own, or narrower ones in which the code that makes it computes."""
    types = computing.get(maker.key) if maker is not None else None
    if types is None or not epsilon_of(ours.dtype) or not epsilon_of(theirs.dtype):
        return ours.dtype, theirs.dtype
    return _coarsest(ours.dtype, types[0]), _coarsest(theirs.dtype, types[1])


def _shown(kept: Kept, parameter: HeldParameter, user: Call) -> str:
    """Return the type on whose grid a parameter's gradient lies that is held in a wider one; empty for none.

    Where no gradient was kept, the casts that a product is called under tell.
    """
    record = parameter.parameter
    if record.path not in kept:
        return user.casting or "" if user.module.kind in _PRODUCTS else ""
    value = held(*kept[record.path])
    few = value.sample if isinstance(value, Summary) else None if value is None else sample(value)
    name = None if few is None else narrowest(few)
    return name if name and epsilon_of(record.dtype) < epsilon_of(name) else ""


def _coarsest(*names: str) -> str:
    return max((name for name in names if name), key=epsilon_of, default="")
