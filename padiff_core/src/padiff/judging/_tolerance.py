"""Make rules of the tolerance that a user gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from padiff.errors import InputError
from padiff.judging._metrics import ByMetric
from padiff.numerics import Array, close
from padiff.options import CLASSIC
from padiff.plugins import Metric, find

Rule = Callable[[Array, Array], bool]
Tolerance = Mapping[str, Any]
_BOUNDS = {"smaller": "max", "larger": "min"}


def rule_of(tolerance: Tolerance | None) -> Rule | None:
    """Return the user's own rule for arrays; raises `InputError` for a metric without a bound."""
    if tolerance is None:
        return None
    if "metric" in tolerance:
        return _by_metric(tolerance)
    asked = {**CLASSIC, **tolerance}
    return lambda ours, theirs: close(ours, theirs, atol=asked["atol"], rtol=asked["rtol"], mode=asked["compare_mode"])


def rule_of_numbers(tolerance: Tolerance | None) -> Rule | None:
    """Return the user's own rule for single numbers: a metric of arrays (a cosine) says nothing about one."""
    return None if tolerance is not None and "metric" in tolerance else rule_of(tolerance)


def shown_rule(tolerance: Tolerance | None) -> dict[str, Any] | None:
    """Return the user's own rule as the report shows it: all its numbers, defaults among them; the metric's name."""
    if tolerance is None or "metric" not in tolerance:
        return None if tolerance is None else {**CLASSIC, **tolerance}
    rule = _by_metric(tolerance)
    low, high = (bound if math.isfinite(bound) else None for bound in (rule.lowest, rule.highest))
    return {"metric": rule.metric.name, "min": low, "max": high}


def _by_metric(tolerance: Mapping[str, Any]) -> ByMetric:
    """Return the rule of a tolerance that names a metric; raises `InputError` where it has no bound."""
    asked = tolerance["metric"]
    row = None if isinstance(asked, Metric) else find("padiff_metrics", asked)
    metric: Metric = asked if row is None else row.item
    lowest, highest = tolerance.get("min"), tolerance.get("max")
    if lowest is None and highest is None and metric.limit is not None:
        lowest, highest = (metric.limit, None) if metric.better == "larger" else (None, metric.limit)
    if lowest is None and highest is None:
        msg = (
            f"tolerance names the metric {metric.name!r}, which has no limit of its own, and no bound.\n"
            f"Hint: give one: tolerance={{'metric': {metric.name!r}, {_BOUNDS[metric.better]!r}: ...}}."
        )
        raise InputError(msg)
    return ByMetric(
        metric,
        -math.inf if lowest is None else float(lowest),
        math.inf if highest is None else float(highest),
        repr(metric.name) if row is None else row.label,
    )
