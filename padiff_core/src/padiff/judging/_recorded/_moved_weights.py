"""Tell what follows, within one step, from weights that moved otherwise: what scripts make of them behind the step."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.alignment import Alignment, Pair
from padiff.judging._findings import pair_of
from padiff.judging._recorded._leaps import Leaps
from padiff.numerics import SAME, VANISHES, epsilon_of
from padiff.report import Evidence, Finding


def of_moved_weights(found: Sequence[Finding], leaps: Leaps) -> list[Finding]:
    """Return findings of which those are no sources that a script may have made with weights which moved otherwise.

    What it gives behind the optimizer's step, as an actor is trained behind its world model, and what its loss sends
    there (which critic is the least is another one in some rows): the step is told, or what led to it. See
    `else_of_the_inputs`.
    """
    told = []
    for one in found:
        pair = pair_of(one, leaps.alignment) if one.source else None
        after = None if pair is None else leaps.moved.get(pair.key)
        moved = after.whole if after is not None and after.whole > SAME(epsilon_of("float32")) else 0.0
        near = one.figures is not None and one.figures.rel_l2 <= VANISHES * moved
        if moved and ((one.rests_on("other_inputs") and near) or _is_sent_by_a_loss(one, pair)):
            said = Evidence.of("moved_weights", known=moved)
            one = attrs.evolve(one, source=False, evidence=(*one.evidence, said))
        told.append(one)
    return told


def _is_sent_by_a_loss(one: Finding, pair: Pair | None) -> bool:
    return one.what.kind == "output_gradient" and pair is not None and pair.candidate.parent is None


def else_of_the_inputs(found: Sequence[Finding]) -> list[Finding]:
    """Return findings of which the first made by a script behind the step is a source, where nothing else is one."""
    said = [one for one in found if one.rests_on("moved_weights")]
    first = said[0] if said and not any(one.source for one in found) else None
    return [attrs.evolve(one, source=True) if one is first else one for one in found]


def behind_another(one: Finding, found: Sequence[Finding], alignment: Alignment) -> bool:
    """Return whether a module gives something else since a script moved its weights within the step, behind a source.

    It moves them by gradients: of what differs in front (a batch, a pass more), these follow.
    """
    pair = pair_of(one, alignment)
    if pair is None or not one.rests_on("changed_within_step"):
        return False
    others = (pair_of(other, alignment) for other in found if other.source and other is not one)
    return any(other is None or other.candidate.top.index < pair.candidate.top.index for other in others)
