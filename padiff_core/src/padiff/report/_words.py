"""Put figures, places and verdicts into words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from padiff.numerics import SKETCH_ERROR
from padiff.report._finding import Figures, Finding, Measurement, Place, Verdict
from padiff.report._grouped import blocks_of, count_of
from padiff.report._phrases import EXPLAINED
from padiff.report._report import Report, Transfer
from padiff.report._templates import ranks, short
from padiff.report._whole import Coverage, FreeRuns, RecordedRuns

_VERBS = {
    Verdict.EQUAL: "is equal",
    Verdict.ROUNDING: "agrees up to rounding",
    Verdict.WITHIN_TOLERANCE: "is within tolerance",
    Verdict.PRECISION: "has another precision",
    Verdict.DIFFERS: "differs",
    Verdict.STOCHASTIC: "is stochastic",
    Verdict.NOT_COMPARED: "is not compared",
    Verdict.UNMATCHED: "has no counterpart",
    Verdict.IGNORED: "is ignored",
}
OF_OTHER_SORT = "has another shape or type"
_MISSING = 3
"""How many places of values that were not compared are named."""
_NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=[. ]|$)")
"""The number of a repeated layer in a path."""
_UNCOMPARED = {Verdict.UNMATCHED, Verdict.NOT_COMPARED, Verdict.IGNORED, Verdict.STOCHASTIC}


def headline(report: Report) -> str:
    """Return the verdict in one line: what was found, and of how much; what was not compared is said."""
    scope = ", ".join(_scope(report))
    return summary(report) + (f" ({scope})" if scope else "")


def summary(report: Report) -> str:
    """Return the verdict without its scope: ``aligned``, or ``not aligned: 3 sources``."""
    only = "forward" if report.forward_only is not None else report.phase
    limits = "" if only == "both" else f", {only} only"
    return f"aligned{limits}" if report.aligned else f"not aligned{limits}: {_found(report)}"


def _found(report: Report) -> str:
    if report.sources:
        return sources(report)
    differ, blind = len(report.victims), sum(map(is_uncompared, report.unmatched))
    unmatched = len(report.unmatched) - blind
    said = []
    if differ:
        said.append(f"{plural(differ, 'value')} {'differs' if differ == 1 else 'differ'}, no source was found")
    if unmatched:
        said.append(f"{plural(unmatched, 'place')} without counterpart, hence not compared")
    if blind:
        said.append(f"{plural(blind, 'value')} of the model not compared")
    return "; ".join(said)


def sources(report: Report) -> str:
    """Return how many sources there are: one fault counts once, wherever it is; empty where there are none."""
    count = count_of(blocks_of(report))
    places = f" in {len(report.sources)} places" if count < len(report.sources) else ""
    return plural(count, "source") + places if report.sources else ""


def first_step(report: Report) -> int:
    """Return the number by which step 0 is shown: recorded runs have numbers of their own."""
    return 1 if report.recorded is None else 0


def _scope(report: Report) -> Iterable[str]:
    compared = sum(count for verdict, count in report.counts.items() if verdict not in _UNCOMPARED)
    if compared:
        yield f"{plural(compared, 'call')} compared"
    if report.counts.get(Verdict.IGNORED):
        yield f"{report.counts[Verdict.IGNORED]} ignored"
    if report.transfer is not None and report.transfer.copied:
        yield from copied(report.transfer)
    if report.output is not None:
        yield f"worst output difference {figure(report.output.rel_l2)}"
    if report.recorded is not None:
        yield _SHOWN.get(report.recorded.values, "in recorded runs")
        casts = (note.data for note in report.notes if note.kind == "unlike_casts")
        yield from (f"as far as {data['coarser']} shows" for data in casts)
    if report.phase != "both" and report.forward_only is None:
        yield "nothing else was compared, as asked"


def tolerance(rule: Mapping[str, Any]) -> str:
    """Return the user's own rule as a formula."""
    if "metric" in rule:
        low, high = rule.get("min"), rule.get("max")
        return f"{'' if low is None else f'{low:g} <= '}{rule['metric']}{'' if high is None else f' <= {high:g}'}"
    bound = f"{rule['atol']:g} + {rule['rtol']:g}"
    if rule["compare_mode"] == "strict":
        return f"every |candidate - reference| <= {bound} * |reference| (strict)"
    return f"mean |candidate - reference| <= {bound} * mean |reference| (mean)"


