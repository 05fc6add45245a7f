"""Fail at once where a framework that must be tested is not there, import MindSpore first, and spread the cases.

A test that is parametrised over directions (``torch-paddle``: the reference's framework, the candidate's) and over
cases would run each case six times, and see the same code of padiff six times. So each case runs in one direction, the
next case in the next one. MindSpore takes several times the CPU of the others: an eighth of the cases runs with it, in
turn as the reference and as the candidate of either; of the tests with fewer than four cases each fifth runs its first
case in two directions, one of them MindSpore's. Which it is follows from the test's name alone, in every process and
every run. ``--all-directions`` runs them all.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from padiff.plugins import _user_transfers, reset

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "chromium-headless-shell",
)

TOY_FOLDERS = ("diagnosis", "mapping", "toy")
FRAMEWORKS = ("torch", "paddle", "mindspore")
DIRECTIONS = [f"{one}-{other}" for one in FRAMEWORKS for other in FRAMEWORKS if one != other]
EVERY, SPARED, FEW = 4, 2, 5
"""How many cases there are to one that runs with MindSpore, where it can run without; which of those does without; and
how many tests of fewer cases there are to one that does."""
NEW_OBJECTS = 20_000
"""Objects after which garbage is looked for among the youngest; while a diff runs padiff sets as much."""
NEVER = 10**6
COLLECTED_EVERY = 200
_DIRECTION = re.compile(rf"(?<![a-z])({'|'.join(DIRECTIONS)})(?![a-z])")


def browser() -> str | None:
    """Return the path of the browser that the graph's page is tested in, or None; ``PADIFF_BROWSER`` names one."""
    return os.environ.get("PADIFF_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)


def chosen(ids: Sequence[str]) -> set[str]:
    """Return which of these tests are run: those without a direction, and of each case of the others one or two."""
    functions: dict[str, dict[str, dict[str, str]]] = {}
    kept = set()
    for test in ids:
        function, bracket, case = test.partition("[")
        found = _DIRECTION.search(case)
        if not bracket or found is None:
            kept.add(test)
            continue
        name = f"{case[: found.start()]}_{case[found.end() :]}"
        functions.setdefault(function, {}).setdefault(name, {})[found[0]] = test
    for function, cases in functions.items():
        first = zlib.crc32(function.rpartition("/")[2].encode())
        for index, directions in enumerate(cases.values()):
            dear = [directions[name] for name in DIRECTIONS if name in directions and "mindspore" in name]
            cheap = [directions[name] for name in DIRECTIONS if name in directions and "mindspore" not in name]
            turn, left = divmod(first + index, EVERY)
            few, spared = len(cases) < EVERY, turn % SPARED == SPARED - 1
            if not cheap or not dear:
                kept.add((cheap or dear)[(first + index) % len(cheap or dear)])
                continue
            if left or few or spared:
                kept.add(cheap[(first + index + turn) % len(cheap)])
            if (index == 0 and first % FEW == 0) if few else not (left or spared):
                kept.add(dear[turn % len(dear)])
    return kept


class SeldomCollected:
    """Look through all objects, the frameworks' million among them, once in two hundred tests.

    It takes 0.2 to 0.4 s, which came after every other diff: more than many a diff takes. They are not frozen, since
    a diff would count them (0.04 s) to learn whether the user had.
    """

    def __init__(self) -> None:
        self.tests = 0
        gc.set_threshold(NEW_OBJECTS, 10, NEVER)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.tests += 1
        if self.tests % COLLECTED_EVERY == 0:
            gc.collect()


def pytest_configure(config: pytest.Config) -> None:
    """Check ``PADIFF_REQUIRE`` (``torch,paddle,mindspore,browser``): what is missing is a failure, never a skip."""
    config.addinivalue_line("markers", "every_direction: run this case in every pair of frameworks")
    required = [name.strip() for name in os.environ.get("PADIFF_REQUIRE", "").split(",") if name.strip()]
    missing = [name for name in required if not (browser() if name == "browser" else importlib.util.find_spec(name))]
    if missing:
        names = ", ".join(missing)
        hint = "make test installs the frameworks, and .ci/run a browser."
        msg = f"PADIFF_REQUIRE asks for {names}, which cannot be used here.\nHint: {hint}"
        pytest.exit(msg, returncode=4)
    config.pluginmanager.register(SeldomCollected())
    # How long an example takes says how busy the machine is, and nothing about padiff.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
    # MindSpore's threads hand each operation on and wait by turning, which costs five times the CPU of the diff itself.
    # It reads this once, at its first operation; the processes that tests start inherit it. What it does without is
    # put to the test by ``adapters/test_conformance.py``, which runs the whole suite of MindSpore's adapter so.
    os.environ.setdefault("MS_DEV_LAUNCH_BLOCKING", "1")
    # Both ship a libdnnl.so.3, the first one loaded stays, and MindSpore cannot use Paddle's.
    if importlib.util.find_spec("mindspore") is not None:
        mindspore = importlib.import_module("mindspore")
        # Its kernels hand each other pieces of work, and wait by turning: on busy cores twenty times as long as alone.
        mindspore.set_context(runtime_num_threads=1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs every case in every direction."""
    parser.addoption("--all-directions", action="store_true", help="run every case in every pair of frameworks")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the directions that a case does not run in, unless a test is asked for by its whole name."""
    asked = any("[" in argument for argument in config.args)
    if asked or config.getoption("--all-directions"):
        return
    spread = [item.nodeid for item in items if item.get_closest_marker("every_direction") is None]
    left_out = set(spread) - chosen(spread)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly that the page of the graph was not tested, where there is no browser."""
    if browser() is None:
        terminalreporter.section("NO BROWSER: the tests of the graph's page were not run", red=True, bold=True)
        terminalreporter.line("`apt install chromium` gives one, or PADIFF_BROWSER=path names it.")


@pytest.fixture(scope="module", autouse=True)
def _toy_framework(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let padiff find the toy framework's adapters in the folders whose tests are about it, and nowhere else."""
    if request.path.parent.name not in TOY_FOLDERS:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent / "toy" / "site")
        reset()
        yield
    reset()


@pytest.fixture(autouse=True)
def _same_weights(request: pytest.FixtureRequest) -> None:
    """Let a test of the toy framework draw the same weights in every run, whatever ran before."""
    if request.path.parent.name in TOY_FOLDERS:
        np.random.seed(2)


@pytest.fixture(autouse=True)
def _own_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the special transfers that a test registers, or a page that it runs, end with it."""
    monkeypatch.setattr(_user_transfers, "_REGISTERED", {})


@pytest.fixture(scope="session")
def browser_path() -> str:
    """Return the browser's path; skip the test where there is none."""
    path = browser()
    if path is None:
        pytest.skip("there is no browser here; `apt install chromium` gives one")
    return path
