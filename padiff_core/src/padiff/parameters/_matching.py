"""Match the parameters of two models, unit by unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.alignment import (
    Resolved,
    agreement,
    align_sequences,
    forward_run,
    gaps,
    region_of,
    renumbered,
    similarity,
)
from padiff.grouping import grouped
from padiff.parameters._roles import FULL, UnitMatch, link_roles
from padiff.parameters._units import HeldUnit
from padiff.trace import settings_of

_SETTINGS_WEIGHT = 0.3
_WHOLE_WEIGHT = 0.3
"""What counts that both sides hold a layer in parameters of its own, or both as a piece of packed ones."""
_NEVER = -99


def same_names(reference: Sequence[HeldUnit], candidate: Sequence[HeldUnit]) -> list[UnitMatch] | None:
    """Return the matches where both models name their units alike and all of them fit, else None."""
    ours, theirs = (_by_name(units) for units in (reference, candidate))
    if {name: len(some) for name, some in ours.items()} != {name: len(some) for name, some in theirs.items()}:
        return None
    return _all_fit(pair for name, some in ours.items() for pair in zip(some, theirs[name], strict=True))


def _by_name(units: Sequence[HeldUnit]) -> dict[tuple[str, str], list[HeldUnit]]:
    """Return units by name: what a module holds beside the layer that a rule names is called as that is."""
    named = zip(_named(units), units, strict=True)
    found = grouped(named, lambda one: (one[0], one[1].name))
    return {name: [unit for _, unit in some] for name, some in found.items()}


def same_order(reference: Sequence[HeldUnit], candidate: Sequence[HeldUnit]) -> list[UnitMatch] | None:
    """Return the matches one by one where both models list as many units and all of them fit so, else None."""
    return _all_fit(zip(reference, candidate, strict=True)) if len(reference) == len(candidate) else None


def _all_fit(pairs: Iterable[tuple[HeldUnit, HeldUnit]]) -> list[UnitMatch] | None:
    found = list(pairs)
    fits = all(link_roles(*pair)[0] >= FULL for pair in found)
    return [UnitMatch.of(*pair) for pair in found] if fits else None


def match_units(
    reference: Sequence[HeldUnit],
    candidate: Sequence[HeldUnit],
    fixed: Resolved | None = None,
    known: Mapping[int, int] | None = None,
) -> list[UnitMatch]:
    """Match units of two models; both sequences in execution order. What is ``known`` already stays, by index.

    Kinds and shapes must fit. Order and names then decide together: a global alignment in execution order
    (Needleman-Wunsch) gives a first matching, what is left over is matched by name, and partners are exchanged where
    names say so beyond doubt (q, k and v called in another order). What is below a module that the user ``fixed`` to
    one of the candidate belongs below that; where a mapping file only names it, what finds no counterpart there may
    find one elsewhere.
    """
    fixed = fixed or Resolved()
    found = _matched_within(reference, candidate, fixed, known or {})
    if not (fixed.named or fixed.groups):
        return found
    sure = (match.units for match in found if match.links)
    return _matched_within(reference, candidate, fixed.whole, indices(sure, reference, candidate))


def indices(
    pairs: Iterable[tuple[HeldUnit, HeldUnit]], ours: Sequence[HeldUnit], theirs: Sequence[HeldUnit]
) -> dict[int, int]:
    """Return where in both sequences the units of pairs stand, of those that stand in both."""
    places = {unit: i for i, unit in enumerate(ours)}, {unit: j for j, unit in enumerate(theirs)}
    return {places[0][one]: places[1][other] for one, other in pairs if one in places[0] and other in places[1]}


def _matched_within(
    reference: Sequence[HeldUnit], candidate: Sequence[HeldUnit], fixed: Resolved, known: Mapping[int, int]
) -> list[UnitMatch]:
    """Return the matches of units of one region, beside what is known."""
    ours_in, theirs_in = regions_of(reference, candidate, fixed)
    names = similarity(_named(reference), _named(candidate))
    fit = np.zeros((len(reference), len(candidate)), np.float32)
    ours_like, theirs_like = [_signature(unit) for unit in reference], [_signature(unit) for unit in candidate]
    cache: dict[tuple[Any, ...], float] = {}
    for i, ours in enumerate(reference):
        for j, theirs in enumerate(candidate):
            if ours_in[i] != theirs_in[j]:
                continue
            key = (ours_like[i], theirs_like[j])
            if key not in cache:
                cache[key] = _fit(ours, theirs)
            fit[i, j] = cache[key]
    sure = agreement([unit.path for unit in reference], [unit.path for unit in candidate])
    kept = dict(known)
    fit[list(kept), :] = 0
    fit[:, list(kept.values())] = 0
    scores = np.where(fit > 0, fit + names, 0).astype(np.float32)
    pairs = _aligned_between(kept, scores)
    if len(kept) + len(pairs) < min(scores.shape):
        homes = {(reference[i].module.path, candidate[j].module.path) for i, j in (*kept.items(), *pairs)}
        at_home = np.array([[(a.module.path, b.module.path) in homes for b in candidate] for a in reference])
        pairs += _left_over([*kept.items(), *pairs], np.where(at_home, scores, 0))
    pairs = [*kept.items(), *_swapped_by_name(pairs + _left_over(pairs, scores), fit, sure)]
    pairs += _misfits(pairs, reference, candidate, names)
    return [UnitMatch.of(reference[i], candidate[j]) for i, j in sorted(pairs)]


def regions_of(
    reference: Sequence[HeldUnit], candidate: Sequence[HeldUnit], fixed: Resolved
) -> tuple[list[int | None], list[int | None]]:
    """Return which of the mapped modules each unit lies in."""
    ours, theirs = fixed.regions()
    return (
        [region_of(unit.module.path, ours) for unit in reference],
        [region_of(unit.module.path, theirs) for unit in candidate],
    )


def _aligned_between(known: Mapping[int, int], scores: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return the best pairs in order, each between the same known pairs on both sides."""
    found = []
    for rows, columns in gaps(forward_run(sorted(known.items())), *scores.shape):
        pairs = align_sequences(scores[rows.start : rows.stop, columns.start : columns.stop])
        found += [(rows.start + i, columns.start + j) for i, j in pairs]
    return found


