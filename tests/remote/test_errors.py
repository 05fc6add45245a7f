"""What can go wrong with another process is one clear sentence, with that process's own traceback where it has one."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import padiff

from .conftest import PORTS, SITE, Sides

X = {"x": np.ones((2, 4), np.float32)}


def here(port: str = "toy_trouble") -> Any:
    """Return a reference of this process."""
    from importlib import import_module

    return import_module(port).build()


def refused(target: str, error: type[Exception] = padiff.WorkerError, **options: Any) -> str:
    """Return the message of a diff that cannot be."""
    with padiff.remote(target, **options) as candidate, pytest.raises(error) as caught:
        padiff.diff(here(), candidate, X)
    return str(caught.value)


# What is named ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("my_port.build", "names no function: there is no colon.\nHint: padiff.remote('package.module:build')"),
        (":build", "names no function"),
        (3, "padiff.remote() got a builtins.int; expected a name.\nHint:"),
        (here, f"got here itself, which lives in this process.\nHint: name it, .*'{__name__}:here'"),
    ],
)
def test_what_is_no_name(target: Any, said: str) -> None:
    with pytest.raises(padiff.InputError, match=said.replace("(", r"\(").replace(")", r"\)")):
        padiff.remote(target)


def test_interpreters_that_are_none(tmp_path: Path) -> None:
    for python, said in (
        (tmp_path / "python", f"there is no interpreter {tmp_path}/python.\nHint: python= is a path"),
        (tmp_path, "is a folder without bin/python, so it is no environment.\nHint: name the interpreter"),
        (__file__, f"{__file__} is no program that can be run.\nHint: name the interpreter"),
    ):
        with pytest.raises(padiff.WorkerError, match=re.escape(said)):
            padiff.remote("my_port:build", python)


def test_an_interpreter_by_folder_and_by_name() -> None:
    assert padiff.remote("a:b", sys.prefix).python == os.path.join(sys.prefix, "bin", "python")
    assert os.path.basename(padiff.remote("a:b", "sh").python) == "sh"
    assert padiff.remote("a:b").python == sys.executable


def test_a_program_that_is_no_interpreter() -> None:
    said = refused("toy_trouble:build", python="/bin/echo")
    assert "the candidate: /bin/echo exited with status 0 before it could start a worker." in said
    assert "It printed last:" in said
    assert "Hint: is it a Python interpreter" in said


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of an environment with nothing in it."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return str(folder / "bin" / "python")


def test_an_interpreter_without_padiff(bare: str) -> None:
    # A worker inherits the environment's variables: without this one, padiff may be found on its way.
    said = refused("toy_trouble:build", python=bare, env={"PYTHONPATH": ""})
    assert f"the candidate: padiff is not installed in {bare} (Python 3." in said
    assert f"\nHint: {bare} -m pip install padiff-core" in said


def _package(folder: Path, name: str, **files: str) -> str:
    for file, text in files.items():
        path = folder / name / f"{file.replace('__', '/', 1) if file != '__init__' else file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"__init__": "__version__ = '0.3.0'"},
            "padiff 0.3.0 in PYTHON and padiff HERE here cannot talk to each other.\n"
            "Hint: PYTHON -m pip install padiff-core==HERE",
        ),
        (
            {
                "__init__": "__version__ = '9.0.0'",
                "isolation____init__": "",
                "isolation___connection": "PROTOCOL = 99",
                "isolation___worker": "main = None",
            },
            "padiff 9.0.0 in PYTHON and padiff HERE here cannot talk to each other.",
        ),
        (
            {
                "__init__": "__version__ = '0.4.9'",
                "isolation____init__": "",
                "isolation___connection": "PROTOCOL = 1",
                "isolation___worker": "main = None",
            },
            "padiff 0.4.9 in PYTHON and padiff HERE here cannot talk to each other.",
        ),
        (
            {
                "__init__": "__version__ = '0.4.0'",
                "isolation____init__": "",
                "isolation___connection": "import numpy_nowhere",
            },
            "padiff 0.4.0 in PYTHON lacks numpy_nowhere.\nHint: PYTHON -m pip install --upgrade padiff-core.",
        ),
        ({"__init__": "1 / 0"}, "padiff does not load in PYTHON (Python 3."),
    ],
    ids=["older", "newer", "former", "incomplete", "broken"],
)
def test_another_padiff_there(tmp_path: Path, bare: str, files: dict[str, str], said: str) -> None:
    folder = _package(tmp_path, "padiff", **files)
    found = refused("toy_trouble:build", python=bare, env={"PYTHONPATH": folder})
    assert said.replace("PYTHON", bare).replace("HERE", padiff.__version__) in found


# Building the model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere:build", ["there is no module 'nowhere', neither in"]),
        ("trouble:bild", ["trouble has no attribute 'bild'.\nHint: it has deeper"]),
        ("nowhere.py:build", ["there is no file", "nowhere.py.\nHint: a path is taken from the working directory"]),
        ("trouble:needs", ["trouble:needs needs arguments: width."]),
        ("trouble:leaves", ["exited with status 7 while it built the model.", "It printed last:\n  my last words"]),
        ("trouble:exits", ["trouble:exits raised SystemExit: enough", "Traceback (most recent call last):"]),
        (
            "trouble:lacks",
            [
                "trouble:lacks raised ModuleNotFoundError: No module named 'tensorflow_nowhere'",
                "in lacks\n    import tensorflow_nowhere\nModuleNotFoundError",
                "\nHint: ",
                "-m pip install tensorflow_nowhere, or",
            ],
        ),
        (
            "trouble:raises",
            [
                "the candidate: in the worker (",
                "trouble:raises raised ValueError: no weights here at",
                "Traceback (most recent call last):",
                "in raises\n    return deeper()",
                "in deeper\n    raise ValueError(msg)\nValueError: no weights here\nHint:",
            ],
        ),
    ],
)
def test_a_model_that_cannot_be_built(target: str, said: list[str]) -> None:
    found = refused(target)
    assert all(one in found for one in said), found
    assert "padiff_core" not in found.replace(str(PORTS), ""), "padiff's own frames are of no use to a reader"


def test_what_is_no_model() -> None:
    assert "got None where a model was expected" in refused("trouble:nothing", padiff.UnknownModel)
    found = refused("trouble:number", padiff.UnknownModel)
    assert f"the candidate: in the worker ({sys.executable}), no adapter knows a model of class builtins.int" in found


def test_a_folder_to_run_in_that_is_none(tmp_path: Path) -> None:
    found = refused("trouble:raises", cwd=tmp_path / "nowhere")
    assert found.startswith(f"there is no folder '{tmp_path}/nowhere' for the worker to run in.\nHint:")


def test_arguments_paths_and_the_environment_arrive(tmp_path: Path) -> None:
    tmp_path.joinpath("told.py").write_text(
        "import os\n"
        "def build(*args, **kwargs):\n"
        "    raise ValueError(repr((args, kwargs, os.getcwd(), os.environ['A'])))\n"
    )
    options = {"args": (1, "two"), "kwargs": {"x": None}, "cwd": tmp_path, "env": {"A": "b"}}
    found = refused("told:build", **options)
    assert repr(((1, "two"), {"x": None}, str(tmp_path), "b")) in found
    assert "ValueError: ((), {}, " in refused("told:build", path=[tmp_path], env={"A": "b"})


# Running it -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def candidate(_ports_importable: None) -> Iterator[padiff.Remote]:
    """Return a remote model that goes wrong as it is told; its process is started anew when it has ended."""
    with padiff.remote("toy_trouble:build") as found:
        yield found


def turned(candidate: padiff.Remote, way: str) -> padiff.Remote:
    candidate.timeout = None
    candidate.call("toy_trouble:turn", way)
    return candidate


def test_what_the_model_raises_is_the_error_of_one_process(candidate: padiff.Remote) -> None:
    with pytest.raises(padiff.ForwardError) as one:
        padiff.diff(here(), toy_trouble().build("raise"), X)
    with pytest.raises(padiff.ForwardError) as two:
        padiff.diff(here(), turned(candidate, "raise"), X)
    assert str(two.value) == str(one.value)
    cause = two.value.__cause__
    assert isinstance(cause, LookupError)
    assert isinstance(cause, padiff.errors.RemoteError)
    assert str(cause) == "this is missing"
    told = "".join(cause.__notes__)
    assert f"process {candidate.pid}" in told
    assert "in _raise\n    raise LookupError(msg)\nLookupError: this is missing" in told
    assert padiff.diff(here(), turned(candidate, ""), X).aligned


def test_what_padiff_fails_at_in_a_run_that_is_only_tried_is_told(candidate: padiff.Remote) -> None:
    """What a model's process raised was taken for what a framework lacks there, whoever raised it."""
    assert not padiff.diff(here(), turned(candidate, "other"), X).aligned
    candidate.call("toy_trouble:fail")
    try:
        with pytest.warns(padiff.InternalWarning, match=r"failed itself: TypeError at .*_replay.py:\d+: "):
            assert not padiff.diff(here(), candidate, X).aligned
    finally:
        candidate.close()


