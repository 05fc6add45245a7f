"""Open the page of a graph in a real browser: what a reader sees there, and does with mouse and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from padiff.report import Figures, Finding, Phase, Place, Verdict, What
from padiff.report._html import Graph, page

from .chromium import Page
from .models import drawn, left, right

ROWS = "[...document.querySelectorAll('#tree{side} .row:not([hidden])')]"
_Y = "getBoundingClientRect().y"
NAMES = f"{ROWS}.sort((a, b) => a.{_Y} - b.{_Y}).map((r) => r.querySelector('.name').textContent)"
INSIDE = "module.module.language_model"


@pytest.fixture(scope="module")
def browsing(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(browser_path, tmp_path_factory.mktemp("profile"))
    yield page
    page.close()


@pytest.fixture
def opened(browsing: Page, tmp_path: Path) -> Iterator[object]:
    """Return what opens a graph; nothing may be requested, and the browser must find nothing to complain of."""
    browsing.events.clear()

    def open_(graph: Graph) -> Page:
        file = tmp_path / "graph.html"
        file.write_text(page(graph), encoding="utf-8")
        browsing.open(file)
        return browsing

    yield open_
    assert browsing.requests() == []
    assert browsing.complaints() == []


def row(side: int, name: str) -> str:
    return ROWS.format(side=side) + f".find((r) => r.querySelector('.name').textContent === '{name}')"


def names(browsing: Page, side: int) -> list[str]:
    browsing.frame()
    return list(browsing.run(NAMES.format(side=side)))


def state(browsing: Page, side: int, name: str) -> str:
    return str(browsing.run(f"{row(side, name)}.className"))


def test_names_are_document_004s(opened) -> None:
    shown = opened(drawn(left(), right()))
    assert names(shown, 0)[:3] == [
        "module.Float16Module.forward.0",
        "module.module.GPTModel.forward.0",
        f"{INSIDE}.TransformerLanguageModel.forward.0",
    ]
    assert "is-unmatched" in state(shown, 1, "model.FloatModule.forward.0")
    assert shown.run("document.querySelectorAll('#lines path').length") == 0


def test_two_grey_nodes_are_joined_by_a_rule(opened) -> None:
    """The rules are document 004's own, and each joins all that it says: layers by the dozen, not the one picked."""
    shown = opened(drawn(left(), right()))
    layer = f"{INSIDE}.encoder.layers.1"
    for ours, theirs in (
        ("module.Float16Module", "model.FloatModule"),
        (f"{INSIDE}.embedding.Embedding", "model.module.embedding.LanguageModelEmbedding"),
        (f"{INSIDE}.rotary_pos_emb.RotaryEmbedding", "model.module.rotary_pos_emb.RotaryEmbedding"),
        (f"{INSIDE}.encoder.ParallelTransformer", "model.module.decoder.TransformerBlock"),
        (f"{layer}.mlp.dense_h_to_4h.ColumnParallelLinear",
         "model.module.decoder.layers.1.mlp.linear_fc1.TELayerNormColumnParallelLinear"),
        (f"{layer}.mlp.dense_4h_to_h.RowParallelLinear",
         "model.module.decoder.layers.1.mlp.linear_fc2.TERowParallelLinear"),
    ):  # fmt: skip
        shown.click(row(0, f"{ours}.forward.0"))
        assert "Select a grey node on the other side" in shown.run("document.querySelector('#join').textContent")
        shown.click(row(1, f"{theirs}.forward.0"))
        shown.click("document.querySelector('#joining')")
        assert "is-joined" in state(shown, 0, f"{ours}.forward.0")
        assert "is-joined" in state(shown, 1, f"{theirs}.forward.0")
    assert shown.run("document.querySelector('#yaml').value") == (
        "TopLayer:\n  module: model\n\n"
        "GPTModel:\n  language_model.embedding: embedding\n  language_model.rotary_pos_emb: rotary_pos_emb\n"
        "  language_model.encoder: decoder\n\n"
        "ParallelMLP:\n  dense_h_to_4h: linear_fc1\n  dense_4h_to_h: linear_fc2\n"
    )
    legend = shown.run("document.querySelector('#legend').textContent")
    assert "1 unmatched" in legend  # the left's one level more: language_model
    shown.click("document.querySelector('#copy')")
    assert shown.wait("document.querySelector('#copy').textContent === 'Copied'")
    shown.click("document.querySelector('.rules li:last-child .drop')")
    assert "is-unmatched" in state(shown, 0, f"{layer}.mlp.dense_4h_to_h.RowParallelLinear.forward.0")


