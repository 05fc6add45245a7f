"""Say of differences which ranks they are on, and which reduction explains them; find ranks that disagree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.distributed._grid import Grid
from padiff.distributed._infer import merged
from padiff.distributed._like import Like, Near
from padiff.distributed._others import Other
from padiff.distributed._run import RankedRun
from padiff.distributed._trace import MergedStep, Parts
from padiff.kinds import Placement
from padiff.numerics import difference
from padiff.report import Cause, Evidence, Figures, Finding, Phase, Place, Verdict, What
from padiff.trace import Call, Key, Trace

__all__ = ["explained"]

Array = NDArray[Any]

_MOST_SHARDS = 6
"""Ranks of a group whose shards are tried in every order."""
_SIDES = ("reference", "candidate")


def explained(findings: Sequence[Finding], runs: Sequence[Any], traces: Sequence[Trace], step: int) -> list[Finding]:
    """Return the findings with what the ranks tell of those of a step, and behind them those of ranks that disagree.

    ``runs`` are the reference's and the candidate's, ``traces`` theirs of the step.
    """
    found = list(findings)
    for index, run in enumerate(runs):
        if not isinstance(run, RankedRun):
            continue
        merged_step, others = run.merged(step), Other(traces[1 - index], run.ties, index)
        for number, one in enumerate(found):
            if one.step == step and one.source and one.cause is None:
                cause = _cause_of(one, index, merged_step, run.grid, others)
                unsummed = None if cause is not None else _unsummed(one, index, merged_step)
                found[number] = unsummed or (one if cause is None else attrs.evolve(one, cause=cause))
        # What is told of an earlier step is the reason of what follows.
        told = {one.what.name for one in found if one.cause is not None and one.cause.name == "out_of_step"}
        at = {getattr(one, _SIDES[index]).path for one in found if one.source and one.step == step}
        if not any(one.source and one.step < step for one in found):
            more = list(_disagreements(merged_step, run, index, others, step, told))
            new = [one for one in more if getattr(one, _SIDES[index]).path not in at]
            found = [_handed_on(one, index, merged_step) if new and one.step == step else one for one in found] + new
    return found


def _handed_on(finding: Finding, index: int, step: MergedStep) -> Finding:
    """Return a finding as what it is where ranks disagree already in what its call takes: a consequence."""
    place = getattr(finding, _SIDES[index])
    calls = (call for call in step.trace.calls if call.key == (place.path, place.call))
    inputs = (step.values.get((call.key, "input", i)) for call in calls for i in range(len(call.inputs)))
    unlike = any(parts is not None and parts.spreading.unlike for parts in inputs)
    return attrs.evolve(finding, source=False) if unlike and finding.phase is Phase.FORWARD else finding


def _cause_of(finding: Finding, index: int, step: MergedStep, grid: Grid, others: Other) -> Cause | None:
    """Return what the parts on the ranks tell of a difference."""
    mine, theirs = (finding.candidate, finding.reference) if index else (finding.reference, finding.candidate)
    if mine.path is None or theirs.path is None:
        return None
    if finding.what.kind in _HELD:
        return _cause_held(finding, step, grid, others)
    if finding.what.kind != "output":
        return None
    place = ((mine.path, mine.call), "output", finding.what.index or 0)
    parts, like = step.values.get(place), others.value(place)
    return None if parts is None or like is None else _cause(parts, grid, like)


def _unsummed(finding: Finding, index: int, step: MergedStep) -> Finding | None:
    """Return the finding at the call before it whose ranks gave parts of a sum, where this one's code took these.

    Parts that add up to the other side's value are a sum where nobody says otherwise; where what is made of them is
    wrong, nobody summed them.
    """
    mine, theirs = (finding.candidate, finding.reference) if index else (finding.reference, finding.candidate)
    call = next((one for one in step.trace.calls if one.key == (mine.path, mine.call)), None)
    if call is None or finding.phase is not Phase.FORWARD:
        return None
    taken = {leaf.token for leaf in call.inputs}
    for giver in step.trace.calls:
        inside = finding.between is not None and giver.parent is call
        for which, leaf in enumerate(giver.outputs):
            parts = step.values.get((giver.key, "output", which))
            axes = [] if parts is None else _partial(parts)
            if parts is None or not axes or not (inside or leaf.token in taken) or giver in call.ancestors():
                continue
            place = Place(giver.path, giver.module.class_name, call=giver.ordinal)
            other = place if theirs.path is not None else theirs
            return attrs.evolve(
                finding,
                reference=other if index else place,
                candidate=place if index else other,
                what=What("output", leaf.path, which),
                cause=Cause("missing_all_reduce", {"ranks": sorted(parts.arrays)}, verified=True),
                evidence=(*finding.evidence, Evidence("taken_unsummed", {"call": mine.path or ""})),
                between=None,
                given=(),
            )
    return None


def _partial(parts: Parts) -> list[str]:
    """Return the axes along which a value was found to be a sum, and nobody says so."""
    if not parts.spreading.inferred:
        return []
    return [axis for axis, how in parts.spreading.placements.items() if how.kind == "partial"]


_HELD = {"parameter": "weights", "updated_parameter": "updated", "parameter_gradient": "parameter_gradients"}
"""Kind of what a finding is about -> where a trace keeps it, under the parameter's path."""