def toy_trouble() -> Any:
    import toy_trouble

    return toy_trouble


def test_a_model_that_ends_its_process_politely_does_not_end_it(candidate: padiff.Remote) -> None:
    with pytest.raises(padiff.ForwardError, match="raised SystemExit in module 'head'"):
        padiff.diff(here(), turned(candidate, "exit"), X)


@pytest.mark.parametrize(
    ("port", "way", "said"),
    [
        (
            "toy_trouble",
            "kill",
            "was killed by SIGKILL while it ran the model, in module 'head'.\nHint: was it ended from outside",
        ),
        ("toy_trouble", "crash", "was killed by SIGSEGV while it ran the model, in module 'head'."),
        ("toy_trouble", "leave", "exited with status 3 while it ran the model, in module 'head'."),
    ],
)
def test_a_process_that_ends_half_way(port: str, way: str, said: str) -> None:
    with padiff.remote(f"{port}:build") as candidate:
        candidate.call(f"{port}:turn", way)
        pid = candidate.pid
        with pytest.raises(padiff.WorkerError) as caught:
            padiff.diff(candidate, here(port), X)
        found = str(caught.value)
        assert said in found
        assert f"the worker of {port}:build ({sys.executable}, process {pid})" in found
        if way == "crash":
            assert "It printed last:\n  Fatal Python error: Segmentation fault" in found
            assert "toy_trouble.py" in found
        assert candidate.pid is None
        assert padiff.diff(candidate, here(port), X).aligned, "the next use starts another process"
        assert candidate.pid != pid


