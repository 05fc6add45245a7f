"""Say how values of recorded runs are like the reference's, where more differs than what they are made of explains."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.judging._causes import cause_between
from padiff.judging._likeness import likeness, named_around
from padiff.judging._recorded._leaps import Leaps
from padiff.judging._recorded._parameter_values import with_nothing
from padiff.judging._sizes import held
from padiff.judging._suspicion import Suspicion, beside
from padiff.numerics import CAST, FLOORS, SAME, Array, epsilon
from padiff.report import SIDES, Evidence, Phase
from padiff.trace import Leaf


def likened_here(one: Suspicion, leaps: Leaps) -> Suspicion:
    """Return a suspicion with how its value, or gradient, is like the reference's, where both were kept whole.

    A gradient that a module sends lacks what the code around it, which takes the tensor as well, is to send: then it is
    that code's.
    """
    leap = next((said.figures for said in one.ruling.evidence if said.kind == "leap"), None)
    spot, gradient = one.spot, one.phase is Phase.BACKWARD
    if leap is None or spot is None or not one.arises or cause_between(one.pair, one.phase) is not None:
        return one

    def read(side: int, leaf: Leaf) -> Array | None:
        trace = leaps.meter.traces[side]
        found = held(trace, (trace.gradients if gradient else trace.values).get(leaf.token))
        return found if isinstance(found, np.ndarray) else None

    def named(owner: Pair) -> Iterator[tuple[str, Array]]:
        for name, leaf in named_around(owner, spot, leaps.alignment):
            fits = leaf.token != spot.reference.token and leaf.shape == spot.reference.shape
            value = read(0, leaf) if fits else None
            if value is not None:
                yield name, value

    if not gradient and len(lone := list(_given_alone(one.pair))) == 1:
        one = attrs.evolve(one, ruling=attrs.evolve(one.ruling, evidence=(*lone, *one.ruling.evidence)))
    ours, theirs = read(0, spot.reference), read(1, spot.candidate)
    if gradient:
        ours, theirs = with_nothing(ours, theirs)
    if ours is None or theirs is None:
        return one
    eps = epsilon(ours.dtype)
    bound = min(max(CAST(eps), FLOORS * leap["known"]), SAME(eps))
    around = leaps.alignment.around(one.pair) if gradient and spot.what == "input" else None
    for owner in filter(None, (around, one.pair)):
        found = likeness(ours, theirs, named(owner), bound, gradient=gradient)
        if found is not None and (owner is one.pair or found.kind == "lacks"):
            between = one.between if owner is one.pair else beside(owner, spot.pair, in_front=True)
            ruling = attrs.evolve(one.ruling, evidence=(found, *one.ruling.evidence))
            return attrs.evolve(one, pair=owner, between=between, ruling=ruling)
    return one


def _given_alone(pair: Pair) -> Iterator[Evidence]:
    """Yield, of each side, what its call is given that the other side's is not: a state that is carried on, a mask."""
    for place, (side, call) in enumerate(zip(SIDES, (pair.reference, pair.candidate), strict=True)):
        fed = {both[place] for both in pair.inputs}
        names = [leaf.path for index, leaf in enumerate(call.inputs) if index not in fed]
        if names:
            yield Evidence.of("given_alone", side=side, names=names)
