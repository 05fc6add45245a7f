"""Find rows that pad a vocabulary, and count in the loss of one side alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.alignment import orders_between
from padiff.distributed._reductions import is_same
from padiff.distributed._run import RankedRun
from padiff.numerics import Array
from padiff.parameters import PaddedRows
from padiff.report import Cause, Finding
from padiff.trace import Call, Trace

Counted = tuple[Call, int, int]
"""A call, which of its outputs holds a number for each row, and how many of the first rows the other side counts."""
_TOKENS = 64
"""Of whose losses one asks how many rows count."""


def padding_in_loss(
    findings: Sequence[Finding], runs: Sequence[Any], step: int, padding: Sequence[PaddedRows | None]
) -> list[Finding]:
    """Return the findings of a step, with this cause of those of what the models return that it explains."""

    def asked(one: Finding) -> bool:
        end = not (one.reference.path or one.candidate.path) and one.what.kind in ("output", "output_gradient")
        return one.step == step and one.source and one.cause is None and end

    return [_explained(one, runs, padding) if asked(one) else one for one in findings]


def _explained(finding: Finding, runs: Sequence[Any], padding: Sequence[PaddedRows | None]) -> Finding:
    traces = [run.trace(finding.step) for run in runs]
    for index in (1, 0):
        rows_of = padding[index]
        found = [] if rows_of is None else [(*one, rows_of.real) for one in rows_of.trained(traces[index])]
        for call, at, real in found or _counting(traces[index], traces[1 - index], finding):
            rows = call.outputs[at].shape[-1]
            told: dict[str, Any] = {"real": real, "rows": rows}
            held = _holders(runs[index], finding.step, call, at, real)
            cause = Cause("padding_in_loss", told | ({"ranks": held} if held else {}), verified=True)
            return attrs.evolve(finding, cause=cause)
    return finding


def _counting(trace: Trace, other: Trace, finding: Finding) -> Iterator[Counted]:
    """Yield what gives numbers for rows of which the last explain how far the losses of each token are apart."""
    if finding.what.kind != "output":
        return
    which = finding.what.index or 0
    losses = [_output(one, which) for one in (trace, other)]
    for call in reversed(trace.calls):
        for at, leaf in enumerate(call.outputs):
            logits = trace.value(leaf) if len(leaf.shape) > 1 and leaf.dtype.startswith(("float", "bfloat")) else None
            if logits is None or losses[0] is None or losses[1] is None:
                continue
            if losses[0].shape == losses[1].shape and logits.size == losses[0].size * logits.shape[-1]:
                real = _counted(logits, losses[0], losses[1])
                if real is not None:
                    yield call, at, real


def _output(trace: Trace, which: int) -> Array | None:
    leaves = trace.root.outputs
    return trace.value(leaves[which]) if which < len(leaves) else None


def _counted(logits: Array, loss: Array, other: Array) -> int | None:
    """Return how many first rows count in the ``other`` loss of each token; None where that explains nothing."""
    for order in orders_between(loss.shape, logits.shape[:-1]):
        rows = logits.transpose(*order, logits.ndim - 1).reshape(loss.size, -1)[:_TOKENS].astype(np.float64)
        sums = np.logaddexp.accumulate(rows, axis=1)
        ours, theirs = (one.reshape(-1)[:_TOKENS] for one in (loss, other))
        if is_same(theirs, ours):
            continue
        for real in range(1, rows.shape[1]):
            if is_same(theirs, (ours - (sums[:, -1] - sums[:, real - 1])).astype(theirs.dtype)):
                return real
    return None


def _holders(run: Any, step: int, call: Call, at: int, real: int) -> list[int]:
    """Return the ranks that hold some of the rows behind the real ones."""
    if not isinstance(run, RankedRun):
        return []
    parts = run.merged(step).values.get((call.key, "output", at))
    if parts is None:
        return []
    shape = run.trace(step).value(call.outputs[at])
    assert shape is not None
    numbers = np.broadcast_to(np.arange(shape.shape[-1]), shape.shape)
    return [rank for rank, own in parts.shares(numbers).items() if own is not None and own.max() >= real]