def test_matched_nodes_are_selected_together_by_keys(opened) -> None:
    shown = opened(
        drawn(left(), right(), [("module", "model"), (f"{INSIDE}.encoder", "model.module.decoder")], "equal")
    )
    shown.run("document.querySelector('#tree0').focus()")
    shown.key("ArrowDown")
    assert "selected" in state(shown, 1, "model.FloatModule.forward.0")
    assert shown.run("document.querySelectorAll('#lines path.selected').length") == 1
    assert "float32[2, 8]" in shown.run("document.querySelector('#details').textContent")
    shown.key("ArrowLeft")
    assert names(shown, 0) == ["module.Float16Module.forward.0"]
    assert names(shown, 1) == ["model.FloatModule.forward.0"]
    shown.key("Enter")
    assert len(names(shown, 0)) > 3


def test_search_finds_what_is_folded(opened) -> None:
    shown = opened(drawn(left(12), right(12), [("module", "model")], "equal"))
    shown.click("document.querySelector('#fold')")
    shown.key("/")
    shown.type("layers.11 dense_4h")
    assert shown.run("document.querySelector('#hits').textContent") == "1 found"
    shown.key("Enter")
    name = f"{INSIDE}.encoder.layers.11.mlp.dense_4h_to_h.RowParallelLinear.forward.0"
    assert "selected" in state(shown, 0, name)
    shown.click("document.querySelector('#only')")
    assert name in names(shown, 0)


def test_what_differs_is_unfolded_and_selected(opened) -> None:
    inner = f"{INSIDE}.encoder.layers.3.mlp.dense_h_to_4h", "model.module.decoder.layers.3.mlp.linear_fc1"
    graph = drawn(left(24), right(24), [("module", "model"), inner], "equal")
    places = [Place(path, "x.Linear", stack=("m.py:3 in forward",)) for path in inner]
    graph = Graph(
        graph.reference,
        graph.candidate,
        graph.links,
        (Finding(Verdict.DIFFERS, Phase.FORWARD, *places, What("output"), Figures(1e-3, 0.5), source=True),),
        "not aligned: 1 source in 2 places\ntwo runs <as they were recorded>",
        "1 source in 2 places",
        backward=True,
    )
    shown = opened(graph)
    assert shown.run("[...document.querySelectorAll('#headline div')].map((line) => line.textContent)") == [
        "not aligned: 1 source in 2 places",
        "two runs <as they were recorded>",
    ]
    assert shown.run("document.querySelector('#legend .is-source').textContent") == "✖ 1 source in 2 places"
    assert "is-source selected" in state(shown, 0, f"{inner[0]}.ColumnParallelLinear.forward.0")
    assert "source: differs, forward" in shown.run("document.querySelector('#details').textContent")
    shown.click("document.querySelector('#backward')")
    assert f"{inner[0]}.ColumnParallelLinear.backward.0" in names(shown, 0)