def _cause_held(finding: Finding, step: MergedStep, grid: Grid, others: Other) -> Cause | None:
    name = _HELD[finding.what.kind]
    for home, told in itertools.product(
        (finding.candidate.path, finding.reference.path), (finding.what.name, finding.what.name.rpartition(".")[2])
    ):
        path = others.mine(f"{home}.{told}" if home else told)
        parts = None if path is None else step.parameters.get((name, path))
        like = None if path is None or parts is None else others.parameter(name, path, parts.whole)
        if parts is not None and like is not None:
            return _cause(parts, grid, like)
    return None


def _cause(parts: Parts, grid: Grid, like: Like) -> Cause | None:
    arrays = {rank: read() for rank, read in parts.arrays.items()}
    how = dict(parts.spreading.placements)

    def near(placements: Mapping[str, Placement], held: Mapping[int, Array], times: float = 1.0) -> Near | None:
        value = merged(held, grid, placements, parts.whole)
        return like.nearest(value if times == 1.0 else value * times)

    def fits(placements: Mapping[str, Placement], held: Mapping[int, Array] = arrays, times: float = 1.0) -> bool:
        found = near(placements, held, times)
        return found is not None and found.same

    for axis, placement in how.items():
        group = grid.groups(list(arrays), axis)[0]
        size = len(group)
        if size < 2:
            continue
        if placement.kind == "replicate":
            unlike = parts.spreading.unlike
            if unlike and fits({**how, axis: Placement("partial")}):
                return Cause("missing_all_reduce", {"ranks": group}, verified=True)
            if not unlike:
                for times, name in ((1 / size, "reduced_twice"), (float(size), "averaged")):
                    if fits(how, times=times):
                        return Cause(name, {"ranks": group, "times": size}, verified=True)
        if placement.kind == "shard" and size <= _MOST_SHARDS:
            for order in permutations(group):
                moved = {**arrays, **{rank: arrays[other] for rank, other in zip(group, order, strict=True)}}
                if list(order) != group and fits(how, moved):
                    return Cause("shard_order", {"ranks": group, "order": list(order)}, verified=True)
    whole = near(how, arrays)
    wrong = [] if whole is None else [r for r in sorted(arrays) if not _right(r, arrays, how, grid, whole.value)]
    if wrong and len(wrong) < len(arrays):
        right = [rank for rank in sorted(arrays) if rank not in wrong]
        return Cause("wrong_on_ranks", {"ranks": wrong, "right": right}, verified=True)
    return None


def _right(rank: int, arrays: Mapping[int, Array], how: Mapping[str, Placement], grid: Grid, whole: Array) -> bool:
    """Return whether what one rank holds is its part of a whole."""
    part = whole
    for axis in reversed(grid.axes):
        placement = how.get(axis, Placement())
        group = next(group for group in grid.groups(list(arrays), axis) if rank in group)
        if placement.kind == "shard" and placement.stride == 1:
            sizes = [arrays[one].shape[placement.dim] for one in group]
            part = np.split(part, np.cumsum(sizes)[:-1], placement.dim)[group.index(rank)]
        elif placement.kind != "replicate":
            return True
    return part.shape == arrays[rank].shape and _is_same(part, arrays[rank])


