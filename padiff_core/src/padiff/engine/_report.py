"""Write the report of what a comparison gathered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from padiff.forcing import Side
from padiff.judging import Gathered, shown_rule, with_hooks
from padiff.report import Note, Report


def report_of(
    found: Gathered,
    sides: tuple[Side, Side],
    notes: Iterable[Note],
    tolerance: Mapping[str, Any] | None,
    seconds: float,
    **rest: Any,
) -> Report:
    """Return the report, with ``notes`` before those that were gathered; ``rest`` are fields of `Report`."""
    models = sides[0].about, sides[1].about
    findings = sorted(with_hooks(found.findings, models, found.mapping), key=lambda finding: finding.step)
    reference, candidate = (f"{side.about.framework}: {side.about.class_name}" for side in sides)
    return Report(
        sources=tuple(finding for finding in findings if finding.source),
        findings=tuple(findings),
        notes=tuple(dict.fromkeys([*notes, *found.notes])),
        counts=found.counts,
        output=found.output,
        output_within=found.output_within,
        loss=found.loss,
        reference=reference,
        candidate=candidate,
        environment=_environment_of(*sides),
        seconds=seconds,
        tolerance=shown_rule(tolerance),
        calls=tuple(found.calls),
        mapping=found.mapping,
        coverage=found.coverage,
        **rest,
    )


def _environment_of(reference: Side, candidate: Side) -> dict[str, Mapping[str, str]]:
    """Return both sides' environments, by framework, and by side where two of one framework differ."""
    ours, theirs = reference.about, candidate.about
    if ours.framework == theirs.framework and ours.environment != theirs.environment:
        sides = {"reference": ours.environment, "candidate": theirs.environment}
        return {f"{ours.framework} ({side})": found for side, found in sides.items()}
    return {ours.framework: ours.environment, theirs.framework: theirs.environment}
