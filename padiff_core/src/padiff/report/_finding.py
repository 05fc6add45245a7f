"""Hold findings as data: which value, where, how far apart, why, on what evidence.

`What`, `Cause` and `Evidence` are strings too: they read as the words that `_phrases` has for them, so that scripts
search, compare and join them; what they are made of stays at hand in their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import attrs

from padiff.numerics import Difference
from padiff.report._phrases import CAUSES, EVIDENCE, VALUES
from padiff.report._phrases_of_notes import NOTES
from padiff.report._templates import said

SIDES = ("reference", "candidate")
"""Both sides, in the order in which they stand everywhere."""


class Verdict(StrEnum):
    """How a pair was judged."""

    EQUAL = "equal"
    """The same bits."""
    ROUNDING = "rounding"
    """A difference of no more than the arithmetic explains."""
    WITHIN_TOLERANCE = "within tolerance"
    """A difference that the user's own tolerance allows; whether it is rounding was not asked."""
    PRECISION = "precision"
    """The same in float64, different natively: a dtype policy differs."""
    DIFFERS = "differs"
    """A difference that counts."""
    STOCHASTIC = "stochastic"
    """The reference disagrees with itself."""
    NOT_COMPARED = "not compared"
    """Matched, and of what it gives nothing was kept by which it could be compared; of calls alone."""
    UNMATCHED = "unmatched"
    """Nothing on the other side to compare with. Never a pass."""
    IGNORED = "ignored"
    """The user said so."""


class Phase(StrEnum):
    """What was compared."""

    FORWARD = "forward"
    BACKWARD = "backward"
    LOSS = "loss"
    BUFFER = "buffer"
    PARAMETER = "parameter"
    UPDATE = "update"


@attrs.frozen
class Place:
    """A place on one side. ``path`` is None where this side has no counterpart."""

    path: str | None
    class_name: str = ""
    location: str | None = None
    """``file:line`` of the user's code."""
    call: int = 0
    """Which execution of the module, from 0."""
    stack: tuple[str, ...] = ()
    """``file:line in function`` of the calling frames, innermost first."""
    micro_batch: int | None = None
    """Which call of the whole model within a step it belongs to, from 0; None where a step has one, or it is of all."""
    ranks: tuple[int, ...] = ()
    """The ranks of a job that it is on; empty where these are all, or there is one."""


@attrs.frozen
class Measurement:
    """The value that a plugin's metric gave."""

    name: str
    value: float
    unit: str = ""
    limit: float | None = None
    """The metric's own opinion from where on two arrays pass, if it has one."""
    passes: bool | None = None
    """Whether the value is within that limit; without a say in the verdict."""


@attrs.frozen
class Figures:
    """The size of a difference: relative L2 and maximal errors of the candidate against the reference, dimensionless
    and in the value's own unit. None where a figure was not measured."""

    rel_l2: float
    max_abs: float
    floor: float | None = None
    """The reference's own rounding error here: relative L2 of its native output against itself in float64."""
    rel_l2_float64: float | None = None
    """Relative L2 between both sides, both in float64."""
    metrics: tuple[Measurement, ...] = ()
    """What the metrics of plugins give for the same arrays, in the models' own dtypes."""
    estimated: float | None = None
    """The relative standard error of ``rel_l2``, where sketches estimate it; ``max_abs`` is a lower bound then."""
    not_finite: tuple[int, int] | None = None
    """How many elements are NaN or infinite in the reference and in the candidate, where these are not the same."""

    @classmethod
    def of(cls, apart: Difference, metrics: tuple[Measurement, ...] = ()) -> Self:
        """Return the figures of a difference, and what the metrics of plugins gave."""
        return cls(apart.rel_l2, apart.max_abs, metrics=metrics, not_finite=apart.not_finite)


class Worded(str):
    """Data that reads as its words."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes it again: its fields, not its words."""
        return type(self), attrs.astuple(self, recurse=False)  # type: ignore[arg-type]


