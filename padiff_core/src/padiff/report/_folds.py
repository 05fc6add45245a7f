"""Fold many findings of one kind into one block: parameters without counterpart, of other shapes, of other values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.report import _words as words
from padiff.report._finding import Finding, Phase, Verdict
from padiff.report._lines import MOST_ITEMS, MOST_LINES, Line, heading, line, several

__all__ = ["Numbered", "fold_block", "folded", "ranges"]

Numbered = tuple[int, Finding]
_FEW = 3
"""So many blocks are not folded."""
_KINDS = ("other_shape", "beside_other_shape", "no_counterpart", "before_any_run")
"""Kinds of the evidence on which findings rest that are folded, each kind by itself."""
_TITLES = {
    "other_shape": "parameter: {} of another shape on the other side",
    "beside_other_shape": "parameter: {} not matched, beside others of another shape",
    "no_counterpart": "parameter: {} without counterpart",
    "before_any_run": "parameter: the values of {} differ before any run",
}


def folded(groups: Sequence[list[Numbered]]) -> tuple[list[list[Numbered]], list[list[Numbered]]]:
    """Return the groups that stay blocks of their own, and those findings of each kind that become one block."""
    alone, folds = list(groups), []
    for kind in _KINDS:
        found = [group for group in alone if _kind(group[0][1]) == kind]
        if len(found) > _FEW:
            alone = [group for group in alone if group not in found]
            folds.append(sorted((one for group in found for one in group), key=lambda one: one[0]))
    return alone, folds


def fold_block(group: Sequence[Numbered], total: int) -> Iterator[Line]:
    """Yield the block of many findings of one kind: what each is about, repeated layers once."""
    kind = _kind(group[0][1])
    title = _TITLES[kind].format(words.plural(len(group), "parameter"))
    yield heading((f"sources {ranges([number for number, _ in group])} of {total}", "source"), (f"  {title}", "bold"))
    said = words.folded(_row(finding) for _, finding in group)
    yield from several("these", said, most=MOST_LINES, rest="(report.sources has all)")
    sizes = [finding.figures.rel_l2 for _, finding in group if finding.figures is not None]
    if sizes:
        low, high = words.figure(min(sizes)), words.figure(max(sizes))
        yield line("difference", f"{low if low == high else f'{low} to {high}'} relative L2")
    causes = list(dict.fromkeys(str(finding.cause) for _, finding in group if _is_telling(finding)))
    yield from several("cause", causes, "cause", most=MOST_ITEMS)


def _kind(finding: Finding) -> str:
    if finding.phase is not Phase.PARAMETER or finding.verdict not in (Verdict.UNMATCHED, Verdict.DIFFERS):
        return ""
    return finding.evidence[0].kind if finding.evidence else ""


def _is_telling(finding: Finding) -> bool:
    return finding.cause is not None and finding.cause.name not in ("missing_module", "missing_parameter")


def _row(finding: Finding) -> str:
    first = finding.evidence[0]
    if "paths" in first.figures:
        return str(first)
    if first.kind == "no_counterpart":
        return f"only in the {finding.side}: {first.figures['path']} {list(first.figures['shape'])}"
    below = finding.what.name.rpartition(".")[2]
    return f"{finding.candidate.path}.{below}".lstrip(".")


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
