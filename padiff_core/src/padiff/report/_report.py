"""Hold what a diff found: Finding and Report, plain data that renderers read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

__all__ = ["Figures", "Finding", "Measurement", "Note", "Phase", "Place", "Report", "Transfer", "Verdict"]


class Verdict(StrEnum):
    """Say how a pair was judged."""

    EQUAL = "equal"
    """The same bits."""
    ROUNDING = "rounding"
    """Apart by no more than the arithmetic explains."""
    PRECISION = "precision"
    """The same in float64, apart natively: a dtype policy differs."""
    DIFFERS = "differs"
    """Apart."""
    STOCHASTIC = "stochastic"
    """The reference disagrees with itself."""
    UNMATCHED = "unmatched"
    """Nothing on the other side to compare with. Never a pass."""
    IGNORED = "ignored"
    """The user said so."""


class Phase(StrEnum):
    """Say what was compared."""

    FORWARD = "forward"
    BACKWARD = "backward"
    LOSS = "loss"
    BUFFER = "buffer"
    PARAMETER = "parameter"
    UPDATE = "update"


@attrs.frozen
class Place:
    """Say where, on one side. ``path`` is None where this side has no counterpart."""

    path: str | None
    class_name: str = ""
    location: str | None = None
    """``file:line`` of the user's code."""
    call: int = 0
    """Which execution of the module, from 0."""
    stack: tuple[str, ...] = ()
    """``file:line in function`` of the calling frames, innermost first."""


@attrs.frozen
class Measurement:
    """Hold what a plugin's metric gave."""

    name: str
    value: float
    unit: str = ""
    limit: float | None = None
    """The metric's own opinion from where on two arrays pass, if it has one."""
    passes: bool | None = None
    """Whether the value is within that limit; without a say in the verdict."""


@attrs.frozen
class Figures:
    """Say how far apart: relative L2 and maximal errors of the candidate against the reference, dimensionless
    and in the value's own unit. None where a figure was not measured."""

    rel_l2: float
    max_abs: float
    floor: float | None = None
    """The reference's own rounding error here: relative L2 of its native output against itself in float64."""
    rel_l2_float64: float | None = None
    """Relative L2 between both sides, both in float64."""
    metrics: tuple[Measurement, ...] = ()
    """What the metrics of plugins give for the same arrays, in the models' own dtypes."""


@attrs.frozen
class Finding:
    """Judge one pair. ``what`` says which value: output, input of a child, gradient of a weight, ..."""

    verdict: Verdict
    phase: Phase
    reference: Place
    candidate: Place
    what: str
    figures: Figures | None = None
    evidence: tuple[str, ...] = ()
    """What the verdict rests on, one sentence each."""
    cause: str | None = None
    between: tuple[str, str] | None = None
    """For glue code: the children of ``candidate.path`` between which it lies (``start``, ``end`` at the edges)."""
    source: bool = False
    """True where its own forced inputs agreed: it parts here, and does not merely pass a difference on."""
    step: int = 0


@attrs.frozen
class Note:
    """Tell something that had no effect on the verdict: a setting that differs, a call without counterpart."""

    text: str
    reference: Place | None = None
    candidate: Place | None = None


@attrs.frozen
class Transfer:
    """Count what became of the parameters and buffers."""

    copied: int = 0
    verified: int = 0
    """Copied, and the module that holds it then reproduced the reference."""
    unverified: tuple[str, ...] = ()
    """Candidate paths copied whose module was never called, or did not reproduce the reference."""
    unmatched_reference: tuple[str, ...] = ()
    unmatched_candidate: tuple[str, ...] = ()
    settled: Mapping[str, str] = attrs.field(factory=dict)
    """Candidate path -> the layout that forcing chose, where names and shapes left several."""
    buffers: int = 0
    """How many of the copied are buffers."""


@attrs.frozen
class Report:
    """Hold all findings of one diff, the sources first."""

    sources: tuple[Finding, ...]
    """The places where the models part, in execution order."""
    findings: tuple[Finding, ...]
    """Everything that was judged and is neither equal nor rounding, in execution order, sources among them."""
    notes: tuple[Note, ...] = ()
    transfer: Transfer | None = None
    forward_only: str | None = None
    """Why the backward pass was not compared though it was asked for; None where it was, or was not asked for."""
    counts: Mapping[str, int] = attrs.field(factory=dict)
    """How many calls got which verdict, by the worst of their values."""
    output: Figures | None = None
    """How far the outputs are apart in the free run: what a user sees."""
    output_within: bool | None = None
    """Whether the outputs of the free runs are within the user's own tolerance; None where none was given."""
    loss: tuple[float, float] | None = None
    """The reference's and the candidate's loss in the free run."""
    reference: str = ""
    candidate: str = ""
    """``framework: class`` of both models."""
    environment: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    seconds: float = 0.0

    @property
    def aligned(self) -> bool:
        """Return whether the two compute the same: nothing parts, and nothing that matters is unmatched.

        Where `forward_only` says why, that holds for the forward pass alone.
        """
        return not self.sources and not any(f.verdict in _PARTED for f in self.findings)

    @property
    def victims(self) -> tuple[Finding, ...]:
        """Return what merely passes a difference on."""
        return tuple(f for f in self.findings if f.verdict is Verdict.DIFFERS and not f.source)

    @property
    def unmatched(self) -> tuple[Finding, ...]:
        """Return what has no counterpart."""
        return tuple(f for f in self.findings if f.verdict is Verdict.UNMATCHED)

    def __bool__(self) -> bool:
        """Refuse: ``if report`` reads both ways."""
        msg = "a Report is neither true nor false.\nHint: ask report.aligned."
        raise TypeError(msg)

    def __str__(self) -> str:
        """Return the report as text, in colour on a terminal."""
        from padiff.report import to_text

        return to_text(self)

    def render(self, format: str = "text") -> str:
        """Return the report in a format: ``text`` (without colours), ``json``, or one that a plugin contributes.

        Raises `InputError`, with the formats that there are, for another; `PluginError` where the plugin's renderer
        fails, or two have the name.
        """
        from padiff import plugins

        return plugins.rendered(self, plugins.renderer(format))

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the report as JSON; docs/report.md documents the schema."""
        from padiff.report import to_json

        return to_json(self, indent=indent)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists, as `to_json` writes them."""
        from padiff.report import to_dict

        return to_dict(self)


_PARTED = frozenset({Verdict.DIFFERS, Verdict.UNMATCHED})
