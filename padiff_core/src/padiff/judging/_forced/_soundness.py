"""Ask whether a pass stands against the free runs: what is left between them has to be rounding.

A forced run proves each call by itself, as far as its values were compared. What was compared nowhere it cannot prove:
so where the outputs or the loss of the two models, each run freely, are further apart than one rounding, whole runs
tell what the rest is. In order: both models in float64, where rounding all but vanishes and a fault stays what it is;
the reference disturbed by one machine epsilon at every call, whose outputs then move as far as accumulated rounding
does; another seed, under which a random model disagrees with itself, and then evaluation mode. Gradients are asked for
in the same way, where some were compared nowhere. Where nothing was left out of the comparison, each call is proven,
and the chain of them: there the reference's response comes first, which is cheap, and float64 where it does not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import le
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Side, is_recorded
from padiff.judging._findings import finding_at
from padiff.judging._forced._distributions import SEEDS, differ, flat
from padiff.judging._forced._free_runs import Sides, Tasks, both_runs, ends_of, tried
from padiff.judging._forced._judge import Judge
from padiff.judging._forced._merged_rounding import rounded_otherwise
from padiff.judging._forced._question import TOGETHER_AT_SIGHT, Question, narrower_given
from padiff.judging._forced._settle import Settler
from padiff.judging._forced._wholes import Ends, Gap, Response, Runs, Wholes, worst
from padiff.numerics import (
    CONSTANT,
    FLOORS,
    GROSS,
    SAME,
    VANISHES,
    are_random,
    epsilon,
    epsilon_of,
    is_coarse,
)
from padiff.recording import Task
from padiff.report import By, Evidence, Figures, Finding, Phase, Place, Verdict, What
from padiff.trace import Trace, temporary_store


@attrs.frozen
class Proof:
    """What the free runs prove."""

    by: By
    """What shows it: see `padiff.report.FreeRuns`."""
    native: float
    """The largest relative L2 in the models' own types."""
    bound: float
    """What rounding explains there, relative L2."""
    figure: float
    """What was measured where it was decided, relative L2: in float64, say."""
    gap: Gap | None = None
    """The largest difference, where neither rounding nor a source explains it."""
    pair: Pair | None = None
    """The smallest region that holds that: the innermost matched call whose inputs agree, and whose outputs do not."""


def prove(
    sides: Sides, tasks: Tasks, native: Runs, wholes: Wholes, *, random: bool = False, judge: Judge | None = None
) -> Proof:
    """Return what the free runs prove of some wholes; ``native`` are the runs in the models' own types.

    ``random`` says that a call of the reference is known to sample random numbers, seldom as it may; ``judge`` knows
    whether the forced run compared all that leads to the outputs.
    """
    gaps = wholes.gaps(native)
    apart = worst(gaps)
    if all(gap.rel_l2 <= (0.0 if is_coarse(gap.eps) else wholes.negligible(gap.eps)) for gap in gaps):
        return Proof("sight", apart, max((wholes.negligible(gap.eps) for gap in gaps), default=0.0), apart)
    if random and is_recorded(sides[0]):
        return Proof("random", apart, apart, apart)  # no other run draws its numbers again
    first, second = (attrs.evolve(task, backward=wholes.backward) for task in tasks)
    tasks = first, second
    response = None
    if judge is not None and _is_proven(gaps, judge):
        response = judge.response
        if response is None and not is_recorded(sides[0]):
            response = _disturbed(sides, tasks, native, wholes)
        if response is not None and _is_within(gaps, response):
            return _proven("disturbed", gaps, response)
    proof = _explained(sides, tasks, native, wholes, response, judge)
    if proof.gap is None or not (random or _is_random(sides[0], tasks[0], native.reference)):
        return proof
    still = attrs.evolve(first, evaluating=True), attrs.evolve(second, evaluating=True)
    with temporary_store() as store:
        evaluated = both_runs(sides, still, store)
        runs = () if evaluated is None else (evaluated.reference, evaluated.candidate)
        if evaluated is None or any(map(_is_random, sides, still, runs)):
            return Proof("random", proof.native, proof.native, proof.native)
        return attrs.evolve(_explained(sides, still, evaluated, wholes, None, None), by="evaluation")


def without_casts(proof: Proof, judge: Judge) -> Proof:
    """Return what is proven where one model has a narrower type than the other: with the casts to it in their code out.

    These round in float64 as well, as the model's type makes its code do. A loss that leaps there is not made by them.
    """
    pairs = judge.alignment.pairs
    if proof.gap is None or (proof.gap.phase is Phase.LOSS and proof.by == "float64"):
        return proof
    if not any(map(narrower_given, pairs)) or not judge.is_right(pairs[0], uncast=True):
        return proof
    return attrs.evolve(proof, by="float64", figure=CONSTANT(0.0), gap=None)


