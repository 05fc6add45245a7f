"""A model against its deployment form: norms folded into the convolutions in front, in one framework and another."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from torch.nn.utils import fuse_conv_bn_eval

import padiff

nn, pnn = torch.nn, paddle.nn
X = np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, bias=False), nn.Conv2d(6, 6, 3)
        self.norm1, self.norm2, self.out = nn.BatchNorm2d(6), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm1(self.first(x)))
        return self.out(torch.relu(self.norm2(self.second(x))).mean((2, 3)))


class Deployed(pnn.Layer):
    def __init__(self, fused: Any) -> None:
        super().__init__()
        self.first, self.second, self.out = pnn.Conv2D(3, 6, 3), pnn.Conv2D(6, 6, 3), pnn.Linear(6, 4)
        for name, layer in self.named_children():
            ours = getattr(fused, name)
            weight = ours.weight.detach().numpy()
            layer.weight.set_value(weight.T if name == "out" else weight)
            layer.bias.set_value(ours.bias.detach().numpy())

    def forward(self, x: Any) -> Any:
        relu = pnn.functional.relu
        return self.out(relu(self.second(relu(self.first(x)))).mean((2, 3)))


def trained() -> Net:
    torch.manual_seed(0)
    net = Net()
    for norm in (net.norm1, net.norm2):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.3)
    for _ in range(5):
        net(torch.randn(8, 3, 9, 9) * 1.3 + 0.4)
    return net.eval()


def fused(net: Net) -> Any:
    port: Any = copy.deepcopy(net)
    for layer, norm in (("first", "norm1"), ("second", "norm2")):
        setattr(port, layer, fuse_conv_bn_eval(getattr(net, layer), getattr(net, norm)))
        setattr(port, norm, nn.Identity())
    return port


@pytest.mark.parametrize("transfer", [True, False])
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_folded_norms_are_merged_and_one_that_is_not_is_a_source(*, framework: str, transfer: bool) -> None:
    net = trained()
    port = fused(net)
    port = Deployed(port) if framework == "paddle" else port.requires_grad_(False)
    for parameter in port.parameters() if framework == "paddle" else ():
        parameter.stop_gradient = True
    report = padiff.diff(net, port, (X,), transfer=transfer)
    assert str(report).startswith("aligned, forward only ("), str(report)
    assert not any(getattr(one, "requires_grad", not getattr(one, "stop_gradient", True)) for one in port.parameters())
    net.norm2.eps = 1e-3
    (source,) = padiff.diff(net, port, (X,), transfer=False).sources
    assert (source.candidate.path, source.cause and source.cause.name) == ("second", "merged")
