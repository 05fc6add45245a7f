"""What the page of a graph holds; tests/browser opens it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import attrs

from padiff.report import (
    ComparedCall,
    Figures,
    Finding,
    MatchedParameters,
    Matching,
    Phase,
    Place,
    Report,
    Verdict,
    What,
)
from padiff.report._html import graph_of_report


def drawn(report: Report) -> dict[str, Any]:
    """Return the data that a report's page holds."""
    (found,) = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', report.render("html"), re.S)
    return dict(json.loads(found))


def compared(step: int = 0) -> list[ComparedCall]:
    """Return a model of two layers, the second of which differs; each side has one more of its own."""

    def both(path: str) -> tuple[Place, Place]:
        return Place(path, "rows.Linear"), Place(path and f"body.{path}", "columns.Dense")

    return [
        ComparedCall(Verdict.EQUAL, *both(""), "the root", step=step),
        ComparedCall(Verdict.UNMATCHED, None, Place("body", "Body"), parent=0, step=step),
        ComparedCall(Verdict.EQUAL, *both("one"), parent=1, step=step),
        ComparedCall(Verdict.DIFFERS, *both("two"), forced=Figures(1e-3, 0.5), parent=1, step=step),
        ComparedCall(Verdict.UNMATCHED, Place("three", "rows.ReLU"), None, parent=0, step=step),
    ]


WRONG = Finding(
    Verdict.DIFFERS,
    Phase.BACKWARD,
    Place("two", "rows.Linear", stack=("m.py:3 in forward",)),
    Place("body.two", "columns.Dense"),
    What("output_gradient"),
    source=True,
)
MATCHING = Matching(
    parameters=(MatchedParameters(("two.weight",), "body.two.weight", "transposed"),),
    unmatched_parameters={"candidate": ("body.two.scale",)},
)


def test_both_trees_hold_what_their_side_has() -> None:
    data = drawn(Report((WRONG,), (WRONG,), calls=tuple(compared()), mapping=MATCHING, reference="toy: M"))
    ours, theirs = data["sides"]
    assert [(node["path"], node.get("parent")) for node in ours["nodes"]] == [
        ("", None), ("one", 0), ("two", 0), ("three", 0),
    ]  # fmt: skip
    assert [(node["path"], node.get("parent")) for node in theirs["nodes"]] == [
        ("", None), ("body", 0), ("body.one", 1), ("body.two", 1),
    ]  # fmt: skip
    assert [link["nodes"] for link in data["links"]] == [[0, 0], [1, 2], [2, 3]]
    assert data["links"][2]["verdict"] == "differs"
    assert data["links"][2]["figures"] == [["by itself", "relative L2 0.001, largest 0.5"]]
    assert data["findings"][0]["nodes"] == [2, 3]
    assert theirs["nodes"][3]["parameters"] == [
        {"name": "weight", "about": "transposed"}, {"name": "scale", "about": "without counterpart"},
    ]  # fmt: skip
    assert [ours["frames"][frame] for frame in ours["nodes"][2]["stack"]] == ["m.py:3 in forward"]


def test_steps_stand_above_their_calls() -> None:
    later = [call if call.parent is None else _later(call) for call in compared(1)]
    data = drawn(Report((), (), calls=(*compared(), *later)))
    ours = data["sides"][0]["nodes"]
    assert [node["label"] for node in ours if node["path"] is None] == ["step 1", "step 2"]
    assert [node.get("parent") for node in ours] == [None, None, 0, 2, 2, 2, 1, 6, 6, 6]
    assert data["links"][:2] == [
        {"nodes": [0, 0], "verdict": None, "why": "", "figures": []},
        {"nodes": [1, 1], "verdict": None, "why": "", "figures": []},
    ]


def _later(call: ComparedCall) -> ComparedCall:
    return attrs.evolve(call, parent=(call.parent or 0) + 5)


def test_the_policy_knows_the_scripts_and_styles_that_are_there() -> None:
    page = Report((), (), calls=tuple(compared())).render("html")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; ")
    for name in ("script", "style"):
        (text,) = re.findall(rf"<{name}>(.*?)</{name}>", page, re.S)
        assert f"{name}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_names_cannot_leave_the_data() -> None:
    name = "</script><script>alert(1)</script>\u2028\u202e&<!--"
    report = Report((), (), calls=(ComparedCall(Verdict.EQUAL, Place(name, name), Place(name, name)),), reference=name)
    page = report.render("html")
    assert page.count("<script") == 2
    assert drawn(report)["sides"][0]["nodes"][0]["path"] == name


def test_an_empty_report_has_a_page() -> None:
    assert graph_of_report(Report((), ())).links == ()
    assert drawn(Report((), ()))["sides"][0]["nodes"] == []
