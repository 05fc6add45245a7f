"""Match parameters anew where names or order were believed, and what the candidate does puts that in doubt.

The dataflow of both sides is then recorded, which a diff of models that agree does without.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.forcing import Side
from padiff.numerics import ACCUMULATED, Array, epsilon, in_reals, root_mean_square
from padiff.parameters import Correspondence, HeldUnit, pair_parameters, with_copies, with_joined_first, with_shared
from padiff.refinement._axes import aligned
from padiff.refinement._buffers import with_buffers_matched
from padiff.refinement._differing import differing, errors_of, wrong_of
from padiff.refinement._evidence import Evidence
from padiff.refinement._exchanges import with_exchanges
from padiff.refinement._layouts import with_layouts
from padiff.refinement._mismatches import without_mismatches
from padiff.refinement._orders import with_orders_borne_out
from padiff.refinement._orders_by_gradient import with_orders_by_gradient


def with_dataflow(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return what the dataflow says, where it says otherwise and less differs under it.

    It tries all that the dataflow says, and what it says but for symmetries, which names and the order of definition
    then settle, or exchanges.
    The candidate is given its parameters anew, and its calls are matched anew.
    """
    if not _may_be_wrong(correspondence, evidence):
        return with_exchanges(correspondence, evidence)
    first, flows = correspondence, evidence.flows()
    ours, theirs = _as_defined(first.reference, evidence.reference), _as_defined(first.candidate, evidence.candidate)
    guessed, told = (
        pair_parameters(ours, theirs, flows, first.fixed, guess, by_order=guess is None) for guess in (first, None)
    )
    for found in (guessed, told, with_joined_first(told, flows)):
        found = with_copies(with_shared(found, evidence.trace, evidence.free()))
        found = with_buffers_matched(found, evidence)
        found = attrs.evolve(found, wrong=first.wrong)  # the candidate has the reference's of these by now
        if correspondence is first:
            symmetric = attrs.evolve(first, symmetric=found.symmetric)
            correspondence = with_exchanges(evidence.replaced(first, symmetric), evidence)
        known = first.names(), correspondence.names()
        if found.names() not in known and not _is_refuted(found, correspondence, evidence):
            correspondence = _better(correspondence, found, evidence)
    return correspondence


def _as_defined(units: Sequence[HeldUnit], side: Side) -> list[HeldUnit]:
    places = {path: place for place, path in enumerate(side.about.modules)}
    return sorted(units, key=lambda unit: places[unit.module.path])


def _better(known: Correspondence, other: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the one of two under which less differs, and no more is left over; the candidate holds its parameters."""
    if sum(map(len, other.left)) > sum(map(len, known.left)):
        return known
    before = differing(known, evidence)
    evidence.give(other)
    other = with_copies(with_layouts(other, evidence))
    evidence.give(other)
    other = with_orders_by_gradient(other, evidence)
    other = without_mismatches(with_orders_borne_out(aligned(other, evidence), evidence), evidence)
    other = with_exchanges(other, evidence)
    if differing(other, evidence) < before:
        return other
    evidence.give(known)
    return known


def _is_refuted(other: Correspondence, known: Correspondence, evidence: Evidence) -> bool:
    """Return whether values that are right under what is known tell that nothing belongs as another one says.

    A gradient comes to each parameter that would be another one's, so it shows in values; and theirs are others.
    """
    ours, theirs = _partners(known), _partners(other)
    if wrong_of(errors_of(known, evidence)[0]) or not evidence.agrees(known.axes) or ours.keys() != theirs.keys():
        return False
    trace = evidence.trace
    gradients = ((path, trace.array(key)) for path, key in trace.parameter_gradients.items())
    sizes = {path: (root_mean_square(_parts(one)), epsilon(one.dtype)) for path, one in gradients}
    large = max((size for size, _ in sizes.values()), default=0.0)
    live = {path for path, (size, eps) in sizes.items() if size > ACCUMULATED(eps) * large}

    def shows(path: str) -> bool:
        held = (map(evidence.reference.value, one[path]) for one in (ours, theirs))
        before, after = ({(one.min(), one.max()) for one in map(_parts, some) if one.size} for some in held)
        return ours[path] <= live and before.isdisjoint(after)

    changed = [path for path in ours if ours[path] != theirs[path]]
    return bool(changed) and all(map(shows, changed))


def _parts(array: Array) -> Array:
    return in_reals(array) if array.dtype.kind == "c" else array


def _partners(correspondence: Correspondence) -> dict[str, set[str]]:
    """Return the paths of the reference's parameters of which each of the candidate's holds the values."""
    found: dict[str, set[str]] = {}
    for *_, reference, candidate in correspondence.names():
        found.setdefault(candidate, set()).add(reference)
    return found


def _may_be_wrong(correspondence: Correspondence, evidence: Evidence) -> bool:
    differs, wrong = differing(correspondence, evidence)
    return wrong > 0 or (differs and not evidence.is_rounding(correspondence))
