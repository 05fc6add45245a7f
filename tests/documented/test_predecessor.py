"""Say clearly that PaDiff, the distribution ``padiff``, is installed beside this one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import padiff
from padiff import PluginWarning, assign_weight, plugins, predecessor

from .nets import mlp

_SAID = "PaDiff 0.3.0 (the distribution 'padiff') and padiff-core are installed together"
_HINT = "Hint: pip uninstall padiff, then pip install --force-reinstall --no-deps padiff-core."


def _install(folder: Path) -> None:
    info = folder / "padiff-0.3.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: padiff\nVersion: 0.3.0\n")


@pytest.fixture
def anew() -> Iterator[None]:
    plugins.reset()
    yield
    plugins.reset()


@pytest.mark.usefixtures("anew")
def test_the_first_use_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.warns(PluginWarning) as caught:
        assign_weight(mlp("torch"), mlp("paddle"))
    (warning,) = caught
    assert str(warning.message).startswith(_SAID)
    assert str(warning.message).endswith(_HINT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        assert assign_weight(mlp("torch"), mlp("paddle"))


@pytest.mark.usefixtures("anew")
def test_there_is_nothing_to_say_without_it() -> None:
    assert predecessor.found() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        assert assign_weight(mlp("torch"), mlp("paddle"))


def test_files_of_both_in_one_folder_are_explained(tmp_path: Path) -> None:
    site = tmp_path / "site"
    _install(site)
    shutil.copytree(Path(padiff.__file__).parent, site / "padiff", ignore=shutil.ignore_patterns("__pycache__"))
    theirs = site / "padiff" / "report"  # a package of PaDiff's, over one of ours
    theirs.mkdir(exist_ok=True)
    (theirs / "__init__.py").write_text("")
    code = "import sys; sys.path.insert(0, 'site'); import padiff; padiff.auto_diff"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"ImportError: {_SAID}" in done.stderr
    assert done.stderr.rstrip().endswith(_HINT)
