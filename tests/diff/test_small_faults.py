"""Tell a fault of a dozen machine epsilons, made between the children, from rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import padiff

from .models import Kit, array, assert_clean, blocks, source

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


@pytest.mark.parametrize("epsilons", [24, -24])
def test_a_factor_close_to_one_is_named(kits: Kits, epsilons: int) -> None:
    # Below 16 epsilons a difference is excused where the code rounds to a narrower type even in float64; whether it
    # does is seen by disturbing all that it is fed, what the children hand on among it.
    assert_clean(padiff.diff(blocks(kits[0]), blocks(kits[1]), X))
    port = blocks(kits[1], factors={1: 1 + epsilons * 1.2e-7})
    found = source(padiff.diff(blocks(kits[0]), port, X), "forward", "blocks.1")
    assert found.between == ("act", "end")


class Masked(torch.nn.Module):
    """Attention that fills in what a mask of whole numbers leaves out, or adds it, as code casts it to floats."""

    def __init__(self, factor: float = 1.0, *, cast: bool = False, scale: float = -1e9) -> None:
        super().__init__()
        self.query, self.out = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.factor, self.cast, self.scale = factor, cast, scale

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ x.transpose(1, 2)
        if self.cast:
            scores = scores * self.factor + (1.0 - mask[:, None].to(torch.float32)) * self.scale
        else:
            scores = scores.masked_fill(mask[:, None] == 0, self.scale)
        return self.out(scores.softmax(-1) @ x)


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("scale", [-1e9, float(np.finfo(np.float32).min)])
def test_a_cast_mask_of_large_numbers_explains_no_difference(scale: float, phase: str) -> None:
    """Ones that a cast gives are exact: an epsilon of them, a billion times, explained whatever was wrong beside it."""
    given = array(2, 5, 4), np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    assert padiff.diff(Masked(scale=scale), Masked(cast=True, scale=scale), given, phase=phase).aligned
    for factor in (1.0003, 1.01):
        report = padiff.diff(Masked(scale=scale), Masked(factor, cast=True, scale=scale), given, phase=phase)
        (found,) = report.sources
        assert str(found.cause) == f"mul(_, {factor}) in the candidate only", str(report)
