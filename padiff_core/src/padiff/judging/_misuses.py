"""Tell where code calls one layer in the place of another, whose parameters are the reference's there."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.alignment import BY_PLACE, Alignment, Pair
from padiff.judging._findings import called_at
from padiff.judging._suspicion import Suspicion
from padiff.parameters import Correspondence
from padiff.paths import is_at, last, parent
from padiff.report import Evidence, Finding, Phase, Verdict
from padiff.trace import Call


@attrs.frozen
class Misuse:
    """What is called, and what is due: of whole blocks these, not each layer in them."""

    called: str
    due: tuple[str, ...]
    at: Pair = attrs.field(eq=False)
    layers: frozenset[str] = attrs.field(eq=False)
    """The candidate's layers that one call of it shows; gradients of both differ, too."""

    def told(self, finding: Finding, pair: Pair) -> Finding:
        """Return a finding on what a layer gives as one on what is called."""
        if self.at is pair and finding.rests_on("uncalled_holder"):
            return finding
        kept = (one for one in finding.evidence if one.kind != "uncalled")
        evidence = Evidence.of("another_layer", called=self.called, due=list(self.due))
        places = called_at(self.at.reference), called_at(self.at.candidate)
        return attrs.evolve(finding, reference=places[0], candidate=places[1], evidence=(*kept, evidence))


def misuses(suspicions: Sequence[Suspicion], known: Correspondence) -> dict[Suspicion, Misuse]:
    """Return those suspicions that come of a call of a layer whose parameters belong to another one's.

    Where both hold the same, gradients of parameters tell it, and outputs do not.
    """
    pairs = {(one.reference.module.path, one.candidate.module.path) for one in known.matches if one.links}
    found: dict[Suspicion, Misuse] = {}
    outputs = set()
    for one in sorted(suspicions, key=lambda one: one.phase is not Phase.FORWARD):
        tells = one.phase is Phase.FORWARD or (one.held is not None and one.pair.key not in outputs)
        wrong = tells and one.arises and one.verdict is Verdict.DIFFERS
        if not wrong or any(known.alignment.of_candidate(call) for call in one.pair.candidate.children):
            continue
        ours, theirs = one.pair.reference.path, one.pair.candidate.path
        due = sorted(held for mine, held in pairs if is_at(mine, ours))
        called = sorted(held for _, held in pairs if is_at(held, theirs))
        if due and called and not {*due} & {*called}:
            found[one] = _misuse(one.pair, called, due, known.alignment)
            if one.phase is Phase.FORWARD:
                outputs.add(one.pair.key)
    return found


def _misuse(pair: Pair, layers: Sequence[str], due: Sequence[str], alignment: Alignment) -> Misuse:
    """Return which call is of the wrong module: that of a block, where one of its layers is called in the block."""
    called, name, ours = layers[0], due[0], pair.reference.path
    both = frozenset({*layers, *due})
    while called and name and last(called) == last(name):
        called, name, ours = parent(called), parent(name), parent(ours)
    above, holder = _at_or_above(pair.reference, ours), _at_or_above(pair.candidate, called)
    if above is None or holder is None or len(due) > 1:
        return Misuse(pair.candidate.path, tuple(due), pair, both)
    return Misuse(called, (name,), alignment.of_key(holder.key) or Pair(above, holder, BY_PLACE), both)


def _at_or_above(call: Call, path: str) -> Call | None:
    return next((one for one in (call, *call.ancestors()) if one.path == path), None)
