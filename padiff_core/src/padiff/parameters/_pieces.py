"""Tie single parameters of units that no rule speaks of: their names and shapes tell little, their use tells more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from padiff.grouping import grouped
from padiff.parameters._links import Link
from padiff.parameters._roles import UnitMatch, link_roles
from padiff.parameters._units import HeldUnit, Units

Homes = dict[HeldUnit, UnitMatch]
"""The match that a piece of either side is of."""
Match = Callable[[Units, Units, dict[HeldUnit, HeldUnit], Homes], dict[HeldUnit, HeldUnit]]
"""Takes the units of both sides, which belong together for sure, and which had better stay at home; returns more."""


def with_pieces(ours: Units, theirs: Units, matches: Sequence[UnitMatch], match: Match) -> list[UnitMatch]:
    """Return the matches with the parameters of units that no rule speaks of tied by their own place in the dataflow.

    Where two belong together whose units do not (a table of positions hangs at the encoder here, beside a class token
    there), they are a match of their own.
    """
    partner = {one.reference: one.candidate for one in matches}
    whole = {one.reference: one.candidate for one in matches if _is_whole(one)}
    cut = {held.parameter.path for one in matches for held in one.ends if held.part.partial}
    units = {*ours, *theirs}
    # What a guess ties in pieces stays as it is.
    tied = {held for one in matches if not units.issuperset(one.units) for held in one.ends}
    kept = {*whole, *whole.values()}
    kept |= {unit for unit in units if unit.paths <= cut or not tied.isdisjoint(unit.roles.values())}
    pieces = [{unit: list(_pieces(unit)) for unit in units if unit not in kept} for units in (ours, theirs)]
    if not any(len(found) > 1 for side in pieces for found in side.values()):
        return list(matches)
    split = [
        [piece for unit in units for piece in side.get(unit, [unit])]
        for side, units in zip(pieces, (ours, theirs), strict=True)
    ]
    full = [one for one in matches if one.links and next(one.missing, None) is None]
    homes = {
        piece: one for one in full for side, unit in zip(pieces, one.units, strict=True) for piece in side.get(unit, ())
    }
    found = _in_order(match(split[0], split[1], whole, homes), matches)
    home = [{piece: unit for unit, all_of_them in side.items() for piece in all_of_them} for side in pieces]
    matched = {a: b for a, b in found.items() if a in home[0] and b in home[1]}
    result = [one for one in matches if one.reference in whole or one.reference not in pieces[0]]
    result += [_joined(one, matched, pieces[0]) for one in matches if one not in result]
    elsewhere = [UnitMatch.of(a, b) for a, b in matched.items() if partner.get(home[0][a]) is not home[1][b]]
    linked = {held for one in result for held in one.ends}
    return result + [one for one in elsewhere if linked.isdisjoint(one.ends)]


def _in_order(found: dict[HeldUnit, HeldUnit], matches: Sequence[UnitMatch]) -> dict[HeldUnit, HeldUnit]:
    """Return which pieces belong together, parts of one parameter (of complex numbers) as names and their order say.

    They are used by the same code, whose other side may be told apart by what it does with each.
    """
    known = {link.reference: link.candidate for one in matches for link in one.links}
    alone = [both for both in found.items() if all(len(piece.roles) == 1 for piece in both)]
    held = {piece: one for both in alone for piece in both for one in piece.roles.values()}
    result = dict(found)
    for side in (0, 1):
        for some in grouped(alone, lambda both: held[both[side]].parameter.path).values():  # noqa: B023  used at once
            others = {held[b]: b for _, b in some}
            if len(some) > 1 and {known.get(held[a]) for a, _ in some} == others.keys():
                result |= {a: others[known[held[a]]] for a, _ in some}
    return result


def _is_whole(match: UnitMatch) -> bool:
    """Return whether two units belong together as they are: by rules, or since one that a rule speaks of has it all."""
    loose = [unit.loose for unit in match.units]
    return not any(loose) or (not all(loose) and next(match.missing, None) is None)


def _pieces(unit: HeldUnit) -> Iterator[HeldUnit]:
    """Yield a unit of each parameter of a unit."""
    alone = len(unit.roles) == 1 or not unit.loose
    yield from [unit] if alone else map(unit.piece, unit.roles)


def _joined(match: UnitMatch, matched: dict[HeldUnit, HeldUnit], pieces: dict[HeldUnit, list[HeldUnit]]) -> UnitMatch:
    """Return a match with its parameters tied as their places tell, and as before where these tell nothing."""
    theirs = {id(held) for held in match.candidate.roles.values()}
    links: list[Link] = []
    for piece in pieces[match.reference]:
        other = matched.get(piece)
        if other is not None and {id(held) for held in other.roles.values()} <= theirs:
            links += link_roles(piece, other)[1]
    placed = {held for a, b in matched.items() for held in UnitMatch.of(a, b).ends}
    links += [link for link in match.links if placed.isdisjoint(link.ends)]
    return UnitMatch(match.reference, match.candidate, links)
