"""Explain models that come from no file: typed into a notebook's cell, at a prompt, behind ``python -c``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff

TYPED = """
from padiff.testing.toy import columns, rows

class Ours(rows.Module):
    def __init__(self):
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x):
        return self.two(self.one(x) * 2)

class Theirs(columns.Layer):
    def __init__(self):
        self.one, self.two = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x):
        return self.two(self.one(x))
"""


@pytest.mark.parametrize("name", ["<stdin>", "<string>", "<ipython-input-3-0abc>", "<python-input-3>"])
def test_typed_code_has_lines_and_causes(name: str) -> None:
    """Their lines were told, and what differs in them was not looked for: names in brackets are the machinery's."""
    typed: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(TYPED, name, "exec"), typed)
    report = padiff.diff(typed["Ours"](), typed["Theirs"](), np.ones((3, 4), np.float32))
    (source,) = report.sources
    assert str(source.cause) == "mul(_, 2) in the reference only", str(report)
    assert source.reference.location == f"{name}:9", str(report)