def test_what_differs_in_backward_alone_is_told_apart_and_the_first_nan_is_found(opened) -> None:
    graph = drawn(left(2), right(2), [("module", "model"), ("module.module", "model.module")], "differs")
    finding = Finding(Verdict.DIFFERS, Phase.BACKWARD, Place("module.module"), Place("model.module"), What("output"))
    ours = list(graph.reference.nodes)
    for index, wrong in ((3, "Inf"), (5, "NaN")):
        ours[index] = attrs.evolve(ours[index], wrong=wrong)
    side = attrs.evolve(graph.reference, nodes=tuple(ours), label="reference", wrong={"NaN": 5, "Inf": 3})
    shown = opened(attrs.evolve(graph, reference=side, findings=(finding,)))
    assert "is-differs" in state(shown, 0, "module.Float16Module.forward.0")
    assert "is-backward" in state(shown, 0, "module.module.GPTModel.forward.0")
    legend = shown.run("document.querySelector('#legend').textContent")
    assert "1 in backward alone" in legend
    shown.click("document.querySelector('#legend .is-wrong')")
    name = f"{INSIDE}.encoder.ParallelTransformer.forward.0"
    assert "selected" in state(shown, 0, name)
    assert "⚠ NaN" in shown.run(f"{row(0, name)}.textContent")


HOSTILE = (
    "</script><script>document.title = 'harmed'</script>",
    "<img src=x onerror=alert(1)>",
    "\"quotes' & &lt;ampersands&gt;",
    "\u202eright to left\u2066",
    "\U0001f525 emoji \u6a21\u5757",
    "__proto__",
    "constructor",
    "@DATA@ @SCRIPT@ ]]> <!-- <script>",
    "a: b # {c}\n\t- d\x00\x1b[31m\ud800",
    "x" * 5000,
)


def test_hostile_names_are_harmless(opened) -> None:
    """They are shown as text, what reorders text as its code, and as keys of a rule they are quoted."""
    rows = [("model", "Model"), *((f"model.{name}", name) for name in HOSTILE)]
    others = [("model", "Model"), *((f"model.other{index}", "Other") for index in range(len(HOSTILE)))]
    shown = opened(drawn(rows, others, [("model", "model")]))
    assert shown.run("document.title").startswith("torch: Left")
    assert shown.run("document.querySelectorAll('img, #details script').length") == 0
    text = "\n".join(names(shown, 0))
    assert "</script><script>" in text
    assert "\\u202eright to left\\u2066" in text
    assert "\U0001f525 emoji \u6a21\u5757" in text
    for index in range(len(HOSTILE)):
        shown.run("document.querySelector('#tree0').focus()")
        shown.click(f"{ROWS.format(side=0)}[{index + 1}]")
        shown.click(f"{ROWS.format(side=1)}[{index + 1}]")
        shown.click("document.querySelector('#joining')")
    written = shown.run("document.querySelector('#yaml').value")
    assert "</script><script>document.title = 'harmed'</script>\": other0" in written
    assert '"\\u202eright to left\\u2066": other3' in written
    assert '"a: b # {c}\\n\\t- d\\u0000\\u001b[31m\\ud800": other8' in written


def test_twenty_thousand_calls_stay_usable(opened) -> None:
    """Few rows are elements at a time, and a jump to the other end takes less than a second."""
    ours, theirs = left(2857), right(2857)
    shown = opened(drawn(ours, theirs, [("module", "model")]))
    shown.click("document.querySelector('#unfold')")
    assert shown.run("document.querySelector('#tree0').scrollHeight") > 20_000 * 20
    shown.run("document.querySelector('#tree0').focus()")
    key = "new KeyboardEvent('keydown', {key: 'End', bubbles: true})"
    took = shown.run(
        "(() => { const start = performance.now();"
        f"document.querySelector('#tree0').dispatchEvent({key}); return performance.now() - start; }})()"
    )
    shown.frame()
    assert f"{INSIDE}.encoder.layers.2856.mlp.dense_4h_to_h.RowParallelLinear.forward.0" in names(shown, 0)
    assert shown.run("document.querySelectorAll('.row').length") < 300
    assert took < 1000
