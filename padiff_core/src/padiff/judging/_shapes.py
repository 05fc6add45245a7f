"""Tell where values have other shapes than in the reference: nothing can be put in there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from padiff.alignment import Alignment, Pair
from padiff.judging._findings import place_of
from padiff.report import Evidence, Finding
from padiff.trace import Leaf


def other_shape(pair: Pair, what: str) -> int | None:
    """Return the first tensor that two calls take, or give, in other shapes: other extents, in whatever order."""
    sides = (getattr(call, what) for call in (pair.reference, pair.candidate))
    return next((i for i, (a, b) in enumerate(zip(*sides, strict=False)) if sorted(a.shape) != sorted(b.shape)), None)


def described(leaves: Sequence[Leaf]) -> list[str]:
    """Return tensors in words: where they hang, dtype and shape."""
    return [f"{leaf.path or 'a tensor'} {leaf.dtype}{list(leaf.shape)}" for leaf in leaves]


def sides_described(ours: Leaf, theirs: Leaf) -> dict[str, Any]:
    """Return one tensor of each side in words, as figures of a piece of evidence."""
    return {"reference": described([ours]), "candidate": described([theirs])}


def within_code(finding: Finding, alignment: Alignment, owner: Pair) -> Finding:
    """Return a finding on what a call gives in another shape, at the place in its code where the shapes part."""
    last, first = _where_shapes_part(alignment, owner)
    mark = first or last
    if mark is None:
        return finding
    between = [
        end if pair is None else owner.name_of(pair.candidate) for pair, end in ((last, "start"), (first, "end"))
    ]
    told = finding.evidence
    if first is not None and (index := other_shape(first, "inputs")) is not None:
        given = sides_described(first.reference.inputs[index], first.candidate.inputs[index])
        told = (*told, Evidence("other_input", given))
    return attrs.evolve(
        finding,
        reference=place_of(owner.reference, at=mark.reference),
        candidate=place_of(owner.candidate, at=mark.candidate),
        between=(between[0], between[1]),
        evidence=told,
    )


def _where_shapes_part(alignment: Alignment, owner: Pair) -> tuple[Pair | None, Pair | None]:
    """Return the last call in an owner's code whose shapes are the reference's, and the next that is given others.

    Behind others of as many elements the reference's may follow, as where tokens are flattened: then they were meant.
    """
    last = first = None
    for call in owner.candidate.subtree():
        pair = alignment.of_candidate(call)
        if pair is None or alignment.around(pair) is not owner:
            continue
        given = other_shape(pair, "inputs")
        if pair.unfit("inputs"):
            return last, first or pair
        if given is None and other_shape(pair, "outputs") is None:
            last, first = pair, None
        elif given is not None and first is None:
            first = pair
    return last, first
