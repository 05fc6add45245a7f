"""Scale a convolution by a style on its weight or on what it takes: around their loose parameters all else is other."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import padiff

C, UP = 4, 2
STYLES = np.random.default_rng(0).standard_normal((2, C)).astype(np.float32)


class Modulated(torch.nn.Module):
    """A convolution whose weight is scaled by a style and normalised, for each sample of its own."""

    def __init__(self, features: int, size: int, up: bool = False) -> None:
        super().__init__()
        self.weight, self.affine = torch.nn.Parameter(torch.randn(features, C, size, size)), torch.nn.Linear(C, C)
        self.up = up

    def forward(self, x: Any, w: Any) -> Any:
        weight = self.weight[None] * self.affine(w)[:, None, :, None, None]
        weight = weight * (weight.square().sum([2, 3, 4], keepdim=True) + 1e-8).rsqrt()
        batch, (out, size) = len(x), self.weight.shape[::2]
        x = x.reshape(1, -1, *x.shape[2:])
        if self.up:
            weight = weight.transpose(1, 2).reshape(-1, out, size, size)
            x = torch.nn.functional.conv_transpose2d(x, weight, stride=UP, groups=batch)
        else:
            weight = weight.reshape(-1, C, size, size)
            x = torch.nn.functional.conv2d(x, weight, padding=size // 2, groups=batch)
        x = x.reshape(batch, -1, *x.shape[2:])
        return torch.nn.functional.avg_pool2d(x, 2, 1) if self.up else x


class Styled(torch.nn.Module):
    def __init__(self, size: int, up: bool = False) -> None:
        super().__init__()
        self.conv = Modulated(C, 3, up)
        self.register_buffer("noise", torch.randn(size, size))
        self.noise_strength, self.bias = torch.nn.Parameter(torch.rand(())), torch.nn.Parameter(torch.randn(C))

    def forward(self, x: Any, w: Any) -> Any:
        x = self.conv(x, w) + self.noise * self.noise_strength + self.bias[:, None, None]
        return torch.nn.functional.leaky_relu(x, 0.2)


class Generator(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.const = torch.nn.Parameter(torch.randn(C, 4, 4))
        self.l0, self.l1, self.l2 = Styled(4), Styled(8, up=True), Styled(8)
        self.rgb0, self.rgb1 = Modulated(3, 1), Modulated(3, 1)
        self.b0, self.b1 = torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(3))

    def forward(self, w: Any) -> Any:
        x = self.l0(self.const.expand(len(w), -1, -1, -1), w)
        y = self.rgb0(x, w) + self.b0[:, None, None]
        x = self.l2(self.l1(x, w), w)
        y = torch.nn.functional.interpolate(y, scale_factor=UP, mode="nearest")
        return y + self.rgb1(x, w) + self.b1[:, None, None]


class ModulatedInput(paddle.nn.Layer):
    """The same, with the style on what it takes and the norm on what it gives."""

    def __init__(self, features: int, size: int, up: bool = False) -> None:
        super().__init__()
        self.weight, self.mod = self.create_parameter([features, C, size, size]), paddle.nn.Linear(C, C)
        self.up = up

    def forward(self, x: Any, w: Any) -> Any:
        style = self.mod(w)
        x = x * style.unsqueeze(-1).unsqueeze(-1)
        if self.up:
            x = paddle.nn.functional.conv2d_transpose(x, self.weight.transpose([1, 0, 2, 3]), stride=UP)
        else:
            x = paddle.nn.functional.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2)
        norm = paddle.rsqrt(paddle.einsum("oikl,bi->bo", self.weight**2, style**2) + 1e-8)
        x = x * norm.unsqueeze(-1).unsqueeze(-1)
        if not self.up:
            return x
        mean = paddle.full([C, 1, 2, 2], 0.25)
        return paddle.nn.functional.conv2d(x, mean, groups=C)


class StyledInput(paddle.nn.Layer):
    def __init__(self, size: int, up: bool = False) -> None:
        super().__init__()
        self.conv = ModulatedInput(C, 3, up)
        self.register_buffer("noise", paddle.randn([1, 1, size, size]))
        self.strength, self.bias = self.create_parameter([1]), self.create_parameter([1, C, 1, 1])

    def forward(self, x: Any, w: Any) -> Any:
        return paddle.nn.functional.leaky_relu(self.conv(x, w) + self.strength * self.noise + self.bias, 0.2)


class Colour(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bias = ModulatedInput(3, 1), self.create_parameter([1, 3, 1, 1])

    def forward(self, x: Any, w: Any, before: Any = None) -> Any:
        y = self.conv(x, w) + self.bias
        return y if before is None else y + paddle.nn.functional.interpolate(before, scale_factor=UP, mode="nearest")


class GeneratorOfInputs(paddle.nn.Layer):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.input, self.fault = self.create_parameter([1, C, 4, 4]), fault
        self.conv1, self.convs = StyledInput(4), paddle.nn.LayerList([StyledInput(8, True), StyledInput(8)])
        self.to_rgb1, self.to_rgbs = Colour(), paddle.nn.LayerList([Colour()])

    def forward(self, w: Any) -> Any:
        x = self.conv1(self.input.tile([w.shape[0], 1, 1, 1]), w)
        y = self.to_rgb1(x, w)
        x = self.convs[1](self.convs[0](x, w), w)
        return self.to_rgbs[0](x, w.flip([0]) if self.fault == "style" else w, y)


def test_a_style_may_scale_a_weight_or_what_it_meets() -> None:
    """Two layers' strengths of noise were exchanged: the kinds of joints near them had outweighed their modules."""
    report = padiff.diff(Generator(), GeneratorOfInputs(), (STYLES,))
    assert report.aligned, str(report)


def test_a_fault_among_styled_layers_stands_at_its_place() -> None:
    report = padiff.diff(Generator(), GeneratorOfInputs("style"), (STYLES,))
    (source,) = report.sources
    assert source.between == ("convs.1", "to_rgbs.0.conv"), str(report)