def is_rounding(gaps: Sequence[Gap], judge: Judge) -> bool:
    """Return whether the gradients of the recording, without another run, explain what is left between two models."""
    response = judge.response if _is_proven(gaps, judge) else None
    return response is not None and _is_within(gaps, response)


def _is_proven(gaps: Sequence[Gap], judge: Judge) -> bool:
    """Return whether each call is proven by itself, in types that tell, so that nothing but rounding may be left."""
    return judge.is_complete and not any(is_coarse(gap.eps) for gap in gaps)


def _is_within(gaps: Sequence[Gap], response: Response) -> bool:
    return all(
        gap.rel_l2 <= (Ends.negligible(gap.eps) if gap.part else min(response.bound(gap), SAME(gap.eps)))
        for gap in gaps
    )


def _proven(by: By, gaps: Sequence[Gap], response: Response) -> Proof:
    """Return a proof by a response that explains all gaps."""
    largest = max(gaps, key=lambda gap: gap.rel_l2)
    return Proof(by, largest.rel_l2, response.bound(largest), largest.rel_l2)


def of_one_distribution(sides: Sides, tasks: Tasks, proof: Proof, ends: Ends) -> Proof:
    """Return a proof that stands also against the outputs of both models under many seeds, each model its own."""
    known: dict[tuple[bool, int], Trace] = {}

    def run(ours: bool, seed: int) -> Trace:
        if (ours, seed) not in known:
            task = attrs.evolve(tasks[not ours], backward=False, ends=True, seed=tasks[not ours].seed + seed)
            with temporary_store() as store:
                known[ours, seed] = sides[not ours].record(task, store, values=False)
        return known[ours, seed]

    for a, b in ends.root.outputs:

        def sample(ours: bool, seeds: range, index: tuple[int, int] = (a, b)) -> list[Any]:
            return [flat(run(ours, seed).outputs[index[not ours]]) for seed in seeds]

        first, second = run(True, 1), run(False, 1)
        if differ(sample, SAME(max(epsilon(first.outputs[a].dtype), epsilon(second.outputs[b].dtype)))):
            gap = next((gap for gap in ends.gaps(Runs(first, second)) if gap.what.index == a), None)
            if gap is not None:
                return attrs.evolve(proof, by="distribution", gap=gap, pair=ends.root)
    return proof


def unexplained_finding(proof: Proof, step: int, losses: tuple[Place, Place]) -> Finding:
    """Write what no rounding and no source explains as a finding: its place is the smallest region that holds it.

    ``losses`` are the places of the functions that make these: where a loss leaps, each is made of the same outputs.
    """
    assert proof.gap is not None
    assert proof.pair is not None
    gap = proof.gap
    figures = {"by": proof.by, "native": proof.native, "bound": proof.bound, "figure": proof.figure}
    wide = proof.figure if proof.by == "float64" else None
    found = finding_at(
        proof.pair,
        gap.phase,
        gap.what,
        Evidence("unexplained", {**figures, "phase": gap.phase.value}),
        figures=Figures(gap.rel_l2, gap.max_abs, rel_l2_float64=wide),
        source=True,
        step=step,
    )
    by_loss = gap.phase is Phase.LOSS and proof.by == "float64"
    return attrs.evolve(found, reference=losses[0], candidate=losses[1]) if by_loss else found


def unrepeatable_finding(root: Pair, step: int) -> Finding:
    """Write that a recorded run drew random numbers, which no other run draws again: it proves nothing as a whole."""
    drawn = Evidence("recorded_draws")
    return finding_at(root, Phase.FORWARD, What("output", "", 0), drawn, verdict=Verdict.UNMATCHED, step=step)


