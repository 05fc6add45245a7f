"""The command line, with a diff that keeps what it was given; the shell's view is tested in processes."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import pytest

import padiff
from padiff import progress
from padiff.cli import main
from padiff.errors import InputError
from padiff.import_string import SpecError, load
from padiff.plugins import Contributed, Installed, Renderer, Row, State
from padiff.progress import shown, silenced
from padiff.report import Figures, Finding, Phase, Place, Report, Verdict, What

SIDE = Place("blocks.0.norm", "LayerNorm", "model.py:3")
SOURCE = Finding(Verdict.DIFFERS, Phase.FORWARD, SIDE, SIDE, What("output"), Figures(1e-3, 1e-2), source=True)
ALIGNED = Report((), (), counts={"equal": 3})
PARTED = Report((SOURCE,), (SOURCE,), counts={"equal": 2, "differs": 1})

PORT = """
import functools
print("chatter of the model")

class Model:
    def __call__(self, x):
        raise AssertionError("a model is not called to build it")

model = Model()
inputs = {"x": [1, 2]}

def build():
    return Model()

def build_deep(depth, width=3):
    return Model()

partial = functools.partial(build_deep, 12)

@functools.cache
def cached():
    return Model()

def broken():
    raise ValueError("no such depth")

def leaves():
    raise SystemExit("bye")

def interrupted():
    raise KeyboardInterrupt

def positional():
    return (1, 2)

def loss(output):
    return output

def build_loss():
    return loss

def optimizers(reference, candidate):
    return [reference, candidate]

both = ["theirs", "ours"]

class nested:
    build = build