def _named(units: Sequence[HeldUnit]) -> list[str]:
    ranked = renumbered([unit.path for unit in units])
    return [ranked[unit.path] for unit in units]


def _fit(reference: HeldUnit, candidate: HeldUnit) -> float:
    """Return how well two units fit: their roles first, then how many hyper-parameters agree; 0 where they cannot."""
    if reference.special is not None and reference.special is candidate.special:
        return FULL  # what its function gives is asked for once the partners are known
    fit = link_roles(reference, candidate)[0]
    fit += _WHOLE_WEIGHT * (bool(fit) and _is_piece(reference) == _is_piece(candidate))
    ours, theirs = settings_of(reference), settings_of(candidate)
    shared = ours.keys() & theirs.keys()
    if not fit or not shared or reference.kind != candidate.kind:
        return fit
    equal = sum(bool(ours[name] == theirs[name]) for name in shared)
    return fit + _SETTINGS_WEIGHT * equal / len(shared)


def _is_piece(unit: HeldUnit) -> bool:
    """Return whether a unit shares its parameters with others, which they pack: the query of an attention."""
    return any(held.part.piece is not None for held in unit.roles.values())


def _signature(unit: HeldUnit) -> tuple[Any, ...]:
    shapes = tuple((role, held.shape) for role, held in unit.roles.items())
    return (
        unit.kind,
        len(unit.stack),
        shapes,
        _is_piece(unit),
        unit.module.class_name if unit.kind is None else repr(settings_of(unit)),
    )


def _swapped_by_name(
    pairs: list[tuple[int, int]], fit: NDArray[np.float32], alike: NDArray[np.int64]
) -> list[tuple[int, int]]:
    """Return the pairs with partners exchanged, as long as that puts more together whose names say the same."""
    if len(pairs) < 2:
        return pairs
    ours = np.array([i for i, _ in pairs])
    theirs = np.array([j for _, j in pairs])
    for _ in range(len(pairs)):
        crossed = np.where(fit[np.ix_(ours, theirs)] > 0, alike[np.ix_(ours, theirs)], _NEVER)
        now = alike[ours, theirs]
        gain = crossed + crossed.T - now[:, None] - now[None, :]
        a, b = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[a, b] <= 0:
            break
        theirs[a], theirs[b] = theirs[b], theirs[a]
    return list(zip(ours.tolist(), theirs.tolist(), strict=True))


def _misfits(
    pairs: list[tuple[int, int]],
    reference: Sequence[HeldUnit],
    candidate: Sequence[HeldUnit],
    names: NDArray[np.float32],
) -> list[tuple[int, int]]:
    """Return pairs of units of one kind that are left between the same neighbours, though their shapes do not fit."""
    ours, theirs = {i for i, _ in pairs}, {j for _, j in pairs}
    found = []
    for i, j in gaps(forward_run(sorted(pairs)), len(reference), len(candidate)):
        a = [x for x in i if x not in ours and reference[x].kind is not None]
        b = [x for x in j if x not in theirs]
        scores = np.zeros((len(a), len(b)), np.float32)
        for x, y in np.ndindex(scores.shape):
            if reference[a[x]].kind == candidate[b[y]].kind:
                scores[x, y] = 1 + names[a[x], b[y]]
        found += [(a[x], b[y]) for x, y in align_sequences(scores)]
    return found


def _left_over(pairs: list[tuple[int, int]], scores: NDArray[np.float32]) -> list[tuple[int, int]]:
    free = scores.copy()
    for i, j in pairs:
        free[i, :] = 0
        free[:, j] = 0
    return best_first(free)


def best_first(scores: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return pairs of a row and a column, each in one pair at most: the highest positive score first."""
    free, found = scores.copy(), []
    while free.size and free.max() > 0:
        i, j = divmod(int(np.argmax(free)), free.shape[1])
        found.append((i, j))
        free[i, :] = 0
        free[:, j] = 0
    return found
