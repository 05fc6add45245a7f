"""Thresholds: one table, each bound a function of machine epsilon."""

from __future__ import annotations

import tokenize
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from padiff.numerics import NEGLIGIBLE, THRESHOLDS, difference, epsilon, epsilon_of, is_suspect
from padiff.numerics import __file__ as home
from padiff.numerics._rounding import table

ROOT = Path(__file__).parents[2]
SMALL = [name for name in dir(ml_dtypes) if name.startswith(("bfloat16", "float8_"))]


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", *SMALL])
def test_every_floating_dtype_has_its_epsilon(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert 0 < epsilon(dtype) <= 1
    assert np.ones((), dtype) + np.asarray(epsilon(dtype), dtype) != 1


@pytest.mark.parametrize("name", ["bool", "int8", "uint64"])
def test_whole_numbers_are_exact(name: str) -> None:
    assert epsilon(np.dtype(name)) == 0


def test_the_documentation_shows_the_table_that_the_code_has() -> None:
    assert table() in (ROOT / "docs/how_it_works.md").read_text(encoding="utf-8")


def test_no_bound_shrinks_where_a_type_is_coarser() -> None:
    for threshold in THRESHOLDS:
        bounds = [threshold(epsilon_of(name)) for name in ("float64", "float32", "float16", "bfloat16")]
        assert bounds == sorted(bounds), threshold.name
        assert all(bound > 0 for bound in bounds)


def test_no_other_module_types_a_tolerance() -> None:
    """A number such as 1e-3 in the code of another room would be meant for one type; options and compat hold the
    defaults of PaDiff."""
    core = Path(home).parents[1]
    found = []
    for file in sorted(core.rglob("*.py")):
        if file.relative_to(core).parts[0] not in ("testing", "numerics", "compat", "options.py"):
            with file.open("rb") as lines:
                numbers = [token.string for token in tokenize.tokenize(lines.readline) if token.type == tokenize.NUMBER]
            found += [f"{file.relative_to(core)}: {number}" for number in numbers if "e-" in number]
    assert found == []


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
def test_one_unit_in_the_last_place_is_no_fault_of_a_wide_type(dtype: type) -> None:
    values = np.linspace(1, 2, 1000).astype(dtype)
    eps = epsilon(np.dtype(dtype))
    moved = (values.astype(np.float64) * (1 + eps)).astype(dtype)
    apart = difference(values, moved)
    assert apart.rel_l2 <= NEGLIGIBLE(eps)
    assert is_suspect(apart, np.dtype(dtype)) is (dtype is ml_dtypes.bfloat16)
