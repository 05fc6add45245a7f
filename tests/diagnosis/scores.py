"""Count outcomes, and write shares of few cases with what they can say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from .cases import Outcome
from .rules import RULES

__all__ = ["share", "table", "wilson"]


def wilson(found: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval in which a share lies with 95 % confidence (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    p, spread = found / count, z * z / count
    middle = (p + spread / 2) / (1 + spread)
    around = z * sqrt(p * (1 - p) / count + spread / (4 * count)) / (1 + spread)
    return max(middle - around, 0.0), min(middle + around, 1.0)


def share(found: int, count: int) -> str:
    """Return a share in per cent, with its interval."""
    if not count:
        return "-"
    low, high = wilson(found, count)
    return f"{found} of {count} = {100 * found / count:.1f} % ({100 * low:.1f}-{100 * high:.1f})"


def table(outcomes: Iterable[Outcome]) -> str:
    """Return two tables in Markdown: right ports, and wrong ones."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.kind, _pair(one.frameworks), one.dtype), []).append(one)
    clean = ["| right ports | type | called right | errors |", "|---|---|---|---|"]
    wrong = [
        "| wrong ports | type | found | exactly the places | all places named | sources elsewhere | wrong causes |",
        "|---|---|---|---|---|---|---|",
    ]
    for (kind, pair, dtype), found in sorted(groups.items()):
        if kind == "clean":
            clean.append(f"| {pair} | {dtype} | {_right(found)} | {_count(found, 'error')} |")
        else:
            wrong.append(f"| {kind}, {pair} | {dtype} | {_wrong(found)} |")
    return "\n".join([*clean, "", *wrong, "", *_rules([one for group in groups.values() for one in group])])


def _pair(frameworks: str) -> str:
    return " x ".join(sorted(frameworks.split("-"), reverse=True))


def _count(found: Sequence[Outcome], verdict: str) -> int:
    return sum(one.verdict == verdict for one in found)


def _right(found: Sequence[Outcome]) -> str:
    count = [_count(found, verdict) for verdict in ("right", "false alarm", "wrong pass")]
    return share(count[0], sum(count))


def _wrong(found: Sequence[Outcome]) -> str:
    hits = [one for one in found if one.verdict == "found"]
    every = len(hits) + _count(found, "wrong pass")
    places = sum(one.places for one in hits)
    return " | ".join(
        [
            share(len(hits), every),
            share(sum(one.named == one.places and not one.extra for one in hits), len(hits)),
            share(sum(one.named for one in hits), places),
            share(sum(one.extra > 0 for one in hits), len(hits)),
            share(sum(bool(one.wrong_causes) for one in hits), len(hits)),
        ]
    )


def _rules(outcomes: Sequence[Outcome]) -> list[str]:
    """Return how the classic rules fare on the cases in which they were asked."""
    asked = [one for one in outcomes if one.rules]
    if not asked:
        return []
    right = [one for one in asked if one.kind == "clean"]
    wrong = [one for one in asked if one.verdict in ("found", "wrong pass")]
    lines = ["| way, on the same cases | found | false alarms |", "|---|---|---|"]
    for rule in RULES:
        lines.append(
            f"| {rule}, every layer | {share(sum(one.rules[rule] for one in wrong), len(wrong))} "
            f"| {share(sum(one.rules[rule] for one in right), len(right))} |"
        )
    hits = _count(wrong, "found"), _count(right, "false alarm")
    return [*lines, f"| padiff | {share(hits[0], len(wrong))} | {share(hits[1], len(right))} |"]
