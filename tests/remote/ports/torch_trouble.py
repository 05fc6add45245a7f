"""Be a torch model that goes wrong while it runs, in the way that it was told."""

from __future__ import annotations

from typing import Any

import torch
from toy_trouble import WAYS, hang, hold, turn

__all__ = ["build", "hang", "hold", "turn"]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = Last()

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


class Last(torch.nn.Module):
    way = ""

    def forward(self, x: Any) -> Any:
        return WAYS[self.way](x)


def build(way: str = "") -> torch.nn.Module:
    """Return the network."""
    net = Net()
    turn(net, way)
    return net