@attrs.frozen(eq=False, repr=False, slots=False)
class What(Worded):
    """The value that a finding is about."""

    kind: str
    """``output``, ``input``, ``parameter``, ``buffer``, ``loss``, or what becomes of one: ``output_gradient``,
    ``input_gradient``, ``parameter_gradient``, ``updated_parameter``, ``updated_buffer``, ``free_output``; or a
    ``number`` beside tensors."""
    name: str = ""
    """The parameter's name, or the path of a tensor among its call's inputs or outputs."""
    index: int | None = None  # type: ignore[assignment]  # nobody misses the method of strings
    """Which of the call's tensors it is, from 0."""
    taker: str = ""
    """The child that takes an input of the code around it."""

    def __new__(cls, kind: str, name: str = "", index: int | None = None, taker: str = "") -> Self:
        """Make the words."""
        of = f" of {taker}" if taker else ""
        return super().__new__(cls, VALUES[kind].format(name=name, of=of).rstrip())


@attrs.frozen(eq=False, repr=False, slots=False)
class Cause(Worded):
    """The reason for a difference: what differs between both sides' code, settings or parameters."""

    name: str
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    verified: bool = False
    """Whether a run or the values themselves showed that it explains the difference."""

    def __new__(cls, name: str, parameters: Mapping[str, Any] | None = None, verified: bool = False) -> Self:
        """Make the words."""
        return super().__new__(cls, said(CAUSES[name], parameters or {}))


@attrs.frozen(eq=False, repr=False, slots=False)
class Evidence(Worded):
    """One thing that a verdict rests on."""

    kind: str
    figures: Mapping[str, Any] = attrs.field(factory=dict)

    def __new__(cls, kind: str, figures: Mapping[str, Any] | None = None) -> Self:
        """Make the words."""
        return super().__new__(cls, said(EVIDENCE[kind], figures or {}))

    @classmethod
    def of(cls, kind: str, **figures: Any) -> Self:
        """Return evidence of some kind, its figures by name."""
        return cls(kind, figures)


@attrs.frozen
class Finding:
    """A pair of values, and what it was judged to be."""

    verdict: Verdict
    phase: Phase
    reference: Place
    candidate: Place
    what: What
    figures: Figures | None = None
    evidence: tuple[Evidence, ...] = ()
    """What the verdict rests on."""
    cause: Cause | None = None
    between: tuple[str, str] | None = None
    """For glue code: the children of ``candidate.path`` between which it lies (``start``, ``end`` at the edges)."""
    given: tuple[str, ...] = ()
    """For glue code: what goes into it, as far as calls tell: the candidate's children and inputs of which no other
    child takes what they give."""
    source: bool = False
    """True where its own forced inputs agreed: the difference arises here, and is not handed on."""
    side: str | None = None
    """``reference`` or ``candidate`` where that side alone has it."""
    step: int = 0

    @property
    def counts(self) -> bool:
        """Return whether it alone keeps the models from being aligned."""
        return self.source or self.verdict in (Verdict.DIFFERS, Verdict.UNMATCHED)

    def is_caused_by(self, *names: str) -> bool:
        """Return whether its cause has one of some names."""
        return self.cause is not None and self.cause.name in names

    def rests_on(self, *kinds: str) -> bool:
        """Return whether it rests on evidence of one of some kinds."""
        return any(one.kind in kinds for one in self.evidence)


@attrs.frozen
class Note:
    """A fact that had no effect on the verdict: a setting that differs, a call without counterpart."""

    kind: str = attrs.field()
    data: Mapping[str, Any] = attrs.field(factory=dict, hash=False)
    reference: Place | None = None
    candidate: Place | None = None

    @kind.validator
    def _has_words(self, _: Any, kind: str) -> None:
        if kind not in NOTES:
            msg = f"no words for notes of kind {kind!r}.\nHint: add them to padiff/report/_phrases_of_notes.py."
            raise ValueError(msg)

    @property
    def text(self) -> str:
        """Return the note in words."""
        return said(NOTES[self.kind], self.data)
