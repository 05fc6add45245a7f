"""Tell what a script gives a model from what the other one gives its own at that place: labels there, words here."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.alignment import Pair
from padiff.judging._recorded._leaps import Leaps
from padiff.numerics import SAME
from padiff.report import Note
from padiff.trace import Key, Leaf


def other_arguments(leaps: Leaps) -> Iterator[tuple[Key, tuple[int, int], Note]]:
    """Yield the calls of scripts with two inputs that are matched and differ, and are two things; and a note.

    A call inside takes one of them, and its counterpart something else: what the code makes of the other one, which is
    the same (words of labels), or what has no counterpart (places that a model makes itself), while what stands behind
    is given the same.
    """
    for top in leaps.alignment.tops:
        for i, j in top.inputs:
            ours, theirs = top.reference.inputs[i], top.candidate.inputs[j]
            size = leaps.size(ours, theirs)
            if size is None or size.difference.equal or size.error <= SAME(size.eps):
                continue
            inside = [one for one in leaps.alignment.pairs if one.candidate.top is top.candidate and one is not top]
            if any(_shows(number, inside, ours, theirs, leaps) for number in range(len(inside))):
                data = {"name": top.candidate.path, "reference": ours.path, "candidate": theirs.path}
                yield top.key, (i, j), Note("other_arguments", data)


def _shows(number: int, inside: list[Pair], ours: Leaf, theirs: Leaf, leaps: Leaps) -> bool:
    """Return whether one of some calls takes a tensor, and its counterpart something else, which is as right."""
    pair = inside[number]
    mine = any(leaf.token == ours.token for leaf in pair.reference.inputs)
    if mine == any(leaf.token == theirs.token for leaf in pair.candidate.inputs):
        return False
    taken = [both for both in pair.taken if both[0].token == ours.token or both[1].token == theirs.token]
    beside = (one for one in inside[number + 1 :] if one.candidate.parent is pair.candidate.parent)
    taken = taken or next((one.taken for one in beside), [])
    return bool(taken) and all(leaps.same(*both) for both in taken)
