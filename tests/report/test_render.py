"""What a reader and a program see of a report; the reports are made by hand, as diff() gives them."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff import report as reports
from padiff.errors import InputError
from padiff.report import (
    SCHEMA,
    Cause,
    ComparedCall,
    Coverage,
    Evidence,
    Figures,
    Finding,
    MatchedModules,
    MatchedParameters,
    Matching,
    Measurement,
    Note,
    Phase,
    Place,
    RecordedRuns,
    Report,
    Transfer,
    Verdict,
    What,
    headline,
    to_text,
)

DOCS = Path(__file__).parents[2] / "docs"
ANSI = re.compile(r"\x1b\[[0-9;]*m")

MODELS = {
    "reference": "torch: my_port.torch_model.Encoder",
    "candidate": "paddle: my_port.paddle_model.Encoder",
}
ENVIRONMENT = {
    "torch": {"version": "2.13.0", "device": "cpu", "threads": "2"},
    "paddle": {"version": "3.3.1", "device": "cpu"},
}


OUTPUT = What("output")
FLOAT64 = Evidence.of("float64_differs", bound=6e-8)


def norm(block: int) -> Finding:
    """Return one of the layer norms whose eps differs."""
    return Finding(
        Verdict.DIFFERS,
        Phase.FORWARD,
        Place(
            f"encoder.layers.{block}.norm1",
            "torch.nn.modules.normalization.LayerNorm",
            "/w/my_port/torch_model.py:41",
        ),
        Place(f"blocks.{block}.ln1", "paddle.nn.layer.norm.LayerNorm", "/w/my_port/paddle_model.py:38"),
        OUTPUT,
        Figures(4.1e-6 * (block + 1), 1.234e-5, 8.7e-8, 4.1e-6 * (block + 1)),
        (FLOAT64,),
        Cause("settings", {"eps": {"reference": "1e-05", "candidate": "1e-12"}}),
        source=True,
    )


GLUE = Finding(
    Verdict.DIFFERS,
    Phase.FORWARD,
    Place("encoder.layers.2.attn", "my_port.torch_model.Attention", "/w/my_port/torch_model.py:77"),
    Place("blocks.2.attention", "my_port.paddle_model.Attention", "/w/my_port/paddle_model.py:70", call=1),
    What("input", "x", 0, "out"),
    Figures(2.5e-5, 3.1e-4, 1.1e-7, 2.5e-5),
    (FLOAT64, Evidence.of("gradient_changed", rel_l2=1e-3)),
    between=("v", "out"),
    given=("q", "k", "v"),
    source=True,
)
BACKWARD = Finding(
    Verdict.DIFFERS,
    Phase.BACKWARD,
    Place("", "my_port.torch_model.Encoder", "/w/my_port/torch_model.py:9"),
    Place("", "my_port.paddle_model.Encoder", "/w/my_port/paddle_model.py:8"),
    What("input_gradient", "[0]", 0),
    Figures(math.inf, math.nan),
    between=("start", "blocks.0"),
    source=True,
)


def victim(index: int) -> Finding:
    side = Place(f"head.{index}", "Linear", "/w/my_port/model.py:9")
    return Finding(Verdict.DIFFERS, Phase.FORWARD, side, side, OUTPUT, Figures(1e-3, 1e-2))


UNMATCHED = Finding(
    Verdict.UNMATCHED,
    Phase.FORWARD,
    Place(None),
    Place("blocks.0.extra", "paddle.nn.layer.activation.ReLU", "/w/my_port/paddle_model.py:50"),
    What("output", "[1]", 1),
)
RUNNING = Finding(
    Verdict.STOCHASTIC,
    Phase.FORWARD,
    Place("drop", "torch.nn.modules.dropout.Dropout"),
    Place("drop", "paddle.nn.layer.common.Dropout"),
    OUTPUT,
)
WIDER = Finding(
    Verdict.PRECISION, Phase.FORWARD, Place("head"), Place("head"), OUTPUT, Figures(2e-3, 1e-2, 1e-7, 1e-13)
)
NOTE = Note("setting", {"name": "momentum", "reference": "0.1", "candidate": "0.2"}, Place("bn1"), Place("bn1"))

ALIGNED = Report(
    (),
    (),
    notes=(NOTE,),
    transfer=Transfer(copied=267, verified=267, buffers=106),
    counts={"equal": 12, "rounding": 416},
    output=Figures(3.1e-7, 1.2e-6),
    loss=(2.3025851, 2.3025849),
    environment=ENVIRONMENT,
    seconds=5.13,
    **MODELS,
)
HARMLESS = Report((), (RUNNING, WIDER), counts={"equal": 3, "stochastic": 1, "precision": 1}, **MODELS)

_SOURCES = (norm(0), GLUE, *(norm(block) for block in range(1, 7)), BACKWARD)
PARTED = Report(
    _SOURCES,
    (*_SOURCES, *(victim(index) for index in range(14)), UNMATCHED, RUNNING, WIDER),
    notes=(NOTE, Note("inputs_cast")),
    transfer=Transfer(
        copied=40,
        verified=37,
        unverified=("blocks.0.a", "blocks.1.b", "c"),
        unmatched_candidate=("blocks.0.extra.weight",),
        settled={"blocks.0.proj.weight": "transposed"},
    ),
    counts={"equal": 12, "rounding": 416, "differs": 23, "unmatched": 1, "stochastic": 1, "precision": 1},
    output=Figures(1.23e-3, 0.0456),
    loss=(2.3025851, 2.31),
    environment=ENVIRONMENT,
    seconds=5.13,
    **MODELS,
)
ONE = Report(
    (norm(3),),
    (norm(3),),
    transfer=Transfer(4, 4),
    counts={"rounding": 9, "differs": 1},
    output=Figures(1e-4, 1e-3),
)
ALONE = Report((), (UNMATCHED,), counts={"rounding": 9, "unmatched": 1}, **MODELS)
VICTIMS_ALONE = Report((), (victim(0), victim(1)), counts={"rounding": 9, "differs": 2}, **MODELS)
EMPTY = Report((), ())

_THREE = (norm(0), GLUE, norm(3))
REPEATED = Report(
    _THREE,
    (*_THREE, victim(0), victim(1)),
    transfer=Transfer(copied=40, verified=40),
    counts={"rounding": 424, "differs": 4},
    output=Figures(1.23e-3, 0.0456),
    **MODELS,
)
MEASURING = Report(
    (attrs.evolve(norm(0), figures=attrs.evolve(norm(0).figures, metrics=(Measurement("cosine", 0.9),))),),
    (),
    output=Figures(1.0, 2.0, metrics=(Measurement("snr", math.inf, "dB", 40.0, True),)),
)
LIMITED = Report((), (), forward_only="the acme adapter does not offer gradients", counts={"equal": 3}, **MODELS)
ASKED = Report((), (), phase="forward", counts={"equal": 3, "ignored": 2}, **MODELS)
TOLERATED = Report(
    (),
    (),
    tolerance={"atol": 10.0, "rtol": 1e-7, "compare_mode": "strict"},
    counts={"equal": 1, "within tolerance": 2},
    output=Figures(0.5, 9.0),
    output_within=True,
)
MAPPED = Report(
    (),
    (),
    calls=(
        ComparedCall(Verdict.DIFFERS, Place("", "A"), Place("", "B"), "the root", Figures(1.0, 2.0), Figures(1.0, 2.0)),
        ComparedCall(Verdict.UNMATCHED, None, Place("extra", "B"), parent=0),
    ),
    mapping=Matching(
        (MatchedModules("", "", "A", "B", "the root"), MatchedModules("layer.0", "block", "A", "B", "same place", 2)),
        (MatchedParameters(("layer.0.weight",), "block.weight", "transposed"),),
        {"reference": (), "candidate": ("extra",)},
        {"reference": (), "candidate": ("extra.bias",)},
    ),
)
EVERY = {
    "asked": ASKED,
    "tolerated": TOLERATED,
    "mapped": MAPPED,
    "measuring": MEASURING,
    "limited": LIMITED,
    "aligned": ALIGNED,
    "harmless": HARMLESS,
    "parted": PARTED,
    "one": ONE,
    "alone": ALONE,
    "victims": VICTIMS_ALONE,
    "empty": EMPTY,
    "repeated": REPEATED,
}


def plain(report: Report) -> str:
    return to_text(report, color=False)


def section(text: str, label: str) -> str:
    """Return the text under one label."""
    found = re.search(rf"^  {re.escape(label)} +(.*(?:\n {{13}}.*)*)", text, re.MULTILINE)
    assert found, f"no line {label!r} in\n{text}"
    return found[1]


# -- the headline


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (ALIGNED, "aligned (428 calls compared, 161 parameters, 106 buffers, worst output difference 3.1e-07)"),
        (HARMLESS, "aligned (4 calls compared)"),
        (
            PARTED,
            "not aligned: 3 sources in 9 places (452 calls compared, 40 parameters, worst output difference 0.0012)",
        ),
        (ONE, "not aligned: 1 source (10 calls compared, 4 parameters, worst output difference 0.0001)"),
        (ALONE, "not aligned: 1 place without counterpart, hence not compared (9 calls compared)"),
        (VICTIMS_ALONE, "not aligned: 2 values differ, no source was found (11 calls compared)"),
        (EMPTY, "aligned"),
        (LIMITED, "aligned, forward only (3 calls compared)"),
        (ASKED, "aligned, forward only (3 calls compared, 2 ignored, nothing else was compared, as asked)"),
        (
            attrs.evolve(ONE, forward_only="it has none"),
            "not aligned, forward only: 1 source (10 calls compared, 4 parameters, worst output difference 0.0001)",
        ),
    ],
)
def test_the_verdict_is_the_first_line(report: Report, said: str) -> None:
    assert headline(report) == said
    assert plain(report).splitlines()[0] == said


def test_what_was_not_compared_is_not_counted_as_compared() -> None:
    counts = {"equal": 1, "unmatched": 5, "ignored": 5, "stochastic": 5}
    assert headline(Report((), (), counts=counts)) == "aligned (1 call compared, 5 ignored)"


# -- sources


def test_a_source_names_both_places_the_cause_and_the_figures() -> None:
    text = plain(ONE)
    assert "source 1 of 1  forward: output differs" in text
    assert section(text, "reference").split() == [
        "encoder.layers.3.norm1",
        "torch.nn.modules.normalization.LayerNorm",
        "/w/my_port/torch_model.py:41",
    ]
    assert section(text, "candidate").split() == [
        "blocks.3.ln1",
        "paddle.nn.layer.norm.LayerNorm",
        "/w/my_port/paddle_model.py:38",
    ]
    assert section(text, "cause") == "eps: 1e-05 in the reference, 1e-12 in the candidate"
    far = section(text, "difference")
    assert far.startswith("1.6e-05 relative L2, at most 1.2e-05 in one element; rounding alone explains 8.7e-08")
    assert "in float64 still 1.6e-05: another computation, not another precision" in far
    assert section(text, "evidence") == FLOAT64
    assert section(text, "next").startswith("fix each source in the candidate, in any order")


def test_every_source_stands_before_everything_else() -> None:
    lines = plain(PARTED).splitlines()
    last = max(index for index, line in enumerate(lines) if line.startswith("source"))
    for label in (
        "downstream",
        "unmatched",
        "precision",
        "stochastic",
        "transfer",
        "notes",
        "verdicts",
        "next",
    ):
        (found,) = (index for index, line in enumerate(lines) if line.startswith(f"  {label} "))
        assert found > last


def test_the_same_fault_in_repeated_blocks_shares_a_block_and_counts_as_one() -> None:
    text = plain(PARTED)
    assert "source 1 of 3  forward: output differs" in text
    assert text.count("eps: ") == 1
    more = section(text, "also at")
    assert "encoder.layers.1.norm1 / blocks.1.ln1\n" in more
    assert more.endswith("... and 2 more (report.sources has all)")
    assert "at worst 2.9e-05 relative L2" in text


def test_one_setting_is_one_source_wherever_it_differs() -> None:
    """Sixty norms at sixty lines of code, set to one other epsilon, are one thing to mend."""
    sources = tuple(
        attrs.evolve(norm(0), candidate=Place(f"n{i}", "LayerNorm", f"/w/my_port/model.py:{i + 9}")) for i in range(60)
    )
    text = plain(Report(sources, sources))
    assert text.startswith("not aligned: 1 source in 60 places")
    assert "source 1 of 1  forward: output differs" in text


def test_one_setting_of_an_optimizer_is_one_source_of_one_step_and_of_many() -> None:
    """AMSGrad changes the step of one parameter at first, of more later on."""
    cause = Cause("optimizer_settings", {"amsgrad": {"reference": True, "candidate": None}})
    side, root = Place("a", "A"), Place("", "M")
    one = Finding(Verdict.DIFFERS, Phase.UPDATE, side, side, What("updated_parameter"), cause=cause)
    many = attrs.evolve(one, reference=root, candidate=root, what=What("updates", "2 parameters"), step=3)
    assert plain(Report((one, many), (one, many))).startswith("not aligned: 1 source in 2 places")


def test_one_line_is_one_source_wherever_it_runs() -> None:
    """Of one class at two places of lists; of a function that layers of many classes call, of many sizes."""
    gates = [
        attrs.evolve(norm(0), what=What("input_gradient", "x", 0, f"steps.{block}"), cause=None, phase=Phase.BACKWARD)
        for block in range(2)
    ]
    sources = tuple(attrs.evolve(one, candidate=Place(f"n{i}", "N", "/w/n.py:3")) for i, one in enumerate(gates))
    ran = [ComparedCall(Verdict.DIFFERS, one.reference, one.candidate) for one in sources]
    assert plain(Report(sources, sources, calls=tuple(ran))).startswith("not aligned: 1 source in 2 places")
    causes = (Cause("code", {"reference": "f(_)", "candidate": f"g(_, [{size}])"}, verified=True) for size in (2, 3))
    sources = tuple(
        attrs.evolve(
            norm(i), candidate=Place(f"n{i}", f"N{i}", "/w/n.py:3"), what=What("input", "x", 0, f"l{i}"), cause=one
        )
        for i, one in enumerate(causes)
    )
    beside = attrs.evolve(sources[1], cause=None, between=("l1", "end"))
    sources = sources[0], attrs.evolve(sources[1], between=("start", "l1")), beside
    text = plain(Report(sources, sources))
    assert text.startswith("not aligned: 1 source in 3 places")
    assert all(f"g(_, [{size}])" in text for size in (2, 3)), text


def test_one_line_is_one_source_wherever_recorded_runs_show_it() -> None:
    """Two networks of one class, each of two blocks: what stands behind the first was given other values."""
    places = [Place(f"{net}.{i}", "B", "/w/n.py:3") for net in ("a", "b") for i in range(2)]
    unlike = attrs.evolve(norm(0), cause=None, between=("start", "l"))
    sources = tuple(attrs.evolve(unlike, reference=place, candidate=place) for place in places[::2])
    assert unlike.figures is not None
    size = unlike.figures.rel_l2
    for behind, said in ((0.5, "1 source in 2 places"), (0.01, "2 sources")):
        errors = [attrs.evolve(unlike.figures, rel_l2=size * (behind if i % 2 else 1)) for i in range(4)]
        ran = (ComparedCall(Verdict.DIFFERS, one, one, forced=error) for one, error in zip(places, errors, strict=True))
        runs = RecordedRuns(("a", "b"), "tensors", (0,))
        assert plain(Report(sources, sources, calls=tuple(ran), recorded=runs)).startswith(f"not aligned: {said}")


def test_a_line_that_leaves_out_an_argument_is_one_source() -> None:
    """No block holds what its line does not give; another number may be what each holds."""
    for given, said in (("up(_)", "1 source in 2 places"), ("up(_, corners=False)", "2 sources")):
        cause = Cause("arguments", {"reference": "up(_, corners=True)", "candidate": given}, verified=True)
        places = (Place(f"blocks.{i}.up", "N", "/w/n.py:3") for i in range(3))
        every = tuple(attrs.evolve(norm(i), candidate=one, cause=cause) for i, one in enumerate(places))
        ran = tuple(ComparedCall(Verdict.DIFFERS, one.reference, one.candidate) for one in every)
        sources = every[:2]  # the third one does not come to that line
        assert plain(Report(sources, sources, calls=ran)).startswith(f"not aligned: {said}")


def test_a_line_that_is_known_to_be_wrong_is_so_where_no_cause_is_known() -> None:
    """Of a norm that two stacks leave out in front of a layer, one call of which has no counterpart."""
    cause = Cause("code_alone", {"side": "reference", "called": ["norm(_)"]}, verified=True)
    known = attrs.evolve(norm(0), candidate=Place("encoder", "Stack", "/w/n.py:3"), between=("block", "end"))
    decoder = Place("decoder", "Stack", "/w/n.py:3")
    unknown = attrs.evolve(norm(1), candidate=decoder, between=("block", "drop"), cause=None)
    known = attrs.evolve(known, cause=cause)
    for sources in ((known, unknown), (unknown, known)):
        assert plain(Report(sources, sources)).startswith("not aligned: 1 source in 2 places")
    for where in (Place("decoder", "Stack", "/w/n.py:4"), Place("decoder", "Other", "/w/n.py:3")):
        apart = known, attrs.evolve(unknown, candidate=where)
        assert plain(Report(apart, apart)).startswith("not aligned: 2 sources")


def test_a_call_may_show_more_of_what_is_wrong_than_another() -> None:
    """Of routed experts, each call of which is another fault's victim as chance has it."""
    blocks = [
        attrs.evolve(norm(i), candidate=Place(f"blocks.{i}", "B", "/w/n.py:3"), cause=None, between=("r", "end"))
        for i in range(3)
    ]
    ran = tuple(ComparedCall(Verdict.DIFFERS, one.reference, one.candidate) for one in blocks)
    for first, more in ((0, 1), (1, 2), (2, 0)):
        beside = attrs.evolve(blocks[more], what=What("input", "x", 0, "e.1"), between=("r", "e.1"))
        sources = blocks[first], beside, blocks[more], *(one for i, one in enumerate(blocks) if i not in (first, more))
        assert plain(Report(sources, sources, calls=ran)).startswith("not aligned: 1 source in 4 places")
        # Where one of them is right, what each call holds may be it.
        assert plain(Report(sources[:3], sources[:3], calls=ran)).startswith("not aligned: 2 sources in 3 places")


