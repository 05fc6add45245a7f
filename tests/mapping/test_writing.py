"""What `padiff map` writes leads where it was found to lead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import padiff
from padiff.alignment import MappingFile, read_mapping, resolved_file, written_mapping
from padiff.alignment._mapping_yaml import Names, by_scope, follow
from padiff.cli import main
from padiff.engine import mapping_of_runs
from padiff.plugins import adapter_for
from padiff.recording import describe
from padiff.report import MatchedModules, Matching
from padiff.trace import Description, ModuleDescription, ModuleRecord

from .gpt import DOCUMENT, PAIRS, left, right, tokens
from .kits import toy_kits

Write = Callable[[str], str]
LEFT, RIGHT = toy_kits()


def about(model: Any) -> Description:
    return describe(adapter_for(model).wrap(model))


def told(report: padiff.Report) -> tuple[set[tuple[str, str]], set[tuple[Any, ...]]]:
    return (
        {(one.reference, one.candidate) for one in report.mapping.modules},
        {(one.reference, one.candidate, one.layout) for one in report.mapping.parameters},
    )


def test_what_is_written_of_the_documents_models_says_what_the_document_says(write: Write) -> None:
    models = left(LEFT), right(RIGHT)
    report = padiff.diff(*models, tokens())
    text = written_mapping(report.mapping, *map(about, models))
    assert text.splitlines()[:7] == [line.replace("    ", "  ") for line in DOCUMENT.splitlines()[:7]]
    sections = {rule.text for rule in read_mapping(write(text)).rules}
    assert {rule.text for rule in read_mapping(write(DOCUMENT)).rules} <= sections
    assert len(sections) == 11  # and the names of the norms and of the attention's layers, which it leaves open
    again = padiff.diff(left(LEFT), right(RIGHT), tokens(), mapping=write(text))
    assert again.aligned
    assert told(again) == told(report)
    assert dict(told(again)[0]) == PAIRS
    assert written_mapping(again.mapping, *map(about, models)) == text


def test_of_recorded_runs_the_same_is_written(tmp_path: Path) -> None:
    models = left(LEFT), right(RIGHT)
    for name, values, model in zip("ab", ("tensors", "structure"), models, strict=True):
        with padiff.record(model, tmp_path / name, values=values) as recorder:
            model(**tokens())
            recorder.step()
    text = mapping_of_runs(tmp_path / "a", tmp_path / "b")
    assert main(["map", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "mapping.yaml")]) == 0
    assert (tmp_path / "mapping.yaml").read_text() == text
    assert main(["map", str(tmp_path / "a"), str(tmp_path / "b"), "--step", "0"]) == 0
    assert main(["map", str(tmp_path / "a"), str(tmp_path / "b"), "--step", "5"]) == 2
    assert main(["map", str(tmp_path / "a"), "port:right"]) == 2
    assert text.endswith(written_mapping(padiff.diff(*models, tokens()).mapping, *map(about, models)) + "\n")
    assert "# only on the left: module.module.language_model\n" in text


def test_models_of_equal_names_need_no_line() -> None:
    models = left(LEFT), left(RIGHT)
    assert written_mapping(padiff.diff(*models, tokens()).mapping, *map(about, models)) == ""


# Any two trees ----------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "c", "0", "1", "on", "x y", "k:v", "#", "q'q"])
_TREES = st.recursive(st.just({}), lambda inner: st.dictionaries(_NAMES, inner, max_size=3), max_leaves=10)


def _paths(tree: dict[str, Any], top: str = "") -> list[str]:
    found = [top]
    for name, inner in tree.items():
        found += _paths(inner, f"{top}.{name}" if top else name)
    return found


def _described(paths: list[str], classes: list[str]) -> Description:
    modules = {
        path: ModuleDescription(ModuleRecord(path, f"some.{name}"), {})
        for path, name in zip(paths, classes, strict=True)
    }
    return Description("toy", "Net", frozenset(), "cpu", True, {}, modules, {})


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_matching_is_read_as_it_was_written(tmp_path_factory: Any, data: st.DataObject) -> None:
    sides = [_paths(data.draw(_TREES)) for _ in range(2)]
    classes = [data.draw(st.lists(st.sampled_from("ABC"), min_size=len(p), max_size=len(p))) for p in sides]
    models = [_described(paths, names) for paths, names in zip(sides, classes, strict=True)]
    order = data.draw(st.permutations(sides[1][1:]))
    chosen = [path for path in sides[0][1:] if data.draw(st.booleans())]
    pairs = dict(zip(chosen, order, strict=False))
    matching = Matching(tuple(MatchedModules(a, b, "", "", "") for a, b in [("", ""), *pairs.items()]))
    text = written_mapping(matching, *models)
    path = tmp_path_factory.mktemp("any") / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    file = read_mapping(path)
    assert {a: follow(by_scope(file.rules), Names(models[0]), a)[0] for a in pairs} == pairs
    found = resolved_file(MappingFile(file.name, file.rules), *models).called
    assert {a: found.get(a) for a in pairs} == pairs, text
