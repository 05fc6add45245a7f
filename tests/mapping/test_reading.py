"""What a mapping file says of two models, and how it is told what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import padiff
from padiff.alignment import read_mapping, resolved_file
from padiff.alignment._mapping_yaml import Names, by_scope, follow
from padiff.plugins import adapter_for
from padiff.recording import describe
from padiff.trace import Description

from .gpt import DOCUMENT, PAIRS, left, right, tokens
from .kits import toy_kits

Write = Callable[[str], str]
LEFT, RIGHT = toy_kits()


def about(model: Any) -> Description:
    return describe(adapter_for(model).wrap(model))


def pairs_of(text: str, write: Write) -> dict[str, str]:
    return dict(resolved_file(read_mapping(write(text)), about(left(LEFT)), about(right(RIGHT))).called)


def matched(report: padiff.Report) -> dict[str, str]:
    return {one.reference: one.candidate for one in report.mapping.modules}


# Document 004 -----------------------------------------------------------------------------------------------


def test_the_file_of_the_document_says_what_the_document_says(write: Write) -> None:
    found = pairs_of(DOCUMENT, write)
    # What the document prints leaves the names of the norms and of the attention's layers open.
    unsaid = ("norm", "query_key_value", "dense")
    assert {a: b for a, b in PAIRS.items() if not a.endswith(unsaid)}.items() <= found.items()
    assert "module.module.language_model" not in found
    containers = {a for a in found if a.endswith("layers")}
    assert found.keys() - containers <= PAIRS.keys()


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "by itself"])
def test_the_models_of_the_document_match_with_its_file_and_without(write: Write, mapped: bool) -> None:
    mapping = write(DOCUMENT) if mapped else None
    report = padiff.diff(left(LEFT), right(RIGHT), tokens(), mapping=mapping)
    assert report.aligned, str(report)
    assert matched(report) == PAIRS
    assert report.mapping.unmatched_modules["reference"] == ("module.module.language_model",)
    told = {one.candidate for one in report.mapping.modules if one.why == "named by the mapping file"}
    assert bool(told) is mapped
    assert not any(note.kind.startswith("mapping") for note in report.notes)


def test_what_is_inside_of_what_a_file_names_is_compared(write: Write) -> None:
    report = padiff.diff(left(LEFT), right(RIGHT, lambda x: x * 1.5), tokens(), mapping=write(DOCUMENT))
    assert [f.candidate.path for f in report.sources] == ["model.module.decoder.layers.1.self_attention"], str(report)


def test_a_file_the_other_way_round_is_read_so(write: Write) -> None:
    report = padiff.diff(right(LEFT), left(RIGHT), tokens(), mapping=write(DOCUMENT))
    assert report.aligned
    assert matched(report) == {b: a for a, b in PAIRS.items()}
    assert [note.kind for note in report.notes if note.kind.startswith("mapping")] == ["mapping_inverted"]


# Rules ------------------------------------------------------------------------------------------------------


def test_the_longest_name_comes_first(write: Write) -> None:
    text = "TopLayer: {module: model}\nGPTModel: {language_model: x, language_model.encoder: decoder}"
    rules, of = by_scope(read_mapping(write(text)).rules), Names(about(left(LEFT)))
    found, _ = follow(rules, of, "module.module.language_model.encoder.layers.1")
    assert found == "model.module.decoder.layers.1"
    assert follow(rules, of, "module.module.language_model.embedding")[0] == "model.module.x.embedding"


def test_the_top_layer_has_an_older_name_and_the_one_of_its_class(write: Write) -> None:
    for scope in ("TopLayer", "Cell", "DistributedDataParallel"):
        assert pairs_of(f"{scope}: {{module: model}}", write)["module"] == "model"


def test_a_container_has_its_own_name_for_a_class(write: Write) -> None:
    text = "TopLayer: {module: model}\nGPTModel: {language_model.encoder: decoder}\nlayers: {0: 1, 1: 0}"
    found = pairs_of(text, write)
    assert found["module.module.language_model.encoder.layers.0"] == "model.module.decoder.layers.1"


def test_a_remark_in_parentheses_is_none_of_the_name(write: Write) -> None:
    assert pairs_of("TopLayer: {module: model(FloatModule)}", write)["module"] == "model"


def test_rules_that_did_nothing_are_notes(write: Write) -> None:
    text = DOCUMENT + "GPTModle: {encoder: decoder}\nParallelAttention: {query_key_valu: linear_qkv}\n"
    report = padiff.diff(left(LEFT), right(RIGHT), tokens(), mapping=write(text))
    notes = [note.text for note in report.notes if note.kind == "mapping_rule_unused"]
    assert len(notes) == 2, notes
    assert "mapping.yaml:12:12 (GPTModle: encoder: decoder)" in notes[0]
    assert "the left has no GPTModle; did you mean 'GPTModel'?" in notes[0]
    assert "did you mean 'query_key_value'?" in notes[1]


def test_blocks_that_a_file_exchanges_are_taken_at_its_word(write: Write) -> None:
    text = DOCUMENT + "layers: {0: 1, 1: 0}\n"
    report = padiff.diff(left(LEFT), right(RIGHT), tokens(), mapping=write(text))
    assert not report.aligned


# Errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("TopLayer:\n  module: model\n bad: x", ":3:2: no YAML", "TopLayer:"),
        ("TopLayer:\n\tmodule: model", ":2:1: no YAML", "TopLayer:"),
        ("a: {b: c}\n---\nd: {e: f}", ":2:1: no YAML", "TopLayer:"),
        ("- module: model", ":1:1: a list; expected sections", "TopLayer:"),
        ("module: model", ":1:9: 'model'; expected names", "TopLayer:"),
        ("A:\n  b: c\nA:\n  d: e", ":3:1: 'A' stands here a second time; first in line 1", "one section"),
        ("A:\n  b: c\n  b: d", ":3:3: 'b' stands here a second time; first in line 2", "has to go"),
        ("Cell: {b: c}\nTopLayer: {d: e}", ":2:1: 'TopLayer' stands here a second time", "one section"),
        ("A:\n  b:", ":2:5: 'b' names nothing", "needs no line"),
        ("A:\n  b: []", ":2:6: 'b' names nothing", "needs no line"),
        ("A:\n  b..c: d", ":2:3: 'b..c' has an empty step", "dots"),
        ("A:\n  b: c.", ":2:6: 'c.' has an empty step", "dots"),
        ("A:\n  b: [c, {d: e}]", ":2:10: a mapping; expected a name", "TopLayer:"),
        ("A:\n  b: {too: c}", ":2:7: there is no 'too'", "did you mean 'to'?"),
        ("A:\n  b: {layout: transposed}", ":2:6: 'b' has no `to`", "to: name"),
        ("A:\n  b: {to: c, layout: turned}", ":2:22: there is no layout 'turned'", "'transposed'"),
        ("A:\n  b: {to: [c, d], groups: x}", ":2:27: groups is 'x'", "heads"),
        ("A: !!python/object/apply:os.system ['true']", ":1:4: a list; expected names", "TopLayer:"),
    ],
)
def test_what_is_no_mapping_file_is_told_with_its_place(write: Write, text: str, place: str, said: str) -> None:
    with pytest.raises(padiff.MappingError) as caught:
        read_mapping(write(text))
    message, _, hint = str(caught.value).partition("\nHint: ")
    assert f"mapping.yaml{place}" in message
    assert said in hint


def test_a_name_that_the_right_does_not_have_is_an_error_with_the_nearest(write: Write) -> None:
    with pytest.raises(padiff.MappingError) as caught:
        pairs_of(DOCUMENT.replace("linear_fc1", "linear_fc11"), write)
    text = str(caught.value)
    assert "mapping.yaml:10:5: 'dense_h_to_4h' is mapped to 'linear_fc11' on the right" in text
    assert "'model.module.decoder.layers.0.mlp' has no such child" in text
    assert "did you mean 'linear_fc1'?" in text


def test_a_file_that_cannot_be_read_is_named(tmp_path: Any) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"A: {\xe9: b}")
    for name, said in (("gone.yaml", "No such file"), ("latin.yaml", "byte 4 is not UTF-8"), (".", "directory")):
        with pytest.raises(padiff.MappingError, match=said):
            read_mapping(tmp_path / name)


def test_names_stay_as_they_are_written(write: Write) -> None:
    file = read_mapping(write("A: {0: 1.10, on: no, 1e3: 0x10}"))
    assert [(rule.key, rule.to) for rule in file.rules] == [
        (("0",), ("1.10",)),
        (("on",), ("no",)),
        (("1e3",), ("0x10",)),
    ]


def test_an_empty_file_says_nothing(write: Write) -> None:
    for text in ("", "# nothing\n", "A:\n"):
        assert not read_mapping(write(text)).rules
