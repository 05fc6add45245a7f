"""Compare norms of torch with ports that hold a norm's scale and shift in one parameter, or those of all norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype("float32")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.norm = torch.nn.ModuleList(Block() for _ in range(2)), torch.nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class PortBlock(paddle.nn.Layer):
    """A block that is given its norm, or has one of its own."""

    def __init__(self, own: bool, fault: bool) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fault = paddle.nn.Linear(8, 12), paddle.nn.Linear(12, 8), fault
        self.affine = self.create_parameter([8, 2]) if own else None

    def forward(self, x: Any, scale: Any, shift: Any) -> Any:
        if self.affine is not None:
            scale, shift = self.affine.unbind(1)
        if self.fault:
            scale, shift = shift, scale
        return x + self.fc2(paddle.tanh(self.fc1(paddle.nn.functional.layer_norm(x, [8], scale, shift))))


class Port(paddle.nn.Layer):
    def __init__(self, own: bool, fault: bool) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([PortBlock(own, fault and place == 1) for place in range(2)])
        self.table = self.create_parameter([2, 1 if own else 3, 8])

    def forward(self, x: Any) -> Any:
        for place, layer in enumerate(self.layers):
            x = layer(x, *self.table[:, min(place, len(self.table[0]) - 1)])
        return paddle.nn.functional.layer_norm(x, [8], *self.table[:, -1])


@pytest.mark.parametrize("own", [True, False], ids=["each its own", "all in one"])
@pytest.mark.parametrize("fault", [False, True], ids=["right", "swapped"])
def test_a_parameter_holds_scales_and_shifts(own: bool, fault: bool) -> None:
    torch.manual_seed(0)
    model = Model()
    for one in model.modules():
        if isinstance(one, torch.nn.LayerNorm):
            torch.nn.init.normal_(one.weight, 1, 0.3)
            torch.nn.init.normal_(one.bias, 0, 0.3)
    report = padiff.diff(model, Port(own, fault), X)
    assert report.aligned is not fault, str(report)
    assert [source.candidate.path for source in report.sources] == ["layers.1"] * fault, str(report)
