"""Match parameters by what they do: kinds that compute the same, parameters that no rule speaks of, names that mislead.

0.4 called each of the right ports here wrong.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff


def randoms(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


class Squeezed(torch.nn.Module):
    """Squeeze and excitation with convolutions of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.out = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 1)
        self.fc1, self.fc2 = torch.nn.Conv2d(8, 8, 1), torch.nn.Conv2d(8, 8, 1)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        y = torch.relu(self.fc1(x.mean((2, 3), keepdim=True)))
        return self.out(x * torch.sigmoid(self.fc2(y)))


class Linearly(paddle.nn.Layer):
    """The same with linear layers, whose names say the other thing."""

    def __init__(self, slope: float = 1.0) -> None:
        super().__init__()
        self.fc2, self.fc1 = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)
        self.out, self.stem = paddle.nn.Conv2D(8, 8, 1), paddle.nn.Conv2D(3, 8, 3)
        self.slope = slope

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        y = paddle.nn.functional.relu(self.fc2(x.mean([2, 3])))
        y = paddle.nn.functional.sigmoid(self.fc1(y) * self.slope)
        return self.out(x * y.unsqueeze([2, 3]))


class Adapted(torch.nn.Module):
    """A linear layer and what adapts it at low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(8, 8)
        self.lora_A = torch.nn.Parameter(torch.randn(4, 8))
        self.lora_B = torch.nn.Parameter(torch.randn(8, 4))

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


class Transposed(paddle.nn.Layer):
    """The same, stored the other way round: by shapes each would be the other."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        normal = paddle.nn.initializer.Normal()
        self.base, self.scale = paddle.nn.Linear(8, 8), scale
        self.lora_B = self.create_parameter([4, 8], default_initializer=normal)
        self.lora_A = self.create_parameter([8, 4], default_initializer=normal)

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.lora_A @ self.lora_B * self.scale


class Conv1D(torch.nn.Module):
    """A linear layer as GPT-2 writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.randn(8, 8)), torch.nn.Parameter(torch.randn(8))

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x.reshape(-1, 8), self.weight).reshape(x.shape)


class Projected(torch.nn.Module):
    """Two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(), Conv1D()

    def forward(self, x: Any) -> Any:
        return self.c_proj(torch.tanh(self.c_fc(x)))


class Plain(paddle.nn.Layer):
    """The same in linear layers, under each other's names."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.c_proj, self.c_fc, self.scale = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8), scale

    def forward(self, x: Any) -> Any:
        return self.c_fc(paddle.tanh(self.c_proj(x) * self.scale))


PORTS = pytest.mark.parametrize(
    ("ours", "theirs", "x"),
    [
        (Squeezed, Linearly, randoms(2, 3, 9, 9)),
        (Adapted, Transposed, randoms(2, 5, 8)),
        (Projected, Plain, randoms(2, 5, 8)),
    ],
)


@PORTS
def test_a_right_port_is_aligned(ours: Any, theirs: Any, x: Any) -> None:
    candidate = theirs()
    report = padiff.diff(ours(), candidate, (x,))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == len(candidate.parameters())


@PORTS
def test_a_fault_in_one_is_named_at_its_place(ours: Any, theirs: Any, x: Any) -> None:
    report = padiff.diff(ours(), theirs(1.05), (x,))
    assert {source.candidate.path for source in report.sources} == {""}, str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_candidate


class PaddedApart(paddle.nn.Layer):
    """A module that pads, and a convolution that does not."""

    def __init__(self, padding: list[int]) -> None:
        super().__init__()
        self.pad, self.conv = paddle.nn.Pad2D(padding), paddle.nn.Conv2D(3, 8, 3)

    def forward(self, x: Any) -> Any:
        return self.conv(self.pad(x))


@pytest.mark.parametrize(("padding", "told"), [([1, 1, 1, 1], None), ([0, 2, 0, 2], "((0, 2), (0, 2)) (by Pad2D)")])
def test_padding_of_a_module_in_front_counts_as_that_of_a_convolution(padding: list[int], told: str | None) -> None:
    ours = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU())
    theirs = paddle.nn.Sequential(PaddedApart(padding), paddle.nn.ReLU())
    report = padiff.diff(ours, theirs, (randoms(2, 3, 9, 9),))
    causes = [(one.candidate.path, one.cause and one.cause.parameters) for one in report.sources]
    both = {"padding": {"reference": "((1, 1), (1, 1))", "candidate": told}}
    assert causes == ([("0", both)] if told else []), str(report)


class Attending(torch.nn.Module):
    """Attention of two heads, whose scores are mixed on both sides of the softmax."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.norm, self.heads = torch.nn.LayerNorm(width), heads
        self.q, self.kv = (torch.nn.Linear(width, rows * width, bias=False) for rows in (1, 2))
        self.out = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Dropout(0.0))
        self.before, self.after = (torch.nn.Parameter(torch.randn(heads, heads)) for _ in range(2))

    def forward(self, x: Any, *beside: Any) -> Any:
        x = self.norm(x)
        k, v = self.kv(torch.cat((x, *beside), 1)).chunk(2, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q(x), k, v))
        scores = torch.einsum("bhij,hg->bgij", q @ k.transpose(-1, -2) / 2, self.before).softmax(-1)
        return self.out((torch.einsum("bhij,hg->bgij", scores, self.after) @ v).transpose(1, 2).flatten(2))


