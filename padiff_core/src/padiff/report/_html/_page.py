"""Write a graph as one HTML file: no server, no request, nothing in it that a name could break out of.

The data lie in the page as JSON, in ASCII and without a single angle bracket; the script puts them into the document
as text alone. A Content-Security-Policy lets the page use its own script and style, known by their hashes, and load
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from padiff.paths import parent
from padiff.report import _words as words
from padiff.report._finding import Figures, Finding, Place
from padiff.report._html._graph import Graph, GraphLink, GraphNode, GraphSide, GraphValue

_SCRIPTS = ("model.js", "rules.js", "view.js", "panel.js", "main.js")
_ANGLES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}
_MEASURED = {False: ("by itself", "free runs"), True: ("at most", "outputs")}
"""What the figures of a call are of, by whether the runs were recorded."""
_VALUES = ("inputs", "outputs", "input_gradients", "output_gradients", "parameters")


def page(graph: Graph) -> str:
    """Return the page."""
    style = _text("page.css")
    script = "(() => {\n'use strict';\n" + "".join(map(_text, _SCRIPTS)) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    found = _text("page.html")
    # The data come last: nothing in them is replaced.
    for name, text in (("POLICY", policy), ("STYLE", style), ("SCRIPT", script), ("DATA", _as_json(graph))):
        before, _, after = found.partition(f"@{name}@")
        found = before + text + after
    return found


@cache
def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _as_json(graph: Graph) -> str:
    sides = (graph.reference, graph.candidate)
    keys = [{(node.step, node.path, node.call): index for index, node in enumerate(side.nodes)} for side in sides]
    data = {
        "title": " · ".join(filter(None, dict.fromkeys(side.title for side in sides))) or "padiff",
        "headline": graph.headline,
        "sources": graph.sources,
        "sides": [_side(side, 0 if graph.recorded else 1) for side in sides],
        "links": [
            {
                "nodes": [link.reference, link.candidate],
                "verdict": link.verdict,
                "why": link.why,
                "figures": [
                    [name, _figures(found)]
                    for name, found in zip(_MEASURED[graph.recorded], (link.forced, link.free), strict=True)
                    if found is not None
                ],
            }
            for link in (*_steps(sides), *graph.links)
        ],
        "findings": [_finding(finding, keys) for finding in graph.findings],
        "rules": graph.rules,
        "backward": graph.backward,
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ANGLES)


def _steps(sides: Sequence[GraphSide]) -> list[GraphLink]:
    """Return the links between the nodes of steps."""
    heads = [{node.step: index for index, node in enumerate(side.nodes) if node.path is None} for side in sides]
    return [GraphLink(index, heads[1][step]) for step, index in heads[0].items() if step in heads[1]]


def _side(side: GraphSide, first_step: int) -> dict[str, Any]:
    """Return a side with what repeats, classes and frames, written once."""
    classes: dict[str, int] = {}
    frames: dict[str, int] = {}
    nodes = [_node(node, classes, frames, first_step) for node in side.nodes]
    found = {"title": side.title, "label": side.label, "wrong": dict(side.wrong)}
    return {**found, "nodes": nodes, "classes": list(classes), "frames": list(frames)}


def _node(node: GraphNode, classes: dict[str, int], frames: dict[str, int], first_step: int) -> dict[str, Any]:
    known = {
        "path": node.path,
        "class": classes.setdefault(node.class_name, len(classes)),
        "call": node.call,
        "step": node.step,
    }
    more = {
        "label": f"step {node.step + first_step}" if node.path is None else None,
        "parent": node.parent,
        "location": node.location,
        "stack": [frames.setdefault(frame, len(frames)) for frame in node.stack],
        "wrong": node.wrong,
        "settings": dict(node.settings),
        **{name: [_value(value) for value in getattr(node, name)] for name in _VALUES},
    }
    return known | _said(more)


def _value(value: GraphValue) -> dict[str, Any]:
    found: dict[str, Any] = {"name": value.name}
    found |= {} if value.shape is None else {"dtype": value.dtype, "shape": value.shape}
    statistics = {name: _number(number) for name, number in value.statistics.items()}
    return found | _said({"about": value.about, "statistics": statistics})


def _said(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says something: the page is told nothing of what is empty."""
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def _figures(found: Figures) -> str:
    return f"relative L2 {words.figure(found.rel_l2)}, largest {words.figure(found.max_abs)}"


def _finding(finding: Finding, keys: Sequence[Mapping[Any, int]]) -> dict[str, Any]:
    place = words.between(finding)
    lines = [place] if place else []
    lines += finding.cause.splitlines() if finding.cause else []
    lines += [_figures(finding.figures)] if finding.figures else []
    return {
        "nodes": [
            _at(finding.step, where, known)
            for where, known in zip((finding.reference, finding.candidate), keys, strict=True)
        ],
        "verdict": str(finding.verdict),
        "phase": str(finding.phase),
        "source": finding.source,
        "what": str(finding.what),
        "lines": [*lines, *finding.evidence],
    }


def _at(step: int, place: Place, known: Mapping[Any, int]) -> int | None:
    """Return the node of a place: the call, or the module that holds the parameter that it names."""
    if place.path is None:
        return None
    for path in (place.path, parent(place.path)):
        for when in (step, 0):
            if (when, path, place.call) in known:
                return known[when, path, place.call]
    return None
