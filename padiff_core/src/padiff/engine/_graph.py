"""Draw two recorded runs side by side: which call is which, how they compare, and what was kept of each."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from padiff.alignment import NAMED, MappingFile, read_mapping, resolved_file
from padiff.engine._checks import with_known_options
from padiff.engine._compare import compare
from padiff.engine._matched_runs import matched_runs, steps_of
from padiff.engine._open import opened
from padiff.errors import InputError
from padiff.forcing import weights_of
from padiff.paths import last, parent
from padiff.report import (
    Graph,
    GraphLink,
    GraphNode,
    GraphSide,
    GraphValue,
    Report,
    Verdict,
    headline,
    page,
    recorded,
    sources,
)
from padiff.trace import Call, Leaf, ModuleRecord, Run, Summary, Trace, in_time, summarized

PathLike = str | os.PathLike[str]
_SAME_NAME = "the same name"
_SIDES = ("left", "right")


@with_known_options
def graph(reference: PathLike, candidate: PathLike, *, mapping: PathLike | None = None, step: int | None = None) -> str:
    """Return a page that shows two recorded runs as trees side by side: one HTML document, which makes no request.

    ``reference`` and ``candidate`` are directories that `record` wrote, or dumps of a tool that a reader knows.
    ``mapping`` is a mapping file; ``step`` is the one step to show, by default all that both runs have. Raises
    `InputError` for what cannot be read, `MappingError` for a mapping file that does not fit.
    """
    return page(graph_of_runs(opened(reference), opened(candidate), mapping=mapping, step=step))


def graph_of_runs(
    reference: Run,
    candidate: Run,
    *,
    mapping: PathLike | None = None,
    step: int | None = None,
    labels: tuple[str, str] = ("reference", "candidate"),
) -> Graph:
    """Return the data of the page of two runs; ``labels`` say what each side is."""
    file = MappingFile("", ()) if mapping is None else read_mapping(mapping)
    compared = _compared(reference, candidate, mapping, step)
    report = compared if isinstance(compared, Report) else None
    sides = _Nodes(reference), _Nodes(candidate)
    links: dict[int, GraphLink] = {}
    steps = steps_of(reference, candidate, step)
    for ours, theirs in steps:
        traces = reference.trace(ours), candidate.trace(theirs)
        places = [side.add(trace, ours, several=len(steps) > 1) for side, trace in zip(sides, traces, strict=True)]
        if report is not None:
            links.update(_judged(report, ours, sides))
        taken = {link.candidate for link in links.values()}
        for pair in matched_runs(reference, candidate, traces, file).alignment.pairs:
            a, b = places[0].get(pair.reference.index), places[1].get(pair.candidate.index)
            if a is not None and b is not None and a not in links and b not in taken:
                why = _SAME_NAME if pair.why == NAMED and not file.rules else pair.why
                links[a] = GraphLink(a, b, why=why)
    left, right = (
        GraphSide(f"{run.about.framework}: {run.about.class_name}", tuple(side.nodes), label, side.wrong)
        for run, side, label in zip((reference, candidate), sides, labels, strict=True)
    )
    notes = resolved_file(file, reference.about, candidate.about).notes
    return Graph(
        left,
        right,
        tuple(links[a] for a in sorted(links)),
        () if report is None else report.findings,
        headline="\n".join([*_headline(sides, links, compared), *(f"note: {note.text}" for note in notes)]),
        sources="" if report is None else sources(report),
        recorded=True,
        rules=_rules(file),
        backward=all(side.backward for side in sides),
    )


def _compared(reference: Run, candidate: Run, mapping: PathLike | None, step: int | None) -> Report | str:
    """Return the report of two runs, or why their values cannot be compared."""
    if "structure" in (reference.values, candidate.values):
        return "no values were compared"
    try:
        return compare(reference, candidate, mapping=mapping, step=step)
    except InputError as error:  # the trees can be drawn all the same
        return f"no values were compared: {str(error).partition(chr(10))[0]}"


def _judged(report: Report, step: int, sides: tuple[_Nodes, _Nodes]) -> Iterator[tuple[int, GraphLink]]:
    """Yield the pairs of nodes of a step that the report judges, each with the left one's place."""
    for call in report.calls:
        if call.step == step and call.reference is not None and call.candidate is not None:
            a = sides[0].places.get((step, call.reference.path or "", call.reference.call))
            b = sides[1].places.get((step, call.candidate.path or "", call.candidate.call))
            if a is not None and b is not None:
                verdict = None if call.verdict is Verdict.NOT_COMPARED else str(call.verdict)
                yield a, GraphLink(a, b, verdict, call.why, call.forced, call.free)