class Scaled(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.scale = inner, torch.nn.Parameter(torch.full((1, 1, 16), 0.1))

    def forward(self, *given: Any) -> Any:
        return self.inner(*given) * self.scale


def feeding() -> Any:
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
    return torch.nn.Sequential(torch.nn.LayerNorm(16), *layers)


class Tower(torch.nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        pairs = ((Scaled(Attending()), Scaled(feeding())) for _ in range(depth))
        self.layers, self.skips = torch.nn.ModuleList(map(torch.nn.ModuleList, pairs)), False

    def forward(self, x: Any, *beside: Any) -> Any:
        for attend, feed in self.layers:
            x = attend(x, *beside) + x
            x = x if self.skips else feed(x) + x
        return x


class ClassAttention(torch.nn.Module):
    """Blocks on patches, of which there are as many as features, and a block on a token that attends to them."""

    def __init__(self) -> None:
        super().__init__()
        norms = torch.nn.LayerNorm(6), torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.embed = torch.nn.Sequential(norms[0], torch.nn.Linear(6, 16), norms[1])
        self.place, self.token = (torch.nn.Parameter(torch.randn(1, count, 16)) for count in (16, 1))
        self.patches, self.token_only = Tower(2), Tower(1)
        self.head = torch.nn.Sequential(norms[2], torch.nn.Linear(16, 3))

    def forward(self, x: Any) -> Any:
        x = self.patches(self.embed(x) + self.place)
        return self.head(self.token_only(self.token.expand(len(x), -1, -1), x)[:, 0])


def test_blocks_that_are_skipped_leave_no_parameter_without_a_counterpart() -> None:
    """Less was compared, and so less differed, where a scale was taken for a norm of what nobody calls."""
    torch.manual_seed(0)
    ours = ClassAttention()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter += torch.randn_like(parameter) * 0.05
    theirs = copy.deepcopy(ours)
    theirs.patches.skips = theirs.token_only.skips = True
    report = padiff.diff(ours, theirs, randoms(2, 16, 6))
    assert {source.candidate.path for source in report.sources} == {"patches", "token_only"}, str(report)
    assert str(report).startswith("not aligned: 1 source in 3 places"), str(report)


class Halved(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base, self.branch, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(4, 4), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, taken = self.base(x).chunk(2, -1)
        return self.out(torch.cat((kept, torch.relu(self.branch(taken))), -1))


class HalvedPort(paddle.nn.Layer):
    """The same, its layers under other names, maybe with the halves in each other's place."""

    def __init__(self, *, crossed: bool) -> None:
        super().__init__()
        self.body, self.way, self.last = paddle.nn.Linear(4, 8), paddle.nn.Linear(4, 4), paddle.nn.Linear(8, 2)
        self.crossed = crossed

    def forward(self, x: Any) -> Any:
        kept, taken = paddle.chunk(self.body(x), 2, axis=-1)
        if self.crossed:
            kept, taken = taken, kept
        taken = paddle.nn.functional.relu(self.way(taken))
        return self.last(paddle.concat((kept, taken), axis=-1))


@pytest.mark.parametrize("crossed", [False, True])
def test_halves_in_each_others_place_are_one_source_whatever_layers_are_called(crossed: bool) -> None:
    report = padiff.diff(Halved(), HalvedPort(crossed=crossed), (randoms(3, 4),))
    assert repr(report).startswith("<Report: not aligned: 1 source in 2 places" if crossed else "<Report: aligned"), (
        str(report)
    )
