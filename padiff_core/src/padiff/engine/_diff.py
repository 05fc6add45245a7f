"""Answer the question: diff() takes two models, and returns a report."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs

from padiff.alignment import LayerMap
from padiff.engine._adapt import Prepared, Request, adapted
from padiff.engine._checks import with_known_options
from padiff.engine._explained import explain_code
from padiff.engine._inert import without_refused, without_targets
from padiff.engine._laid_open import explain_kinks, laid_open
from padiff.engine._run import Run
from padiff.errors import ForwardError
from padiff.garbage import collecting_seldom
from padiff.isolation import served
from padiff.options import DiffOptions
from padiff.progress import shown
from padiff.report import Report
from padiff.trace import SharedStore, ValueStore


@with_known_options
def diff(
    reference: Any,
    candidate: Any,
    inputs: Any,
    *,
    candidate_inputs: Any = None,
    loss: Any = None,
    optimizers: Any = None,
    steps: int = 1,
    phase: str = "both",
    transfer: bool = True,
    mapping: LayerMap | Mapping[Any, Any] | str | os.PathLike[str] | None = None,
    tolerance: Mapping[str, Any] | None = None,
    seed: int = 0,
    operations: bool = False,
) -> Report:
    """Tell whether two models compute the same, and if not, every place where they differ and probably why.

    The reference is right by definition. ``inputs`` is a dict (keyword arguments) or a tuple (positional) of numpy
    arrays or any framework's tensors; ``candidate_inputs`` serves a candidate with another signature. ``loss`` is a
    function of the model's output, or a pair of them; without one every output gets a fixed random gradient.
    ``optimizers`` is a pair; both then step ``steps`` times from the same gradients. ``phase`` is ``both``, ``forward``
    or ``backward``. With ``transfer`` the reference's parameters are copied to the candidate, which keeps them;
    without, they are compared. ``mapping`` is a `LayerMap`, a dict of modules, or the
    name of a mapping file (docs/mapping.md). Without ``tolerance`` the models' own
    rounding decides; with ``{"atol": ..., "rtol": ..., "compare_mode": "strict" | "mean"}`` exactly that rule does,
    or with ``{"metric": name or `Metric`, "min": ..., "max": ...}`` bounds on a metric. With ``operations`` the
    functions, operators and tensor methods that the models' own code calls are compared one by one, as modules are.

    Both models come back as they were, but for an asked-for transfer and optimizer steps. Raises `PadiffError`s for
    what cannot be compared: see `padiff.errors`.
    """
    started = time.perf_counter()
    request = Request(inputs, inputs if candidate_inputs is None else candidate_inputs, loss, optimizers, mapping)
    options = DiffOptions(steps, phase, transfer, tolerance, seed, operations, optimizers is not None)
    with collecting_seldom(), served(reference, candidate) as shared:

        def prepare(request: Request, *asked: Any) -> Prepared:
            return adapted(reference, candidate, request, *asked)

        def compared(request: Request) -> Report:
            prepared = prepare(request, options)
            with shown() as progress, ExitStack() as stack:
                run = Run(prepared, progress, stack, SharedStore if shared else ValueStore)
                for step in range(options.steps):
                    run.step(step)
                other = without_targets(request, run, prepare)
                if other is None:
                    explain_kinks(run)
                    explain_code(run, partial(prepare, attrs.evolve(request, optimizers=None)), stack)
                    run = laid_open(run)
                    return run.report(prepared.notes, time.perf_counter() - started)
            return compared(other)

        try:
            return compared(request)
        except ForwardError:
            other = without_refused(request, prepare(request, options))
            if other is None:
                raise
            return compared(other)
