"""Tell of values that have other shapes than in the reference, and find the call behind which they have."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Check, Reader
from padiff.judging._shapes import given_other_shapes, other_shape, sides_described, where_shapes_part
from padiff.judging._suspicion import Ruling, Suspicion
from padiff.numerics import Array, difference, is_suspect
from padiff.report import Evidence, What


def moved_to_child(suspicion: Suspicion, bench: Bench, read: Reader, truth: Array) -> Suspicion:
    """Return the suspicion of a child instead, where the code is right when given what the reference's child gives.

    What has another shape was not put in before: which of both is wrong, child or code around, shows when it is.
    """
    if suspicion.spot is None:
        return suspicion
    for child, index in _with_another_shape(suspicion.pair, suspicion.spot.pair, bench):
        fed = copy.copy(child)
        fed.outputs = (*child.outputs, (index, index))
        given = attrs.evolve(bench, alignment=bench.alignment.with_pair(fed))
        try:
            found = read(given.run_candidate(suspicion.pair, None, own=False, backward=False), False)
        except Exception:  # code that cannot work on the other shape was written for its own
            continue
        if found is None or is_suspect(difference(truth, found), truth.dtype):
            continue
        theirs = child.candidate.outputs[index]
        shapes = sides_described(child.reference.outputs[index], theirs)
        call = repr(suspicion.pair.candidate.path) if suspicion.pair.candidate.path else "the model"
        right = Evidence.of("right_when_given", call=call, name=f"output of {child.reference.path}")
        ruling = Ruling(suspicion.verdict, suspicion.ruling.figures, (Evidence("other_output", shapes), right))
        what = What("output", theirs.path if len(child.candidate.outputs) > 1 else "", index)
        return Suspicion(child, suspicion.phase, what, ruling, child.candidate.index)
    return suspicion


def with_shapes_told(suspicion: Suspicion, check: Check, alignment: Alignment) -> Suspicion:
    """Return a suspicion with the shapes that differ: the value's own, or of the first that its code gives a call."""
    spot, ruling = check.spot, suspicion.ruling
    if not check.difference.shape_equal:
        told = Evidence("shapes", sides_described(spot.reference, spot.candidate))
        return attrs.evolve(suspicion, ruling=attrs.evolve(ruling, evidence=(told,)))
    if suspicion.between is None:
        return suspicion
    _, taker = where_shapes_part(alignment, suspicion.pair, start=suspicion.between[0], before=spot.pair)
    if taker is None:
        return suspicion
    told = given_other_shapes(suspicion.pair, taker)
    return attrs.evolve(suspicion, ruling=attrs.evolve(ruling, evidence=(*ruling.evidence, told)))


def _with_another_shape(owner: Pair, last: Pair, bench: Bench) -> Iterator[tuple[Pair, int]]:
    """Yield the calls of some code up to one, given right shapes, and the output of each that has another one."""
    for call in owner.candidate.subtree():
        pair = bench.alignment.of_candidate(call)
        before = last is owner or call.index < last.candidate.index
        if pair is None or not before or bench.alignment.around(pair) is not owner:
            continue
        index = other_shape(pair, "outputs") if other_shape(pair, "inputs") is None else None
        if index is not None and all(index not in matched for matched in pair.outputs):
            yield pair, index
