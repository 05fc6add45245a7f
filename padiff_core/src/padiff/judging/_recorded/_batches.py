"""Find what a candidate was given among what the reference was in other steps: batches come in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from padiff.report import Evidence, Finding
from padiff.trace import Trace

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
        taken = (leaf for call in theirs.tops if call.key == place for leaf in call.inputs)
        given = next((leaf for leaf in taken if leaf.path == finding.what.name), None)
        value = None if given is None else theirs.value(given)
        if given is None or value is None or not value.size or not (value != value.flat[0]).any():
            return finding  # any two masks of ones are the same
        for near in sorted(steps, key=lambda one: abs(one - step))[:_STEPS]:
            trace = reference(near)
            calls = [call for call in trace.tops if call.path == finding.reference.path]
            for number, call in enumerate(calls):
                if (near, call.ordinal) == (step, finding.reference.call):
                    continue  # of several inputs of the same call another one may hold it
                others = (trace.value(leaf) for leaf in call.inputs if leaf.shape == given.shape)
                if any(other is not None and np.array_equal(value, other) for other in others):
                    said = Evidence.of("batch_of", step=near, call=number if len(calls) > 1 else None)
                    return attrs.evolve(finding, evidence=(said, *finding.evidence))
        return finding

    return list(map(with_batch, findings))
