"""Say of which micro-batch of a step findings are, where a step calls the model several times."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment
from padiff.judging._sizes import held
from padiff.numerics import Array
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


def of_other_counts(
    findings: Sequence[Finding], traces: tuple[Trace, Trace], extra: Sequence[Finding], alignment: Alignment
) -> list[Finding]:
    """Return findings with those of ``extra`` calls, which one side alone makes: all that those lead to is for them.

    Where both sides' micro-batches are one batch, cut otherwise, that is why what each of them was given differs.
    """
    given = [one for one in findings if one.source and one.cause is not None and one.cause.name == "inputs"]
    counts = [len(_models(trace)) for trace in traces]
    if given and counts[0] != counts[1] and _is_one_batch(traces):
        parameters = {**dict(zip(SIDES, counts, strict=True)), "slices": True}
        first = attrs.evolve(given[0], cause=Cause("micro_batches", parameters, verified=True))
        rest = [attrs.evolve(one, source=one.source and one not in given) for one in findings if one is not given[0]]
        return [first, *rest]
    known = [one for one in extra if one.source and not given][:1]
    rest = [attrs.evolve(one, source=False) for one in extra if one not in known]
    if known:
        findings = [attrs.evolve(one, source=one.source and one.phase not in _OF_ALL) for one in findings]
    return [*findings, *(attrs.evolve(one, cause=_counted(one, alignment, traces)) for one in known), *rest]


def _counted(extra: Finding, alignment: Alignment, traces: tuple[Trace, Trace]) -> Cause:
    """Return how often both scripts call what one of them calls more often."""
    side = SIDES.index(extra.side or "")
    path = (extra.reference, extra.candidate)[side].path
    calls = [call for call in traces[side].calls if call.parent is None and call.path == path]
    matched = {(pair.reference, pair.candidate)[side].key for pair in alignment.tops}
    counts = [len(calls), sum(call.key in matched for call in calls)][:: 1 - 2 * side]
    named = dict(zip(SIDES, counts, strict=True))
    return (
        Cause("calls", {"name": path, **named}, verified=True) if path else Cause("micro_batches", named, verified=True)
    )


def _is_one_batch(traces: tuple[Trace, Trace]) -> bool:
    """Return whether what all micro-batches were given makes the same tensors on both sides, one behind another."""
    wholes = [_wholes(trace) for trace in traces]
    return len(wholes[0]) == len(wholes[1]) > 0 and all(
        ours.shape == theirs.shape and np.array_equal(ours, theirs) for ours, theirs in zip(*wholes, strict=True)
    )


def _wholes(trace: Trace) -> list[Array]:
    """Return what the model's calls were given, joined along the first axis; nothing where it was not kept."""
    given = [[held(trace, trace.values.get(leaf.token)) for leaf in call.inputs] for call in _models(trace)]
    if len({len(one) for one in given}) != 1:
        return []
    found = []
    for parts in zip(*given, strict=True):
        kept = [one for one in parts if isinstance(one, np.ndarray) and one.ndim]
        if len(kept) < len(parts) or len({one.shape[1:] for one in kept}) > 1:
            return []
        found.append(np.concatenate(kept))
    return found


def _models(trace: Trace) -> list[Call]:
    return [call for call in trace.calls if call.parent is None and call.path == trace.root.path]


def _micro_batches(trace: Trace) -> dict[Key, int]:
    """Return the micro-batch of each call, where there are several."""
    models = _models(trace)
    if len(models) < 2:
        return {}
    return {call.key: number for number, model in enumerate(models) for call in model.subtree()}
