"""Tell of code that lets no gradient through on one side alone, each once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Check, Forced
from padiff.judging._cuts import cut_at, cut_side, own_code
from padiff.judging._suspicion import Ruling, Suspicion, suspicion_of, value_at
from padiff.report import Evidence, Figures, Phase, Verdict, What
from padiff.trace import Key


def with_cut(suspicion: Suspicion, alignment: Alignment) -> Suspicion:
    """Return a suspicion that says so where its call gives what cannot get a gradient on one side.

    Or where its code gives that to a call inside: which one is told.
    """
    pair, ruling = suspicion.pair, suspicion.ruling
    side = next((side for leaves in pair.made if (side := cut_side(*leaves)) is not None), None)
    if ruling.rests_on("gradient_cut"):
        return suspicion
    if side is not None:
        return attrs.evolve(suspicion, ruling=ruling.resting_on(Evidence("gradient_cut", {"side": side})))
    said = cut_inside(pair, alignment)
    return suspicion if said is None else attrs.evolve(suspicion, ruling=ruling.resting_on(said))


def cut_inside(pair: Pair, alignment: Alignment) -> Evidence | None:
    """Return what says to which call inside a call gives what cannot get a gradient on one side; or None."""
    for call in pair.candidate.children:
        inner = alignment.of_candidate(call)
        for leaves in () if inner is None else inner.taken:
            if (side := cut_side(*leaves)) is not None:
                return Evidence.of("gradient_cut_to", side=side, taker=pair.name_of(call))
    return None


def without_starved(found: Sequence[Suspicion], forced: Forced) -> list[Suspicion]:
    """Return suspicions without those of code that lacks what a call inside of it does not send: that one is told."""
    cut = [one.pair.candidate for one in found if one.ruling.rests_on("gradient_cut", "no_gradient_comes")]
    around = {above.key for call in cut for above in call.ancestors()}
    return [one for one in found if one.pair.key not in around & forced.starved]


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
        before = spot.pair.candidate.index if spot.what == "input" else None
        maker = cut_at(self._alignment, spot.owner, side, before)
        if maker.candidate.path in self._frozen:
            return None
        maker = own_code(self._alignment, maker)
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
        return self.told.setdefault(maker.key, Suspicion(maker, Phase.BACKWARD, what, ruling))
