"""Tell where bytes are other ones first, in runs of which nothing but checksums is known."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.alignment import Alignment, Pair
from padiff.report import Note
from padiff.trace import Leaf, Trace

Traces = tuple[Trace, Trace]


def other_bytes(alignment: Alignment, traces: Traces) -> Iterator[Note]:
    """Yield the first call that makes other bytes of the same ones: the innermost, and what it holds may differ too."""
    found: Pair | None = None
    for pair in alignment.pairs:
        inside = found is None or found.candidate in pair.candidate.ancestors()
        taken = [same_bytes(traces, *both) for both in pair.taken]
        given = [same_bytes(traces, *both) for both in pair.made]
        if inside and all(taken) and False in given:
            found = pair
    if found is not None:
        yield Note("other_bytes", {"module": found.candidate.path, "class": found.candidate.module.class_name})


def same_bytes(traces: Traces, ours: Leaf, theirs: Leaf) -> bool | None:
    """Return whether two values have one checksum; None where that is not known."""
    keys = (trace.values.get(one.token) for trace, one in zip(traces, (ours, theirs), strict=True))
    known = (trace.summaries.get(key) for trace, key in zip(traces, keys, strict=True) if key is not None)
    sums = [one.checksum for one in known if one is not None and one.checksum is not None]
    return None if len(sums) < 2 else sums[0] == sums[1]
