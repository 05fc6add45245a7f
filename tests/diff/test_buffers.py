"""Match buffers of one framework with frozen parameters of another: state is copied, constants are compared.

0.4 had each of these frozen parameters without counterpart, copied no codebook, and placed a wrong base in attention.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff.report import Phase


class Rotary(torch.nn.Module):
    """Frequencies in a buffer that no checkpoint holds, and what they make of queries and keys."""

    def __init__(self, features: int) -> None:
        super().__init__()
        inv_freq = 10000.0 ** -(torch.arange(0, features, 2) / features)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, x: Any) -> Any:
        angles = torch.outer(torch.arange(x.shape[1]).float(), self.inv_freq)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Attention(torch.nn.Module):
    """One head of attention with rotated queries and keys; queries snap to a codebook."""

    def __init__(self, features: int = 32) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(features, features) for _ in range(3))
        self.rotary = Rotary(features)
        self.register_buffer("codebook", torch.randn(12, features))

    def forward(self, x: Any) -> Any:
        q, k = self.rotary(self.q(x)), self.rotary(self.k(x))
        codes = self.codebook[torch.cdist(q, self.codebook).argmin(-1)]
        return torch.softmax((q + codes) @ k.transpose(1, 2) * 0.2, -1) @ self.v(x)


class Ported(paddle.nn.Layer):
    """The same, with both as frozen parameters of the layer itself."""

    def __init__(self, base: float = 10000.0, scale: float = 0.2, features: int = 32) -> None:
        super().__init__()
        self.scale = scale
        self.to_v, self.to_k, self.to_q = (paddle.nn.Linear(features, features) for _ in range(3))
        freqs = (base ** -(np.arange(0, features, 2) / features)).astype(np.float32)
        assigned = paddle.nn.initializer.Assign(freqs)
        self.freqs = self.create_parameter([features // 2], default_initializer=assigned)
        normal = paddle.nn.initializer.Normal()
        self.embed = self.create_parameter([12, features], default_initializer=normal)
        self.freqs.stop_gradient = self.embed.stop_gradient = True

    def rotate(self, x: Any) -> Any:
        angles = paddle.outer(paddle.arange(x.shape[1]).astype("float32"), self.freqs)
        a, b = x.chunk(2, -1)
        return paddle.concat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, x: Any) -> Any:
        q, k = self.rotate(self.to_q(x)), self.rotate(self.to_k(x))
        codes = self.embed[(q.unsqueeze(2) - self.embed).square().sum(-1).argmin(-1)]
        return paddle.nn.functional.softmax((q + codes) @ k.transpose([0, 2, 1]) * self.scale) @ self.to_v(x)


TOKENS = np.random.default_rng(0).standard_normal((2, 7, 32), dtype=np.float32)


def test_a_right_port_is_aligned() -> None:
    report = padiff.diff(Attention(), Ported(), (TOKENS,))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.copied == 7


@pytest.mark.parametrize("transfer", [True, False])
def test_a_wrong_base_is_named_at_the_frequencies(transfer: bool) -> None:
    reference, candidate = Attention(), Ported(base=5e5)
    padiff.diff(reference, candidate, (TOKENS,))
    report = padiff.diff(reference, candidate, (TOKENS,), transfer=transfer)
    (source,) = report.sources
    assert (source.phase, source.what.name, source.candidate.path) == (Phase.PARAMETER, "freqs", ""), str(report)
    assert source.reference.path == "rotary"


def test_a_wrong_scale_beside_is_named_in_the_code() -> None:
    report = padiff.diff(Attention(), Ported(scale=0.21), (TOKENS,))
    (source,) = report.sources
    assert source.phase is Phase.FORWARD, str(report)
