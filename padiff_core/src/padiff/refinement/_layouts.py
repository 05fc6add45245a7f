"""Match the parameters of two models, copy them, and let forcing settle what names and shapes leave open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from padiff.forcing import Bench
from padiff.parameters import (
    Arrangement,
    Link,
    Packing,
    Pairing,
    UnitMatch,
    canonical,
    copy_link,
    transfer,
)
from padiff.refinement._trials import RIGHT, Trial, trial_without_chance

__all__ = ["choose_layouts"]

Array = NDArray[Any]
Rule = Callable[[Array, Array], bool]
Choice = TypeVar("Choice")

_MOST_LAYOUTS = 16
_MOST_ARRANGEMENTS = 64


def choose_layouts(pairing: Pairing, bench: Bench) -> None:
    """Copy each open layout in the way under which its module reproduces the reference.

    Runs the candidate's module alone on the reference's inputs, once for each layout; in evaluation mode where none is
    right and the reference draws random numbers. A module that is never called, or that no layout makes right, keeps
    the reference's orientation and is listed as undecided.
    """
    for packing in pairing.packings:
        _choose_arrangement(pairing, packing, bench)
    told = {link.candidate.parameter.path: link for _, link in pairing.links if link.single and not link.open}
    for match in pairing.open:
        links = [x for x in match.links if x.open and not _as_tied(x, told.get(x.candidate.parameter.path))]
        if not links:
            continue
        choices = list(itertools.islice(itertools.product((False, True), repeat=len(links)), _MOST_LAYOUTS))
        best, right = _tried(bench, match, choices, partial(_copy_as, links))
        names = [link.candidate.parameter.path for link in links]
        if not right:
            pairing.undecided.extend(names)
            continue
        for name, turned in zip(names, best, strict=True):
            pairing.settled[name] = "transposed" if turned else "as in the reference"


def _choose_arrangement(pairing: Pairing, packing: Packing, bench: Bench) -> None:
    """Let forcing say how a packed layer holds what it packs; the first arrangement that is right ends the search."""

    def put(arrangement: Arrangement) -> None:
        packing.arrange(arrangement)
        transfer(packing.matches)

    choices = list(itertools.islice(packing.arrangements(), _MOST_ARRANGEMENTS))
    chosen, right = _tried(bench, packing.matches[0], choices, put, first=True)
    if not right:
        pairing.undecided.extend({link.candidate.parameter.path for m in packing.matches for link in m.links})
    else:
        pairing.settled[packing.packed.path] = packing.named(chosen)


def _tried(
    bench: Bench, match: UnitMatch, choices: Sequence[Choice], put: Callable[[Choice], None], *, first: bool = False
) -> tuple[Choice, bool]:
    """Put in each choice and leave the best, or the ``first`` that is right; return it, and whether it is right."""
    users = bench.alignment.using(match.candidate.module.path)
    best, least = choices[0], math.inf
    if users:
        best, least = _best(Trial(bench, users[0], bench.trace), choices, put, first=first)
        trial = trial_without_chance(bench, users[0]) if least > RIGHT else None
        if trial is not None:
            best, least = _best(trial, choices, put, first=first)
    put(best)
    return best, least <= RIGHT


def _best(
    trial: Trial, choices: Sequence[Choice], put: Callable[[Choice], None], *, first: bool
) -> tuple[Choice, float]:
    best, least = choices[0], math.inf
    for choice in choices:
        put(choice)
        error = trial.error()
        if error < least:
            best, least = choice, error
        if first and least <= RIGHT:
            break
    return best, least


def _as_tied(link: Link, other: Link | None) -> bool:
    """Give an open link the layout under which it agrees with another link of the same two parameters, if one does."""
    if other is None or other.reference.parameter is not link.reference.parameter:
        return False
    numbers = np.arange(np.prod(link.reference.parameter.shape)).reshape(link.reference.parameter.shape)
    expected = _placed(other, numbers)
    for link.transposed in (False, True):
        if np.array_equal(_placed(link, numbers), expected):
            link.open = False
            return True
    return False


def _placed(link: Link, values: Array) -> Array:
    """Return what the candidate's parameter holds where the reference's holds these values."""
    native = np.full(link.candidate.parameter.shape, -1)
    link.candidate.part.write(native, link.to_candidate(canonical(link.reference, values)))
    return native


def _copy_as(links: Sequence[Link], choice: tuple[bool, ...]) -> None:
    for link, turned in zip(links, choice, strict=True):
        link.transposed = turned
        copy_link(link)