"""


class Calls:
    """Stand for the engine: keep what diff() was called with, and give the report that the test wants."""

    def __init__(self) -> None:
        self.report: Report | Exception = ALIGNED
        self.arguments: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}

    def diff(self, *arguments: Any, **options: Any) -> Report:
        print("chatter of the run")
        self.arguments, self.options = arguments, options
        if isinstance(self.report, Exception):
            raise self.report
        return self.report


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run in a folder with a port in it; forget the port and the paths after."""
    calls = Calls()
    fake = types.ModuleType("padiff.engine")
    fake.diff = calls.diff  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "padiff.engine", fake)
    tmp_path.joinpath("my_port.py").write_text(PORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield calls
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def run(*options: str, models: tuple[str, str] = ("my_port:build", "my_port:build")) -> int:
    return main(["diff", *models, "--inputs", "my_port:inputs", *options])


# -- what diff() gets


def test_functions_are_called_and_the_rest_is_taken_as_it_is(engine: Calls) -> None:
    assert run() == 0
    reference, candidate, inputs = engine.arguments
    assert type(reference).__name__ == type(candidate).__name__ == "Model"
    assert reference is not candidate
    assert inputs == {"x": [1, 2]}
    assert engine.options == {
        "steps": 1,
        "phase": "both",
        "transfer": True,
        "operations": False,
        "tolerance": None,
        "seed": 0,
    }


@pytest.mark.parametrize("name", ["model", "build", "partial", "cached", "Model", "nested.build"])
def test_a_model_may_be_given_in_any_of_these_ways(engine: Calls, name: str) -> None:
    assert run(models=(f"my_port:{name}", "my_port:build")) == 0
    assert type(engine.arguments[0]).__name__ == "Model"


def test_every_option_reaches_diff(engine: Calls) -> None:
    options = "--candidate-inputs my_port:positional --loss my_port:loss --optimizers my_port:optimizers --steps 3"
    options += " --phase forward --no-transfer --operations --mapping my_port:inputs --atol 1e-4"
    options += " --compare-mode strict --seed 7"
    assert run(*options.split()) == 0
    got = engine.options
    assert got.pop("loss")("same") == "same"
    assert got.pop("optimizers") == [*engine.arguments[:2]]
    assert got == {
        "candidate_inputs": (1, 2),
        "steps": 3,
        "phase": "forward",
        "transfer": False,
        "operations": True,
        "mapping": {"x": [1, 2]},
        "tolerance": {"atol": 1e-4, "compare_mode": "strict"},
        "seed": 7,
    }


def test_a_metric_reaches_diff_as_the_tolerance(engine: Calls) -> None:
    assert run("--metric", "cosine", "--min", "0.99") == 0
    assert engine.options["tolerance"] == {"metric": "cosine", "min": 0.99}


def test_optimizers_that_are_built_already_are_taken_as_they_are(engine: Calls) -> None:
    assert run("--optimizers", "my_port:both") == 0
    assert engine.options["optimizers"] == ["theirs", "ours"]


def test_a_function_that_builds_the_loss_is_called(engine: Calls) -> None:
    assert run("--loss", "my_port:build_loss") == 0
    assert engine.options["loss"].__name__ == "loss"
    assert run("--loss", "my_port:build_loss,my_port:loss") == 0
    assert [one.__name__ for one in engine.options["loss"]] == ["loss", "loss"]


def test_a_file_is_named_by_its_path_and_loaded_once(engine: Calls, tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    folder.joinpath("helper.py").write_text("value = 5")
    folder.joinpath("port.py").write_text("import helper\nmodel = object()\ninputs = (helper.value,)")
    assert main(["diff", "deep/port.py:model", f"{folder}/port.py:model", "--inputs", "deep/port.py:inputs"]) == 0
    assert engine.arguments[0] is engine.arguments[1]
    assert engine.arguments[2] == (5,)


def test_a_file_never_takes_the_place_of_a_package(engine: Calls, tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    folder.joinpath("json.py").write_text("class Model: pass")
    assert run(models=("deep/json.py:Model", "my_port:build")) == 0
    assert sys.modules["json"] is json
    assert type(engine.arguments[0]).__module__ != "json"


# -- what a user reads


def test_the_report_is_printed_and_the_status_is_that_of_diff(
    engine: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    assert "aligned (3 calls compared" in capsys.readouterr().out
    engine.report = PARTED
    assert run() == 1
    out = capsys.readouterr().out
    assert "not aligned: 1 source" in out
    assert "blocks.0.norm" in out
    assert "model.py:3" in out


def test_the_mapping_is_printed_on_request(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--show-mapping") == 0
    assert "matched modules (reference, candidate, why)" in capsys.readouterr().out
    assert run() == 0
    assert "matched modules" not in capsys.readouterr().out


def test_quiet_prints_the_verdict_alone(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    engine.report = PARTED
    assert run("--quiet") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not aligned: 1 source (3 calls compared)"


def test_json_on_stdout_is_nothing_but_json(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    engine.report = PARTED
    assert run("--json", "-") == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == PARTED.to_dict()
    assert "chatter of the run" in err


def test_json_in_a_file_comes_with_the_text(engine: Calls, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("--json", "report.json") == 0
    assert json.loads(tmp_path.joinpath("report.json").read_text()) == ALIGNED.to_dict()
    assert "aligned (" in capsys.readouterr().out


# -- formats


def _shouted(report: Report) -> str:
    if report.seconds < 0:
        msg = "no such time"
        raise ValueError(msg)
    return f"<html>{len(report.sources)}</html>\n"


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a plugin's format beside padiff's own."""
    from padiff.plugins import _lookup, contributions

    row = Row("page", "padiff-page", "1.0", "padiff_renderers", Renderer("page", _shouted, suffixes=(".page",)))
    found = [row, *contributions("padiff_renderers")]
    registry = types.SimpleNamespace(of_hook=lambda hook: found, rivals=lambda row: {}, all=found)
    monkeypatch.setattr(_lookup, "registry", lambda: registry)


def test_a_format_goes_to_stdout_and_nothing_else_does(
    engine: Calls, formats: None, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.report = PARTED
    assert run("--format", "page") == 1
    out, err = capsys.readouterr()
    assert out == "<html>1</html>\n"
    assert "chatter of the run" in err


@pytest.mark.parametrize("options", [["--format", "page", "--output", "r.txt"], ["--output", "r.page"]])
def test_a_format_in_a_file_comes_with_the_text(
    engine: Calls, formats: None, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    assert run(*options) == 0
    assert tmp_path.joinpath(options[-1]).read_text() == "<html>0</html>\n"
    assert "aligned (" in capsys.readouterr().out


def test_two_formats_go_to_two_places(
    engine: Calls, formats: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("--json", "r.json", "--format", "page") == 0
    assert json.loads(tmp_path.joinpath("r.json").read_text())["aligned"] is True
    assert capsys.readouterr().out == "<html>0</html>\n"
    assert run("--json", "-", "--format", "page") == 2
    assert "two formats are to be written to standard output" in capsys.readouterr().err


def test_text_in_a_file_is_plain(engine: Calls, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine.report = PARTED
    assert run("--output", "r.txt") == 1
    assert tmp_path.joinpath("r.txt").read_text() == PARTED.render("text") + "\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "pdf"], "there is no format 'pdf'.\nHint: one of 'page', 'text', 'json', 'html'"),
        (
            ["--output", "r.pdf"],
            "no format has the ending of 'r.pdf'; known are .page (page), .txt (text), .json (json)",
        ),
        (["--output", "no/such/r.json"], "its folder does not exist"),
    ],
)
def test_a_format_that_is_not_there_is_told_before_the_work(
    engine: Calls, formats: None, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert run(*options) == 2
    assert engine.arguments == ()
    assert said in capsys.readouterr().err


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "diff"]) == 0
    assert capsys.readouterr().out.startswith("usage: padiff diff REFERENCE CANDIDATE")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["map", "my_port:build", "my_port:build", "--step", "1"], "--step chooses of what was recorded"),
        (["diff", "my_port:build", "my_port:build", "--atol", "small"], "'small' is not a number from 0"),
        (["map", "my_port:build", "my_port:build", "--timeout", "9"], "--timeout is for a model in a process"),
        (["compare", "run_a", "run_b", "--timeout", "9"], "Hint: --candidate-python PYTHON, or leave --timeout out"),
    ],
)
def test_an_option_that_makes_no_sense_is_told(
    engine: Calls, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "/dev/full") == 2
    told = "cannot write /dev/full: No space left on device.\nHint: - writes to standard output."
    assert told in capsys.readouterr().err


def test_a_renderer_that_raises_does_not_take_the_report_with_it(
    engine: Calls, formats: None, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.report = Report((SOURCE,), (SOURCE,), seconds=-1.0)
    assert run("--format", "page") == 2
    out, err = capsys.readouterr()
    assert "not aligned: 1 source" in out
    assert "padiff: the renderer 'page' (padiff-page 1.0) raised ValueError: no such time at " in err
    assert "\nHint: tell the author of padiff-page; the other formats work." in err


# -- trouble


@pytest.mark.parametrize(
    ("spec", "seen", "hint"),
    [
        ("my_port", "cannot read the SPEC 'my_port'", "module:attribute or path/file.py:attribute"),
        ("no_port:build", "no module 'no_port'", "no_port.py:attribute"),
        ("my_port.deep:build", "no module 'my_port.deep'", "my_port/deep.py:attribute"),
        ("no/port.py:build", "there is no file", "working directory"),
        ("my_port:biuld", "my_port has no attribute 'biuld'", "it has Model, "),
        ("my_port:build_deep", "needs arguments: depth.", "function without arguments"),
        ("my_port:broken", "raised ValueError: no such depth at ", "--traceback"),
        ("my_port:leaves", "raised SystemExit: bye", "--traceback"),
        ("bad.py:x", "raised ModuleNotFoundError: No module named 'no_such' at", "--traceback"),
    ],
)
def test_a_bad_spec_is_one_message_and_status_2(
    engine: Calls, capsys: pytest.CaptureFixture[str], tmp_path: Path, spec: str, seen: str, hint: str
) -> None:
    tmp_path.joinpath("bad.py").write_text("import no_such")
    assert run(models=(spec, "my_port:build")) == 2
    first, _, last = capsys.readouterr().err.partition("\nHint: ")
    assert first.startswith("padiff: ")
    assert seen in first
    assert hint in last
    assert "Traceback" not in first + last


def test_an_error_in_the_users_file_is_located(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(models=("my_port:broken", "my_port:build")) == 2
    line = PORT[: PORT.index("raise ValueError")].count("\n") + 1
    assert f"my_port.py:{line}.\n" in capsys.readouterr().err


def test_an_error_of_padiff_is_its_own_sentence(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    engine.report = InputError("the input has 3 axes.\nHint: give 4.")
    assert run() == 2
    assert capsys.readouterr().err.endswith("padiff: the input has 3 axes.\nHint: give 4.\n")


def test_an_error_that_nobody_foresaw_has_no_traceback_either(
    engine: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.report = KeyError("weight")
    assert run() == 2
    err = capsys.readouterr().err
    assert "padiff: KeyError: 'weight'\nHint: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["build_deep", "broken"])
def test_the_traceback_is_there_for_the_asking(engine: Calls, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run("--traceback", models=(f"my_port:{name}", "my_port:build")) == 2
    assert "Traceback" in capsys.readouterr().err


def test_optimizers_need_the_models(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--optimizers", "my_port:build") == 2
    assert "expected a function of (reference, candidate)" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_before_the_work(
    engine: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", "no/such/report.json") == 2
    assert engine.arguments == ()
    assert "its folder does not exist" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(engine: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(models=("my_port:interrupted", "my_port:build")) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("options", [["diff", "a:b"], ["diff", "a:b", "c:d"], ["nothing"], ["diff", "--step", "1"], []])
def test_a_wrong_command_line_is_status_2(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    assert "usage: padiff" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        (
            ["dif", "a:b", "c:d"],
            "there is no command 'dif'; there are diff, record, compare, show, map",
            "did you mean diff?",
        ),
        (["diff", "a:b", "c:d", "--input", "e:f"], "there is no option --input.", "did you mean --inputs?"),
        (
            ["diff", "a:b", "c:d", "--tolerance=1"],
            "there is no option --tolerance.",
            "mean --atol, --rtol or ",
        ),
        (["diff", "a:b", "c:d", "--qqq"], "there is no option --qqq.", "`padiff diff --help` lists all options"),
        (["diff", "a:b", "c:d", "e:f"], "'e:f' is one argument too many", "usage: padiff diff REFERENCE CANDIDATE"),
        (["diff", "a:b", "c:d"], "--inputs is missing", "--inputs my_port:inputs"),
        (["adapters", "--lod"], "there is no option --lod.", "did you mean --load?"),
    ],
)
def test_what_is_mistyped_is_suggested_in_two_lines(
    options: list[str], said: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    err = capsys.readouterr().err
    first, second = err.splitlines()
    assert first.startswith(f"padiff: {said}")
    assert second.startswith("Hint: ")
    assert hint in second


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ("--phase foward", "--phase: 'foward' is none of both, forward, backward.", "did you mean forward?"),
        ("--compare-mode mena --atol 1", "--compare-mode: 'mena' is none of strict, mean.", "did you mean mean?"),
        ("--atol -1", "--atol: '-1' is not a number from 0.", "usage: "),
        ("--rtol nan", "--rtol: 'nan' is not a number from 0.", "usage: "),
        ("--seed x", "--seed: 'x' is not a whole number from 0.", "usage: "),
        ("--max 1", "--max without --metric", "--metric NAME --max X"),
        ("--metric rel_l2 --atol 1 --rtol 1", "--atol and --rtol beside --metric", "--metric NAME"),
        ("--steps 3", "--steps without --optimizers", "--optimizers SPEC"),
        ("--timeout 9", "--timeout is for a model in a process", "--reference-python or --candidate-python PYTHON"),
        ("--format jsn", "there is no format 'jsn'", "did you mean 'json'?"),
    ],
)
def test_options_that_make_no_sense_are_named(
    engine: Calls, options: str, said: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options.split()) == 2
    assert engine.arguments == ()
    err = capsys.readouterr().err
    assert err.startswith(f"padiff: {said}")
    assert hint in err.partition("\nHint: ")[2]


@pytest.mark.parametrize(
    ("python", "options"),
    [
        ("x.\nHint: give candidate_inputs=.", "give --candidate-inputs."),
        ("x.\nHint: phase='forward' compares without it.", "--phase forward compares"),
        ("x.\nHint: phase='forward', without optimizers.", "--phase forward, without"),
        (
            "x.\nHint: pass loss=(for_the_reference, for_the_candidate) where",
            "pass --loss SPEC of a pair",
        ),
        ("x.\nHint: leave operations=True out; modules", "leave --operations out;"),
        ("x.\nHint: both; seed=0 will do.", "--seed 0 will do"),
        ("x.\nHint: inputs={'x': array}, of numpy arrays", "a dict or a tuple of numpy arrays"),
    ],
)
def test_messages_speak_of_options(
    engine: Calls, python: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.report = InputError(python)
    assert run() == 2
    assert options in capsys.readouterr().err


def test_messages_are_folded_on_a_terminal_alone(engine: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.report = InputError(" ".join(["words"] * 40) + "\nHint: none.")
    for stream, lines in ((Terminal(), 5), (io.StringIO(), 2)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert run() == 2
        said = [line for line in stream.getvalue().splitlines() if line != "chatter of the run"]
        assert len(said) in (lines - 1, lines)
        assert (max(map(len, said)) <= 80) == stream.isatty()


@pytest.mark.parametrize("command", [[], ["diff"], ["adapters"], ["plugins"]])
def test_help_fits_80_columns(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_steps_are_counted_from_one(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--steps", value) == 2
    assert "--steps" in capsys.readouterr().err


# -- adapters

ROWS = (
    Installed("torch", ("torch",), "padiff-torch", "0.4.0", State.AVAILABLE, None, "2.13.0"),
    Installed("acme", (), "padiff-acme", "1.0", State.BROKEN, "its plugin raised ValueError: so there"),
    Installed("paddle", ("paddle",), "padiff-paddle", "0.4.0", State.MISSING, "paddle is not installed"),
)


def test_adapters_are_listed_with_the_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("padiff.plugins.installed", lambda: ROWS)
    assert main(["adapters"]) == 0
    head, torch, acme, paddle, _, *reasons = capsys.readouterr().out.splitlines()
    assert head.split() == ["ADAPTER", "STATE", "FRAMEWORK", "DISTRIBUTION", "CLAIMS"]
    assert torch.split() == ["torch", "available", "2.13.0", "padiff-torch", "0.4.0", "torch"]
    assert acme.split() == ["acme", "broken", "-", "padiff-acme", "1.0", "-"]
    assert paddle.split()[:3] == ["paddle", "framework", "missing"]
    assert reasons == ["acme: its plugin raised ValueError: so there.", "paddle: paddle is not installed."]


def test_adapters_in_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("padiff.plugins.installed", lambda: ROWS)
    assert main(["adapters", "--json"]) == 0
    first, acme, _ = json.loads(capsys.readouterr().out)
    assert first == {
        "name": "torch",
        "roots": ["torch"],
        "distribution": "padiff-torch",
        "version": "0.4.0",
        "state": "available",
        "why": None,
        "framework_version": "2.13.0",
    }
    assert acme["state"] == "broken"


def test_no_adapter_at_all_is_trouble(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("padiff.plugins.installed", lambda: ())
    assert main(["adapters"]) == 2
    assert "pip install padiff-torch" in capsys.readouterr().out


# -- plugins

GIVEN = (
    Contributed("adapter", "torch", "padiff-torch", "0.4.0", State.AVAILABLE, None, "classes of torch"),
    Contributed("metric", "cosine", "padiff-acme", "1.0", State.AVAILABLE, None, "cosine of the angle"),
    Contributed("plugin", "page", "padiff-page", "2.1", State.BROKEN, "its plugin raised ValueError: so there"),
)


def test_plugins_are_listed_with_the_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("padiff.plugins.contributed", lambda: GIVEN)
    assert main(["plugins"]) == 2
    head, torch, cosine, page, _, reason = capsys.readouterr().out.splitlines()
    assert head.split() == ["WHAT", "NAME", "STATE", "DISTRIBUTION", "ABOUT"]
    assert torch.split() == ["adapter", "torch", "available", "padiff-torch", "0.4.0", "classes", "of", "torch"]
    assert cosine.split()[:5] == ["metric", "cosine", "available", "padiff-acme", "1.0"]
    assert page.split() == ["plugin", "page", "broken", "padiff-page", "2.1"]
    assert reason == "page: its plugin raised ValueError: so there."
    monkeypatch.setattr("padiff.plugins.contributed", lambda: GIVEN[:2])
    assert main(["plugins"]) == 0


def test_plugins_in_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("padiff.plugins.contributed", lambda: GIVEN)
    assert main(["plugins", "--json"]) == 2
    _, cosine, page = json.loads(capsys.readouterr().out)
    assert cosine == {
        "sort": "metric",
        "name": "cosine",
        "distribution": "padiff-acme",
        "version": "1.0",
        "state": "available",
        "why": None,
        "doc": "cosine of the angle",
    }
    assert page["why"] == "its plugin raised ValueError: so there"


# -- in a shell


def shell(*arguments: str, cwd: Path | None = None, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-c", code] if code else ["-m", "padiff.cli"]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)


def test_garbage_is_looked_for_neither_while_a_framework_loads_nor_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import gc\nlooked = gc.isenabled()\n")
    (tmp_path / "broken.py").write_text("raise OSError\n")
    assert load(f"{tmp_path}/heavy.py:looked") is False
    with pytest.raises(SpecError):
        load(f"{tmp_path}/broken.py:looked")
    assert gc.isenabled()
    at_end = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))"
    done = shell(code=f"{at_end}; from padiff.cli import main; main(['plugins'])")
    assert (done.stdout.splitlines()[-1], done.stderr) == ("True", "")


def test_import_padiff_imports_next_to_nothing() -> None:
    code = "import sys; before = {*sys.modules}; import padiff; print(*sorted({*sys.modules} - before))"
    command = [sys.executable, "-S", "-c", code]
    env = {**os.environ, "PYTHONPATH": str(Path(padiff.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=env)
    assert done.stdout.split() == ["padiff", "padiff._version"]


@pytest.mark.parametrize("module", ["padiff", "padiff.cli"])
def test_version(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"padiff {padiff.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["diff", "--help"], ["adapters", "--help"], ["plugins", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = """
        import sys
        from padiff.cli import main
        status = main(sys.argv[1:])
        heavy = {"numpy", "attrs", "rich", "pluggy", "torch", "paddle"} & sys.modules.keys()
        sys.exit(f"imported {heavy}" if heavy else status)
    """
    done = shell(*arguments, code=textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    assert "exit status" in done.stdout or "diff" in done.stdout


def test_adapters_imports_no_framework() -> None:
    code = "import sys; from padiff.cli import main; main(['adapters']); "
    code += "print({'torch', 'paddle'} & sys.modules.keys())"
    done = shell(code=code)
    assert done.stdout.splitlines()[-1] == "set()"
    assert "padiff-torch" in done.stdout


def test_a_broken_plugin_is_a_sentence_on_stderr(tmp_path: Path) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: padiff-acme\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[padiff]\nacme = acme_plugin\n")
    tmp_path.joinpath("acme_plugin.py").write_text("raise ValueError('so there')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    code += "from padiff.cli import main; sys.exit(main(['adapters']))"
    done = shell(code=code)
    assert done.returncode == 0
    assert done.stderr.startswith("padiff: warning: the plugin 'acme' (padiff-acme 1.0) is left out: ")
    assert ".py:" not in done.stderr.replace("acme_plugin.py:1", "")
    assert "acme: its plugin 'acme_plugin' raised ValueError: so there at " in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    """As in ``padiff adapters | true``."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "padiff.cli", "adapters"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stream_that_cannot_spell_a_path_is_no_error(tmp_path: Path) -> None:
    code = "from padiff.cli import _main; _main._print('模型')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=True,
    )
    assert done.stdout == b"\\u6a21\\u578b\n"


# -- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(stream: io.StringIO, *, delay: float = 0.0) -> str:
    with shown(stream, delay=delay) as progress:
        progress.phase("recording the reference", 10)
        progress.advance(3)
        progress.phase("forcing")
        progress.advance()
        for _ in range(200):
            if "forcing" in stream.getvalue() or delay or not stream.isatty():
                break
            time.sleep(0.05)
    return stream.getvalue()


def test_long_work_shows_its_phase_on_a_terminal_and_wipes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = work(Terminal())
    assert "forcing" in text
    assert text.endswith("\x1b[2K")


def test_the_number_of_steps_is_taken_from_the_phase_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with shown(stream, delay=0.0):
        progress.phase("running the reference")
        for _ in range(12):
            progress.advance()
        progress.phase("running the candidate")
        for _ in range(7):
            progress.advance()
        for _ in range(200):
            if "7/12" in stream.getvalue():
                break
            time.sleep(0.05)
    assert re.search(r"running the candidate.* 7/12", stream.getvalue())
    progress.advance()  # nothing is shown any more


def test_a_count_never_passes_its_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays, and the runs of a second attempt, are calls too: they counted 198 of 8."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with shown(stream, delay=0.0) as progress:
        progress.phase("running the reference")
        for _ in range(3):
            progress.call_ended()
        progress.phase("judging", 4)
        for _ in range(9):
            progress.call_ended()
        for _ in range(2):
            progress.advance()
        for _ in range(200):
            if "2/4" in stream.getvalue():
                break
            time.sleep(0.05)
        progress.phase("forcing")
        for _ in range(7):
            progress.call_ended()
        for _ in range(200):
            if "7/?" in stream.getvalue():
                break
            time.sleep(0.05)
    assert re.search(r"judging.*2/4", stream.getvalue())
    assert re.search(r"forcing.*7/\?", stream.getvalue())
    assert not re.search(r"9/4|7/3", stream.getvalue())


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert work(Terminal(), delay=60.0) == ""


def test_progress_is_silent_in_a_pipe_and_where_it_is_told_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert work(io.StringIO()) == ""
    with silenced():
        assert work(Terminal(), delay=0.01) == ""


def test_progress_does_not_take_the_models_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    before = sys.stdout, sys.stderr
    stream = Terminal()
    with shown(stream, delay=0.0) as progress:
        progress.phase("forcing", 2)
        for _ in range(200):
            if stream.getvalue():
                break
            time.sleep(0.05)
        assert (sys.stdout, sys.stderr) == before


# -- the documentation


@pytest.mark.parametrize("command", ["diff", "adapters", "plugins"])
def test_every_option_is_documented(command: str) -> None:
    text = Path(__file__).parents[2].joinpath("docs", "cli.md").read_text()
    documented = text.split(f"\n## `padiff {command}`")[1].split("\n## ")[0]
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", shell(command, "--help").stdout)) - {"--help"}
    assert {option for option in options if f"`{option}" not in documented} == set()
    assert set(re.findall(r"`(--[a-z-]+)", documented)) == options


def test_the_documented_tables_are_the_real_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("padiff.plugins.installed", lambda: ROWS)
    monkeypatch.setattr("padiff.plugins.contributed", lambda: GIVEN)
    text = Path(__file__).parents[2].joinpath("docs", "cli.md").read_text()
    for command in ("adapters", "plugins"):
        main([command])
        assert f"```text\n{capsys.readouterr().out}```" in text
