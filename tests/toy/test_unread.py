"""Ask again with other values where those of an input are all the same: they tell nothing of a port that ignores it."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 5, 4)).astype("float32")


class Net(rows.Module):
    def __init__(self) -> None:
        self.inner, self.kinds, self.outer = rows.Linear(4, 6), rows.Embedding(2, 6), rows.Linear(6, 3)

    def forward(self, x: Any, mask: Any, kinds: Any) -> Any:
        return self.outer((self.inner(x) + self.kinds(kinds)) * mask.reshape(2, 5, 1))


class Port(columns.Layer):
    def __init__(self, *reads: str) -> None:
        self.reads = reads
        self.inner, self.kinds, self.outer = columns.Dense(4, 6), columns.Embed(2, 6), columns.Dense(6, 3)

    def forward(self, x: Any, mask: Any, kinds: Any) -> Any:
        x = self.inner(x) + (self.kinds(kinds) if "kinds" in self.reads else self.kinds.table[0])
        return self.outer(x * mask.reshape(2, 5, 1) if "mask" in self.reads else x)


def run(*reads: str, mask: Any = None, kind: int = 0) -> padiff.Report:
    mask = np.ones((2, 5), "float32") if mask is None else mask
    return padiff.diff(Net(), Port(*reads), {"x": X, "mask": mask, "kinds": np.full((2, 5), kind)})


def notes(report: padiff.Report) -> list[str]:
    return [note.text for note in report.notes if note.kind == "input_unread"]


def test_a_port_that_reads_what_is_constant_hears_nothing() -> None:
    for kind in (0, 1):
        report = run("mask", "kinds", kind=kind)
        assert report.aligned
        assert not notes(report), str(report)


def test_an_input_without_a_gradient_that_a_port_never_reads_is_told() -> None:
    """Version 0.4 called it aligned, and said nothing."""
    report = run("mask")
    assert report.aligned
    (said,) = notes(report)
    assert "the candidate does not read input kinds" in said


def test_a_mask_that_hides_nothing_and_that_a_port_never_reads_parts_them() -> None:
    """Its gradient is no longer excused as that of a mask which one side compares and the other multiplies with."""
    report = run("kinds")
    (source,) = report.sources
    assert (source.what.kind, source.what.name) == ("input_gradient", "mask")
    assert "the candidate does not read input mask" in str(report)


class Masked(rows.Module):
    def __init__(self) -> None:
        self.inner = rows.Linear(4, 4)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.inner(x) * mask.reshape(2, 5, 1)


class Turned(columns.Layer):
    """Reads the mask from the end: of one that hides nothing that is the same."""

    def __init__(self, turned: bool) -> None:
        self.inner, self.turned = columns.Dense(4, 4), turned

    def forward(self, x: Any, mask: Any) -> Any:
        return self.inner(x) * (mask[:, ::-1] if self.turned else mask).reshape(2, 5, 1)


def test_a_mask_of_ones_that_is_read_otherwise_is_told() -> None:
    for turned in (False, True):
        report = padiff.diff(Masked(), Turned(turned), {"x": X, "mask": np.ones((2, 5), "int64")})
        assert report.aligned, str(report)
        hidden = [note for note in report.notes if note.kind == "input_hides"]
        assert [note.data["reference"] for note in hidden] == ["mask"] * turned, str(report)
