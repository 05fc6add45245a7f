"""Match the parameters of two models, and give the candidate the reference's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from padiff.alignment import Resolved
from padiff.forcing import Side
from padiff.parameters import (
    Correspondence,
    HeldUnit,
    Specials,
    defined_alike,
    in_real_numbers,
    named_alike,
    pair_parameters,
    units_of,
    values_of,
    with_copies,
    with_shared,
)
from padiff.refinement import (
    Evidence,
    is_given,
    networks_by_value,
    with_batches_divided,
    with_buffers_matched,
    with_buffers_named,
    with_exchanges_by_value,
    with_layouts,
    with_layouts_by_value,
    with_norms_as_read,
    with_orders_by_gradient,
    with_rows_by_value,
    with_sums,
    with_twins,
)

Units = list[HeldUnit]


@attrs.define(eq=False)
class Matching:
    """The first match of both sides' parameters: what names tell before anything runs, and runs where they do not."""

    reference: Side
    candidate: Side
    specials: Specials
    fixed: Resolved
    valued: bool = True
    """Whether the values of all parameters are known; where they are not, names and dataflow alone tell."""
    _named: tuple[Units, Units, Correspondence | None] | None = attrs.field(init=False, default=None)

    @property
    def is_named(self) -> bool:
        """Return whether names alone give it."""
        if self._named is None:
            self._named = self.specials.retried(self._by_names)
        return self._named[2] is not None

    @property
    def is_of_one_size(self) -> bool:
        """Return whether both sides hold as many numbers in parameters and statistics."""
        named = self.is_named and self._named
        ours, theirs = (named or self._by_names())[:2]
        return _size(ours) == _size(theirs)

    def matched(self, evidence: Evidence) -> Correspondence:
        """Match the parameters; the candidate holds the reference's then, where that was asked for."""
        return self.specials.retried(lambda: self._attempt(evidence))

    def _by_names(self) -> tuple[Units, Units, Correspondence | None]:
        ours, theirs = (
            units_of(side.about, self.specials.on(index) if self.valued else None, values_of(side))
            for index, side in enumerate((self.reference, self.candidate))
        )
        ours, theirs = in_real_numbers(ours, theirs)
        return ours, theirs, named_alike(ours, theirs, self.fixed)

    def _attempt(self, evidence: Evidence) -> Correspondence:
        """Match them, with the special transfers that are left.

        Names that agree are a guess, which whatever differs later puts in doubt. The order of definition is one that
        stands where the candidate then gives what the reference gives. Else the dataflow of both tells, and where the
        order was wrong the candidate has its own values back before.
        """
        (ours, theirs, known), self._named = self._named or self._by_names(), None
        if known is None and evidence.transfer:
            return _matched(ours, theirs, evidence, self.fixed)
        if known is None:
            known = _paired(ours, theirs, evidence, self.fixed)
            if self.valued:
                known = with_exchanges_by_value(known, evidence)
                known = _of_networks(known, ours, theirs, evidence, self.fixed)
            known = with_twins(known, evidence, valued=self.valued)
        elif self.valued and not evidence.transfer and not all(map(evidence.holds_alike, known.matches)):
            known = with_exchanges_by_value(known, evidence)
        known = (with_buffers_matched if self.valued else with_buffers_named)(with_copies(known), evidence)
        known = with_orders_by_gradient(_as_given(known, evidence), evidence) if self.valued else known
        if evidence.transfer:
            evidence.assign(known.matches)
        elif self.valued:
            evidence.keep_exact(known)
        return known


def _size(units: Units) -> int:
    held = {one.parameter.path: one.parameter.shape for unit in units for one in unit.roles.values()}
    return sum(map(math.prod, held.values()))


def _as_given(known: Correspondence, evidence: Evidence) -> Correspondence:
    """Let what the candidate was given already tell in which order it is to hold what: its user may have loaded it."""
    if evidence.transfer and not is_given(known, evidence):
        return known
    return with_rows_by_value(with_layouts_by_value(known, evidence), evidence)


def _paired(ours: Units, theirs: Units, evidence: Evidence, fixed: Resolved) -> Correspondence:
    def match(ours: Sequence[HeldUnit], theirs: Sequence[HeldUnit]) -> Correspondence:
        return pair_parameters(ours, theirs, evidence.flows(), fixed)

    known = with_sums(match(ours, theirs), (ours, theirs), evidence, match)
    return with_shared(known, evidence.trace, evidence.free()) if any(known.left) else known


def _of_networks(
    known: Correspondence, ours: Units, theirs: Units, evidence: Evidence, fixed: Resolved
) -> Correspondence:
    """Match them anew within networks that values tell to belong together, where as much is alike so."""
    networks = networks_by_value(known, evidence)
    if not networks or fixed:
        return known
    found = with_exchanges_by_value(_paired(ours, theirs, evidence, Resolved(named=networks)), evidence)
    alike = [sum(map(evidence.holds_alike, one.matches)) for one in (known, found)]
    return attrs.evolve(found, fixed=fixed) if alike[1] >= alike[0] else known


def _matched(ours: Units, theirs: Units, evidence: Evidence, fixed: Resolved) -> Correspondence:
    candidate = evidence.candidate
    guess = defined_alike(ours, theirs, fixed)
    names = None if guess is None else guess.names()
    guess = guess and _as_given(with_buffers_matched(guess, evidence), evidence)
    paths = [] if guess is None else dict.fromkeys(link.candidate.parameter.path for _, link in guess.links)
    before = {path: np.array(candidate.value(path)) for path in paths}
    try:
        if guess is not None:
            evidence.assign(guess.matches)
            if evidence.agrees():
                return guess
        known = _paired(ours, theirs, evidence, fixed)
    except BaseException:
        candidate.assign(before)
        raise
    if guess is not None and names == known.names() and not guess.row_orders:
        known = with_buffers_matched(known, evidence)
        if known.names() != guess.names():  # buffers that the dataflow alone told
            evidence.give(known)
        return known
    candidate.assign(before)
    known = _as_given(with_norms_as_read(with_buffers_matched(known, evidence), evidence), evidence)
    told = all(any(map(evidence.holds_alike, one.matches)) for one in known.packed)
    told = told and all(map(evidence.holds_alike, known.open))
    evidence.give(known)
    if known.ambiguous and not (told and evidence.agrees()):
        with_batches_divided(known, evidence)
        tried = with_layouts(known, evidence)
        evidence.forget_runs()
        right = all(one.packing.packed.path in tried.settled for one in tried.packed) and not tried.undecided
        if told and not right:  # what was loaded may be right, and the code is wrong
            evidence.give(known)
        else:
            known = tried
    known = with_orders_by_gradient(known, evidence)
    copied = with_copies(known)
    if copied is not known:
        evidence.give(copied)
    return copied
