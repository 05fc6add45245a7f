"""Group sources into what is one fault to a reader: one line of code, one setting, one kind of trouble."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.report._finding import Finding, Phase, Verdict

__all__ = ["Block", "blocks_of", "count_of", "trouble"]

_FEW = 3
"""So many blocks are not folded."""
_SETTINGS = ("settings", "optimizer_settings", "step_scaled")
"""Causes that are one wherever they show: what was set once, to one value, for many modules or parameters."""
_KINDS = ("other_shape", "beside_other_shape", "no_counterpart", "before_any_run")
"""Kinds of the evidence on which findings rest that are folded, each kind by itself."""


@attrs.frozen
class Block:
    """Findings that a reader gets at once: of one line of code, of one setting, or many of one kind."""

    findings: Sequence[Finding]
    numbers: Sequence[int]
    """The numbers of its sources: one of what has one cause, else one for each place."""
    fold: bool = False
    """Whether these are many faults of one kind, which are listed, not each shown."""


def blocks_of(sources: Sequence[Finding]) -> list[Block]:
    """Return the blocks that sources make, numbered; those of many of one kind come first."""
    alone, folds = _grouped(sources), []
    for kind in _KINDS:
        found = [group for group in alone if trouble(group[0]) == kind]
        if len(found) > _FEW:
            alone = [group for group in alone if group not in found]
            folds.append([one for group in found for one in group])
    blocks: list[Block] = []
    for group in [*folds, *alone]:
        start = count_of(blocks) + 1
        fold = len(blocks) < len(folds)
        blocks.append(Block(group, range(start, start + (1 if fold or _is_set(group[0]) else len(group))), fold))
    return blocks


def count_of(blocks: Sequence[Block]) -> int:
    """Return how many sources some blocks hold."""
    return sum(len(block.numbers) for block in blocks)


def _is_set(source: Finding) -> bool:
    return source.cause is not None and source.cause.name in _SETTINGS and not trouble(source)


def _grouped(sources: Sequence[Finding]) -> list[list[Finding]]:
    """Put sources together that are one fault: the same lines of code on both sides, or one setting."""
    groups: dict[object, list[Finding]] = {}
    for number, source in enumerate(sources):
        sides = (source.reference, source.candidate)
        key: object = number
        if _is_set(source):
            key = (source.phase, source.what.kind, source.verdict, source.cause)
        elif source.cause is not None or all(side.location for side in sides):
            code = tuple((side.class_name, side.location) for side in sides)
            key = (source.phase, source.what, source.verdict, source.cause, code)
        groups.setdefault(key, []).append(source)
    return list(groups.values())


def trouble(finding: Finding) -> str:
    """Return the kind of trouble with a parameter of which many findings are one block; else nothing."""
    if finding.phase is not Phase.PARAMETER or finding.verdict not in (Verdict.UNMATCHED, Verdict.DIFFERS):
        return ""
    return finding.evidence[0].kind if finding.evidence else ""
