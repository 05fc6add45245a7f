"""Lay a report out: which lines, in which order, how many; not how they look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from padiff.report import _words as words
from padiff.report._report import Finding, Note, Place, Report, Transfer, Verdict

__all__ = ["Line", "lay_out"]

MOST_SOURCES = 12
MOST_PLACES = 4
MOST_ITEMS = 5
MOST_EVIDENCE = 4
MOST_NOTES = 10
MOST_FRAMES = 2


@attrs.frozen
class Line:
    """Hold one line: a label, and the text in spans of one style each. ``level`` 0 stands at the margin."""

    spans: tuple[tuple[str, str], ...]
    label: str = ""
    level: int = 1


def _line(label: str, text: str, style: str = "") -> Line:
    return Line(((text, style),), label)


def _heading(*spans: tuple[str, str]) -> Line:
    return Line(spans, level=0)


_GAP = Line((), level=0)


def lay_out(report: Report) -> Iterator[Line]:
    """Yield every line, the verdict first, the sources next."""
    state, _, rest = words.headline(report).partition(":")
    yield _heading((state, state.partition(" ")[0]), (":" + rest, "bold"))
    for side in ("reference", "candidate"):
        if getattr(report, side):
            yield _line(side, getattr(report, side))
    yield from _outcome(report)
    yield from _sources(report)
    for section in (_victims, _unmatched, _set_apart, _transfer, _notes, _run, _advice):
        lines = list(section(report))
        if lines:
            yield _GAP
            yield from lines


# -- sources


def _sources(report: Report) -> Iterator[Line]:
    steps = any(finding.step for finding in report.findings)
    groups = _grouped(report.sources)
    for group in groups[:MOST_SOURCES]:
        yield _GAP
        yield from _block(group, len(report.sources), steps=steps)
    left = sum(map(len, groups[MOST_SOURCES:]))
    if left:
        yield _GAP
        yield _heading((f"... and {words.plural(left, 'more source')}", "bold"), (" (report.sources has all)", ""))


Numbered = tuple[int, Finding]


def _grouped(sources: Sequence[Finding]) -> list[list[Numbered]]:
    """Put sources together that are the same lines of code on both sides: one fault in repeated blocks."""
    groups: dict[object, list[Numbered]] = {}
    for number, source in enumerate(sources, 1):
        sides = (source.reference, source.candidate)
        known = source.cause is not None or all(side.location for side in sides)
        code = tuple((side.class_name, side.location) for side in sides)
        key = (source.phase, source.what, source.verdict, source.cause, code) if known else number
        groups.setdefault(key, []).append((number, source))
    return list(groups.values())


def _block(group: list[Numbered], total: int, *, steps: bool) -> Iterator[Line]:
    numbers, findings = [number for number, _ in group], [finding for _, finding in group]
    first = findings[0]
    name = "source" if len(group) == 1 else "sources"
    counted = f"{name} {_ranges(numbers)} of {total}"
    when = _steps(_steps_at(findings, _both(first))) if steps else ""
    yield _heading((counted, "source"), (f"  {words.title(first, when)}", "bold"))
    yield from _pair(first.reference, first.candidate)
    place = words.between(first)
    if place:
        yield _line("where", place)
    others = list(_elsewhere(findings, steps=steps))
    yield from _several("also at", others, most=MOST_PLACES, rest="of the same code (report.sources has all)")
    if first.cause:
        yield from _several("cause", first.cause.splitlines(), "cause")
    worst = max(findings, key=lambda finding: finding.figures.rel_l2 if finding.figures else -1.0)
    yield from _several("apart by", words.apart(worst, of=len(group)))
    yield from _several("evidence", first.evidence, most=MOST_EVIDENCE)
    sides = (("reference", first.reference), ("candidate", first.candidate))
    frames = [f"{side}: {_frames(place)}" for side, place in sides if _frames(place)]
    yield from _several("called by", frames, "quiet")


def _pair(reference: Place, candidate: Place) -> Iterator[Line]:
    """Yield both sides, one line each, their columns under each other."""
    rows = [[words.position(side), side.class_name, words.located(side)] for side in (reference, candidate)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for label, row in zip(("reference", "candidate"), rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        styled = zip(cells, ("path", "", "location"), strict=True)
        yield Line(tuple(span for cell, style in styled for span in ((cell, style), ("  ", ""))), label)


def _frames(place: Place) -> str:
    """Return the innermost callers, without the line that is named already."""
    others = [frame for frame in place.stack if frame.partition(" in ")[0] != place.location]
    return " < ".join(map(words.short, others[:MOST_FRAMES]))


def _elsewhere(findings: Sequence[Finding], *, steps: bool) -> Iterator[str]:
    """Yield the other places of one fault, each once; with its steps where they are not those of the first place."""
    here = _both(findings[0])
    usual = _steps_at(findings, here)
    for name in dict.fromkeys(_both(finding) for finding in findings if _both(finding) != here):
        found = _steps_at(findings, name)
        yield name + (f" ({_steps(found)})" if steps and found != usual else "")


def _steps_at(findings: Sequence[Finding], place: str) -> list[int]:
    return [finding.step for finding in findings if _both(finding) == place]


def _steps(found: Sequence[int]) -> str:
    """Return ``step 1`` or ``steps 1-3``."""
    numbers = sorted({step + 1 for step in found})
    return f"step{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}"


def _both(finding: Finding) -> str:
    return " / ".join(dict.fromkeys(map(words.position, (finding.reference, finding.candidate))))


def _ranges(numbers: list[int]) -> str:
    """Return ``1-3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return words.few(texts, 2 * MOST_ITEMS)