def _explained(
    sides: Sides, tasks: Tasks, native: Runs, wholes: Wholes, response: Response | None, judge: Judge | None
) -> Proof:
    """Decide in float64 where that tells; else by the reference's response to rounding, which may be known.

    Where casts are written into the code, a run in float64 rounds as these types do. Then the difference grows from
    call to call, where at a fault it leaps.
    """
    gaps = wholes.gaps(native)
    apart = worst(gaps)
    lone = next((gap for gap in gaps if not np.isfinite(gap.max_abs)), None)
    if lone is not None:  # an infinity that has no equal on the other side is no rounding
        pair, bound = wholes.leap(native, lone) or wholes.root, wholes.negligible(lone.eps)
        return Proof("infinite", apart, bound, apart, lone, pair)
    with temporary_store() as store:
        ends = both_runs(sides, tasks, store, dtype="float64", ends=True)
        if ends is not None:
            widened = _left(gaps, wholes.gaps(ends))
            vanished, figure = max(CONSTANT(0.0), apart / VANISHES), worst(widened)
            if figure <= vanished:
                return Proof("float64", apart, vanished, figure)
            largest = max(widened, key=lambda gap: gap.rel_l2)
            kernels = 0.0 if judge is None else _by_kernels(judge, widened)
            if kernels:
                return Proof("float64", apart, kernels, figure)
            merged = judge and _by_merging(judge, sides[1], tasks[1], ends.candidate, wholes)
            if merged and all(map(merged.explains, widened)):
                return Proof("float64", apart, merged.bound(largest), figure)
            wide = both_runs(sides, tasks, store, dtype="float64")
            leap = None if wide is None else wholes.leap(wide, largest)
            if leap is not None:
                return Proof("float64", apart, vanished, figure, largest, leap)
    by: By = "candidate" if is_recorded(sides[0]) and response is None else "disturbed"
    response = _disturbed(sides, tasks, native, wholes) if response is None else response
    unexplained = _beyond(response, gaps)
    if not unexplained:
        return _proven(by, gaps, response)
    if ends is None:
        # Beside kernels that there are in float32 alone, it leaves what these round.
        with temporary_store() as store:
            ends = both_runs(sides, tasks, store, dtype="float64", narrowing=True, ends=True)
            widened = gaps if ends is None else wholes.gaps(ends)
        if not _beyond(response, widened):
            largest = max(widened, key=lambda gap: gap.rel_l2)
            return Proof("float64", apart, response.bound(largest), largest.rel_l2)
        # Nor may they run so with the casts in their code, but without.
        if judge is not None and judge.is_right(wholes.root):
            return Proof("float64", apart, CONSTANT(0.0), CONSTANT(0.0))
    largest = max(unexplained, key=lambda gap: gap.rel_l2)
    apart, bound = largest.rel_l2, response.bound(largest)
    return Proof(by, apart, bound, apart, largest, wholes.leap(native, largest) or wholes.root)


def _beyond(response: Response, gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps that a response to rounding does not explain."""
    return [gap for gap in gaps if not (gap.part or response.explains(gap))]


def _by_merging(judge: Judge, side: Side, task: Task, still: Trace, wholes: Wholes) -> Response | None:
    """Return how far the rounding of merged weights moves a candidate's ends in float64; None where it has none."""
    if not judge.alignment.merged:
        return None
    with rounded_otherwise(side, judge.alignment.merged):
        moved = ends_of(side, task, dtype="float64")
    found = () if moved is None else wholes.response(Runs(still, moved))
    return Response({gap.names[1]: gap.rel_l2 for gap in found}, ours=False)


def _by_kernels(judge: Judge, gaps: Sequence[Gap]) -> float:
    """Return how far apart outputs may be where kernels compute in a narrower type than they give, relative L2.

    0 where one is further apart, or is no output.
    """
    root = judge.alignment.pairs[0]
    narrow = Settler(judge.settler.bench.whole(root)).narrow

    def bound(gap: Gap) -> float:
        if gap.phase is not Phase.FORWARD or gap.what.index is None:
            return 0.0
        leaf = root.reference.outputs[gap.what.index]
        asked = Question(
            pair=root,
            read=lambda run, _: run.observed.values.get(leaf.token),
            native=TOGETHER_AT_SIGHT,
            backward=False,
            eps=epsilon_of(leaf.dtype),
        )
        noise = max(narrow.of_kernels(asked, ours=ours) for ours in (True, False))
        return FLOORS * noise if noise <= GROSS(asked.eps) else 0.0  # gross noise explains nothing

    bounds = [bound(gap) for gap in gaps]
    return max(bounds) if all(map(le, (gap.rel_l2 for gap in gaps), bounds)) else 0.0


def _left(native: Sequence[Gap], wide: Sequence[Gap]) -> list[Gap]:
    """Return the gaps that float64 leaves: of a gradient that cancels, all that is to be seen is rounding, and goes.

    Relative to what is left of such a gradient in float64, its rounding there is as large as before.
    """
    before = {gap.names: gap.max_abs for gap in native}
    return [gap for gap in wide if gap.max_abs > before.get(gap.names, 0.0) / VANISHES]


def _disturbed(sides: Sides, tasks: Tasks, native: Runs, wholes: Wholes) -> Response:
    """Return the reference's response to disturbances of an epsilon at every call.

    Where that cannot be run, the candidate's: each call of it was right by itself.
    """
    index = 1 if is_recorded(sides[0]) else 0
    plain = (native.reference, native.candidate)[index]
    with temporary_store() as store:
        task = attrs.evolve(tasks[index], disturbed=True)
        disturbed = tried(partial(sides[index].record, task, store, values=wholes.backward))
        found = () if disturbed is None else wholes.response(Runs(plain, disturbed))
        return Response({gap.names[0]: gap.rel_l2 for gap in found}, ours=index == 0)


def _is_random(side: Side, task: Task, trace: Trace) -> bool:
    """Return whether a model's outputs are others under another seed; under more seeds where it took random numbers."""

    def differs(seed: int) -> bool:
        other = ends_of(side, task, seed=seed)
        pairs = zip(trace.outputs, () if other is None else other.outputs, strict=False)
        return any(are_random(a, b) for a, b in pairs)

    return any(map(differs, range(task.seed + 1, task.seed + (SEEDS[0] if trace.sampled else 2))))
