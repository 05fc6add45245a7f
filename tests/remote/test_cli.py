"""The command line runs a side by another interpreter; its own process then needs neither framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import PORTS, SITE

PYTHON = sys.executable
MAIN = """
import sys
from padiff.cli import main
status = main(sys.argv[1:])
loaded = [name for name in ("torch", "paddle") if name in sys.modules]
print("loaded here:", *loaded, file=sys.stderr)
sys.exit(status)
"""


def padiff(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line among the ports; its last line on stderr tells what it imported itself."""
    command = [PYTHON, "-W", "ignore", "-c", MAIN, "diff", *arguments]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(SITE)])}
    return subprocess.run(command, cwd=PORTS, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_both_sides_remote_with_inputs_loss_and_optimizers() -> None:
    done = padiff(
        *("torch_port:build", "paddle_port.py:build", "--inputs", "torch_port:inputs"),
        *("--reference-python", sys.prefix, "--candidate-python", PYTHON, "--timeout", "100"),
        *("--loss", "both_ports:losses", "--optimizers", "torch_port:optimizer,paddle_port:other_optimizer"),
        *("--steps", "2", "--json", "-"),
    )
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert {source["phase"] for source in report["sources"]} == {"update"}
    assert report["loss"] is not None
    assert done.stderr.splitlines()[-1] == "loaded here:"


def test_one_side_remote() -> None:
    done = padiff("torch_port:build", "paddle_port:build", "--inputs", "trouble:inputs", "--candidate-python", PYTHON)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("aligned")
    assert done.stderr.splitlines()[-1] == "loaded here: torch"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["toy_trouble:build", "toy_trouble:build", "--optimizers", "toy_trouble:step"],
            "padiff: --optimizers toy_trouble:step is one SPEC, and the models are in different processes.\nHint: ",
        ),
        (["toy_trouble:nothing", "toy_trouble:build"], "toy_trouble has no attribute 'nothing'.\nHint: "),
        (["toy_trouble:build", "trouble:raises"], "in deeper\n    raise ValueError(msg)\nValueError: no weights here"),
        (["toy_trouble:build", "toy_trouble:build", "--reference-python", "nowhere/python"], "there is no interpreter"),
    ],
)
def test_trouble_is_one_message_and_status_2(arguments: list[str], said: str) -> None:
    given = [*arguments, "--inputs", "trouble:inputs", "--candidate-python", PYTHON]
    done = padiff(*given, *([] if "--reference-python" in given else ["--reference-python", PYTHON]))
    assert done.returncode == 2
    assert said in done.stderr
    assert "most recent call last" not in done.stderr.replace("Traceback (most recent call last):\n  File", "", 1)