def _several(
    label: str, texts: Sequence[str], style: str = "", *, most: int = MOST_NOTES, rest: str = ""
) -> Iterator[Line]:
    """Yield texts under one label; each may have lines of its own."""
    lines = [line for text in texts[:most] for line in text.splitlines()]
    if len(texts) > most:
        lines.append(f"... and {len(texts) - most} more {rest}".rstrip())
    for index, line in enumerate(lines):
        yield _line("" if index else label, line, style)


# -- what stands above and below the sources


def _outcome(report: Report) -> Iterator[Line]:
    """Yield what a user sees who runs both models freely."""
    if report.output is not None:
        far, most = words.figure(report.output.rel_l2), words.figure(report.output.max_abs)
        yield _line("output", f"{far} relative L2 apart, at most {most} in one element, each model run freely")
        if report.output.metrics:
            yield _line("", ", ".join(map(words.measured, report.output.metrics)))
    if report.loss is not None:
        yield _line("loss", "{:.7g} in the reference, {:.7g} in the candidate".format(*report.loss))


def _victims(report: Report) -> Iterator[Line]:
    found = report.victims
    if found:
        said = f"{words.plural(len(found), 'value')} {'differs' if len(found) == 1 else 'differ'}"
        reason = "only because of the sources above" if report.sources else "though no source was found"
        label = "passed on" if report.sources else "differ"
        yield _line(label, f"{said} {reason}: {words.few([words.where(f) for f in found], MOST_ITEMS)}")


def _unmatched(report: Report) -> Iterator[Line]:
    sources = {id(source) for source in report.sources}
    found = [_alone(finding) for finding in report.unmatched if id(finding) not in sources]
    yield from _several("unmatched", found, most=MOST_ITEMS, rest="(report.unmatched has all)")


def _alone(finding: Finding) -> str:
    ours = finding.candidate.path is not None
    side, place = ("candidate", finding.candidate) if ours else ("reference", finding.reference)
    about = ", ".join(filter(None, [place.class_name, words.located(place)]))
    text = f"only in the {side}: {words.position(place)}{f' ({about})' if about else ''}"
    return f"{text}, {finding.phase} {finding.what}"


def _set_apart(report: Report) -> Iterator[Line]:
    for verdict, label, reason in _SET_APART:
        found = [words.where(finding) for finding in report.findings if finding.verdict is verdict]
        if found:
            yield _line(label, f"{words.plural(len(found), 'value')}, {reason}: {words.few(found, MOST_ITEMS)}")


_SET_APART = (
    (Verdict.PRECISION, "precision", "the same in float64 and apart in the models' own dtypes"),
    (Verdict.STOCHASTIC, "stochastic", "not compared because the reference gives another in each run"),
    (Verdict.IGNORED, "ignored", "not judged, as you asked"),
)


_WHY = "its module was not called, did not reproduce the reference, or chance hides whether it does"


def _transfer(report: Report) -> Iterator[Line]:
    done = report.transfer
    if done is None:
        return
    settled = [f"{path} ({layout})" for path, layout in done.settled.items()]
    lists = (
        (f"not verified ({_WHY})", done.unverified),
        ("only in the reference", done.unmatched_reference),
        ("only in the candidate", done.unmatched_candidate),
        ("whose layout was settled by trying", settled),
    )
    said = [f"{len(paths)} {kind}: {words.few(paths, MOST_ITEMS)}" for kind, paths in lists if paths]
    yield from _several("transfer", [_copied(done), *said])


def _copied(done: Transfer) -> str:
    if not done.copied:
        return "none copied"
    verified = "all" if done.verified >= done.copied else done.verified
    return f"{' and '.join(words.copied(done))} copied from the reference, {verified} verified"


def _notes(report: Report) -> Iterator[Line]:
    yield from _several("notes", [_noted(note) for note in report.notes], rest="(report.notes has all)")


def _noted(note: Note) -> str:
    sides = [side for side in (note.reference, note.candidate) if side is not None and side.path is not None]
    paths = dict.fromkeys(words.position(side) for side in sides)
    return f"{' / '.join(paths)}: {note.text}" if paths else note.text


def _run(report: Report) -> Iterator[Line]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.counts.items() if count)
    if counts:
        yield _line("verdicts", counts)
    for name, facts in report.environment.items():
        yield _line(name, ", ".join(f"{key} {value}" for key, value in facts.items()), "quiet")
    if report.seconds:
        yield _line("took", f"{report.seconds:.1f} s", "quiet")


def _advice(report: Report) -> Iterator[Line]:
    text = ""
    if report.sources:
        text = _ONE if len(report.sources) == 1 else _SEVERAL
        text += ", and what is passed on goes with it." if report.victims else "."
    elif report.unmatched:
        text = "pair these with a padiff.LayerMap, or ignore them: what is unmatched never passes."
    elif report.victims:
        text = "look at the first value that differs, and at the parameters that are not verified."
    if text:
        yield _line("next", text)


_JUDGED = "judged on the reference's own values, so what parts is the code or the setting right there"
_ONE = f"the source was {_JUDGED}; mend it in the candidate"
_SEVERAL = f"each source was {_JUDGED}; mend them in the candidate, in any order"
