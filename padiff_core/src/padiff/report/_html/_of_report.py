"""Draw the compared tree of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from padiff.report._compared import ComparedCall
from padiff.report._finding import SIDES, Phase
from padiff.report._html._graph import Graph, GraphLink, GraphNode, GraphSide, GraphValue
from padiff.report._report import Report
from padiff.report._words import headline, sources


def graph_of_report(report: Report) -> Graph:
    """Return both models as the report knows them: every call with its verdict, without shapes and statistics."""
    (ours, theirs), places = zip(*(_side(report, side) for side in SIDES), strict=True)
    links = tuple(
        GraphLink(places[0][index], places[1][index], str(call.verdict), call.why, call.forced, call.free)
        for index, call in enumerate(report.calls)
        if index in places[0] and index in places[1]
    )
    backward = any(finding.phase is Phase.BACKWARD for finding in report.findings)
    return Graph(
        ours,
        theirs,
        links,
        report.findings,
        headline(report),
        sources(report),
        recorded=report.recorded is not None,
        backward=backward or report.phase != "forward",
    )


def _side(report: Report, side: str) -> tuple[GraphSide, Mapping[int, int]]:
    """Return one side's tree, and which of its nodes each compared call is."""
    calls = [(index, getattr(call, side), call) for index, call in enumerate(report.calls)]
    found = [(index, place, call) for index, place, call in calls if place is not None]
    steps = sorted({call.step for _, _, call in found})
    heads = len(steps) if len(steps) > 1 else 0
    position = {index: heads + number for number, (index, _, _) in enumerate(found)}
    parameters, stacks = _parameters(report, side), _stacks(report, side)
    nodes = [GraphNode(None, step=step) for step in steps[:heads]]
    for index, place, call in found:
        above = _around(report.calls, index, position)
        path = place.path or ""
        nodes.append(
            GraphNode(
                path,
                place.class_name,
                place.call,
                steps.index(call.step) if above is None and heads else above,
                call.step,
                place.location or "",
                stacks.get((path, place.call), ()),
                parameters=parameters.get(path, ()),
            )
        )
    return GraphSide(getattr(report, side), tuple(nodes), side), position


def _around(calls: Sequence[ComparedCall], index: int, position: Mapping[int, int]) -> int | None:
    """Return the node of the nearest compared call around one that this side has."""
    above = calls[index].parent
    while above is not None and above not in position:
        above = calls[above].parent
    return None if above is None else position[above]


def _parameters(report: Report, side: str) -> dict[str, tuple[GraphValue, ...]]:
    """Return the parameters of each module, by its path."""
    found: dict[str, list[GraphValue]] = defaultdict(list)
    for row in report.mapping.parameters:
        for path in row.reference if side == "reference" else (row.candidate,):
            owner, _, name = path.rpartition(".")
            found[owner].append(GraphValue(name, about=row.layout if side == "candidate" else ""))
    for path in report.mapping.unmatched_parameters.get(side, ()):
        owner, _, name = path.rpartition(".")
        found[owner].append(GraphValue(name, about="without counterpart"))
    return {path: tuple(values) for path, values in found.items()}


def _stacks(report: Report, side: str) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return the stacks that findings know."""
    places = [getattr(finding, side) for finding in report.findings]
    return {(place.path, place.call): place.stack for place in places if place.path is not None and place.stack}
