"""Find where one side alone lets no gradient through: a tensor that is detached, or made without gradients, there.

Whatever is made of such a tensor alone cannot get a gradient either. So the code at fault is the one that first made
one, on the way to wherever a gradient was missed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Check, Forced, Spot
from padiff.judging._suspicion import Ruling, Suspicion, suspicion_of, value_at
from padiff.report import Evidence, Figures, Phase, Verdict, What
from padiff.trace import Key, Leaf


def cut_side(ours: Leaf, theirs: Leaf) -> str | None:
    """Return the side on which a tensor cannot get a gradient, where it can on the other one."""
    if ours.differentiable == theirs.differentiable:
        return None
    return "candidate" if ours.differentiable else "reference"


def with_cut(suspicion: Suspicion) -> Suspicion:
    """Return a suspicion that says so where its call gives what cannot get a gradient on one side."""
    pair, ruling = suspicion.pair, suspicion.ruling
    side = next((side for leaves in pair.made if (side := cut_side(*leaves)) is not None), None)
    if side is None or any(one.kind == "gradient_cut" for one in ruling.evidence):
        return suspicion
    evidence = (*ruling.evidence, Evidence("gradient_cut", {"side": side}))
    return attrs.evolve(suspicion, ruling=attrs.evolve(ruling, evidence=evidence))


def likely_sender(spot: Spot, suspects: Sequence[Pair], forced: Forced, alignment: Alignment) -> Pair:
    """Return whose code most likely sent a wrong gradient, where no replay tells.

    That is what is around a call that takes another tensor than it does in the reference: it gave it that. Else it is
    the innermost of the model's own code.
    """
    token, takers = spot.reference.token, [*forced.consumers.get(spot.candidate.token, ()), spot.pair]
    taking = (one for one in alignment.pairs if any(ours.token == token for ours, _ in one.taken))
    others = [alignment.around(one) for one in taking if one not in takers]
    modules = ((pair, pair.candidate.module) for pair in suspects)
    own = (pair for pair, module in modules if module.kind is None and not module.operation)
    return next(pair for pair in (*others, *own, *suspects, spot.pair) if pair is not None)


class Cuts:
    """The calls that let no gradient through on one side alone; each is told once."""

    def __init__(self, alignment: Alignment, frozen: Collection[str]) -> None:
        self._alignment = alignment
        self._frozen = frozen
        """Paths of the candidate's modules of which a parameter is frozen on one side only: told with that."""
        self.told: dict[Key, Suspicion] = {}
        """By call: what else differs behind it follows."""

    def suspicion(self, check: Check, side: str, excused: set[Key]) -> Suspicion | None:
        """Rule on a gradient that differs because its tensor cannot get one on a side."""
        spot = check.spot
        if spot.owner is None:
            return None
        maker = self._maker(spot.owner, side, spot.pair.candidate.index if spot.what == "input" else None)
        if maker.candidate.path in self._frozen:
            return None
        if maker.candidate.module.kind is not None and maker.reference.module.kind is not None:
            maker = self._alignment.around(maker) or maker  # a framework's own module lets gradients through
        if maker.key in excused or maker.key in self.told:
            return None
        figures = Figures.of(check.difference)
        ruling = Ruling(Verdict.DIFFERS, figures, (Evidence("gradient_cut", {"side": side}),))
        if maker is spot.owner or maker is self._alignment.around(spot.owner):
            found = suspicion_of(maker, Phase.BACKWARD, value_at(spot, gradient=True), ruling, check)
            return self.told.setdefault(maker.key, found)
        leaves = maker.candidate.outputs
        index = next((b for a, b in maker.outputs if cut_side(maker.reference.outputs[a], leaves[b]) == side), 0)
        what = What("output_gradient", leaves[index].path if len(leaves) > 1 else "", index)
        return self.told.setdefault(maker.key, Suspicion(maker, Phase.BACKWARD, what, ruling, maker.candidate.index))

    def _maker(self, pair: Pair, side: str, before: int | None = None) -> Pair:
        """Return the call that first made a cut tensor, on the way to one that a call made before some other call."""
        for call in pair.candidate.subtree():
            inner = self._alignment.of_candidate(call)
            if inner is None or inner is pair or (before is not None and call.index >= before):
                continue
            if any(cut_side(*leaves) == side for leaves in inner.made):
                return self._maker(inner, side)
        given = any(cut_side(*leaves) == side for leaves in pair.taken)
        around = self._alignment.around(pair) if given else None
        return pair if around is None else self._maker(around, side, pair.candidate.index)