def test_sources_of_unknown_code_are_never_put_together() -> None:
    side = Place("a", "A")
    sources = tuple(Finding(Verdict.DIFFERS, Phase.FORWARD, side, side, OUTPUT, source=True) for _ in range(3))
    assert plain(Report(sources, sources)).count("forward: output differs") == 3


def test_gradients_that_one_call_makes_are_one_source() -> None:
    """Of weight and bias: an activation of a norm that differs at zero alone."""
    found = [
        attrs.evolve(norm(block), phase=Phase.BACKWARD, what=What("parameter_gradient", name), cause=None)
        for block in (0, 1)
        for name in ("weight", "bias")
    ]
    text = str(attrs.evolve(ALIGNED, sources=tuple(found), findings=tuple(found)))
    assert text.startswith("not aligned: 2 sources in 4 places")


@pytest.mark.parametrize(
    ("between", "said"),
    [
        (("q", "out"), "the module's own code, between the candidate's q and out"),
        (("start", "q"), "the module's own code, before the candidate's q"),
        (("out", "end"), "the module's own code, after the candidate's out"),
        (("start", "end"), "the module's own code, all of it"),
    ],
)
def test_glue_is_placed_between_children(between: tuple[str, str], said: str) -> None:
    source = attrs.evolve(GLUE, between=between)
    assert section(plain(Report((source,), (source,))), "where") == said


