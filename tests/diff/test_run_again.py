"""Compare a loop that keeps what it computed with one that computes all again: their calls do not fit one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff

X = (np.random.default_rng(0).standard_normal((2, 4, 8), dtype=np.float32),)


class Attention(nn.Module):
    """Attention over what came before, of which the keys and values are handed in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any, cache: Any = None) -> Any:
        k, v = self.k(x), self.v(x)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        scores = self.q(x) @ k.transpose(1, 2)
        hidden = torch.ones(scores.shape[1:]).triu(k.shape[1] - x.shape[1] + 1).bool()
        return self.out(torch.softmax(scores.masked_fill(hidden, -1e9), -1) @ v), (k, v)


class Packed(nn.Module):
    """The same of all so far at once; ``fault`` cuts a gradient."""

    def __init__(self, fault: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.fault = nn.Linear(8, 24), nn.Linear(8, 8), fault

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ (k.detach() if self.fault else k).transpose(1, 2)
        return self.out(torch.softmax(scores + torch.full(scores.shape[1:], -1e4).triu(1), -1) @ v), (k, v)


class Loop(nn.Module):
    """A decoder that is given one word after the other, behind the first two."""

    def __init__(self, attentions: list[Any]) -> None:
        super().__init__()
        self.norms, self.attentions = nn.ModuleList(nn.LayerNorm(8) for _ in attentions), nn.ModuleList(attentions)
        self.head = nn.Linear(8, 8)


class Kept(Loop):
    def __init__(self, layers: int) -> None:
        super().__init__([Attention() for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        caches: list[Any] = [None] * len(self.attentions)
        found: list[Any] = []
        for end in (2, 3):
            y = x[:, end - 1 : end] if found else x[:, :end]
            for index, (norm, attention) in enumerate(zip(self.norms, self.attentions, strict=True)):
                added, caches[index] = attention(norm(y), caches[index])
                y = y + added
            found.append(self.head(y[:, -1:]))
        return torch.cat(found, 1)


class Again(Loop):
    def __init__(self, layers: int, fault: bool = False) -> None:
        super().__init__([Packed(fault and index == 0) for index in range(layers)])

    def forward(self, x: Any) -> Any:
        found: list[Any] = []
        for end in (2, 3):
            y = x[:, :end]
            for norm, attention in zip(self.norms, self.attentions, strict=True):
                y = y + attention(norm(y))[0]
            found.append(self.head(y[:, -1:]))
        return torch.cat(found, 1)


@pytest.mark.parametrize("layers", [1, 2])
def test_what_one_side_keeps_the_other_may_compute_again(layers: int) -> None:
    for models in ((Kept(layers), Again(layers)), (Again(layers), Kept(layers))):
        report = padiff.diff(*models, X)
        assert report.aligned, report
        assert not report.transfer.unverified, report


def test_a_gradient_that_is_cut_there_is_told_beside_the_block() -> None:
    report = padiff.diff(Kept(1), Again(1, fault=True), X)
    assert ("attentions.0", "head") in {source.between for source in report.sources}, report
