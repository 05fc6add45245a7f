"""Look once more where a source lies in the user's own code without a cause: what is called otherwise there."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import attrs

from padiff.alignment import Pair
from padiff.errors import PadiffError
from padiff.judging import explained_by_code, explained_by_cuts, is_frameworks
from padiff.options import DiffOptions
from padiff.parameters import Correspondence
from padiff.paths import parent
from padiff.refinement import aligned, led, with_batches_divided
from padiff.report import Finding, Phase
from padiff.trace import Call

if TYPE_CHECKING:
    from padiff.engine._adapt import Prepared
    from padiff.engine._run import Run

_MOST = 1000
"""How many operations of one module's code are looked into."""
_KINDS = {
    Phase.FORWARD: ("input", "output"),
    Phase.BACKWARD: ("input_gradient", "output_gradient", "parameter_gradient"),
}
Prepare = Callable[[DiffOptions, tuple[Collection[str], Collection[str]]], "Prepared"]


def explain_code(run: Run, prepare: Prepare, stack: ExitStack) -> None:
    """Name the operations that differ in a module's own code, and their lines, where the source there has no cause.

    The models run once more on what is known, with the operations of that code recorded; forward only where no more is
    asked.
    """
    sides = run.reference, run.candidate
    if all("operations" in side.about.capabilities for side in sides) and run.rule is None:
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            _explain(run, prepare, stack, phase)


def _explain(run: Run, prepare: Prepare, stack: ExitStack, phase: Phase) -> None:
    options, found, known = run.options, run.outcome.findings, run.correspondence
    wanted = [one for one in found if one.phase is phase and _is_unexplained(one)]
    if known is None or not wanted or options.operations:
        return
    paths = {one.reference.path or "" for one in wanted}, {one.candidate.path or "" for one in wanted}
    calls = known.alignment
    paths[0].update(_of_one_code(calls.left_reference, calls.of_reference, paths[0]))
    paths[1].update(_of_one_code(calls.left_candidate, calls.of_candidate, paths[1]))
    way = "forward" if phase is Phase.FORWARD else options.phase
    asked = attrs.evolve(options, operations=True, phase=way, steps=1, optimizers=False)
    try:
        again = type(run)(prepare(asked, paths), run.progress, stack, run.store)
        told = dict(_told(again, known, wanted))
    except PadiffError:
        return
    run.outcome.findings = [each for one in found for each in told.get(id(one), [one])]


def _of_one_code(left: Sequence[Call], matched: Callable[[Call], Pair | None], paths: Collection[str]) -> list[str]:
    """Return the modules whose code is one with that of some paths, where these have no counterpart or hold such.

    What one side nests the other may have flat.
    """
    own = (call for call in left if call.children or not is_frameworks(call.module))
    around = [(call, next(filter(matched, call.ancestors()), call)) for call in own]
    owners = {*paths, *(owner.path for call, owner in around if call.path in paths)}
    return [*owners, *(call.path for call, owner in around if owner.path in owners)]


def _told(run: Run, known: Correspondence, wanted: Sequence[Finding]) -> Iterator[tuple[int, list[Finding]]]:
    """Yield what sources are with what their code shows, each by its identity."""
    with closing(run.store()) as store:
        trace = run.recorded(store, followed=False)
        counts = Counter(parent(call.path) for call in trace.calls if call.module.operation)
        if max(counts.values(), default=0) > _MOST:
            return
        evidence = run.evidence(trace, store, followed=False)
        with_batches_divided(known, evidence)
        free = evidence.free()
        again = led(aligned(known, evidence), evidence)
        plain = {call.key: call for call in (free if again.axes else evidence.free()).calls}
        judge = evidence.judged(_as_known(known, again))
        explained = explained_by_code if wanted[0].phase is Phase.FORWARD else explained_by_cuts
        yield from zip(map(id, wanted), explained(wanted, judge, plain), strict=True)


def _as_known(known: Correspondence, again: Correspondence) -> Correspondence:
    """Return the correspondence of another run with those matches of calls, and of what they give, that stand."""
    pairs = {(pair.reference.key, pair.key): pair for pair in known.alignment.pairs}
    doubted = [pair for pair in again.alignment.pairs if (pair.reference.key, pair.key) not in pairs]
    alignment = again.alignment.without(doubted)
    for pair in alignment.pairs:
        tied = copy.copy(pair)
        tied.outputs = pairs[pair.reference.key, pair.key].outputs
        alignment = alignment if tied.outputs == pair.outputs else alignment.with_pair(tied)
    return attrs.evolve(again, calls=alignment)


def _is_unexplained(one: Finding) -> bool:
    of_code = one.what.kind in _KINDS[one.phase] and not one.rests_on("another_layer")
    return one.source and of_code and one.cause is None