def test_a_repeated_call_the_root_and_a_missing_side_have_names() -> None:
    text = plain(PARTED)
    assert "blocks.2.attention (call 2)" in text
    assert "(the model itself)" in text
    source = attrs.evolve(UNMATCHED, source=True)
    text = plain(Report((source,), (source,)))
    assert "forward: output [1] has no counterpart" in text
    assert section(text, "reference") == "(no counterpart)"
    assert text.count("blocks.0.extra") == 1


def test_steps_are_named_where_there_are_several() -> None:
    weight = attrs.evolve(norm(0), phase=Phase.UPDATE, what=What("updated_parameter", "weight"), step=2)
    assert "update, step 3: weight after the step differs" in plain(Report((weight,), (weight,)))
    assert "step" not in plain(ONE)


WEIGHT = What("updated_parameter", "weight")
LR = Cause("optimizer_settings", {"lr": {"reference": "0.1", "candidate": "0.2"}})


def updated(path: str, *steps: int) -> list[Finding]:
    """Return a weight that an optimizer moved elsewhere, in some steps."""
    side = Place(path, "Linear", "/w/my_port/model.py:9")
    return [
        Finding(Verdict.DIFFERS, Phase.UPDATE, side, side, WEIGHT, cause=LR, source=True, step=step) for step in steps
    ]