def _is_same(one: Array, other: Array) -> bool:
    found = difference(one, other)
    return Near(found.rel_l2, one, equal=found.equal).same


def _disagreements(
    step: MergedStep, run: RankedRun, index: int, others: Other, number: int, known: set[str]
) -> Iterator[Finding]:
    """Yield where ranks begin to hold other values than ranks that should hold the same."""
    held = step.trace.parameters  # a buffer may follow each rank's own data
    weights = [
        path
        for (name, path), parts in step.parameters.items()
        if name == "weights" and parts.spreading.unlike and not held[path].buffer
    ]
    fresh = [path for path in weights if path not in known]
    known.update(weights)
    for path in fresh:
        yield _finding(step.parameters["weights", path], path, None, index, others, run, number)
    unlike = {place for place, parts in step.values.items() if parts.spreading.unlike}
    calls = {call.key for (call_key, side, _) in unlike for call in step.trace.calls if call.key == call_key}
    parts_of_sums = {place for place, parts in step.values.items() if _partial(parts)}
    begins = [call for call in step.trace.calls if call.key in calls and _begins(call, unlike | parts_of_sums, weights)]
    for call in begins:
        which = next((i for key, side, i in sorted(unlike) if key == call.key and side == "output"), None)
        if which is None:
            continue
        yield _finding(step.values[call.key, "output", which], call.path, call, index, others, run, number)
    if unlike or weights:
        return
    for (name, path), parts in step.parameters.items():
        if name == "updated" and parts.spreading.unlike and path not in known and not held[path].buffer:
            known.add(path)
            yield _finding(parts, path, None, index, others, run, number, updated=True)


def _begins(call: Call, unlike: Iterable[tuple[Key, str, int]], weights: Sequence[str]) -> bool:
    """Return whether ranks begin to disagree in a call: in what it gives, not in what it takes or calls, or holds."""
    places = {(key, side) for key, side, _ in unlike}
    if (call.key, "output") not in places or (call.key, "input") in places:
        return False
    if any((child.key, side) in places for child in call.subtree() if child is not call for side in _LEAVES):
        return False
    return not any(path.startswith(f"{call.path}.") or not call.path for path in weights)


_LEAVES = ("input", "output")


def _finding(
    parts: Parts,
    path: str,
    call: Call | None,
    index: int,
    others: Other,
    run: RankedRun,
    step: int,
    *,
    updated: bool = False,
) -> Finding:
    home, _, name = path.rpartition(".")
    about = run.about.modules.get(path if call is not None else home)
    mine = Place(path if call is not None else home, "" if about is None else about.module.class_name)
    mine = mine if call is None else attrs.evolve(mine, call=call.ordinal)
    theirs = others.facing(mine.path or "", mine.call if call is not None else None)
    other = attrs.evolve(mine, path=None) if theirs is None else theirs
    wrong = parts.spreading.unlike
    arrays = {rank: read() for rank, read in parts.arrays.items()}
    first = next(rank for rank in arrays if rank not in wrong)
    apart = max((difference(arrays[first], arrays[rank]) for rank in wrong), key=lambda one: one.rel_l2)
    kind = "output" if call is not None else "updated_parameter" if updated else "parameter"
    phase = Phase.FORWARD if call is not None else Phase.UPDATE if updated else Phase.PARAMETER
    return Finding(
        verdict=Verdict.DIFFERS,
        phase=phase,
        reference=other if index else mine,
        candidate=mine if index else other,
        what=What(kind, "" if call is not None else name),
        figures=Figures(apart.rel_l2, apart.max_abs),
        evidence=(Evidence("ranks_disagree", {"side": _SIDES[index], "ranks": list(wrong), "first": first}),),
        cause=Cause("out_of_step", {"ranks": list(wrong), "first": first}, verified=True),
        source=True,
        side=None,
        step=step,
    )