def free_runs(found: FreeRuns) -> str:
    """Return what the free runs prove."""
    why = EXPLAINED[found.by].format(**attrs.asdict(found))
    if found.by in ("random", "distribution"):
        return why
    return f"explained by rounding: {why}" if found.explained else f"not explained by rounding: {why}"


def recorded(found: RecordedRuns) -> list[str]:
    """Return what it costs that two recorded runs were compared."""
    numbers = found.steps
    which = f"step {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} steps, {numbers[0]} to {numbers[-1]}"
    said = [
        f"two runs as they were recorded ({which}): nothing was fed, so what differs behind a source may be its "
        "consequence, or hide another one, and a fault smaller than what rounding accumulates to does not show"
    ]
    if found.values in _KEPT:
        said.append(_KEPT[found.values])
    return said


_SHOWN = {
    "sketch": "as far as sketches show",
    "summary": "as far as summaries show",
    "checksum": "as far as checksums show",
}
_KEPT = {
    "sketch": f"only sketches of the values were kept: how far these are apart is estimated, within {SKETCH_ERROR:.0%} "
    "(one standard error), and what a few elements do may not show",
    "summary": "only summaries of the values were kept: what agrees in these may still differ",
    "checksum": "only checksums of the values were kept: they tell equal bytes from others, and not how far others are "
    "apart, which may be rounding",
}


def coverage(found: Coverage) -> str:
    """Return how much was compared, and where the rest lies."""
    left = found.total - found.compared
    at = few(folded(map(position, found.missing)), _MISSING)
    return f"{plural(left, 'value')} of {found.total} between inputs and outputs not compared, made in {at}"


def copied(transfer: Transfer) -> list[str]:
    """Return how many parameters, and how many buffers, were copied."""
    counts = ((transfer.copied - transfer.buffers, "parameter"), (transfer.buffers, "buffer"))
    return [plural(count, noun) for count, noun in counts if count]


def title(finding: Finding, steps: str) -> str:
    """Return what was compared, and how that ended; ``steps`` says in which steps, where there are several."""
    verb = "has another shape" if is_of_other_shape(finding) else _VERBS[finding.verdict]
    if is_of_other_sort(finding):
        verb = OF_OTHER_SORT if finding.verdict is Verdict.UNMATCHED else "has another shape"
    return f"{finding.phase}{f', {steps}' if steps else ''}: {finding.what} {verb}"


def is_uncompared(finding: Finding) -> bool:
    """Return whether both sides have a value, and nothing by which it could be compared."""
    return finding.rests_on("not_compared", "recorded_draws", "held_by_none")


def is_of_other_shape(finding: Finding) -> bool:
    """Return whether a parameter has a counterpart, whose shape is another."""
    return finding.rests_on("other_shape")


def is_of_other_sort(finding: Finding) -> bool:
    """Return whether a value has a counterpart, whose shape, or sort of numbers, is another."""
    return finding.rests_on("other_output", "other_input")


def difference(finding: Finding, *, of: int = 1) -> list[str]:
    """Return what the figures say, one clause an item; the finding is the worst of ``of``."""
    found = finding.figures
    if found is None or is_of_other_sort(finding):
        return []
    worst = "at worst " if of > 1 else ""
    clauses = [f"{worst}{figure(found.rel_l2)} relative L2, at most {figure(found.max_abs)} in one element"]
    if found.estimated is not None:
        share = f"estimated, +- {found.estimated:.0%}"
        clauses = [
            f"{worst}{figure(found.rel_l2)} relative L2 ({share}), {figure(found.max_abs)} or more in one element"
        ]
    if found.floor is not None:
        clauses[0] += f"; rounding alone explains {figure(found.floor)}"
    if not (math.isfinite(found.rel_l2) and math.isfinite(found.max_abs)):
        clauses.append(_infinite(found))
    if found.rel_l2_float64 is not None:
        clauses.append(_widened(finding.verdict, found, found.rel_l2_float64))
    if found.metrics:
        clauses.append(", ".join(map(measured, found.metrics)))
    return clauses