def test_a_fault_of_several_steps_names_each_place_once_with_its_steps() -> None:
    sources = tuple(
        sorted([*updated("a", 0, 1, 2), *updated("b", 0, 1, 2), *updated("c", 1)], key=lambda found: found.step)
    )
    text = plain(Report(sources, sources))
    assert "source 1 of 1  update, steps 1-3: weight after the step differs" in text
    assert section(text, "also at").split("\n             ") == ["b", "c (step 2)"]


def test_the_calling_frames_are_there() -> None:
    frames = (f"{GLUE.candidate.location} in f", "port.py:3 in f", "port.py:9 in g", "run.py:1 in main")
    side = attrs.evolve(GLUE.candidate, stack=frames)
    source = attrs.evolve(GLUE, candidate=side)
    assert section(plain(Report((source,), (source,))), "called by") == "candidate: port.py:3 in f < port.py:9 in g"


def test_figures_that_are_no_numbers_are_told() -> None:
    text = plain(Report((BACKWARD,), (BACKWARD,)))
    assert "inf relative L2, at most NaN in one element" in text
    assert "not finite: NaN or Inf" in text


MEASURED = (
    Measurement("cosine", 0.99871234, limit=0.999, passes=False),
    Measurement("snr", 41.25, "dB", limit=40.0, passes=True),
    Measurement("ulp", math.nan),
)


