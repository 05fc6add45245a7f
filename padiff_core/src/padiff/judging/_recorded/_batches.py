"""Find what a candidate was given among what the reference was in other steps: batches come in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from padiff.numerics import Array
from padiff.report import Evidence, Finding
from padiff.trace import Leaf, Trace

_STEPS = 32
"""How many steps are looked at, those next to the one in question first."""


def with_other_batches(
    findings: Sequence[Finding], reference: Callable[[int], Trace], steps: Sequence[int], theirs: Trace, step: int
) -> list[Finding]:
    """Return findings on inputs of a step with that step, and call, in which the ``reference`` was given the same."""

    def with_batch(finding: Finding) -> Finding:
        if not (finding.source and finding.step == step and finding.is_caused_by("inputs")):
            return finding
        place = finding.candidate.path, finding.candidate.call
        given = (_given(call.inputs, theirs) for call in theirs.tops if call.key == place)
        value = next((array for one in given for path, array in one if path == finding.what.name), None)
        if value is None or not (value != value.flat[0]).any():
            return finding  # any two masks of ones are the same
        for near in sorted(steps, key=lambda one: abs(one - step))[:_STEPS]:
            trace = reference(near)
            calls = [call for call in trace.tops if call.path == finding.reference.path]
            for number, call in enumerate(calls):
                if (near, call.ordinal) == (step, finding.reference.call):
                    continue  # of several inputs of the same call another one may hold it
                if any(np.array_equal(value, other) for _, other in _given(call.inputs, trace)):
                    said = Evidence.of("batch_of", step=near, call=number if len(calls) > 1 else None)
                    return attrs.evolve(finding, evidence=(said, *finding.evidence))
        return finding

    return list(map(with_batch, findings))


def _given(leaves: Sequence[Leaf], trace: Trace) -> Iterator[tuple[str, Array]]:
    """Yield inputs that were kept whole, by name."""
    for leaf in leaves:
        value = trace.value(leaf)
        if value is not None and value.size:
            yield leaf.path, value
