"""Run the corners of the ranges of versions, those that are not done yet: ``python -m tests.versions [NAME ...]``.

Each is installed into an environment of its own below ``.venv-versions``. What is seen in it goes to ``docs/versions``,
and all of it into the table of ``docs/versions.md``. A corner is done until padiff's code or what is run here changes;
one that a name asks for is run in any case.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from .corners import CHECKS, CORNERS, ROOT, Corner
from .table import write_page

_TOOLS = (
    "attrs",
    "ml_dtypes",
    "pluggy",
    "rich",
    "pytest",
    "hypothesis",
    "pyyaml",
    "pillow",
    "requests",
    "setuptools",
    "tqdm",
)
_ALONE = ("torchvision==0.16.2", "mindcv==0.3.0")
"""Installed without what they ask for, which would replace the versions under test."""
_CODE = ("padiff_core/src", "padiff_torch/src", "padiff_paddle/src", "padiff_mindspore/src", "tests/versions")


def main() -> int:
    """Run what is asked for; return 1 where something in it fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(one.name for one in CORNERS)}")
    parser.add_argument("--only", action="append", metavar="CHECK", help=f"of {', '.join(CHECKS)}; keeps the others")
    parser.add_argument("--table", action="store_true", help="run nothing, and write the table")
    asked = parser.parse_args()
    unknown = set(asked.names) - {corner.name for corner in CORNERS}
    if unknown:
        parser.error(f"there is no corner {', '.join(sorted(unknown))}")
    if not asked.table:
        code = _digest()
        for corner in CORNERS:
            if corner.name in asked.names or not (asked.names or _is_done(corner, code)):
                _install(corner)
                _run(corner, code, asked.only or corner.checks)
    return 1 if write_page() else 0


def _digest() -> str:
    found = hashlib.sha256()
    for file in sorted(file for home in _CODE for file in (ROOT / home).rglob("*.py")):
        found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def _is_done(corner: Corner, code: str) -> bool:
    stamp = corner.home / "done"
    return corner.file.exists() and stamp.exists() and stamp.read_text() == code


def _install(corner: Corner) -> None:
    """Make the environment, where it is not there with these versions."""
    pins = [f"{name}=={version}" for name, version in corner.pins.items()]
    stamp = corner.home / "installed"
    if stamp.exists() and stamp.read_text() == "\n".join(pins):
        return
    print(f"{corner.name}: installing {', '.join(pins)}", flush=True)
    subprocess.run([_interpreter(corner), "-m", "venv", corner.home], check=True)
    # A cap that a machine puts on versions is not padiff's.
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    pip = [str(corner.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    homes = [f"padiff_{name}" for name in ("core", *sorted({*corner.pair, *corner.tested}))]
    for line in (
        [*pins, *_TOOLS],
        *([["--no-deps", *_ALONE]] if "real pairs" in corner.checks else []),
        ["--no-deps", *(word for home in homes for word in ("-e", str(ROOT / home)))],
    ):
        subprocess.run([*pip, *line], check=True, env=environment)
    stamp.write_text("\n".join(pins))


def _interpreter(corner: Corner) -> str:
    if corner.interpreter is None:
        return sys.executable
    found = shutil.which(f"python{corner.interpreter}")
    if found is None:
        sys.exit(
            f"{corner.name}: there is no python{corner.interpreter} on the PATH.\nHint: install it, or name others."
        )
    return found


def _run(corner: Corner, code: str, names: Collection[str]) -> None:
    """Run the conformance suite and the checks of a corner, and write down what was seen as soon as it is."""
    corner.file.parent.mkdir(exist_ok=True)
    seen: dict[str, Any] = {"corner": corner.name, "installed": {}, "adapters": {}, "checks": {}}
    if corner.file.exists():
        seen = json.loads(corner.file.read_text(encoding="utf-8"))
    seen["installed"] = _installed(corner)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for check in names:
            if check == "conformance":
                seen["adapters"] = {framework: _conformance(corner, framework, folder) for framework in corner.tested}
            else:
                seen["checks"][check] = _pytest(corner, check, _words(corner)[check], folder)
            corner.file.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
    if set(names) == set(corner.checks):
        (corner.home / "done").write_text(code)


def _installed(corner: Corner) -> dict[str, str]:
    ask = "import json, platform, sys; from importlib.metadata import version as v; "
    ask += "print(json.dumps({'python': platform.python_version(), **{n: v(n) for n in sys.argv[1:]}}))"
    done = subprocess.run([corner.python, "-c", ask, *corner.pins], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _conformance(corner: Corner, framework: str, folder: Path) -> dict[str, Any]:
    plugin = ("-p", "padiff.testing.conformance", "--conformance", str(folder))
    counts = _pytest(
        corner, f"conformance of {framework}", [*plugin, f"tests/adapters/test_{framework}_adapter.py"], folder
    )
    seen = json.loads((folder / f"{framework}.json").read_text(encoding="utf-8"))
    return {**seen, "tests": counts}


def _words(corner: Corner) -> dict[str, list[str]]:
    """Return what pytest runs beside the conformance suite, by what it shows."""
    direction = "-".join(corner.pair)
    real, known = ("test_real_pairs", "mobilenet_v3_small and True or alexnet and eval")
    if "mindspore" in corner.pair:
        real, known = ("test_real_mindcv", "mobilenet_v2 and models_are_aligned or resnet_parts")
    return {
        "first use": ["tests/versions/check_first_use.py"],
        "planted faults": _of("test_faults", f"a_fault_is_named_at_its_place and {direction}"),
        "real pairs": [*_of(real, f"({known}) and {direction}"), "--all-directions"],
        "other environments": ["tests/versions/check_across.py"],
    }


def _of(file: str, chosen: str) -> list[str]:
    return [f"tests/pairs/{file}.py", "-k", chosen]


def _pytest(corner: Corner, name: str, words: Iterable[str], folder: Path) -> dict[str, int]:
    """Run tests in a corner's environment; return how many passed, failed and were skipped."""
    print(f"{corner.name}: {name}", flush=True)
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    sources = [str(ROOT / home) for home in _CODE if home.endswith("src")]
    environment = {
        **os.environ,
        "PADIFF_REQUIRE": ",".join(corner.pair),
        "PADIFF_CORNER": corner.name,
        "PADIFF_EVERYDAY": sys.executable,
        "PYTHONPATH": os.pathsep.join(sources),
        "OMP_NUM_THREADS": "1",
    }
    line = [corner.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *words]
    log = corner.home / f"{name.replace(' ', '-')}.log"
    with log.open("w", encoding="utf-8") as out:
        subprocess.run(line, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    if not report.exists():
        print(f"{corner.name}: {name} did not run; see {log}", file=sys.stderr)
        return {"passed": 0, "failed": 1, "skipped": 0}
    suite = next(ET.parse(report).getroot().iter("testsuite")).attrib
    failed, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    if failed:
        print(f"{corner.name}: {name}: {failed} failed; see {log}", file=sys.stderr)
    return {"passed": int(suite["tests"]) - failed - skipped, "failed": failed, "skipped": skipped}


if __name__ == "__main__":
    sys.exit(main())
