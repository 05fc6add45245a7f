"""Hold the whole compared tree and what was matched with what: for who asks beyond the findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from padiff.report._finding import Figures, Place, Verdict


@attrs.frozen
class ComparedCall:
    """One call of the compared tree: of both sides, or left over on one."""

    verdict: Verdict
    """The worst of its values; ``unmatched`` where it is left over."""
    reference: Place | None
    candidate: Place | None
    why: str = ""
    """Why the two calls were matched."""
    forced: Figures | None = None
    """The largest difference among what its own code made, fed from the reference; None where all was the same."""
    free: Figures | None = None
    """How far its outputs differ where each model runs freely, from a sample of elements; None where none was taken."""
    parent: int | None = None
    """The position among `Report.calls` of the call around it."""
    step: int = 0


@attrs.frozen
class MatchedModules:
    """Two modules whose calls were matched."""

    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    why: str
    calls: int = 1
    """How many of their calls were matched for this reason."""


@attrs.frozen
class MatchedParameters:
    """A parameter of the candidate, and those of the reference that it holds the values of."""

    reference: tuple[str, ...]
    candidate: str
    layout: str
    """How the candidate holds them: ``as in the reference``, ``transposed``, ``axes permuted``, ``reshaped``,
    ``rearranged``, ``part of a packed parameter``, ``complex numbers as real ones``, or ``by a special transfer``."""
    buffer: bool = False


@attrs.frozen
class Matching:
    """What was matched with what, and what is left over on either side; `str()` shows it."""

    modules: tuple[MatchedModules, ...] = ()
    parameters: tuple[MatchedParameters, ...] = ()
    unmatched_modules: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Side -> the paths of its modules whose calls have no counterpart."""
    unmatched_parameters: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Side -> the paths of its parameters without counterpart."""

    def __str__(self) -> str:
        """Return it as a table, one match a line."""
        return "\n".join(line.rstrip() for line in self._lines())

    def _lines(self) -> Iterator[str]:
        modules = [(m.reference or _ROOT, m.candidate or _ROOT, m.why) for m in self.modules]
        parameters = [(", ".join(p.reference), p.candidate, p.layout) for p in self.parameters]
        tables = (("modules", modules, self.unmatched_modules), ("parameters", parameters, self.unmatched_parameters))
        for title, rows, left in tables:
            yield f"matched {title} (reference, candidate, {'why' if title == 'modules' else 'layout'})"
            widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
            for reference, candidate, reason in rows:
                yield f"  {reference.ljust(widths[0])}  {candidate.ljust(widths[1])}  {reason}"
            for side, paths in left.items():
                for path in paths:
                    yield f"  only in the {side}: {path or _ROOT}"


_ROOT = "(the model itself)"
