"""Write many findings of one kind as one block: parameters without counterpart, of other shapes, of other values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.paths import joined, last
from padiff.report import _words as words
from padiff.report._finding import Finding
from padiff.report._grouped import Block, trouble
from padiff.report._lines import MOST_ITEMS, MOST_LINES, Line, heading, line, several

_TITLES = {
    "other_shape": "parameter: {} of another shape on the other side",
    "beside_other_shape": "parameter: {} not matched, beside others of another shape",
    "no_counterpart": "parameter: {} without counterpart",
    "before_any_run": "parameter: the values of {} differ before any run",
}


def fold_block(block: Block, total: int) -> Iterator[Line]:
    """Yield the block of many findings of one kind: what each is about, repeated layers once."""
    group = block.findings
    kind = trouble(group[0])
    title = _TITLES[kind].format(words.plural(sum(trouble(one) == kind for one in group), "parameter"))
    yield heading((numbered(block.numbers, total), "source"), (f"  {title}", "bold"))
    said = words.folded(_row(finding) for finding in group)
    yield from several("these", said, most=MOST_LINES, rest="(report.sources has all)")
    sizes = [finding.figures.rel_l2 for finding in group if finding.figures is not None]
    if sizes:
        low, high = words.figure(min(sizes)), words.figure(max(sizes))
        yield line("difference", f"{low if low == high else f'{low} to {high}'} relative L2")
    telling = (one.cause for one in group if one.cause and not one.is_caused_by("missing_module", "missing_parameter"))
    causes = list(dict.fromkeys(map(str, telling)))
    yield from several("cause", causes, "cause", most=MOST_ITEMS)


def _row(finding: Finding) -> str:
    first = finding.evidence[0]
    if "paths" in first.figures:
        return str(first)
    if first.kind == "no_counterpart":
        return f"only in the {finding.side}: {first.figures['path']} {list(first.figures['shape'])}"
    return joined(finding.candidate.path or "", last(finding.what.name))


def numbered(numbers: Sequence[int], total: int) -> str:
    """Return ``source 1 of 3`` or ``sources 1-2 of 3``."""
    return f"source{'s' if len(numbers) > 1 else ''} {ranges(numbers)} of {total}"


def ranges(numbers: Sequence[int]) -> str:
    """Return ``1-3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return words.few(texts, 2 * MOST_ITEMS)
