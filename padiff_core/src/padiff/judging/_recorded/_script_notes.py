"""Say what two recorded scripts did otherwise around equal models: modes, a loss, automatic casts."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.alignment import Alignment
from padiff.judging._recorded._levels import cast_of
from padiff.report import SIDES, Note
from padiff.trace import Trace


def unlike_scripts(traces: tuple[Trace, Trace]) -> Iterator[Note]:
    """Yield what the scripts did otherwise around the models."""
    modes = [("training" if trace.root.training else "evaluation") for trace in traces]
    if modes[0] != modes[1]:
        yield Note("modes_differ", dict(zip(SIDES, modes, strict=True)))
    given = [name for name, trace in zip(SIDES, traces, strict=True) if trace.loss is not None]
    if len(given) == 1:
        yield Note("loss_of_one_side", {"side": given[0]})


def unlike_casts(alignment: Alignment) -> Iterator[Note]:
    """Yield the modules that one side alone computes in a coarser type."""
    cast = [(pair, both) for pair in alignment.pairs for both in pair.made if cast_of(*both)]
    if cast:
        both = max((both for _, both in cast), key=lambda one: cast_of(*one))
        types = {side: leaf.dtype for side, leaf in zip(SIDES, both, strict=True)}
        paths = dict.fromkeys(pair.candidate.path for pair, _ in cast)
        yield Note("unlike_casts", {**types, "modules": list(paths)})
