"""Lay a report out: which lines, in which order, how many; not how they look."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from padiff.report import _words as words
from padiff.report._advice import advice
from padiff.report._finding import SIDES, Evidence, Finding, Note, Place, Verdict
from padiff.report._folds import fold_block, numbered, ranges
from padiff.report._grouped import Block, blocks_of, count_of
from padiff.report._lines import MOST_ITEMS, Line, heading, line, several
from padiff.report._report import Report, Transfer
from padiff.report._templates import short

MOST_SOURCES = 12
MOST_PLACES = 4
MOST_CAUSES = 4
MOST_EVIDENCE = 4
MOST_FRAMES = 2

_GAP = Line((), level=0)


def lay_out(report: Report) -> Iterator[Line]:
    """Yield every line, the verdict first, the sources next."""
    state = "aligned" if report.aligned else "not aligned"
    yield heading((state, state), (words.headline(report).removeprefix(state), "bold"))
    for side in SIDES:
        if getattr(report, side):
            yield line(side, getattr(report, side))
    yield from _outcome(report)
    yield from _sources(report)
    for section in (_victims, _unmatched, _set_apart, _transfer, _notes, _run, advice):
        lines = list(section(report))
        if lines:
            yield _GAP
            yield from lines


# -- sources


def _sources(report: Report) -> Iterator[Line]:
    steps = report.recorded.steps if report.recorded else ()
    in_steps = len(steps) > 1 or any(finding.step for finding in report.findings)
    first = words.first_step(report) if in_steps else None
    blocks = blocks_of(report)
    total = count_of(blocks)
    alone = [block for block in blocks if not block.fold]
    shown = alone[:MOST_SOURCES]
    shared = _shared(shown)
    for fold in (block for block in blocks if block.fold):
        yield _GAP
        yield from fold_block(fold, total)
    for block in shown:
        yield _GAP
        yield from _block(block, total, shared, first)
    if shared:
        yield _GAP
        said = [
            f"{'all sources' if len(numbers) == total else f'sources {ranges(numbers)}'}: {text}"
            for text, numbers in shared.items()
        ]
        yield from several("evidence", said)
    left = count_of(alone) - count_of(shown)
    if left:
        yield _GAP
        yield heading((f"... and {words.plural(left, 'more source')}", "bold"), (" (report.sources has all)", ""))


def _shared(blocks: Sequence[Block]) -> dict[Evidence, list[int]]:
    """Return evidence on which several blocks rest, with their numbers: it is printed once, below them."""
    resting: dict[Evidence, list[Block]] = {}
    for block in blocks:
        for one in dict.fromkeys(block.findings[0].evidence[:MOST_EVIDENCE]):
            resting.setdefault(one, []).append(block)
    return {
        one: [number for block in found for number in block.numbers] for one, found in resting.items() if len(found) > 1
    }


def _block(block: Block, total: int, shared: Collection[Evidence], step: int | None) -> Iterator[Line]:
    findings = block.findings
    first = findings[0]
    counted = numbered(block.numbers, total)
    when = "" if step is None else _steps(_steps_at(findings, _both(first)), step)
    yield heading((counted, "source"), (f"  {words.title(first, when)}", "bold"))
    yield from _pair(first.reference, first.candidate)
    yield from several("where", _all(words.between, findings), most=MOST_PLACES)
    yield from several("dataflow", _all(words.dataflow, findings), most=MOST_PLACES)
    others = list(_elsewhere(findings, step))
    yield from several("also at", others, most=MOST_PLACES, rest="(report.sources has all)")
    causes = dict.fromkeys(line for one in findings if one.cause for line in one.cause.splitlines())
    yield from several("cause", list(causes), "cause", most=MOST_CAUSES)
    worst = max(findings, key=lambda finding: finding.figures.rel_l2 if finding.figures else -1.0)
    yield from several("difference", words.difference(worst, of=len(findings)))
    here = (one for one in findings if (one.candidate, one.step) == (first.candidate, first.step))
    own = dict.fromkeys(said for one in here for said in one.evidence if said not in shared)
    yield from several("evidence", list(own), most=MOST_EVIDENCE)
    sides = (("reference", first.reference), ("candidate", first.candidate))
    frames = [f"{side}: {_frames(place)}" for side, place in sides if _frames(place)]
    yield from several("called by", frames, "quiet")


def _all(say: Callable[[Finding], str | None], findings: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(said for finding in findings if (said := say(finding)) is not None))


def _pair(reference: Place, candidate: Place) -> Iterator[Line]:
    """Yield both sides, one line each, their columns under each other."""
    rows = [[words.position(side), side.class_name, words.located(side)] for side in (reference, candidate)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for label, row in zip(SIDES, rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        styled = zip(cells, ("path", "", "location"), strict=True)
        yield Line(tuple(span for cell, style in styled for span in ((cell, style), ("  ", ""))), label)


def _frames(place: Place) -> str:
    """Return the innermost callers, without the line that is named already."""
    others = [frame for frame in place.stack if frame.partition(" in ")[0] != place.location]
    return " < ".join(map(short, others[:MOST_FRAMES]))


def _elsewhere(findings: Sequence[Finding], step: int | None) -> Iterator[str]:
    """Yield the other places of one fault, each once; with its steps where they are not those of the first place."""
    here = _both(findings[0])
    usual = _steps_at(findings, here)
    for name in dict.fromkeys(_both(finding) for finding in findings if _both(finding) != here):
        found = _steps_at(findings, name)
        yield name + ("" if step is None or found == usual else f" ({_steps(found, step)})")


def _steps_at(findings: Sequence[Finding], place: str) -> list[int]:
    return [finding.step for finding in findings if _both(finding) == place]


def _steps(found: Sequence[int], first: int) -> str:
    """Return ``step 1`` or ``steps 1-3``; ``first`` is what step 0 is called."""
    numbers = sorted({step + first for step in found})
    return f"step{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def _both(finding: Finding) -> str:
    return " / ".join(dict.fromkeys(map(words.position, (finding.reference, finding.candidate))))


# -- what stands above and below the sources


def _outcome(report: Report) -> Iterator[Line]:
    """Yield what a user sees who runs both models freely, and the rule that was asked for."""
    if report.recorded is not None:
        yield from several("recorded", words.recorded(report.recorded))
    if report.tolerance is not None:
        yield line("tolerance", words.tolerance(report.tolerance))
    if report.output is not None:
        far, most = words.figure(report.output.rel_l2), words.figure(report.output.max_abs)
        within = {None: "", True: "; within tolerance", False: "; outside tolerance"}[report.output_within]
        share = report.output.estimated
        told = f"{far} relative L2, at most {most} in one element"
        if share is not None:
            told = f"{far} relative L2 (estimated, +- {share:.0%})"
        yield line("output", f"{told}, each model run freely{within}")
        if report.free_runs is not None and report.free_runs.by != "sight":
            yield line("", words.free_runs(report.free_runs))
        if report.output.metrics:
            yield line("", ", ".join(map(words.measured, report.output.metrics)))
    if report.loss is not None:
        yield line("loss", "{:.7g} in the reference, {:.7g} in the candidate".format(*report.loss))
    yield from _structure(report)
    if report.coverage is not None and report.coverage.missing:
        yield line("coverage", words.coverage(report.coverage))


def _structure(report: Report) -> Iterator[Line]:
    """Say, of two models most of whose parameters have no counterpart, that they are two architectures."""
    left = report.mapping.unmatched_parameters
    matched = {path for row in report.mapping.parameters for path in row.reference}, report.mapping.parameters
    counts = [
        (len(left.get(side, ())), len(left.get(side, ())) + len(known))
        for side, known in zip(SIDES, matched, strict=True)
    ]
    if all(2 * missing > total for missing, total in counts):
        said = " and ".join(
            f"{missing} of {total} parameters of the {side}"
            for (missing, total), side in zip(counts, SIDES, strict=True)
        )
        sizes = 2 * sum(map(words.is_of_other_shape, report.sources)) > max(missing for missing, _ in counts)
        what = "one architecture in two sizes" if sizes else "two architectures"
        yield line("structure", f"{said} have no counterpart: these are {what}")


def _victims(report: Report) -> Iterator[Line]:
    found = report.victims
    if found:
        said = f"{words.plural(len(found), 'value')} {'differs' if len(found) == 1 else 'differ'}"
        label, said = ("downstream", f"of the sources above, {said}") if report.sources else ("differ", said)
        named = [words.position(f.candidate) if f.what.kind == "free_output" else words.where(f) for f in found]
        yield line(label, f"{said}: {words.few(named, MOST_ITEMS)}")


def _unmatched(report: Report) -> Iterator[Line]:
    sources = {id(source) for source in report.sources}
    found = [_one_sided(finding) for finding in report.unmatched if id(finding) not in sources]
    yield from several("unmatched", found, most=MOST_ITEMS, rest="(report.unmatched has all)")


def _one_sided(finding: Finding) -> str:
    side = finding.side or ("reference" if finding.candidate.path is None else "candidate")
    place = getattr(finding, side)
    about = ", ".join(filter(None, [place.class_name, words.located(place)]))
    if words.is_uncompared(finding):
        return f"{words.position(place)}, {finding.phase} {finding.what}, is not compared: {finding.evidence[0]}"
    if words.is_of_other_sort(finding):
        return f"{words.position(place)}, {finding.phase} {finding.what}, {words.OF_OTHER_SORT}: {finding.evidence[0]}"
    text = f"only in the {side}: {words.position(place)}{f' ({about})' if about else ''}"
    return f"{text}, {finding.phase} {finding.what}"


def _set_apart(report: Report) -> Iterator[Line]:
    for verdict, label, reason in _SET_APART:
        found = [finding for finding in report.findings if finding.verdict is verdict]
        if found:
            why = dict.fromkeys(str(f.cause) for f in found if f.is_caused_by("dtypes"))
            at = words.folded(map(words.where, found) if len(found) <= MOST_ITEMS else _calls(found))
            said = f"{words.plural(len(found), 'value')}, {reason}{''.join(f'; {one}' for one in why)}"
            yield line(label, f"{said}: {words.few(at, MOST_ITEMS)}")


def _calls(found: Sequence[Finding]) -> Iterator[str]:
    return (words.position(f.candidate if f.candidate.path is not None else f.reference) for f in found)


_SET_APART = (
    (Verdict.PRECISION, "precision", "the same in float64, different in the models' own dtypes"),
    (Verdict.STOCHASTIC, "stochastic", "not compared because the reference gives another in each run"),
    (Verdict.IGNORED, "ignored", "not judged, as you asked"),
)


_WHY = "its module was not called, did not reproduce the reference, or chance hides whether it does"


def _transfer(report: Report) -> Iterator[Line]:
    done = report.transfer
    if done is None:
        return
    shapes = [one.figures["paths"] for f in report.sources for one in f.evidence if one.kind.endswith("other_shape")]
    unlike = {side: {paths[side] for paths in shapes} for side in SIDES}
    settled = [f"{path} ({layout})" for path, layout in done.settled.items()]
    lists = (
        (f"not verified ({_WHY})", done.unverified),
        ("of another shape", [path for path in done.unmatched_candidate if path in unlike["candidate"]]),
        ("only in the reference", [path for path in done.unmatched_reference if path not in unlike["reference"]]),
        ("only in the candidate", [path for path in done.unmatched_candidate if path not in unlike["candidate"]]),
        ("whose layout was settled by the code around, or by trying", settled),
    )
    said = [f"{len(paths)} {kind}: {words.few(words.folded(paths), MOST_ITEMS)}" for kind, paths in lists if paths]
    yield from several("transfer", [_copied(done), *said])


def _copied(done: Transfer) -> str:
    if not done.copied:
        return "none copied"
    verified = "all" if done.verified >= done.copied else done.verified
    return f"{' and '.join(words.copied(done))} copied from the reference, {verified} verified"


def _notes(report: Report) -> Iterator[Line]:
    alike: dict[str, list[str]] = {}
    for note in report.notes:
        alike.setdefault(note.text, []).append(_at(note))
    told = [f"{words.few(words.folded(at), MOST_ITEMS)}: {text}" if any(at) else text for text, at in alike.items()]
    yield from several("notes", told, rest="(report.notes has all)")


def _at(note: Note) -> str:
    sides = [side for side in (note.reference, note.candidate) if side is not None and side.path is not None]
    return " / ".join(dict.fromkeys(map(words.position, sides)))


def _run(report: Report) -> Iterator[Line]:
    compared = {verdict: count for verdict, count in report.counts.items() if count and verdict != Verdict.UNMATCHED}
    counts = ", ".join(f"{count} {verdict}" for verdict, count in compared.items())
    left = report.counts.get(Verdict.UNMATCHED)
    if left:
        counts += f"{'; ' if counts else ''}{words.plural(left, 'call')} on one side only, judged with the code around"
    if counts:
        yield line("verdicts", counts)
    for name, facts in report.environment.items():
        yield line(name, ", ".join(f"{key} {value}" for key, value in facts.items()), "quiet")
    if report.seconds:
        yield line("took", f"{report.seconds:.1f} s", "quiet")
