"""Parameters of one module that neither names nor shapes tell apart: only what its code makes of them does."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.parameters import HeldUnit, UnitMatch
from padiff.parameters._roles import link_roles
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import ModuleRecord, ParameterRecord

WIDTH = 6
TOKENS = np.random.default_rng(0).standard_normal((3, 4, WIDTH)).astype(np.float32)


class Block(rows.Module):
    """Two branches, each with a scale of its own."""

    def __init__(self) -> None:
        self.a, self.b = rows.Linear(WIDTH, WIDTH), rows.Linear(WIDTH, WIDTH)
        self.gamma_1, self.gamma_2 = (rows.parameter(WIDTH) for _ in range(2))

    def forward(self, x: Any) -> Any:
        x = x + self.gamma_1 * self.a(x)
        return x + self.gamma_2 * F.tanh(self.b(x))


class Port(columns.Layer):
    """The same, with its scales in another order and under other names."""

    def __init__(self, fault: float = 1.0) -> None:
        self.first, self.second = columns.Dense(WIDTH, WIDTH), columns.Dense(WIDTH, WIDTH)
        self.scale_late, self.scale_early = (columns.weight(WIDTH) for _ in range(2))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        x = x + self.scale_early * self.first(x)
        return x + self.scale_late * F.tanh(self.second(x)) * self.fault


def _partners(report: Any) -> dict[str, str]:
    return {row.reference[0]: row.candidate for row in report.mapping.parameters}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_are_told_by_what_the_code_makes_of_them(dtype: str) -> None:
    ours, theirs = Block(), Port()
    ours.to(dtype)
    theirs.to(dtype)
    report = padiff.diff(ours, theirs, TOKENS.astype(ours.gamma_1.data.dtype))
    assert report.aligned, report
    assert {"gamma_1": "scale_early", "gamma_2": "scale_late"}.items() <= _partners(report).items()


def test_a_fault_beside_them_is_named_with_the_right_partners() -> None:
    report = padiff.diff(Block(), Port(1.1), TOKENS)
    (source,) = report.sources
    assert (source.candidate.path, source.between) == ("", ("second", "end"))
    assert {"gamma_1": "scale_early", "gamma_2": "scale_late"}.items() <= _partners(report).items()


def test_values_tell_where_nothing_is_copied() -> None:
    ours, theirs = Block(), Port()
    padiff.transfer(ours, theirs, TOKENS)
    report = padiff.diff(ours, theirs, TOKENS, transfer=False)
    assert report.aligned, report


class Gates(rows.Module):
    """Groups of four scales and shifts, each group of another width."""

    def __init__(self, widths: range) -> None:
        self.widths = widths
        for width in widths:
            for name in "abcd":
                setattr(self, f"{name}{width}", rows.parameter(width))

    def forward(self, x: Any) -> Any:
        return F.concat(
            [_gated(x[..., :width], *(getattr(self, f"{n}{width}") for n in "abcd")) for width in self.widths]
        )


class Shuffled(columns.Layer):
    """The same, in another order and under other names."""

    def __init__(self, widths: range) -> None:
        self.widths = widths
        for width in widths:
            for name in "zwxy":
                setattr(self, f"{name}_{width}", columns.weight(width))

    def forward(self, x: Any) -> Any:
        return F.concat(
            [_gated(x[..., :width], *(getattr(self, f"{n}_{width}") for n in "wxyz")) for width in self.widths]
        )


def _gated(x: Any, scale: Any, shift: Any, again: Any, last: Any) -> Any:
    return F.tanh(x * scale + shift) * again + last


def test_many_parameters_are_told_without_trying_all_orders() -> None:
    widths = range(5, 13)
    x = np.random.default_rng(0).standard_normal((3, 12)).astype(np.float32)
    report = padiff.diff(Gates(widths), Shuffled(widths), x)
    assert report.aligned, report
    expected = {f"{a}{width}": f"{b}_{width}" for width in widths for a, b in zip("abcd", "wxyz", strict=True)}
    assert _partners(report) == expected


def unit(**shapes: tuple[int, ...]) -> HeldUnit:
    module = ModuleRecord("m", "M")
    ones = [
        HeldUnit.of_one(module, role, ParameterRecord(role, (role,), "float32", shape))
        for role, shape in shapes.items()
    ]
    roles = {role: held for one in ones for role, held in one.roles.items()}
    return HeldUnit(module, "", None, roles, ones[0].settings)


@pytest.mark.parametrize("shape", [(4, 3, 6), (12, 6), (1, 12, 6), (6, 12), (6, 1, 12), (1, 6, 12)])
def test_heads_lie_in_a_matrix_as_it_is_or_transposed_whatever_axes_have_length_one(shape: tuple[int, ...]) -> None:
    (link,) = link_roles(unit(w=(4, 3, 6)), attrs.evolve(unit(w=shape), module=ModuleRecord("m", "N")))[1]
    values = np.arange(72).reshape(4, 3, 6)
    straight = shape in ((4, 3, 6), (12, 6), (1, 12, 6))
    assert (link.transposed, link.layout) == (not straight, "as in the reference" if straight else "transposed")
    turned = values.reshape(12, 6) if straight else values.reshape(12, 6).T
    np.testing.assert_array_equal(link.to_candidate(values), turned.reshape(shape))


def test_an_axis_of_length_one_is_no_name() -> None:
    """Lengths of a weight norm, kept as (out, 1, 1) here and as (out,) there, are as many as the biases: both ways."""
    ours, theirs = unit(bias=(8,), original0=(8, 1, 1), original1=(8, 4, 3)), unit(v=(8, 4, 3), g=(8,), b=(8,))
    first = UnitMatch(ours, theirs, link_roles(ours, theirs)[1])
    names = {held: role for role, held in theirs.roles.items()}
    found = [{link.role: names[link.candidate] for link in match.links} for match in (first, *first.orders())]
    assert {"bias": "b", "original0": "g", "original1": "v"} in found


class Harmonics(rows.Module):
    """A sum in which nothing but numbers in the code tells which scale is which."""

    def __init__(self) -> None:
        for name in "abcdef":
            setattr(self, name, rows.parameter(WIDTH))

    def forward(self, x: Any) -> Any:
        total = x
        for number, name in enumerate("abcdef", 1):
            total = F.tanh(x * (0.5 * number)) * getattr(self, name) + total
        return total


class Reversed(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        for name in "uvwxyz":
            setattr(self, name, columns.weight(WIDTH))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        total = x
        for number, name in zip(range(6, 0, -1), "uvwxyz", strict=True):
            total = (x if self.fault == name else F.tanh(x * (0.5 * number))) * getattr(self, name) + total
        return total


@pytest.mark.parametrize("fault", ["", "x"])
@pytest.mark.parametrize("copied", [True, False])
def test_exchanges_of_two_tell_the_order_of_many(copied: bool, fault: str) -> None:
    """Of six parameters the first 48 of 720 orders were tried."""
    ours, theirs = Harmonics(), Reversed(fault)
    for a, b in zip("abcdef", "zyxwvu", strict=True):
        getattr(theirs, b).data = getattr(ours, a).data.copy()
    report = padiff.diff(ours, theirs, TOKENS, transfer=copied)
    assert report.aligned == (not fault), report
    assert _partners(report) == dict(zip("abcdef", "zyxwvu", strict=True))
