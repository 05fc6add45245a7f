"""Compare recorded runs of blocks that put the same together inside, and of such in which a fault hardly shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

WIDE, HIDDEN, EXPERTS = 8, 16, 3


@pytest.fixture(autouse=True)
def seeded() -> None:
    np.random.seed(0)


def compared(folder: Path, models: tuple[Any, Any], given: np.ndarray, *, backward: bool) -> padiff.Report:
    padiff.transfer(*models, given)
    for model, name in zip(models, "ab", strict=True):
        side = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / name) as recorder:
            out = model(side.Tensor(given.copy()))
            if backward:
                (out * out).sum().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


class Scaled(rows.Module):
    """A residual block behind a scale; ``factor``: of its branch, by the branch's own code."""

    def __init__(self, scale: float, factor: float = 1.0) -> None:
        self.branch, self.scale = Branch(factor), rows.Tensor(np.full(WIDE, scale, np.float32), role="parameter")

    def forward(self, x: Any) -> Any:
        return x + self.branch(x) * self.scale


class Branch(rows.Module):
    def __init__(self, factor: float) -> None:
        self.up, self.down, self.factor = rows.Linear(WIDE, HIDDEN), rows.Linear(HIDDEN, WIDE), factor

    def forward(self, x: Any) -> Any:
        return self.down(functional.gelu(self.up(x))) * self.factor


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 1e-10])
def test_a_branch_is_wrong_however_little_it_adds(tmp_path: Path, scale: float) -> None:
    """Outputs agree behind a scale of 1e-6, whatever the branch gives: that is no proof that it ends elsewhere."""

    def model(factor: float = 1.0) -> Any:
        return rows.Sequential(rows.Linear(WIDE, WIDE), Scaled(scale, factor), rows.Linear(WIDE, 2))

    report = compared(tmp_path, (model(), model(1.01)), np.float32(np.random.randn(4, WIDE)), backward=False)
    (source,) = report.sources
    assert source.candidate.path == "1.branch", report


class Gated(rows.Module):
    """A branch behind a scale of zero, and another one behind it."""

    def __init__(self, gate: Any) -> None:
        self.gate, self.body = gate, rows.Linear(WIDE, WIDE)
        self.scale = rows.Tensor(np.zeros(WIDE, np.float32), role="parameter")

    def forward(self, x: Any) -> Any:
        gate = self.gate(x)
        return self.body(x) + gate * self.scale


class ByHand(rows.Module):
    """A linear layer of no kind that padiff knows, and wrong."""

    def __init__(self) -> None:
        self.weight, self.bias = rows.parameter(WIDE, WIDE), rows.parameter(WIDE)

    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight.transpose(1, 0), self.bias) * 1.01


@pytest.mark.parametrize("backward", [True, False])
def test_what_a_scale_of_zero_hides_is_no_proof(tmp_path: Path, backward: bool) -> None:
    """Nothing says yet what the branch will add: that the sum agrees is the other branch's doing."""
    models = [rows.Sequential(rows.Linear(WIDE, WIDE), Gated(one)) for one in (rows.Linear(WIDE, WIDE), ByHand())]
    report = compared(tmp_path, (models[0], models[1]), np.float32(np.random.randn(4, WIDE)), backward=backward)
    assert [source.candidate.path for source in report.sources] == ["1.gate"], report


class Expert(rows.Module):
    def __init__(self) -> None:
        self.up, self.down = rows.Linear(WIDE, HIDDEN, bias=False), rows.Linear(HIDDEN, WIDE, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(functional.gelu(self.up(x)))


class Mixed(rows.Module):
    """Experts whose outputs are scaled, by what a linear layer scores."""

    def __init__(self) -> None:
        self.gate = rows.Linear(WIDE, EXPERTS, bias=False)
        self.experts = rows.ModuleList(*(Expert() for _ in range(EXPERTS)))

    def forward(self, x: Any) -> Any:
        shares = functional.softmax(self.gate(x))
        return sum((expert(x) * shares[:, n : n + 1] for n, expert in enumerate(self.experts)), x * 0.0)


class Router(columns.Layer):
    """What scores are normalised in."""

    def __init__(self, fault: str) -> None:
        self.kernel, self.fault = columns.weight(WIDE, EXPERTS), fault

    def forward(self, x: Any) -> Any:
        return functional.softmax((x @ self.kernel) * (1.01 if self.fault == "router" else 1.0))


class Larger(columns.Dense):
    """A layer that is wrong."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * 1.01


class Inside(columns.Layer):
    """An expert that is scaled in front of its second layer."""

    def __init__(self, fault: str) -> None:
        self.up = (Larger if fault == "layer" else columns.Dense)(WIDE, HIDDEN, bias=False)
        self.down = columns.Dense(HIDDEN, WIDE, bias=False)
        self.fault = fault

    def forward(self, x: Any, share: Any) -> Any:
        return self.down(functional.gelu(self.up(x)) * (1.01 if self.fault == "expert" else 1.0) * share)


class Routed(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.router = Router(fault)
        self.experts = columns.Layers(*(Inside(fault if n == 1 else "") for n in range(EXPERTS)))

    def forward(self, x: Any) -> Any:
        shares = self.router(x)
        return sum((expert(x, shares[:, n : n + 1]) for n, expert in enumerate(self.experts)), x * 0.0)


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("fault", ["", "router", "expert", "layer"])
def test_experts_may_be_scaled_inside_and_a_router_give_shares(tmp_path: Path, fault: str, backward: bool) -> None:
    """What the right block shows holds for the wrong one: the fault lies there, and the block's own code is named."""
    models = (
        rows.Sequential(rows.Linear(WIDE, WIDE), Mixed(), rows.LayerNorm(WIDE), Mixed(), rows.Linear(WIDE, 2)),
        columns.Stack(
            columns.Dense(WIDE, WIDE), Routed(), columns.LayerNormalization(WIDE), Routed(fault), columns.Dense(WIDE, 2)
        ),
    )
    report = compared(tmp_path, models, np.float32(np.random.randn(6, WIDE)), backward=backward)
    assert report.aligned is not bool(fault), report
    place = {"": [], "layer": ["3.experts.1.up"]}.get(fault, ["3"])
    assert [source.candidate.path for source in report.sources] == place, report


class Held(rows.BatchNorm):
    """A norm that holds its activation."""

    def forward(self, x: Any) -> Any:
        return functional.silu(super().forward(x))


class Normed(columns.Layer):
    """A layer and its norm, behind which its caller puts the activation."""

    def __init__(self) -> None:
        self.layer, self.norm = columns.Dense(WIDE, WIDE), columns.BatchNormalization(WIDE)

    def forward(self, x: Any) -> Any:
        return self.norm(self.layer(x))


class Layered(columns.Layer):
    def __init__(self, factor: float) -> None:
        self.one, self.two, self.factor = Normed(), columns.Dense(WIDE, 2), factor

    def forward(self, x: Any) -> Any:
        return self.two(functional.silu(self.one(x)) * self.factor)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_norm_may_hold_what_stands_behind_the_block_that_it_ends(tmp_path: Path, factor: float) -> None:
    """timm's norms hold their activation; PaddleClas puts it behind a block of a layer and a norm."""
    ours = rows.Sequential(rows.Linear(WIDE, WIDE), Held(WIDE), rows.Linear(WIDE, 2))
    report = compared(tmp_path, (ours, Layered(factor)), np.float32(np.random.randn(6, WIDE)), backward=True)
    assert report.aligned == (factor == 1.0), report
