"""Open a recorded run that several ranks wrote, each a folder, as the run of one model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from padiff.distributed._grid import Grid, grid_of
from padiff.distributed._trace import MergedStep, merge_step
from padiff.errors import InputError
from padiff.kinds import Part, Placement, Ranks, Unit
from padiff.trace import Description, Kept, ModuleDescription, Run, Trace, open_run, rank_folders

__all__ = ["RankedRun", "open_ranks"]


class RankedRun:
    """A run of several ranks, whose steps are merged when they are asked for.

    ``like`` is the run that it is to be compared with: where no framework says how a value is spread, the one there
    tells.
    """

    def __init__(
        self,
        where: str,
        runs: dict[int, Run],
        missing: Sequence[tuple[int, str]],
        like: Run | None = None,
        *,
        stacked: bool = False,
    ) -> None:
        self.where = where
        self.runs = runs
        self.missing = missing
        """Ranks that recorded nothing that can be read, and why."""
        self._like, self._stacked = like, stacked
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

    def compared_with(self, other: Run) -> RankedRun:
        """Return the run as it is merged where it is compared with another one."""
        return RankedRun(self.where, self.runs, self.missing, other)

    def stacked(self) -> RankedRun:
        """Return the run as it is merged where it is compared with one whose ranks lie alike."""
        return RankedRun(self.where, self.runs, self.missing, stacked=True)

    @cached_property
    def about(self) -> Description:
        """Return what is known of the model: its parameters whole, as the first step shows them."""
        lead = next(iter(self.runs.values())).about
        if not self.steps:
            return lead
        found = self.trace(self.steps[0]).parameters
        parameters = {path: found.get(path, record) for path, record in lead.parameters.items()}
        modules = {path: self._described(path, one) for path, one in lead.modules.items()}
        return attrs.evolve(lead, parameters=parameters, modules=modules, ranks=None)

    def trace(self, step: int) -> Trace:
        """Return what one step did, merged over the ranks."""
        return self.merged(step).trace

    def merged(self, step: int) -> MergedStep:
        """Return one step, merged, with what each rank held; the last two are kept."""
        if step not in self.steps:
            msg = (
                f"{self.where} has no step {step} that every rank finished.\nHint: padiff show {self.where} lists them."
            )
            raise InputError(msg)
        if step not in self._steps:
            like = self._like.trace(step) if self._like is not None and step in self._like.steps else None
            traces = {rank: run.trace(step) for rank, run in self.runs.items()}
            self._steps = dict([*self._steps.items()][-1:])
            self._steps[step] = merge_step(traces, self.grid, self.ranks, like, stacked=self._stacked)
        return self._steps[step]

    def _described(self, path: str, one: ModuleDescription) -> ModuleDescription:
        units = {name: attrs.evolve(unit, roles=self._roles(path, unit)) for name, unit in one.units.items()}
        return attrs.evolve(one, units=units)

    def _roles(self, path: str, unit: Unit) -> dict[str, Part]:
        return {role: self._whole(path, part) for role, part in unit.roles.items()}

    def _whole(self, path: str, part: Part) -> Part:
        """Return where a role lies in the whole of a sharded parameter, of which ``part`` says it for one rank."""
        name = f"{path}.{part.parameter}" if path else part.parameter
        lead = next(iter(self.runs))
        record = self.runs[lead].about.parameters.get(name)
        if part.rows is None or record is None:
            return part
        rows, size = part.rows, record.shape[0]
        for axis, how in self.ranks[lead].parameters.get(name, {}).items():
            if how == Placement("shard", 0):
                count = self.grid.size(axis)
                rows = tuple((a + n * size, b + n * size) for n in range(count) for a, b in rows)
                size *= count
        return attrs.evolve(part, rows=rows)


def open_ranks(folder: Path) -> RankedRun | None:
    """Return the run of several ranks that a directory holds; None where it holds none.

    Raises `InputError` where no rank's folder can be read, or what cannot be merged was recorded.
    """
    folders = rank_folders(folder)
    if not folders:
        return None
    runs: dict[int, Run] = {}
    missing: dict[int, str] = {}
    for rank, path in folders.items():
        try:
            runs[rank] = open_run(path)
        except InputError as error:
            missing[rank] = str(error).partition("\n")[0]
    ranked = {rank: run for rank, run in runs.items() if run.about.ranks is not None}
    if not ranked:
        why = next(iter(missing.values()), "its folders are no ranks' runs")
        msg = f"{folder} holds no rank's run that can be read: {why}.\nHint: record again."
        raise InputError(msg)
    finished = {rank: run for rank, run in ranked.items() if run.steps}
    missing |= {rank: "it finished no step" for rank in ranked if rank not in finished}
    about: Any = next(iter(ranked.values())).about
    missing |= {rank: "it recorded nothing" for rank in range(about.ranks.world) if rank not in folders}
    if "pp" in about.ranks.groups:
        msg = f"{folder} was recorded by stages of a pipeline, which padiff does not merge yet.\n"
        raise InputError(msg + "Hint: compare the folders of single ranks, or record without pipeline parallelism.")
    return RankedRun(str(folder), finished or ranked, sorted(missing.items()))
