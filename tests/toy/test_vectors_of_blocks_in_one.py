"""Hold in one table what blocks hold in vectors of their own, each used in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


class Gates(rows.Module):
    """A block that scales and shifts its values by four vectors of its own."""

    def __init__(self) -> None:
        self.a, self.b, self.c, self.d = (rows.parameter(4) for _ in range(4))
        self.fc = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + F.tanh(self.fc(x * self.a + self.b)) * F.sigmoid(self.c + x) * self.d


class GatesInOne(columns.Layer):
    """Such blocks, with all vectors of one kind beside each other, and these in another order."""

    def __init__(self, fault: str) -> None:
        self.all, self.fault = columns.weight(4, 2, 4), fault
        self.fc = columns.Layers(columns.Dense(4, 4), columns.Dense(4, 4))

    def forward(self, x: Any) -> Any:
        for place in range(2):
            d, c, a, b = (self.all[n, place] for n in range(4))
            a, b = (b, a) if self.fault and place == 1 else (a, b)
            x = x + F.tanh(self.fc[place](x * a + b)) * F.sigmoid(c + x) * d
        return x


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "in one"])
def test_a_table_holds_what_code_of_all_blocks_uses(turned: bool) -> None:
    """Blocks hold their own; in which order is tried for all blocks alike."""
    sides = rows.Sequential(Gates(), Gates()), GatesInOne("")
    report = padiff.diff(*(sides[::-1] if turned else sides), X)
    assert report.aligned, str(report)


def test_another_order_in_one_of_these_blocks_is_one_source() -> None:
    (source,) = padiff.diff(rows.Sequential(Gates(), Gates()), GatesInOne("swap"), X).sources
    assert source.between is not None
    assert source.between[1] == "fc.1"


class Modulated(rows.Module):
    """A block with six vectors of its own: a shift, a scale and a gate for each of its halves."""

    def __init__(self) -> None:
        for name in ("shift", "scale", "gate", "shift_two", "scale_two", "gate_two"):
            setattr(self, name, rows.parameter(4))
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = x + F.tanh(self.one(x * (self.scale + 1.0) + self.shift)) * self.gate
        return x + F.sigmoid(self.two(x * (self.scale_two + 1.0) + self.shift_two)) * self.gate_two


class ModulatedInOne(columns.Layer):
    """Such blocks, with the vectors of all of them in one table, in another order."""

    def __init__(self, fault: bool) -> None:
        self.table, self.fault = columns.weight(6, 3, 4), fault
        self.fc1, self.fc2 = (columns.Layers(*(columns.Dense(4, 4) for _ in range(3))) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for place in range(3):
            scale, shift, gate, shift_two, scale_two, gate_two = (self.table[n, place] for n in range(6))
            if self.fault and place == 1:
                gate, gate_two = gate_two, gate
            x = x + F.tanh(self.fc1[place](x * (scale + 1.0) + shift)) * gate
            x = x + F.sigmoid(self.fc2[place](x * (scale_two + 1.0) + shift_two)) * gate_two
        return x


@pytest.mark.parametrize("fault", [False, True], ids=["right", "gates exchanged"])
def test_more_vectors_than_orders_are_asked_of_change_places_in_all_blocks(fault: bool) -> None:
    """Six have 720 orders: two at a time change places, while less differs so."""
    right = rows.Sequential(*(Modulated() for _ in range(3)))
    report = padiff.diff(right, ModulatedInOne(fault), X)
    assert report.aligned is not fault, str(report)


class Branched(rows.Module):
    """Two branches of a norm each, as large as the other one."""

    def __init__(self) -> None:
        self.left, self.right = rows.LayerNorm(4), rows.LayerNorm(4)
        self.a, self.b = rows.Linear(4, 6), rows.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        return F.concat([F.tanh(self.a(self.left(x))), F.tanh(self.b(self.right(x)))])


class BranchedPort(columns.Layer):
    """The same, the second branch first, with a scale and a shift in one parameter for each."""

    def __init__(self) -> None:
        self.fc1, self.fc2 = columns.Dense(4, 6), columns.Dense(4, 5)
        self.two, self.one = columns.weight(2, 4), columns.weight(2, 4)

    def forward(self, x: Any) -> Any:
        second = F.tanh(self.fc2(F.layer_norm(x, self.two[0], self.two[1], 1e-5)))
        return F.concat([F.tanh(self.fc1(F.layer_norm(x, self.one[0], self.one[1], 1e-5))), second])


def test_the_dataflow_tells_which_layer_has_its_roles_in_one() -> None:
    """The run comes to them in another order on each side."""
    report = padiff.diff(Branched(), BranchedPort(), X)
    assert report.aligned, str(report)
