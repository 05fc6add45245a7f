"""Leave out what one of two models pads of its vocabulary, where no token of the run names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from padiff.engine._checks import of_side
from padiff.errors import PadiffError
from padiff.forcing import Side, is_recorded
from padiff.parameters import PaddedRows, padded_rows
from padiff.recording import Task
from padiff.report import SIDES, Cause, Finding, Note, Verdict
from padiff.trace import Trace, temporary_store


@attrs.frozen
class Padding:
    """A model that pads its vocabulary, with all its rows."""

    name: str
    """``reference`` or ``candidate``."""
    side: Side
    task: Task
    rows: PaddedRows

    @contextmanager
    def run(self, task: Task) -> Iterator[Trace]:
        """Run it, and give its trace as long as the values are there."""
        with temporary_store() as store, of_side(self.name, self.side, task):
            yield self.side.record(attrs.evolve(task, flow=False), store)

    def read(self) -> Side | None:
        """Return the side as it is without padding; None where a token names a row that the other model lacks."""
        with self.run(attrs.evolve(self.task, backward=False)) as trace:
            if not self.rows.unnamed(trace):
                return None
            return self.side.permuted(self.rows.orders(trace), self.rows.parameters)

    @property
    def note(self) -> Note:
        """Return what is to be said of it."""
        return Note("padded_rows", {"side": self.name, "count": self.rows.count, "real": self.rows.real})

    def in_loss(self, findings: Sequence[Finding], *, loss: bool) -> list[Finding]:
        """Return findings, with this cause of those behind the logits, where what is made of these depends on padding.

        Gradients tell, that come from the ``loss``, or without one from all outputs but the logits themselves.
        """
        asked = [one for one in findings if one.source and one.verdict is Verdict.DIFFERS]
        # A function that is called alike is given padding too.
        asked = [one for one in asked if one.cause is None or one.is_caused_by("kernel")]
        asked = [one for one in asked if one.what.kind in ("loss", "output")]
        if not asked or is_recorded(self.side):
            return list(findings)
        try:
            told = self._in_loss(asked, loss=loss)
        except PadiffError:  # it ran before; a worker that is lost since takes no finding with it
            return list(findings)
        cause = Cause("padding_in_loss", {"real": self.rows.real, "rows": self.rows.count}, verified=True)
        return [attrs.evolve(one, cause=cause) if one in told else one for one in findings]

    def _in_loss(self, asked: Sequence[Finding], *, loss: bool) -> Sequence[Finding]:
        with self.run(attrs.evolve(self.task, backward=False)) as trace:
            behind = self.rows.behind(trace)
            ends = [at for at, leaf in enumerate(trace.root.outputs) if leaf.differentiable and ("", at) in behind]
        places = [(getattr(one, self.name).path, one.what.index or 0) for one in asked]
        told = [one for one, at in zip(asked, places, strict=True) if one.what.kind == "loss" or at in behind]
        if not (told and (loss or ends)):
            return ()
        with self.run(attrs.evolve(self.task, starts=None if loss else tuple((at, at) for at in ends))) as trace:
            return told if any(self.rows.trained(trace)) else ()


def without_padding(sides: tuple[Side, Side], tasks: tuple[Task, Task]) -> tuple[tuple[Side, Side], Padding | None]:
    """Return both sides, a model that pads its vocabulary read without that, and which one does."""
    ours, theirs = sides
    for name, side, task, rows in zip(SIDES, sides, tasks, padded_rows(ours.about, theirs.about), strict=True):
        padding = None if rows is None else Padding(name, side, task, rows)
        read = None if padding is None else padding.read()
        if read is not None:
            return ((read, theirs) if side is ours else (ours, read)), padding
    return sides, None
