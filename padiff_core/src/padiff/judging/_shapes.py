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


def where_shapes_part(
    alignment: Alignment, owner: Pair, *, start: str = "", before: Pair | None = None
) -> tuple[Pair | None, Pair | None]:
    """Return the last call within an owner's code whose shapes are the reference's, and the next that is given others.

    Of the calls behind the one that its code names ``start``, and that begin ``before`` another one, if any.
    """
    last = first = None
    for call in owner.candidate.subtree():
        pair = alignment.of_candidate(call)
        if pair is None or alignment.around(pair) is not owner:
            continue
        if before is not None and before is not owner and call.index >= before.candidate.index:
            break
        given = other_shape(pair, "inputs")
        if (given is None and other_shape(pair, "outputs") is None) or owner.name_of(call) == start:
            last, first = pair, None
        elif given is not None and first is None:
            first = pair
    return last, first


def given_other_shapes(owner: Pair, taker: Pair) -> Evidence:
    """Return what tells that an owner's code gives a call a value of another shape."""
    index = other_shape(taker, "inputs") or 0
    sides = sides_described(taker.reference.inputs[index], taker.candidate.inputs[index])
    return Evidence("shapes_part", {"call": owner.name_of(taker.candidate), **sides})


def within_code(finding: Finding, alignment: Alignment, owner: Pair) -> Finding:
    """Return a finding on what a call gives in another shape, at the place in its code where the shapes part."""
    last, first = where_shapes_part(alignment, owner)
    mark = first or last
    if mark is None:
        return finding
    between = [
        end if pair is None else owner.name_of(pair.candidate) for pair, end in ((last, "start"), (first, "end"))
    ]
    return attrs.evolve(
        finding,
        reference=place_of(owner.reference, at=mark.reference),
        candidate=place_of(owner.candidate, at=mark.candidate),
        between=(between[0], between[1]),
        evidence=(*finding.evidence, *(() if first is None else (given_other_shapes(owner, first),))),
    )
