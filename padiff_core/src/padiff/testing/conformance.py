"""Write down what the suite sees of an adapter, and make a table of it.

As a plugin of pytest (``-p padiff.testing.conformance --conformance FOLDER``) it writes ``FOLDER/<adapter>.json`` for
each adapter whose suite ran; `table` renders all files of a folder. So adapters whose frameworks cannot live in one
environment are run apart and stand in one table. With ``--collect-only`` nothing is tested, and a file says what would
be. ``python -m padiff.testing`` does all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from padiff.adapter import CAPABILITIES

__all__ = ["Conformance", "Seen", "read", "rows", "table"]

_FIRST = ("torch", "paddle", "mindspore", "flax")


@attrs.frozen
class Seen:
    """What a suite saw of one adapter: by feature ``yes``, ``no``, ``untested`` or ``fails``."""

    adapter: str
    version: str
    """The framework's, without what a build adds to it."""
    features: Mapping[str, str]
    dtypes: tuple[str, ...] = attrs.field(converter=tuple)

    def write(self, folder: Path) -> None:
        """Write the adapter's file."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(attrs.asdict(self), indent=2)
        folder.joinpath(f"{self.adapter}.json").write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> list[Seen]:
    """Return what the files of a folder hold, the best known adapters first."""
    found = [Seen(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.json")]
    return sorted(found, key=lambda seen: (*(seen.adapter != name for name in _FIRST), seen.adapter))


def rows() -> dict[str, str]:
    """Return every feature with what it means: the rooms of the suite, then the capabilities."""
    from padiff.testing._suite import AdapterTests

    rooms = [room for room in AdapterTests.__mro__ if "feature" in room.__dict__]
    said = {room.__dict__["feature"]: (room.__doc__ or "").split(".")[0] for room in rooms}
    return {name: text for name, text in said.items() if name not in (*CAPABILITIES, "refusals")} | dict(CAPABILITIES)


def table(seen: list[Seen]) -> str:
    """Return the table as Markdown: a row for each feature, a column for each adapter."""
    names = [one.adapter for one in seen]
    lines = [_row("feature", "what is tested", *names), _row(*["---"] * (len(names) + 2))]
    lines += [_row("version", "of the framework", *(one.version for one in seen))]
    for feature, text in rows().items():
        sentence = text[0].lower() + text[1:]
        lines.append(_row(feature, sentence, *(one.features.get(feature, "unknown") for one in seen)))
    dtypes = list(dict.fromkeys(name for one in seen for name in one.dtypes))
    for name in dtypes:
        lines.append(_row(f"dtype `{name}`", "values cross bit for bit", *(_yes(name in one.dtypes) for one in seen)))
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


class Conformance:
    """What follows a session of pytest and writes down what it shows of each adapter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.collected: dict[type, set[str]] = {}
        """Test class -> the features of which a test was collected."""
        self.failed: dict[type, set[str]] = {}
        self._of: dict[str, tuple[type, set[str]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which features are tested."""
        for item in session.items:
            cls = getattr(item, "cls", None)
            if cls is not None and hasattr(cls, "held_dtypes"):
                features = set(_features(cls, getattr(item, "originalname", item.name)))
                self.collected.setdefault(cls, set()).update(features)
                self._of[item.nodeid] = cls, features

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which features fail."""
        if report.failed and report.nodeid in self._of:
            cls, features = self._of[report.nodeid]
            self.failed.setdefault(cls, set()).update(features)

    def pytest_sessionfinish(self) -> None:
        """Write the files."""
        for cls in self.collected:
            self.seen(cls).write(self.folder)

    def seen(self, cls: Any) -> Seen:
        """Return what was seen of the adapter of one test class."""
        adapter = cls.adapter
        version = str(adapter.environment()[adapter.name]).partition("+")[0]
        return Seen(adapter.name, version, {name: self._state(cls, name) for name in rows()}, cls.held_dtypes())

    def _state(self, cls: Any, feature: str) -> str:
        if feature in self.failed.get(cls, ()):
            return "fails"
        if feature in CAPABILITIES and feature not in cls.adapter.capabilities:
            return "no"
        return "yes" if feature in self.collected[cls] else "untested"


def _features(cls: type, name: str) -> Iterator[str]:
    """Yield the features that a test is of: the capabilities that it needs, or its room's."""
    home = next((base for base in cls.__mro__ if name in base.__dict__), cls)
    test = home.__dict__.get(name)
    named = (*getattr(test, "needs", ()), *home.__dict__.get("requires", ()))
    lacking = getattr(test, "lacks", None)
    yield from named or (lacking or home.__dict__.get("feature", "own"),)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the folder."""
    parser.addoption("--conformance", metavar="FOLDER", type=Path, help="write what AdapterTests see to FOLDER")


def pytest_configure(config: pytest.Config) -> None:
    """Follow the session where a folder is given."""
    folder = config.getoption("--conformance")
    if folder is not None:
        config.pluginmanager.register(Conformance(folder), "padiff-conformance")