def test_what_plugins_measured_stands_by_the_figures() -> None:
    figures = attrs.evolve(norm(0).figures, metrics=MEASURED)
    source = attrs.evolve(norm(0), figures=figures)
    report = Report((source,), (source,), output=Figures(1.0, 2.0, metrics=MEASURED[1:]))
    said = "cosine 0.99871234 (outside its limit 0.999), snr 41.25 dB (within its limit 40), ulp NaN"
    assert section(plain(report), "difference").endswith(f"\n             {said}")
    assert section(plain(report), "output").endswith("\n             snr 41.25 dB (within its limit 40), ulp NaN")
    data = report.to_dict()["sources"][0]["figures"]["metrics"]
    assert data[0] == {"name": "cosine", "value": 0.99871234, "unit": "", "limit": 0.999, "passes": False}
    assert (data[1]["unit"], data[2]["value"], data[2]["passes"]) == ("dB", "NaN", None)


def test_a_location_below_the_working_directory_is_relative(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    side = Place("a", "A", f"{tmp_path}/port.py:3")
    source = Finding(Verdict.DIFFERS, Phase.FORWARD, side, side, OUTPUT, source=True)
    assert section(plain(Report((source,), (source,))), "candidate") == "a  A  port.py:3"


# -- what stands below


def test_victims_are_counted_and_the_first_are_named() -> None:
    said = section(plain(PARTED), "downstream")
    assert said.startswith("of the sources above, 14 values differ: head.0 forward output, ")
    assert said.endswith("head.4 forward output, ... and 9 more")


def test_the_unmatched_are_named_with_their_side_and_what_to_do() -> None:
    text = plain(ALONE)
    about = "(paddle.nn.layer.activation.ReLU, /w/my_port/paddle_model.py:50)"
    assert section(text, "unmatched").startswith(f"only in the candidate: blocks.0.extra {about}")
    assert "LayerMap" in section(text, "next")


def test_harmless_verdicts_are_told_apart() -> None:
    text = plain(HARMLESS)
    assert section(text, "precision").startswith("1 value, the same in float64")
    assert section(text, "stochastic").endswith("drop forward output")
    assert "next" not in text


def test_an_unverified_transfer_is_told() -> None:
    said = section(plain(PARTED), "transfer")
    assert said.startswith("40 parameters copied from the reference, 37 verified\n")
    assert "3 not verified" in said
    assert "blocks.1.b" in said
    assert "1 only in the candidate: blocks.0.extra.weight" in said
    assert "blocks.0.proj.weight (transposed)" in said


def test_parameters_and_buffers_are_told_apart() -> None:
    assert (
        section(plain(ALIGNED), "transfer") == "161 parameters and 106 buffers copied from the reference, all verified"
    )
    assert section(plain(ONE), "transfer") == "4 parameters copied from the reference, all verified"


def test_calls_of_one_side_are_counted_apart_from_those_that_were_judged() -> None:
    said = "12 equal, 416 rounding, 23 differs, 1 stochastic, 1 precision; 1 call on one side only, "
    assert section(plain(PARTED), "verdicts") == said + "judged with the code around"


def test_notes_name_their_place() -> None:
    assert section(plain(ALIGNED), "notes").startswith("bn1: momentum: 0.1 in the reference, 0.2 in the candidate")


def test_what_repeated_layers_share_is_said_once() -> None:
    at = [Place(path, "Linear") for path in ("layers.0.q", "layers.1.q", "layers.1.k", "stem")]
    noted = attrs.evolve(ALIGNED, notes=tuple(Note("one_side_call", {"side": "reference"}, one) for one in at))
    assert section(plain(noted), "notes").split(": ")[0] == "layers.*.q (2 of them), layers.1.k, stem"
    left = attrs.evolve(ALIGNED, coverage=Coverage(6, 9, tuple(at[:3])))
    assert section(plain(left), "coverage").endswith("made in layers.*.q (2 of them), layers.1.k")


# -- how it looks


def test_a_long_report_is_cut_and_says_where_the_rest_is() -> None:
    side = [Place(f"layer{index}", "Layer") for index in range(3000)]
    sources = tuple(
        Finding(Verdict.DIFFERS, Phase.FORWARD, at, at, OUTPUT, evidence=(FLOAT64,) * 50, source=True)
        for at in side[:100]
    )
    victims = tuple(Finding(Verdict.DIFFERS, Phase.FORWARD, at, at, OUTPUT) for at in side)
    alone = tuple(Finding(Verdict.UNMATCHED, Phase.FORWARD, Place(None), at, What("output", "[1]")) for at in side)
    paths = tuple(at.path or "" for at in side)
    report = Report(
        sources,
        (*sources, *victims, *alone),
        notes=tuple(Note("metric_failed", {"said": path}) for path in paths),
        transfer=Transfer(1, 0, paths, paths, paths, dict.fromkeys(paths, "layout")),
    )
    text = plain(report)
    assert len(text) < 10_000
    assert "... and 88 more sources (report.sources has all)" in text
    assert "... and 2995 more (report.unmatched has all)" in text
    assert "... and 2990 more (report.notes has all)" in text


@pytest.mark.parametrize("name", EVERY)
def test_in_a_pipe_it_is_plain_ascii_and_no_line_is_wrapped(name: str) -> None:
    text = str(EVERY[name])
    assert text.isascii()
    assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}
    assert all(line == line.rstrip() for line in text.splitlines())
    assert len(text.splitlines()) == len(to_text(EVERY[name], width=10_000).splitlines())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_colour_and_width_change_the_look_alone(name: str, width: int) -> None:
    report = EVERY[name]
    text = to_text(report, width=width, color=True)
    assert ANSI.search(text)
    bare = ANSI.sub("", text)
    assert max(map(len, bare.splitlines())) <= width
    if width >= 80:
        assert bare.split() == plain(report).split()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = str(PARTED)
    assert ANSI.search(text)
    assert max(map(len, ANSI.sub("", text).splitlines())) <= 60
    monkeypatch.setenv("NO_COLOR", "1")
    assert not ANSI.search(str(PARTED))


