"""Tell what a script gives a model from what the other one gives its own at that place: labels there, words here."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.judging._recorded._leaps import Leaps
from padiff.numerics import SAME
from padiff.report import Note
from padiff.trace import Key


def other_arguments(leaps: Leaps) -> Iterator[tuple[Key, tuple[int, int], Note]]:
    """Yield the calls of scripts with two inputs that are matched and differ, and are two things; and a note.

    A call inside takes one of them, and what the other side's code makes of its own, which is the same: the words that
    a decoder is given, and labels of which the model makes these.
    """
    for top in leaps.alignment.tops:
        for i, j in top.inputs:
            ours, theirs = top.reference.inputs[i], top.candidate.inputs[j]
            size = leaps.size(ours, theirs)
            if size is None or size.difference.equal or size.error <= SAME(size.eps):
                continue
            inside = (one for one in leaps.alignment.pairs if one.candidate.top is top.candidate and one is not top)
            taken = (both for one in inside for both in one.taken)
            alone = (both for both in taken if (both[0].token == ours.token) != (both[1].token == theirs.token))
            if any(leaps.same(*both) for both in alone):
                data = {"name": top.candidate.path, "reference": ours.path, "candidate": theirs.path}
                yield top.key, (i, j), Note("other_arguments", data)
