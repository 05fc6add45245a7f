"""Where both sides are in one process, the frameworks are imported in the order that they need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs
import pytest

from padiff.adapter import AdapterInfo
from padiff.cli._order import import_in_order
from padiff.plugins import load

FIRST = AdapterInfo("early", roots={"early", "early_models"}, factory="early:make", load_before={"late"})
LATE = AdapterInfo("late", roots={"late", "late_models"}, factory="late:make")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with two frameworks that write down when they are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("padiff.plugins.adapters", lambda: (LATE, FIRST))
    for name in ("early", "late", "early_models", "late_models", "side_a", "side_b", "package"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("early", "late", "early_models", "late_models"):
        tmp_path.joinpath(f"{name}.py").write_text(f"open('imported', 'a').write('{name} ')\n")
    return tmp_path


def imported() -> str:
    file = Path("imported")
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("import late", "import early", "early "),
        ("def build():\n    import late_models.sub", "from early_models import net", "early "),
        ("import late", "import other", ""),
        ("import numpy", "import early", ""),
        ("not python at all", "import early", ""),
    ],
)
def test_the_one_that_must_come_first_does(folder: Path, a: str, b: str, expected: str) -> None:
    folder.joinpath("side_a.py").write_text(a)
    folder.joinpath("side_b.py").write_text(b)
    import_in_order(["side_a:build", "side_b.py:build"])
    assert imported() == expected


def test_what_the_named_module_imports_from_its_own_folder_counts(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    package.joinpath("__init__.py").write_text("import late\n")
    package.joinpath("ports.py").write_text("from . import models\nfrom .nets.deep import Net\n")
    package.joinpath("models.py").write_text("")
    package.joinpath("nets").mkdir()
    package.joinpath("nets", "deep.py").write_text("import early\n")
    import_in_order(["package.ports:build"])
    assert imported() == "early "
    assert "package" not in sys.modules


def test_variables_are_set_that_no_user_has_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an adapter asks for is there before its framework is imported, and a user's own value stays."""
    info = attrs.evolve(FIRST, environment={"PADIFF_TEST_UNSET": "1", "PADIFF_TEST_SET": "1"})
    monkeypatch.setattr("padiff.plugins._registry.adapters", lambda: (LATE, info))
    monkeypatch.setenv("PADIFF_TEST_UNSET", "")
    monkeypatch.delenv("PADIFF_TEST_UNSET")
    monkeypatch.setenv("PADIFF_TEST_SET", "0")
    import_in_order([])
    assert (os.environ["PADIFF_TEST_UNSET"], os.environ["PADIFF_TEST_SET"]) == ("1", "0")


def test_where_it_is_too_late_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "late", sys)
    monkeypatch.delitem(sys.modules, "early", raising=False)
    with pytest.warns(match="late came before early") as caught, pytest.raises(Exception, match="early"):
        load(FIRST)
    text = str(caught[0].message)
    assert "import early before late, at the top of the script" in text
    assert "padiff.remote('module:function') gives early's model a process of its own" in text
