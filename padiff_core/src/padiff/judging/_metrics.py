"""Measure pairs of arrays with the metrics that plugins contribute, each under guard."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.errors import PluginError
from padiff.numerics import Array, read_only
from padiff.plugins import Metric, Row, contributions, failure
from padiff.report import Measurement

Arrays = Iterable[tuple[Array, Array]]

_HOOK = "padiff_metrics"


class Measures:
    """Measure with some metrics; one that raises is left out from then on, and what it said is kept."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = list(rows)
        self.trouble: list[str] = []

    def __bool__(self) -> bool:
        """Return whether there is a metric."""
        return bool(self._rows)

    def __call__(self, reference: Array, candidate: Array) -> tuple[Measurement, ...]:
        """Return what each metric gives; nothing for arrays of two shapes, or without elements."""
        return self.worst([(reference, candidate)])

    def worst(self, pairs: Arrays) -> tuple[Measurement, ...]:
        """Return for each metric the value of the pair of arrays that it finds furthest apart."""
        fitting = [(ours, theirs) for ours, theirs in pairs if ours.shape == theirs.shape and ours.size]
        found = []
        for row in list(self._rows) if fitting else ():
            metric: Metric = row.item
            try:
                values = [_value(metric, *pair) for pair in fitting]
            except Exception as error:
                self._rows.remove(row)
                row.failed = f"its function {failure(error)}"
                self.trouble.append(
                    f"the metric {row.label} of {_HOOK}() is left out from here on: {row.failed}.\n"
                    f"Hint: tell the author of {row.distribution}; the rest of the report is complete."
                )
                continue
            largest = metric.better == "smaller"
            value = next(filter(math.isnan, values), max(values) if largest else min(values))
            found.append(Measurement(metric.name, value, metric.unit, metric.limit, metric.passes(value)))
        return tuple(found)


def measures_of(tolerance: Mapping[str, Any] | None) -> Measures:
    """Return the metrics to show: those of plugins (padiff's own are figures of every finding), and a tolerance's."""
    asked = None if tolerance is None else tolerance.get("metric")
    given = [Row(asked.name, "given", None, _HOOK, asked)] if isinstance(asked, Metric) else []
    return Measures([*(row for row in contributions(_HOOK) if not row.builtin), *given])


@attrs.frozen
class ByMetric:
    """Decide by a metric whether a candidate is close enough: ``lowest`` <= value <= ``highest``; NaN never is."""

    metric: Metric
    lowest: float
    highest: float
    label: str

    def __call__(self, reference: Array, candidate: Array) -> bool:
        """Return whether two arrays are close enough; raises `PluginError` where the metric fails."""
        if reference.shape != candidate.shape:
            return False
        if not reference.size:
            return True
        try:
            return self.lowest <= _value(self.metric, reference, candidate) <= self.highest
        except Exception as error:
            msg = (
                f"the metric {self.label}, asked for as the tolerance, {failure(error)}, given "
                f"{reference.dtype.name}{list(reference.shape)} and {candidate.dtype.name}{list(candidate.shape)}.\n"
                "Hint: leave the tolerance out, or choose another metric (`padiff plugins` lists them)."
            )
            raise PluginError(msg) from error


def _value(metric: Metric, reference: Array, candidate: Array) -> float:
    value = metric.function(read_only(reference), read_only(candidate))
    if isinstance(value, bool | str | bytes) or np.ndim(value):
        msg = f"{metric.name} gave a {type(value).__qualname__}; expected a number"
        raise TypeError(msg)
    return float(value)