def _infinite(found: Figures) -> str:
    """Return why errors are infinite."""
    if found.not_finite is None:
        return "not finite: NaN or Inf on either side, or a reference of zeros"
    ours, theirs = (
        f"{count} elements" if count > 1 else "1 element" if count else "none" for count in found.not_finite
    )
    return f"NaN or Inf: {ours} in the reference, {theirs} in the candidate"


def measured(found: Measurement) -> str:
    """Return what a plugin's metric gave, and whether that is within its own limit."""
    unit = f" {found.unit}" if found.unit else ""
    said = f"{found.name} {'NaN' if math.isnan(found.value) else f'{found.value:.8g}'}{unit}"
    if found.limit is None:
        return said
    return f"{said} ({'within' if found.passes else 'outside'} its limit {found.limit:g})"


def _widened(verdict: Verdict, found: Figures, wide: float) -> str:
    if verdict is Verdict.PRECISION:
        return f"in float64 only {figure(wide)}: another precision, not another computation"
    if verdict is Verdict.DIFFERS and not wide < found.rel_l2 / 10:
        return f"in float64 still {figure(wide)}: another computation, not another precision"
    return f"in float64 {figure(wide)}"


def between(finding: Finding) -> str | None:
    """Return, for glue code, between which children of the module it lies."""
    if finding.between is None:
        return None
    first, last = finding.between
    if first == "start":
        place = "all of it" if last == "end" else f"before the candidate's {last}"
    else:
        place = f"after the candidate's {first}" if last == "end" else f"between the candidate's {first} and {last}"
    return f"the module's own code, {place}"


def dataflow(finding: Finding) -> str | None:
    """Return what goes into code between children, and who takes what it makes."""
    if not finding.given or finding.between is None:
        return None
    into = "the output" if finding.between[1] == "end" else finding.between[1]
    return f"{few(finding.given, _MISSING)} -> here -> {into}"


def position(place: Place) -> str:
    """Return a module's path as a reader takes it."""
    if place.path is None:
        return "(no counterpart)"
    said = [f"call {place.call + 1}"] if place.call and place.call != place.micro_batch else []
    said += [] if place.micro_batch is None else [f"micro-batch {place.micro_batch + 1}"]
    said += [ranks(place.ranks)] if place.ranks else []
    return (place.path or "(the model itself)") + (f" ({', '.join(said)})" if said else "")


def located(place: Place) -> str:
    """Return file and line, relative to the working directory where it lies below that."""
    return short(place.location or "")


def where(finding: Finding) -> str:
    """Return path and value in short, on the side that has one; a finding's name in a list."""
    side = finding.candidate if finding.candidate.path is not None else finding.reference
    return f"{position(side)} {finding.phase} {finding.what}"


def figure(value: float) -> str:
    """Return a figure in two digits."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.2g}"


def plural(count: int, noun: str) -> str:
    """Return ``3 values``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def repeated(path: str) -> str:
    """Return a path as those of all repeated layers have it: ``layers.*.norm``."""
    return _NUMBER.sub("*", path)


def folded(paths: Iterable[str]) -> list[str]:
    """Return paths once each, those of repeated layers as one: ``layers.*.norm (3 of them)``."""
    alike: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        alike.setdefault(repeated(path), []).append(path)
    return [f"{name} ({len(found)} of them)" if len(found) > 1 else found[0] for name, found in alike.items()]


def few(items: Sequence[str], most: int) -> str:
    """Return the first items in one line, and how many more there are."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f", ... and {more} more" if more > 0 else "")