def _rules(file: MappingFile) -> dict[str, dict[str, str]]:
    """Return the rules that the page can apply and write again: one name for one name."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for rule in file.rules:
        if len(rule.to) == 1:
            found[rule.scope][".".join(rule.key)] = rule.to[0]
    return dict(found)


def _headline(sides: Sequence[_Nodes], links: Mapping[int, GraphLink], compared: Report | str) -> Iterator[str]:
    calls = [sum(node.path is not None for node in side.nodes) for side in sides]
    said = [f"{len(links)} calls matched"]
    said += [f"{count - len(links)} only on the {name}" for count, name in zip(calls, _SIDES, strict=True)]
    if isinstance(compared, Report):
        yield headline(compared)
        yield ", ".join(said)
        yield from recorded(compared.recorded) if compared.recorded is not None and not compared.aligned else ()
    else:
        yield f"{', '.join(said)}; {compared}"


class _Nodes:
    """The nodes of one side, step after step."""

    def __init__(self, run: Run) -> None:
        self.nodes: list[GraphNode] = []
        self.places: dict[tuple[int, str, int], int] = {}
        """Step, path and ordinal of a call -> its place among the nodes."""
        self.backward = False
        self.wrong: dict[str, int] = {}
        """``NaN`` or ``Inf`` -> the node where the first one came up."""
        self._earlier: tuple[int, Trace] | None = None
        self._parameters: dict[str, list[str]] = defaultdict(list)
        for path in run.about.parameters:
            self._parameters[parent(path)].append(path)
        self._known = run.about.parameters

    def add(self, trace: Trace, step: int, *, several: bool) -> dict[int, int]:
        """Add the calls of a step; return their places by their indices."""
        if several:
            self.nodes.append(GraphNode(None, step=step))
        top = len(self.nodes) - 1 if several else None
        self.backward |= bool(trace.gradients)
        places: dict[int, int] = {}
        statistics = _Statistics(trace)
        before = self._earlier[1] if self._earlier is not None and self._earlier[0] == step - 1 else None
        weights, self._earlier = weights_of(trace, before), (step, trace)
        for call in trace.calls:
            if call.module.operation:
                continue
            above = next((places[one.index] for one in call.ancestors() if one.index in places), top)
            places[call.index] = self.places[step, call.path, call.ordinal] = len(self.nodes)
            self.nodes.append(self._node(call, trace, step, above, statistics, weights))
        for held in in_time(trace):
            wrong = statistics.wrong(held.key)
            if wrong and wrong not in self.wrong:
                self.wrong[wrong] = next(
                    places[c.index] for c in (held.call, *held.call.ancestors()) if c.index in places
                )
        return places

    def _node(
        self,
        call: Call,
        trace: Trace,
        step: int,
        above: int | None,
        statistics: _Statistics,
        weights: Mapping[str, tuple[Trace, int]],
    ) -> GraphNode:
        held = [trace.values.get(leaf.token) for leaf in (*call.inputs, *call.outputs)]
        held += [trace.gradients.get(leaf.token) for leaf in (*call.inputs, *call.outputs)]
        found = {statistics.wrong(key) for key in held if key is not None}
        return GraphNode(
            call.path,
            call.module.class_name,
            call.ordinal,
            above,
            step,
            _location(call.module),
            tuple(map(str, call.frames)),
            inputs=tuple(statistics.values(call.inputs, trace.values)),
            outputs=tuple(statistics.values(call.outputs, trace.values)),
            input_gradients=tuple(statistics.values(call.inputs, trace.gradients)),
            output_gradients=tuple(statistics.values(call.outputs, trace.gradients)),
            parameters=tuple(self._values(call.path, trace, statistics, weights)),
            settings={name: setting.spelled for name, setting in call.settings.items()},
            wrong=next((wrong for wrong in ("NaN", "Inf") if wrong in found), ""),
        )

    def _values(
        self, path: str, trace: Trace, statistics: _Statistics, weights: Mapping[str, tuple[Trace, int]]
    ) -> Iterator[GraphValue]:
        for name in self._parameters.get(path, ()):
            known = self._known[name]
            holder, key = weights.get(name, (trace, None))
            found = statistics.of(key) if holder is trace else _Statistics(holder).of(key)
            sent = statistics.of(trace.parameter_gradients.get(name)).get("norm")
            found = found if sent is None else {**found, "norm of gradient": sent}
            about = "buffer" if known.buffer else "" if known.trainable else "frozen"
            yield GraphValue(last(name), known.dtype, known.shape, found, about)


class _Statistics:
    """What is said of the values of one trace, each looked at once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[int, Summary | None] = {}

    def values(self, leaves: Sequence[Leaf], keys: Mapping[int, int]) -> Iterator[GraphValue]:
        """Yield tensors with what is known of their values, or gradients; of gradients only those that there are."""
        for leaf in leaves:
            key = keys.get(leaf.token)
            if key is not None or keys is self._trace.values:
                yield GraphValue(leaf.path, leaf.dtype, leaf.shape, self.of(key))

    def of(self, key: int | None) -> dict[str, float]:
        """Return what is known of a value, by name."""
        return {} if key is None else _figures(self._summary(key))

    def wrong(self, key: int) -> str:
        """Return ``NaN`` or ``Inf`` where a value holds one."""
        known = self._summary(key)
        return "" if known is None else known.wrong

    def _summary(self, key: int) -> Summary | None:
        if key not in self._known:
            try:
                self._known[key] = self._trace.summaries[key] if key < 0 else summarized(self._trace.array(key))
            except InputError:  # a damaged value spares the others
                self._known[key] = None
        return self._known[key]


def _figures(summary: Summary | None) -> dict[str, float]:
    """Return what a page shows of a value."""
    if summary is None:
        return {}
    figures: dict[str, Any] = {
        "mean": summary.mean,
        "std": summary.std,
        "min": summary.low,
        "max": summary.high,
        "norm": summary.norm,
        "NaN": summary.nans or None,
        "infinite": summary.infinities or None,
    }
    return {name: float(figure) for name, figure in figures.items() if figure is not None}


def _location(module: ModuleRecord) -> str:
    return f"{module.definition[0]}:{module.definition[1]}" if module.definition else ""