@pytest.mark.parametrize("way", ["hang", "hold"])
def test_a_hang_tells_where(candidate: padiff.Remote, way: str) -> None:
    turned(candidate, way).timeout = 1.0
    with pytest.raises(padiff.WorkerError) as caught:
        padiff.diff(here(), candidate, X)
    found = str(caught.value)
    assert "gave no answer for 1 s while it ran the model, in module 'head'. It was at:" in found
    assert "toy_trouble.py" in found.partition("It was at:")[2]
    assert "padiff_core" not in found
    assert "\nHint: what takes longer needs a larger timeout=" in found
    assert candidate.pid is None


def test_without_a_timeout_a_long_forward_is_no_hang(candidate: padiff.Remote) -> None:
    started = time.monotonic()
    assert padiff.diff(here(), turned(candidate, "slow"), X).aligned
    assert time.monotonic() - started > 1.0


def test_time_without_a_request_is_no_silence(candidate: padiff.Remote) -> None:
    turned(candidate, "").timeout = 10.0
    assert padiff.diff(here(), candidate, X).aligned
    candidate.timeout = 0.2
    time.sleep(0.5)
    assert candidate.rest()["segments"] == 0


def test_what_the_model_prints_goes_to_stderr(candidate: padiff.Remote, capsys: pytest.CaptureFixture[str]) -> None:
    assert padiff.diff(here(), turned(candidate, "print"), X).aligned
    out, err = "", ""
    until = time.monotonic() + 5
    while "told on stderr" not in err and time.monotonic() < until:
        time.sleep(0.05)
        captured = capsys.readouterr()
        out, err = out + captured.out, err + captured.err
    for line in ("said by the model", "written to the descriptor", "told on stderr"):
        assert line in err
        assert line not in out


