"""Hold what a diff found: Report, plain data that renderers read."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import attrs

from padiff.report._compared import ComparedCall, Matching
from padiff.report._finding import Figures, Finding, Note, Verdict
from padiff.report._whole import Coverage, FreeRuns, RecordedRuns


@attrs.frozen
class Transfer:
    """The fate of the parameters and buffers, counted."""

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
    padded: Mapping[str, int] = attrs.field(factory=dict)
    """Candidate path -> how many first rows were copied, where either side fills its vocabulary up with others."""


@attrs.frozen(repr=False)
class Report:
    """All that one diff found, the sources first."""

    sources: tuple[Finding, ...]
    """The places where a difference arises, in execution order."""
    findings: tuple[Finding, ...]
    """Everything that is neither equal, rounding nor within tolerance, in execution order, sources among them."""
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
    phase: str = "both"
    """What was asked for: ``both``, ``forward`` or ``backward``."""
    tolerance: Mapping[str, Any] | None = None
    """The user's own rule: ``atol``, ``rtol`` and ``compare_mode``, or ``metric``, ``min`` and ``max``."""
    operations: bool = False
    """Whether operations were compared one by one."""
    calls: tuple[ComparedCall, ...] = ()
    """The whole compared tree, in the candidate's order of execution; what the reference alone calls comes last."""
    mapping: Matching = attrs.field(factory=Matching)
    """Which modules and parameters were matched, and why."""
    coverage: Coverage | None = None
    """How many of the values between the inputs and the outputs were compared, in the first step."""
    free_runs: FreeRuns | None = None
    """What the free runs prove; None where a source explains them already, or the user's own tolerance decides."""
    recorded: RecordedRuns | None = None
    """The recorded runs that were compared; None where models were run."""

    @property
    def aligned(self) -> bool:
        """Return whether the two compute the same: nothing differs, and nothing that matters is unmatched.

        Where `forward_only` says why, or `phase` is not ``both``, that holds for this pass alone.
        """
        return not self.sources and not any(f.counts for f in self.findings)

    @property
    def victims(self) -> tuple[Finding, ...]:
        """Return what differs downstream of the sources."""
        return tuple(f for f in self.findings if f.verdict is Verdict.DIFFERS and not f.source)

    @property
    def unmatched(self) -> tuple[Finding, ...]:
        """Return what has no counterpart."""
        return tuple(f for f in self.findings if f.verdict is Verdict.UNMATCHED)

    def __bool__(self) -> bool:
        """Refuse: ``if report`` reads both ways."""
        msg = "a Report is neither true nor false.\nHint: ask report.aligned."
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Return the verdict in one short line."""
        from padiff.report import summary

        return f"<Report: {summary(self)}>"

    def _repr_html_(self) -> str:
        """Return the report for a notebook, whose cells are about so many characters wide."""
        from padiff.report import to_text

        return f"<pre>{html.escape(to_text(self, color=False, width=110))}</pre>"

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