def test_brackets_are_text_and_no_markup() -> None:
    name = "[red]x[/red] :smile:"
    cause = Cause("inputs", {"name": name})
    source = attrs.evolve(GLUE, what=What("output", "[0]['bold']"), cause=cause)
    bare = ANSI.sub("", to_text(Report((source,), (source,)), width=200, color=True))
    assert "output [0]['bold'] differs" in bare
    assert name in bare


def test_a_tolerance_is_shown_and_what_is_within_it_is_called_so() -> None:
    text = plain(TOLERATED)
    assert section(text, "tolerance") == "every |candidate - reference| <= 10 + 1e-07 * |reference| (strict)"
    assert section(text, "output").endswith("each model run freely; within tolerance")
    assert section(text, "verdicts") == "1 equal, 2 within tolerance"
    assert "rounding" not in text
    bounded = attrs.evolve(TOLERATED, tolerance={"metric": "cosine", "min": 0.99, "max": None})
    assert section(plain(bounded), "tolerance") == "0.99 <= cosine"


def test_evidence_that_several_sources_share_is_printed_once() -> None:
    text = plain(PARTED)
    assert text.count(str(FLOAT64)) == 1
    assert f"  evidence   all sources: {FLOAT64}\n" in plain(REPEATED)
    assert f"  evidence   sources 1-2: {FLOAT64}\n" in text
    assert f"  evidence   {GLUE.evidence[1]}\n" in text


