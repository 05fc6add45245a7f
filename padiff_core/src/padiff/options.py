"""Check what the caller of diff() asked for, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import attrs
import numpy as np

from padiff.errors import InputError, check_one_of
from padiff.plugins import Metric

_PHASES = ("both", "forward", "backward")
CLASSIC = {"atol": 0.0, "rtol": 1e-7, "compare_mode": "mean"}
_MODES = ("mean", "strict")
_SEEDS = 2**63
PAIR = "Hint: optimizers=(for_the_reference, for_the_candidate)"


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """Return a whole number of numpy's as Python's own, which every generator takes."""
    return int(value) if _whole(value) else value


@attrs.frozen
class DiffOptions:
    """What the caller of diff() asked for beside models, inputs and functions, checked."""

    steps: int = attrs.field(converter=_plain)
    phase: str = attrs.field()
    transfer: bool = attrs.field()
    tolerance: Mapping[str, Any] | None = attrs.field()
    seed: int = attrs.field(converter=_plain)
    operations: bool = attrs.field(default=False)
    optimizers: bool = False
    """Whether optimizers were given, which step."""
    forward_only: str | None = None
    """Why only the forward pass is compared, where more was asked for."""

    @transfer.validator
    @operations.validator
    def _yes_or_no(self, field: attrs.Attribute[bool], value: Any) -> None:
        if not isinstance(value, bool | np.bool_ | int):
            msg = f"{field.name} is {value!r}; expected True or False.\nHint: {field.name}=True or {field.name}=False."
            raise InputError(msg)

    @phase.validator
    def _known(self, _: Any, value: str) -> None:
        check_one_of("phase", value, _PHASES)

    @steps.validator
    def _positive(self, _: Any, value: int) -> None:
        if not _whole(value) or value < 1:
            msg = f"steps is {value!r}; expected a whole number from 1.\nHint: steps=1 compares one run."
            raise InputError(msg)
        if value > 1 and (not self.optimizers or self.phase == "forward"):
            why = "without optimizers (or without the backward pass) every step is the same"
            msg = f"steps is {value}, and {why}.\n{PAIR}, phase='both'."
            raise InputError(msg)

    @tolerance.validator
    def _rules(self, _: Any, value: Any) -> None:
        wrong = [] if value is None else _wrong_in(value)
        if wrong:
            seen = f"tolerance {'has' if isinstance(value, Mapping) else 'is'} {', '.join(wrong)}"
            msg = (
                f"{seen}; expected a dict with atol, rtol and compare_mode "
                "('mean' or 'strict'), atol and rtol finite numbers from 0; or with metric, min and max.\n"
                "Hint: leave it out, and the models' own rounding decides."
            )
            raise InputError(msg)

    @seed.validator
    def _seeding(self, _: Any, value: Any) -> None:
        if not _whole(value) or not 0 <= value < _SEEDS:
            msg = (
                f"seed is {value!r}; expected a whole number from 0, below 2**63.\n"
                "Hint: both models' generators are set to it before each run; seed=0 will do."
            )
            raise InputError(msg)

    def without_backward(self, why: str) -> DiffOptions:
        """Return what is left where a side has no backward pass."""
        return attrs.evolve(self, phase="forward", forward_only=why)

    @property
    def backward(self) -> bool:
        """Return whether the backward pass runs."""
        return self.phase != "forward"


def _wrong_in(tolerance: Any) -> list[str]:
    """Return what of a tolerance is none, in words."""
    if not isinstance(tolerance, Mapping):
        return [repr(tolerance)]
    if "metric" in tolerance:
        return _wrong_in_metric(tolerance)
    unknown = [str(key) for key in tolerance if key not in CLASSIC]
    wrong = [
        f"{name}={tolerance[name]!r}"
        for name in ("atol", "rtol")
        if name in tolerance and not (_is_number(tolerance[name]) and float(tolerance[name]) >= 0)
    ]
    mode = tolerance.get("compare_mode", "mean")
    return unknown + wrong + ([] if mode in _MODES else [f"compare_mode={mode!r}"])


def _wrong_in_metric(tolerance: Mapping[str, Any]) -> list[str]:
    others = [str(key) for key in tolerance if key not in ("metric", "min", "max")]
    if others:
        return [f"{key} beside a metric" for key in others]
    bounds = {name: tolerance[name] for name in ("min", "max") if name in tolerance}
    wrong = [f"{name}={value!r}" for name, value in bounds.items() if not _is_number(value)]
    if not wrong and len(bounds) == 2 and bounds["min"] > bounds["max"]:
        wrong = [f"min={bounds['min']!r} above max={bounds['max']!r}"]
    return wrong if isinstance(tolerance["metric"], str | Metric) else [f"metric={tolerance['metric']!r}", *wrong]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return math.isfinite(value)
