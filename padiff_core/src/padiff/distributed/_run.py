"""Open a recorded run that several ranks wrote, each a folder, as the run of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs

from padiff.distributed._grid import PIPELINE, Grid, grid_of
from padiff.distributed._losses import Losses
from padiff.distributed._merged_step import MergedStep, MergedStore
from padiff.distributed._others import Other, RunMatch
from padiff.distributed._stages import Joiner, stages_of
from padiff.distributed._trace import Merger
from padiff.distributed._whole import united, whole_model
from padiff.errors import InputError
from padiff.kinds import Ranks
from padiff.parameters import PaddedRows
from padiff.trace import Description, Kept, Run, Trace


@attrs.frozen(eq=False)
class Counterpart:
    """What a job is compared with."""

    run: Run
    match: RunMatch | None = None
    """What belongs to what; None where all names are the same."""
    index: int = 0
    """Which side the job is: the reference, or the candidate (1)."""
    padding: tuple[PaddedRows | None, PaddedRows | None] = (None, None)
    """What the reference's model pads, or the candidate's."""
    stacked: bool = False
    """Whether the ranks of both lie alike: what nobody can put together is compared rank by rank then."""

    def other(self, step: int) -> Other | None:
        """Return a step of the other run, by which the job's is put together; None where it did not record that."""
        if self.stacked or step not in self.run.steps:
            return None
        known = self.run.merged(step) if isinstance(self.run, RankedRun) else None
        trace = self.run.trace(step) if known is None else known.trace
        yours = self.padding[1 - self.index]
        return self.beside(trace if yours is None else yours.of(trace), known)

    def beside(self, trace: Trace, known: MergedStep | None = None) -> Other:
        """Return a step of the other run, of which this is the trace, and of a job what is ``known`` of it."""
        return Other(trace, self.match, self.index, known, self.padding[self.index])


class RankedRun:
    """A run of several ranks, whose steps are merged when they are asked for.

    ``counterpart`` is the run that it is to be compared with, and what there belongs to what here: where no framework
    says how a value is spread, the one there tells.
    """

    def __init__(
        self,
        where: str,
        runs: dict[int, Run],
        missing: Sequence[tuple[int, str]],
        counterpart: Counterpart | None = None,
    ) -> None:
        self.where = where
        self.runs = dict(runs)
        self.missing = list(missing)
        """Ranks that recorded nothing that can be read, and why."""
        self.counterpart = counterpart
        self._steps: dict[int, MergedStep] = {}
        self.ranks: dict[int, Ranks] = {rank: run.about.ranks for rank, run in runs.items() if run.about.ranks}
        self.grid: Grid = grid_of(self.ranks)

    @property
    def world(self) -> int:
        """Return how many ranks the job had."""
        return next(iter(self.ranks.values())).world

    @property
    def values(self) -> Kept:
        """Return what was kept of tensors."""
        return next(iter(self.runs.values())).values

    @property
    def steps(self) -> Sequence[int]:
        """Return the steps that all ranks finished that are there."""
        first, *others = (set(run.steps) for run in self.runs.values())
        return sorted(first.intersection(*others))

    def holders(self, path: str) -> tuple[int, ...]:
        """Return the ranks that hold a module; nothing where all do."""
        found = tuple(rank for rank, run in self.runs.items() if path in run.about.modules)
        return found if len(found) < len(self.runs) else ()

    @cached_property
    def of_some_ranks(self) -> list[str]:
        """Return the paths of modules that some ranks of a stage have, and others do not: experts, say."""
        counts: dict[int, Counter[str]] = {}
        sizes: Counter[int] = Counter()
        for rank, run in self.runs.items():
            group = self.ranks[rank].groups.get(PIPELINE, (rank,))
            counts.setdefault(group.index(rank), Counter()).update(run.about.modules.keys())
            sizes[group.index(rank)] += 1
        return sorted(path for stage, held in counts.items() for path, count in held.items() if count < sizes[stage])

    def compared_with(self, counterpart: Counterpart) -> RankedRun:
        """Return the run as it is merged where it is compared with another one."""
        return RankedRun(self.where, self.runs, self.missing, counterpart)

    @cached_property
    def about(self) -> Description:
        """Return what is known of the model: its parameters whole, as the first step shows them."""
        found = self.trace(self.steps[0]).parameters if self.steps else {}
        about = united([run.about for run in self.runs.values()])
        assert about.ranks is not None
        return whole_model(about, about.ranks, {path: record.shape for path, record in found.items()})

    def trace(self, step: int) -> Trace:
        """Return what one step did, merged over the ranks."""
        return self.merged(step).trace

    def shapes(self, step: int) -> dict[Any, list[Any]]:
        """Return the shapes of what the calls of the first rank were given, and gave."""
        calls = next(iter(self._traces(step).values())).calls
        return {call.key: [leaf.shape for leaf in (*call.inputs, *call.outputs)] for call in calls}

    def held(self, step: int) -> MergedStep:
        """Return the parameters of one step, merged, without its calls."""
        return self._put_together(self._traces(step), None, calls=False)

    def merged(self, step: int) -> MergedStep:
        """Return one step, merged, with what each rank held; the last two are kept."""
        if step not in self.steps:
            msg = (
                f"{self.where} has no step {step} that every rank finished.\nHint: padiff show {self.where} lists them."
            )
            raise InputError(msg)
        if step not in self._steps:
            other = None if self.counterpart is None else self.counterpart.other(step)
            self._steps = dict([*self._steps.items()][-1:])
            try:
                self._steps[step] = self._put_together(self._traces(step), other)
            except InputError:
                if not self._left_damaged(step):
                    raise
                self._steps[step] = self._put_together(self._traces(step), other)
        return self._steps[step]

    def _traces(self, step: int) -> dict[int, Trace]:
        return {rank: run.trace(step) for rank, run in self.runs.items()}

    def _left_damaged(self, step: int) -> bool:
        """Leave out the ranks whose values of a step cannot be read; return whether others are there."""
        damaged = {}
        for rank, run in self.runs.items():
            try:
                run.trace(step).store.arrays()
            except InputError as error:
                damaged[rank] = f"step {step}: {str(error).partition(_END)[0]}"
        if not damaged or len(damaged) == len(self.runs):
            return False
        self.runs = {rank: run for rank, run in self.runs.items() if rank not in damaged}
        self.missing = sorted([*self.missing, *damaged.items()])
        self.grid = grid_of({rank: self.ranks[rank] for rank in self.runs})
        return True

    def _put_together(self, traces: dict[int, Trace], other: Other | None, *, calls: bool = True) -> MergedStep:
        stages, store = stages_of(traces, self.ranks), MergedStore()
        paths = [{call.path for trace in stage.values() for call in trace.calls} for stage in stages]
        told = {rank: one.loss for rank, one in traces.items() if one.loss is not None}
        losses = Losses(told, self.grid, None if other is None else other.trace.loss)
        homes = {rank: run.about.modules.keys() for rank, run in self.runs.items()}
        found, ends = [], dict[str, bool]()
        stacked = self.counterpart is not None and self.counterpart.stacked
        for number, stage in enumerate(stages):
            before, behind = (set[str]().union(*some) for some in (paths[:number], paths[number + 1 :]))
            inner = {"input": before, "output": behind}
            known = stage, self.grid, self.ranks, other, stacked, store, inner, losses, homes, ends
            found.append(Merger(*known).merge(calls=calls))
        copies = {path: whole for one in self.ranks.values() for path, whole in one.copies.items()}
        return found[0] if len(found) == 1 else Joiner(found, store, copies).join()


_END = "\n"
