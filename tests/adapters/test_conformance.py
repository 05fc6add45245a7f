"""Hold the committed table of conformance to what the suite gives today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from padiff.testing.conformance import Conformance, read, table

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "conformance"
HINT = f"Hint: python -m padiff.testing --into {FOLDER.relative_to(ROOT)} tests/adapters/test_*_adapter.py"
LATER = """
(TestMindSpore or test_an_error_is_raised_in_the_cell or test_flags_come_back_after_an_error) and not (
test_chance_is_no_fault or test_a_wrong_operand_is_named or test_several_faults_are_all_named
or test_a_fault_in_a_modules_own_code or test_a_fault_inside_a_leaf or test_keywords_and_nested_outputs_are_compared
or test_a_shared_module_is_compared or test_parameters_are_compared_where or test_optimizers_are_compared
or test_a_fault_of_the_backward_pass_alone
or test_the_plugin_imports_nothing or test_an_entry_speaks or test_a_class_of_the_table or test_compiled)
"""
"""What computes, and of whole diffs, which take five times the CPU so, one of each sort: right, and in place."""
FILES = sorted(Path(__file__).parent.glob("test_*_adapter.py"))


def test_the_table_is_what_the_suite_gives(tmp_path: Path) -> None:
    """What the adapters' tests collect is what their files in docs/conformance and the table say."""
    line = ["--collect-only", "-qq", "-p", "no:cacheprovider", *map(str, FILES)]
    assert pytest.main(line, plugins=[Conformance(tmp_path)]) == 0
    fresh = {one.adapter: one for one in read(tmp_path)}
    known = read(FOLDER)
    assert len(fresh) == len(FILES)
    assert [fresh.get(one.adapter, one) for one in known] == known, HINT
    assert table(known) in FOLDER.with_suffix(".md").read_text(encoding="utf-8"), HINT


def test_mindspore_passes_where_its_operations_are_computed_later() -> None:
    """In other tests each operation of MindSpore's ends where it is called; by default another thread computes it."""
    file = next(file for file in FILES if "mindspore" in file.name)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file), "-k", LATER.replace("\n", " ")]
    environment = {**os.environ, "MS_DEV_LAUNCH_BLOCKING": "0"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 200, done.stdout


def test_every_adapter_has_a_column_and_nothing_fails() -> None:
    """Each adapter with tests here stands in the table, with no feature that fails."""
    seen = {one.adapter: one for one in read(FOLDER)}
    here = {file.stem.removeprefix("test_").removesuffix("_adapter") for file in FILES}
    assert here >= {"torch", "paddle", "mindspore"}
    assert set(seen) >= here | {"flax"}
    assert not [one.adapter for one in seen.values() if "fails" in one.features.values()]
