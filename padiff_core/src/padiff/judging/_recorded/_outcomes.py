"""Tell gradients inside that are no matter: all that they lead to agrees, or all that the code around makes of them.

One side may go on with a value of which the other has two: scores, and these transposed; words that are looked up once,
or twice. Then what comes to it is the sum of both there, and here one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.alignment import Alignment
from padiff.forcing import Check
from padiff.judging._notes import harmless_note
from padiff.judging._recorded._leaps import Leaps
from padiff.judging._recorded._sent_alike import by_rows, reaches_parameters
from padiff.judging._recorded._state import gradients_of
from padiff.judging._suspicion import Suspicion
from padiff.numerics import FLOORS, SAME, VANISHES
from padiff.parameters import Correspondence
from padiff.report import Evidence, Note, Phase, Verdict
from padiff.trace import Key


def outcomes(
    told: Sequence[Suspicion], leaps: Leaps, known: Correspondence, *, ruled: bool
) -> tuple[list[Suspicion], list[Note]]:
    """Return what differs, but for gradients inside where nothing else does: notes tell of those.

    Where the gradient of a parameter is not known, this is said of the model's outputs alone: all others follow from
    theirs. Beside others they are no sources. Where a rule of the user's decides (``ruled``), all stay.
    """
    given = {(ours.token, theirs.token) for top in known.alignment.tops for ours, theirs in top.taken}

    def is_inside(one: Suspicion) -> bool:
        spot = one.spot if one.phase is Phase.BACKWARD else None
        # What the model is given a call inside may be given too: its gradient is one that the model gives.
        return spot is not None and (spot.reference.token, spot.candidate.token) not in given and not by_rows(one)

    inside = list(filter(is_inside, told))
    if not inside or ruled:
        return list(told), []
    alone = {id(one) for one in _left_alone(inside, leaps.checks, known.alignment)}
    differs = any(one.verdict is Verdict.DIFFERS for one in told if one not in inside)
    if differs:
        return [attrs.evolve(one, arises=False) if id(one) in alone else one for one in told], []
    if not _agree(inside, alone, leaps, known):
        return list(told), []
    return [one for one in told if one not in inside], list(map(harmless_note, inside))


def with_first(told: Sequence[Suspicion]) -> list[Suspicion]:
    """Return what differs, with the first value that rounding cannot have made as the source where none leaps.

    What a loss sends to a model's outputs tells by itself where it differs for sure: see `of_each_row`.
    """
    grown = next((one for one in told if any(map(_grows, one.ruling.evidence))), None)
    if grown is None or any(one.arises for one in told) or (grown.phase is Phase.BACKWARD and _is_output(grown)):
        return list(told)
    return [attrs.evolve(one, arises=one is grown) for one in told]


def _grows(said: Evidence) -> bool:
    grown = said.kind == "grown" and said.figures["made"] > FLOORS * said.figures["known"]
    return grown or said.kind == "other_norm"


def _agree(inside: Sequence[Suspicion], alone: set[int], leaps: Leaps, known: Correspondence) -> bool:
    """Return whether the gradients of all parameters agree, or what the code around makes of those inside."""
    gradients = [both for match in known.matches for both in gradients_of(leaps.meter, match)]
    # Of what one script cleared in front of its step, what is left counts.
    sizes = [leaps.meter.of_link(link, "kept") if any(leaps.meter.clears(link)) else size for link, size in gradients]
    measured = [one for one in sizes if one is not None and not one.least]
    if len(measured) < len(sizes) and not all(map(_is_output, inside)):
        return False
    apart = max((one.error for one in measured), default=0.0)
    agree = bool(measured) and all(one.error <= SAME(one.eps) for one in measured)
    agree = agree and not any(reaches_parameters(one, leaps.meter, apart) for one in inside)
    return agree or all(id(one) in alone for one in inside)


def _is_output(one: Suspicion) -> bool:
    """Return whether it is on what the model itself gives."""
    return one.spot is not None and one.spot.what == "output" and one.spot.pair.candidate.parent is None


def _left_alone(told: Sequence[Suspicion], checks: Sequence[Check], alignment: Alignment) -> list[Suspicion]:
    """Return those of what differs backward that leave nothing behind them in the same code.

    What a call sends alone is in no sum of the other side's code, where that goes on with the tensor itself, and here
    with a view of it. What it sends wrongly is in all that the code around computes from it.
    """
    inside: dict[Key, list[Check]] = {}
    for check in (one for one in checks if one.backward):
        pair = check.spot.pair
        for owner in (alignment.around(pair), pair if check.spot.what == "input" else None):
            if owner is not None:
                inside.setdefault(owner.key, []).append(check)
    sent = [(one, one.spot.key) for one in told if one.phase is Phase.BACKWARD and one.spot is not None]
    leaps = {key: said.figures["known"] for one, key in sent for said in one.ruling.evidence if said.kind == "leap"}
    alone: set[tuple[int, str, int, str]] = set()
    for each in inside.values():
        behind: list[float] = []
        for check in reversed(each):
            error, known = check.difference.rel_l2, leaps.get(check.spot.key, 0.0)
            if check.spot.what == "input" and behind and max(behind) <= max(FLOORS * known, error / VANISHES):
                alone.add(check.spot.key)
            else:
                behind.append(error)
    return [one for one, key in sent if key in alone]