def test_inputs_that_do_not_fit(candidate: padiff.Remote) -> None:
    with pytest.raises(padiff.InputError) as one:
        padiff.diff(toy_trouble().build(), here(), {"y": X["x"]})
    with pytest.raises(padiff.InputError) as two:
        padiff.diff(turned(candidate, ""), here(), {"y": X["x"]})
    assert str(two.value) == str(one.value)
    with pytest.raises(padiff.InputError, match="an argument for toy_trouble:build cannot be sent to its worker"):
        padiff.diff(turned(candidate, ""), here(), {"x": lambda: None})


# Losses and optimizers --------------------------------------------------------------------------------------


def local_loss(output: Any) -> Any:
    return output.sum()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda output: output.sum(), "the loss .*<lambda> is no function that another process could import"),
        (functools.partial(local_loss), "the loss is a functools.partial, which lives in this process"),
        ("toy_trouble:nothing", "toy_trouble has no attribute 'nothing'"),
        ("trouble:number", "trouble:number is a int; expected a loss, a function of the model's output"),
    ],
)
def test_a_loss_that_cannot_travel(candidate: padiff.Remote, given: Any, said: str) -> None:
    with pytest.raises(padiff.PadiffError, match=said):
        padiff.diff(here(), turned(candidate, ""), X, loss=(local_loss, given))


def test_a_function_of_the_running_script(candidate: padiff.Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_loss, "__module__", "__main__")
    with pytest.raises(padiff.InputError, match=r"is defined in the running script.*\nHint: define a"):
        padiff.diff(here(), turned(candidate, ""), X, loss=local_loss)


def test_a_loss_that_raises(sides: Sides, inputs: dict[str, Any]) -> None:
    with pytest.raises(padiff.ForwardError) as one:
        padiff.diff(sides.here("torch"), sides.here("paddle"), inputs, loss=sides.port("torch").failing)
    with pytest.raises(padiff.ForwardError) as two:
        padiff.diff(sides.there("torch"), sides.here("paddle"), inputs, loss="torch_port:failing")
    assert "torch_port.py:" in str(two.value)
    assert str(two.value) == str(one.value)


def test_an_optimizer_that_lives_here(candidate: padiff.Remote) -> None:
    reference = here("torch_trouble")
    mine = torch.optim.SGD(reference.parameters(), 0.1)
    with pytest.raises(padiff.InputError, match=r"the optimizer is a torch.*SGD, which lives in this process"):
        padiff.diff(reference, turned(candidate, ""), X, optimizers=(mine, mine))


def test_a_module_of_this_process_is_none_of_a_remote_model(candidate: padiff.Remote) -> None:
    with pytest.raises(padiff.MappingError, match="of a remote model always the path"):
        padiff.diff(turned(candidate, ""), here(), X, mapping={toy_trouble().build().body: "body"})


def test_the_errors_of_another_process_name_their_side(candidate: padiff.Remote) -> None:
    with padiff.remote("trouble:nothing") as reference, pytest.raises(padiff.UnknownModel, match=r"^the reference: "):
        padiff.diff(reference, turned(candidate, ""), X)


def test_ctrl_c_ends_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, padiff, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell lets it be ignored
        f"sys.path.insert(0, {str(PORTS)!r})\n"
        f"sys.path.insert(0, {str(SITE)!r})\n"
        "import toy_trouble\n"
        "candidate = padiff.remote('toy_trouble:build', args=('hang',))\n"
        "candidate.start()\n"
        "print(candidate.pid, flush=True)\n"
        "padiff.diff(toy_trouble.build(), candidate, {'x': np.ones((2, 4), np.float32)})\n"
    )
    import signal

    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in said
    assert "WorkerError" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
