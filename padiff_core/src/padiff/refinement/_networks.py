"""Tell by values which networks that a script calls by themselves belong together: a student's, and a teacher's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from padiff.alignment import ModulePair
from padiff.parameters import Correspondence, Packed, UnitMatch
from padiff.paths import is_at
from padiff.refinement._evidence import Evidence
from padiff.trace import Trace


def networks_by_value(correspondence: Correspondence, evidence: Evidence) -> dict[str, str]:
    """Return which networks belong together, reference to candidate, as most numbers that both sides hold alike lie.

    A script may call them in another order, which is what the dataflow was matched by. Single layers are exchanged
    where their values tell; a layer that packs others has no partner to exchange, but parts. Empty where nothing
    differs there, or not all networks are told.
    """
    ours, theirs = _called(evidence.trace), _called(evidence.free(correspondence.axes))
    if len(ours) != len(theirs) or len(ours) < 2:
        return {}
    alike = {match: evidence.holds_alike(match) for match in correspondence.matches if match.links}
    crossed = any(_modules(one.matches) != _modules(Packed.of(one.packing).matches) for one in correspondence.packed)
    if all(alike.values()) and not crossed:
        return {}
    votes: Counter[tuple[str | None, str | None]] = Counter()
    for match in (match for match, same in alike.items() if same):
        both = _network(match.reference.module.path, ours), _network(match.candidate.module.path, theirs)
        votes[both] += sum(math.prod(link.reference.parameter.shape) for link in match.links)
    found: dict[str, str] = {}
    for (one, other), _ in votes.most_common():
        if one is not None and other is not None and one not in found and other not in found.values():
            found[one] = other
    return found if len(found) == len(ours) else {}


def _modules(matches: Iterable[UnitMatch]) -> set[ModulePair]:
    return {match.modules for match in matches}


def _called(trace: Trace) -> list[str]:
    """Return the paths of the networks that a script calls itself, none of which lies in another."""
    paths = dict.fromkeys(call.path for call in trace.tops)
    return [path for path in paths if not any(path != other and is_at(path, other) for other in paths)]


def _network(path: str, called: list[str]) -> str | None:
    return next((one for one in called if is_at(path, one)), None)
