"""Find where one side alone lets no gradient through: a tensor that is detached, or made without gradients, there.

Whatever is made of such a tensor alone cannot get a gradient either. So the code at fault is the one that first made
one, on the way to wherever a gradient was missed.
"""

from __future__ import annotations

from padiff.alignment import Alignment, Pair
from padiff.trace import Leaf


def cut_side(ours: Leaf, theirs: Leaf) -> str | None:
    """Return the side on which a tensor cannot get a gradient, where it can on the other one."""
    if ours.differentiable == theirs.differentiable:
        return None
    return "candidate" if ours.differentiable else "reference"


def cut_at(alignment: Alignment, pair: Pair, side: str, before: int | None = None) -> Pair:
    """Return the call that first made a cut tensor, on the way to one that a call made before some other call."""
    for call in pair.candidate.subtree():
        inner = alignment.of_candidate(call)
        if inner is None or inner is pair or (before is not None and call.index >= before):
            continue
        if any(cut_side(*leaves) == side for leaves in inner.made):
            return cut_at(alignment, inner, side)
    given = any(cut_side(*leaves) == side for leaves in pair.taken)
    around = alignment.around(pair) if given else None
    return pair if around is None else cut_at(alignment, around, side, pair.candidate.index)


def own_code(alignment: Alignment, pair: Pair) -> Pair:
    """Return a call of the model's own code, or the one around: a framework's own module lets gradients through."""
    known = pair.candidate.module.kind is not None and pair.reference.module.kind is not None
    return (alignment.around(pair) if known else None) or pair