def test_causes_that_differ_in_whole_numbers_alone_are_told_once() -> None:
    """Of a loop of 40 steps, each of which takes another index, a line said the same 40 times."""

    def cause(*called: str) -> str:
        return str(
            Cause(
                "several", {"causes": [Cause("code_alone", {"side": "reference", "called": [one]}) for one in called]}
            )
        )

    taken = [f"getitem(_, (:, {step}))" for step in range(1, 5)]
    assert cause(*taken[:2]) == f"{taken[0]} in the reference only; and {taken[1]} in the reference only"
    assert cause("add(_, _)", *taken) == (
        f"add(_, _) in the reference only; and {taken[0]} in the reference only; "
        "and 3 more that differ from this in numbers alone"
    )
    assert cause("mul(_, 1.5)", "mul(_, 2.5)", "mul(_, 3.5)").count("mul") == 3


def test_the_next_step_is_printed_where_it_follows() -> None:
    assert "next" not in plain(ALIGNED)
    given = attrs.evolve(norm(0), cause=Cause("inputs", {"name": "x"}))
    assert section(plain(Report((given,), (given,))), "next") == "give both models the same inputs, and compare again"
    other = attrs.evolve(given, what=What("input", "y"), cause=Cause("inputs", {"name": "y"}))
    given = attrs.evolve(given, what=What("input", "x"))
    assert plain(Report((given, other), (given, other))).startswith("not aligned: 1 source in 2 places")
    mode = attrs.evolve(norm(0), cause=Cause("settings", {"training": {"reference": "True", "candidate": "False"}}))
    said = section(plain(Report((mode,), (mode,))), "next")
    assert said == "call .eval(), or .train(), on both models (MindSpore: set_train), and compare again"
    missing = attrs.evolve(UNMATCHED, source=True)
    said = section(plain(Report((missing,), (missing,))), "next")
    assert "LayerMap" in said
    assert "fix" not in said


def test_the_mapping_can_be_read() -> None:
    assert str(MAPPED.mapping).splitlines() == [
        "matched modules (reference, candidate, why)",
        "  (the model itself)  (the model itself)  the root",
        "  layer.0             block               same place",
        "  only in the candidate: extra",
        "matched parameters (reference, candidate, layout)",
        "  layer.0.weight  block.weight  transposed",
        "  only in the candidate: extra.bias",
    ]


def test_the_raw_representation_is_one_short_line() -> None:
    assert repr(PARTED) == "<Report: not aligned: 3 sources in 9 places>"
    assert repr(ALIGNED) == "<Report: aligned>"


def test_a_notebook_shows_the_text_and_takes_nothing_of_it_for_markup() -> None:
    shown = ONE._repr_html_()
    assert shown.startswith("<pre>not aligned: 1 source")
    assert max(map(len, shown.splitlines())) <= 110 + len("</pre>")
    name = attrs.evolve(GLUE, what=What("output", "<script>"))
    assert "<script>" not in Report((name,), (name,))._repr_html_()


# -- words of data


def test_words_are_views_of_data() -> None:
    source = norm(0)
    assert source.cause == "eps: 1e-05 in the reference, 1e-12 in the candidate" == str(source.cause)
    assert source.cause is not None
    assert "eps" in source.cause
    assert (source.cause.name, source.cause.parameters["eps"]["candidate"]) == ("settings", "1e-12")
    assert (GLUE.what, GLUE.what.kind, GLUE.what.name, GLUE.what.index) == ("input 'x' of out", "input", "x", 0)
    assert (source.evidence[0].kind, source.evidence[0].figures) == ("float64_differs", {"bound": 6e-8})
    assert NOTE.text == "momentum: 0.1 in the reference, 0.2 in the candidate; no effect here"


def test_a_report_survives_copying_and_pickling() -> None:
    for report in EVERY.values():
        again = pickle.loads(pickle.dumps(report))
        assert again.to_json() == copy.deepcopy(report).to_json() == report.to_json()


# -- formats


def test_the_built_in_formats_are_what_their_methods_give() -> None:
    assert PARTED.render() == PARTED.render("text") == plain(PARTED)
    assert PARTED.render("json") == PARTED.to_json()


def test_an_unknown_format_names_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"there is no format 'pdf'\.\nHint: one of 'text', 'json'"):
        PARTED.render("pdf")


# -- data


@pytest.mark.parametrize("name", EVERY)
def test_json_is_strict_and_the_same_as_the_dict(name: str) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    report = EVERY[name]
    for indent in (None, 2):
        assert json.loads(report.to_json(indent=indent), parse_constant=refuse) == report.to_dict()


