"""Match layers of different kinds that compute the same: a linear layer, and a convolution on patches or a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

IMAGES = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


class Patched(rows.Module):
    """Patches of two by two elements by a convolution, then layers on tokens, with a table of positions."""

    def __init__(self) -> None:
        self.patch, self.norm, self.head = rows.Conv2d(3, 6, 2, stride=2), rows.LayerNorm(6), rows.Linear(6, 4)
        self.positions = rows.parameter(16, 6)

    def forward(self, x: Any) -> Any:
        y = self.patch(x).reshape(2, 6, 16).transpose(0, 2, 1)
        return self.head(self.norm(F.tanh(y + self.positions)))


class Unfolded(columns.Layer):
    """The same by a linear layer, on patches that are taken as (height, width, in) or in another order."""

    def __init__(self, order: tuple[int, ...], fault: str = "") -> None:
        self.head, self.places = columns.Dense(6, 4), columns.weight(16, 6)
        self.ln, self.project = columns.LayerNormalization(6), columns.Dense(12, 6)
        self.order, self.fault = order, fault

    def forward(self, x: Any) -> Any:
        axes = {1: 1, 2: 3, 3: 5}
        tokens = (4, 2) if self.fault == "order" else (2, 4)
        x = x.reshape(2, 3, 4, 2, 4, 2).transpose(0, *tokens, *(axes[axis] for axis in self.order)).reshape(2, 16, 12)
        y = self.project(x) * (1.01 if self.fault == "scale" else 1)
        return self.head(self.ln(F.sigmoid(y) if self.fault == "inside" else F.tanh(y + self.places)))


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 2, 1)])
@pytest.mark.parametrize("swapped", [False, True])
def test_patches_may_be_taken_by_a_linear_layer(order: tuple[int, ...], swapped: bool) -> None:
    """0.4 had both without counterpart."""
    models = Patched(), Unfolded(order)
    report = padiff.diff(*(models[::-1] if swapped else models), IMAGES)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert not report.transfer.unverified, str(report)


@pytest.mark.parametrize("fault", ["order", "scale", "inside"])
def test_a_fault_after_them_is_named(fault: str) -> None:
    report = padiff.diff(Patched(), Unfolded((2, 3, 1), fault), IMAGES)
    (source,) = report.sources
    assert source.candidate.path == "", str(report)
    assert source.between is not None, str(report)
    assert source.between[1] == "ln", str(report)


def test_patches_are_compared_by_value_without_a_transfer() -> None:
    reference, candidate = Patched(), Unfolded((2, 3, 1))
    padiff.diff(reference, candidate, IMAGES)
    report = padiff.diff(reference, candidate, IMAGES, transfer=False)
    assert report.aligned, str(report)


class Sliding(rows.Module):
    """A convolution whose patches overlap."""

    def __init__(self) -> None:
        self.conv, self.out = rows.Conv2d(3, 6, 2), rows.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.out(F.tanh(self.conv(x).reshape(2, 6, 49).transpose(0, 2, 1)))


class Gathered(columns.Layer):
    """The same by a linear layer, on patches that are gathered element by element."""

    def __init__(self, fault: str) -> None:
        self.fc, self.out, self.fault = columns.Dense(12, 6), columns.Dense(6, 4), fault

    def forward(self, x: Any) -> Any:
        corners = [(c, i, j) for c in range(3) for i in range(2) for j in range(2)]
        x = F.concat([x[:, c, i : i + 7, j : j + 7].reshape(2, 49, 1) for c, i, j in corners])
        return self.out(F.sigmoid(self.fc(x)) if self.fault else F.tanh(self.fc(x)))


@pytest.mark.parametrize("fault", ["", "activation"])
def test_patches_may_overlap(fault: str) -> None:
    """Side by side alone they were a linear layer's: a convolution written by hand was left over (QRNNs, im2col)."""
    report = padiff.diff(Sliding(), Gathered(fault), IMAGES)
    assert [(one.candidate.path, one.between) for one in report.sources] == [("", ("fc", "out"))] * bool(fault), str(
        report
    )
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate


class Looked(rows.Module):
    """Vectors of a table, as many as each is long, then a layer."""

    def __init__(self, entries: int) -> None:
        self.table, self.head = rows.Embedding(entries, 6), rows.Linear(6, 4)

    def forward(self, ids: Any) -> Any:
        return self.head(F.tanh(self.table(ids)))


class Multiplied(columns.Layer):
    """The same by a product with ones and zeros."""

    def __init__(self, entries: int, fault: str = "") -> None:
        self.head, self.vectors, self.fault = columns.Dense(6, 4), columns.Dense(entries, 6, bias=False), fault
        self.entries = entries

    def forward(self, ids: Any) -> Any:
        chosen = (ids.data + (self.fault == "index")) % self.entries
        y = self.vectors(columns.Tensor(np.eye(self.entries, dtype=np.float32)[chosen]))
        return self.head(F.sigmoid(y) if self.fault == "inside" else F.tanh(y))


IDS = np.random.default_rng(0).integers(0, 6, (2, 5))


@pytest.mark.parametrize("entries", [6, 9])
def test_a_table_may_be_a_linear_layer(entries: int) -> None:
    report = padiff.diff(Looked(entries), Multiplied(entries), IDS)
    assert report.aligned, str(report)
    assert padiff.diff(Looked(entries), Multiplied(entries), IDS).aligned


@pytest.mark.parametrize("fault", ["index", "inside"])
def test_a_fault_around_a_table_is_named(fault: str) -> None:
    report = padiff.diff(Looked(9), Multiplied(9, fault), IDS)
    (source,) = report.sources
    assert source.candidate.path in ("", "vectors"), str(report)
