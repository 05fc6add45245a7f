"""Say of which micro-batch of a step findings are, where a step calls the model several times."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.report import SIDES, Cause, Finding, Phase
from padiff.trace import Call, Key, Trace

_OF_CALLS = ("output", "input", "output_gradient", "input_gradient", "free_output")
_OF_ALL = (Phase.BACKWARD, Phase.LOSS, Phase.UPDATE)


def in_micro_batches(findings: Sequence[Finding], traces: tuple[Trace, Trace]) -> list[Finding]:
    """Return findings that say of which micro-batch each call is."""
    known = [_micro_batches(trace) for trace in traces]
    if not any(known):
        return list(findings)
    found = []
    for one in findings:
        for side, numbers in zip(SIDES, known, strict=True):
            place = getattr(one, side)
            number = numbers.get((place.path or "", place.call))
            if number is not None and place.path is not None and one.what.kind in _OF_CALLS:
                one = attrs.evolve(one, **{side: attrs.evolve(place, micro_batch=number)})
        found.append(one)
    return found


def of_other_counts(findings: Sequence[Finding], traces: tuple[Trace, Trace]) -> list[Finding]:
    """Return findings of which the first that all micro-batches lead to is for their number, where that is another."""
    counts = [len(_models(trace)) for trace in traces]
    first = next((one for one in findings if one.source and one.phase in _OF_ALL), None)
    if first is None or counts[0] == counts[1]:
        return list(findings)
    cause = Cause("micro_batches", dict(zip(SIDES, counts, strict=True)))
    return [
        attrs.evolve(one, cause=cause)
        if one is first
        else attrs.evolve(one, source=one.source and one.phase not in _OF_ALL)
        for one in findings
    ]


def _models(trace: Trace) -> list[Call]:
    return [call for call in trace.calls if call.parent is None and call.path == trace.root.path]


def _micro_batches(trace: Trace) -> dict[Key, int]:
    """Return the micro-batch of each call, where there are several."""
    models = _models(trace)
    if len(models) < 2:
        return {}
    return {call.key: number for number, model in enumerate(models) for call in model.subtree()}