def test_the_dict_holds_the_report() -> None:
    data = PARTED.to_dict()
    assert data["schema"] == SCHEMA == "padiff.report/2"
    assert data["aligned"] is False
    assert len(data["sources"]) == 9
    assert len(data["findings"]) == len(PARTED.findings)
    assert data["sources"][0] == data["findings"][0]
    first = data["sources"][0]
    assert (first["verdict"], first["phase"]) == ("differs", "forward")
    assert first["candidate"]["path"] == "blocks.0.ln1"
    assert first["figures"]["rel_l2"] == 4.1e-6
    assert data["sources"][1]["between"] == ["v", "out"]
    assert data["loss"] == [2.3025851, 2.31]
    assert ALIGNED.to_dict()["aligned"] is True
    assert ALIGNED.to_dict()["forward_only"] is None
    assert LIMITED.to_dict()["forward_only"] == "the acme adapter does not offer gradients"


def test_what_json_has_no_number_for_is_a_string_that_float_reads() -> None:
    data = Report((), (), output=Figures(math.inf, math.nan, -math.inf)).to_dict()["output"]
    none = {"rel_l2_float64": None, "metrics": [], "estimated": None, "not_finite": None}
    assert data == {"rel_l2": "Infinity", "max_abs": "NaN", "floor": "-Infinity", **none}
    assert float(data["rel_l2"]) == math.inf


def test_numpy_scalars_and_verdicts_as_keys_become_plain() -> None:
    figures = Figures(np.float32(0.5), np.float64(2))  # type: ignore[arg-type]
    report = Report((), (), counts={Verdict.EQUAL: np.int64(3)}, output=figures)  # type: ignore[dict-item]
    data = json.loads(report.to_json())
    assert data["output"]["rel_l2"] == 0.5
    assert data["counts"] == {"equal": 3}


# -- the documentation


def documented() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each class of docs/report.md with the types of its keys."""
    for part in DOCS.joinpath("report.md").read_text().split("\n### ")[1:]:
        yield part.split("\n", 1)[0], dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", part, re.MULTILINE))


def test_the_documented_keys_are_the_real_ones() -> None:
    tables = dict(documented())
    assert list(tables) == [
        *("Report", "Finding", "What", "Cause", "Evidence", "Place", "Figures", "Measurement", "Note", "Transfer"),
        *("Coverage", "FreeRuns", "RecordedRuns"),
        *("Matching", "MatchedModules", "MatchedParameters", "ComparedCall"),
    ]
    assert list(tables["Report"]) == list(PARTED.to_dict())
    for name, keys in tables.items():
        fields = [field.name for field in attrs.fields(getattr(reports, name))]
        fields = ["text", *fields] if name in ("What", "Cause", "Evidence", "Note") else fields
        extra = {"schema", "aligned"} if name == "Report" else set()
        assert set(keys) == set(fields) | extra
        if name != "Report":
            assert list(keys) == fields


@pytest.mark.parametrize("name", EVERY)
def test_the_documented_types_are_the_real_ones(name: str) -> None:
    tables = dict(documented())

    def fits(value: Any, kind: str) -> bool:
        if " or " in kind:
            return any(fits(value, one) for one in kind.split(" or "))
        outer, _, inner = kind.partition(" of ")
        if outer == "array":
            return isinstance(value, list) and all(fits(item, inner) for item in value)
        if outer == "object":
            return isinstance(value, dict) and all(fits(item, inner) for item in value.values())
        if outer == "any":
            return True
        if outer in tables:
            return isinstance(value, dict) and all(fits(value[key], of) for key, of in tables[outer].items())
        if outer == "number":
            return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")
        return type(value) is {"string": str, "boolean": bool, "integer": int, "null": type(None)}[outer]

    data = json.loads(EVERY[name].to_json())
    assert [key for key, kind in tables["Report"].items() if not fits(data[key], kind)] == []


def test_the_documented_words_are_the_real_ones() -> None:
    tables = DOCS.joinpath("report.md").read_text().split("### Finding")[1]
    for words, kind in (("`verdict` | string | ", Verdict), ("`phase` | string | ", Phase)):
        row = tables.split(words)[1].splitlines()[0]
        assert re.findall(r"`([\w ]+)`", row) == [str(one) for one in kind]


def test_many_parameters_of_other_shapes_are_one_block() -> None:
    import torch

    def build(width: int) -> torch.nn.Module:
        return torch.nn.Sequential(*(torch.nn.LayerNorm(width) for _ in range(4)), torch.nn.Linear(width, 3))

    class Fitted(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.enter, self.body = torch.nn.Linear(8, width), build(width)

        def forward(self, x: object) -> object:
            return self.body(self.enter(x))

    torch.manual_seed(0)
    report = padiff.diff(Fitted(384), Fitted(768), (np.ones((2, 8), np.float32),))
    said = report.render()
    assert "these are one architecture in two sizes" in said
    assert "enter.weight: [384, 8] in the reference, [768, 8] in the candidate" in said
    assert "body.*.weight: [384] in the reference, [768] in the candidate (4 of them)" in said
    assert said.count("\nsource") <= 2, said
    assert "build both models in the same sizes" in said
