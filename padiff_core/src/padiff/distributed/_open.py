"""Open the folders of a job's ranks, and leave out those that cannot be, or are not, ranks of this job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

from padiff.distributed._grid import EXPERTS, PIPELINE
from padiff.distributed._run import RankedRun
from padiff.errors import InputError
from padiff.kinds import Ranks
from padiff.trace import Description, Run, open_run, rank_folders


def open_ranks(folder: Path) -> RankedRun | None:
    """Return the run of several ranks that a directory holds; None where it holds none.

    Raises `InputError` where no rank's folder can be read.
    """
    folders = rank_folders(folder)
    if not folders:
        return None
    runs: dict[int, Run] = {}
    missing: dict[int, str] = {}
    pool: dict[Any, Any] = {}
    for rank, path in folders.items():
        try:
            runs[rank] = open_run(path, pool)
        except InputError as error:
            missing[rank] = str(error).partition("\n")[0]
    ranks = {rank: run.about.ranks for rank, run in runs.items() if run.about.ranks is not None}
    missing |= dict.fromkeys(runs.keys() - ranks.keys(), "its run is not one of several ranks")
    if not ranks:
        why = next(iter(missing.values()), "its folders are no ranks' runs")
        msg = f"{folder} holds no rank's run that can be read: {why}.\nHint: record again."
        raise InputError(msg)
    missing |= dict(_strangers({rank: runs[rank].about for rank in ranks}, ranks))
    own = {rank: runs[rank] for rank in ranks if rank not in missing}
    finished = {rank: run for rank, run in own.items() if run.steps}
    missing |= {rank: "it finished no step" for rank in own if rank not in finished}
    world = ranks[next(iter(own))].world
    missing |= {rank: "it recorded nothing" for rank in range(world) if rank not in folders}
    return RankedRun(str(folder), finished or own, sorted(missing.items()))


def _strangers(abouts: Mapping[int, Description], ranks: Mapping[int, Ranks]) -> Iterator[tuple[int, str]]:
    """Yield the ranks that most others show to be of another job, or of another model, and why.

    Of as many, those are right that the first rank is one of.
    """
    left = dict(ranks)
    for rank, one in ranks.items():
        if one.rank != rank:
            del left[rank]
            yield rank, f"the run there is that of rank {one.rank}"
    if not left:
        return
    world = _most({rank: one.world for rank, one in left.items()})
    for rank, one in [*left.items()]:
        if one.world != world:
            del left[rank]
            yield rank, f"it was recorded by a job of {one.world} ranks, and others by one of {world}"
    named = {rank: one.job for rank, one in left.items() if one.job}
    job = _most(named) if named else ""
    for rank in [rank for rank, name in named.items() if name != job]:
        del left[rank]
        yield rank, f"it was recorded by another job ({named[rank]}) than others ({job})"
    stages: dict[int, dict[int, Hashable]] = {}
    for rank, one in left.items():
        modules = frozenset(() if EXPERTS in one.groups else abouts[rank].modules)
        model: Hashable = (abouts[rank].class_name, modules)
        stages.setdefault(one.groups.get(PIPELINE, (rank,)).index(rank), {})[rank] = model
    for held in stages.values():
        right = _most(held)
        for rank, model in held.items():
            if model != right:
                name = abouts[rank].class_name
                others = next(abouts[other].class_name for other, model in held.items() if model == right)
                told = f"a {name} with other modules" if name == others else f"a {name}"
                yield rank, f"it ran another model than others: {told}"


def _most(held: Mapping[int, Hashable]) -> Hashable:
    return Counter(held.values()).most_common(1)[0][0]
