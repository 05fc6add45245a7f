"""Say of which micro-batch of a step findings are, where a step calls the model several times."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment
from padiff.judging._sizes import Held, held
from padiff.report import SIDES, Cause, Finding, Phase
from padiff.trace import Key, Trace

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
    given = [one for one in findings if one.source and one.is_caused_by("inputs")]
    known = [*given, *(one for one in extra if one.source)]
    counts = [len(trace.trained) for trace in traces]
    cut = bool(known) and counts[0] != counts[1] and _is_one_batch(traces)
    if not known or (given and not cut):
        return [*findings, *(attrs.evolve(one, source=one.source and not given) for one in extra)]
    cause = Cause("micro_batches", {**dict(zip(SIDES, counts, strict=True)), "slices": True}, verified=True)
    first = attrs.evolve(known[0], cause=cause if cut else _counted(known[0], alignment, traces))
    found = [first]
    for one in (*findings, *extra):
        follows = one in known or one.rests_on("other_output") or (one.phase in _OF_ALL and not cut)
        found += [attrs.evolve(one, source=one.source and not follows)] if one is not known[0] else []
    return found


def _counted(extra: Finding, alignment: Alignment, traces: tuple[Trace, Trace]) -> Cause:
    """Return how often both scripts call what one of them calls more often, or step by what each call of it sends."""
    side = SIDES.index(extra.side or "")
    path = (extra.reference, extra.candidate)[side].path
    calls = [call for call in traces[side].tops if call.path == path]
    matched = {(pair.reference, pair.candidate)[side].key for pair in alignment.tops}
    counts = [len(calls), sum(call.key in matched for call in calls)][:: 1 - 2 * side]
    steps = [_stepped(trace) for trace in traces]
    if not path and steps[0] and steps[1] and steps[0] != steps[1]:
        told = {"steps": {side: str(count) for side, count in zip(SIDES, steps, strict=True)}}
        return Cause("optimizer_settings", told, verified=True)
    kind = "calls" if path else "micro_batches"
    named: dict[str, object] = {"name": path} if path else {}
    return Cause(kind, {**named, **dict(zip(SIDES, counts, strict=True))}, verified=True)


def _stepped(trace: Trace) -> int:
    """Return how often an optimizer stepped; 0 where nobody says, or none did."""
    told = [one.settings.get("steps", 1) for one in trace.stepped]  # of ranks it may be that of each
    known = trace.stepped_at is not None and all(isinstance(one, int) for one in told)
    return max(told, default=0) if known else 0


def _is_one_batch(traces: tuple[Trace, Trace]) -> bool:
    """Return whether what all micro-batches were given makes the same tensors on both sides, one behind another.

    Beside it may be what each was given alike: a mask, positions.
    """
    ours, theirs = map(_given, traces)
    same = [_joined(mine, yours) for mine, yours in zip(ours, theirs, strict=False)]
    return len(ours) == len(theirs) and any(same) and None not in same


def _joined(ours: Sequence[Held], theirs: Sequence[Held]) -> bool | None:
    """Return whether parts make one tensor on both sides; False where all are alike, None where they make another."""
    parts = [one for one in (*ours, *theirs) if isinstance(one, np.ndarray) and one.ndim]
    if len(parts) < len(ours) + len(theirs) or len({one.shape[1:] for one in parts}) > 1:
        return None
    mine, yours = parts[: len(ours)], parts[len(ours) :]
    if np.array_equal(np.concatenate(mine), np.concatenate(yours)):
        return True
    return False if all(np.array_equal(one, parts[0]) for one in parts) else None


def _given(trace: Trace) -> list[tuple[Held, ...]]:
    """Return each tensor that the model's calls were given, of all of them."""
    given = [[held(trace, trace.values.get(leaf.token)) for leaf in call.inputs] for call in trace.trained]
    return list(zip(*given, strict=True)) if len({len(one) for one in given}) == 1 else []


def _micro_batches(trace: Trace) -> dict[Key, int]:
    """Return the micro-batch of each call, where there are several."""
    models = trace.models if len(trace.models) > 1 else []
    return {call.key: number for number, model in enumerate(models) for call in model.subtree()}
