"""Match buffers of one framework with frozen parameters of another: state is copied, constants are compared.

0.4 had each of these frozen parameters without counterpart, copied no codebook, and placed a wrong base in attention.
"""

from __future__ import annotations

from typing import Any

import mindspore
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


class Sunk(mindspore.nn.Cell):
    """The same in MindSpore, where all constants are parameters without a gradient."""

    def __init__(self, base: float = 10000.0, features: int = 32) -> None:
        super().__init__()
        self.value, self.key, self.query = (mindspore.nn.Dense(features, features) for _ in range(3))
        freqs = (base ** -(np.arange(0, features, 2) / features)).astype(np.float32)
        self.freqs = mindspore.Parameter(mindspore.Tensor(freqs), requires_grad=False)
        codes = np.random.default_rng(1).standard_normal((12, features), dtype=np.float32)
        self.codes = mindspore.Parameter(mindspore.Tensor(codes), requires_grad=False)

    def rotate(self, x: Any) -> Any:
        angles = mindspore.ops.outer(mindspore.ops.arange(x.shape[1]).astype(mindspore.float32), self.freqs)
        a, b = mindspore.ops.chunk(x, 2, -1)
        sin, cos = mindspore.ops.sin(angles), mindspore.ops.cos(angles)
        return mindspore.ops.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def construct(self, x: Any) -> Any:
        q, k = self.rotate(self.query(x)), self.rotate(self.key(x))
        far = mindspore.ops.square(q.expand_dims(2) - self.codes).sum(-1)
        q = q + mindspore.ops.gather(self.codes, far.argmin(-1), 0)
        weights = mindspore.ops.softmax(mindspore.ops.matmul(q, k.swapaxes(1, 2)) * 0.2)
        return mindspore.ops.matmul(weights, self.value(x))


def test_a_port_to_mindspore_is_aligned() -> None:
    report = padiff.diff(Attention(), Sunk(), (TOKENS,))
    assert report.aligned, str(report)


def test_a_wrong_base_in_mindspore_is_named() -> None:
    report = padiff.diff(Attention(), Sunk(base=5e5), (TOKENS,))
    (source,) = report.sources
    assert (source.phase, source.what.name) == (Phase.PARAMETER, "freqs"), str(report)


class Relative(torch.nn.Module):
    """Attention with a bias for each distance, whose table an index tells, and a mask; both are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.table = torch.nn.Parameter(torch.randn(13, 2))
        places = torch.arange(7)
        self.register_buffer("relative_position_index", places[:, None] - places[None] + 6)
        self.register_buffer("mask", torch.triu(torch.full((7, 7), float("-inf")), 1))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).view(len(x), 7, 3, 2, 8).permute(2, 0, 3, 1, 4)
        bias = self.table[self.relative_position_index].permute(2, 0, 1)
        scores = q @ k.transpose(-1, -2) * 8**-0.5 + bias + self.mask
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(len(x), 7, 16))


class Indexed(paddle.nn.Layer):
    """The same, with the index in a buffer or in code, and a finite mask that the code makes."""

    def __init__(self, held: bool, sign: int = 1) -> None:
        super().__init__()
        self.qkv, self.proj = paddle.nn.Linear(16, 48), paddle.nn.Linear(16, 16)
        self.bias = self.create_parameter([13, 2], default_initializer=paddle.nn.initializer.Normal())
        places = np.arange(7)
        self.index: Any = [paddle.to_tensor(sign * (places[:, None] - places[None]) + 6)]
        if held:
            (index,) = self.index
            del self.index
            self.register_buffer("index", index, persistable=False)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).reshape([len(x), 7, 3, 2, 8]).transpose([2, 0, 3, 1, 4]).unbind(0)
        index = self.index if isinstance(self.index, paddle.Tensor) else self.index[0]
        bias = self.bias[index.reshape([-1])].reshape([7, 7, 2]).transpose([2, 0, 1])
        scores = q @ k.transpose([0, 1, 3, 2]) * 8**-0.5 + bias + paddle.triu(paddle.full([7, 7], -1e4), 1)
        return self.proj((paddle.nn.functional.softmax(scores) @ v).transpose([0, 2, 1, 3]).reshape([len(x), 7, 16]))


SEVEN = np.random.default_rng(0).standard_normal((2, 7, 16), dtype=np.float32)


@pytest.mark.parametrize("held", [True, False])
def test_an_index_may_be_a_buffer_or_made_in_code(held: bool) -> None:
    report = padiff.diff(Relative(), Indexed(held), (SEVEN,))
    assert report.aligned, str(report)


@pytest.mark.parametrize("held", [True, False])
def test_a_wrong_index_is_named(held: bool) -> None:
    """Where it is a buffer, at the buffer: 0.4 named the code that uses it."""
    report = padiff.diff(Relative(), Indexed(held, -1), (SEVEN,))
    (source,) = report.sources
    assert (source.phase is Phase.PARAMETER) is held, str(report)
    assert source.what.name == ("index" if held else "input"), str(report)


X = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)


class Moving(torch.nn.Module):
    """A moving average, written into its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        with torch.no_grad():
            self.average.mul_(0.9).add_(0.1 * y.mean(0))
        return y - self.average


class Exchanged(Moving):
    """The same, with another tensor in the buffer's place after each run."""

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        self.average = (0.9 * self.average + 0.1 * y.mean(0)).detach()
        return y - self.average


class ExchangedInPaddle(paddle.nn.Layer):
    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        self.linear, self.share = paddle.nn.Linear(4, 4), share
        self.register_buffer("average", paddle.zeros([4]))

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        self.average = (0.9 * self.average + self.share * y.mean(0)).detach()
        return y - 0.1 / self.share * self.average


@pytest.mark.parametrize(
    ("reference", "candidate"), [(Moving, Exchanged), (Moving, ExchangedInPaddle), (ExchangedInPaddle, Moving)]
)
def test_another_tensor_may_take_a_buffers_place(reference: Any, candidate: Any) -> None:
    assert padiff.diff(reference(), candidate(), (X,)).aligned


def test_a_wrong_tensor_in_a_buffers_place_is_named() -> None:
    (source,) = padiff.diff(Moving(), ExchangedInPaddle(0.2), (X,)).sources
    assert (source.phase, source.what) == (Phase.BUFFER, "buffer average after the run")


class Normed(torch.nn.Module):
    """Norm what a layer gives, channels second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.norm(self.first(x).transpose(1, 2)).transpose(1, 2)))


class NormedInRows(paddle.nn.Layer):
    """The same, with all steps as rows of one batch."""

    def __init__(self, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.first, self.last = paddle.nn.Linear(5, 6), paddle.nn.Linear(6, 3)
        self.norm = paddle.nn.BatchNorm1D(6, epsilon=epsilon, momentum=momentum)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        return self.last(paddle.tanh(self.norm(y.reshape([-1, 6])).reshape(y.shape)))


@pytest.mark.parametrize(("epsilon", "momentum", "phase"), [(1e-3, 0.9, "forward"), (1e-5, 0.5, "buffer")])
def test_a_setting_of_a_norm_in_rows_is_the_cause_of_what_it_changes(
    epsilon: float, momentum: float, phase: str
) -> None:
    """Any bit in a running statistic was told as a source, with another epsilon as its cause."""
    x = np.random.default_rng(0).standard_normal((3, 7, 5), dtype=np.float32)
    report = padiff.diff(Normed(), NormedInRows(epsilon, momentum), x)
    assert {source.phase for source in report.sources} == {phase}, str(report)


@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_norm_without_weights_that_keeps_no_statistics_is_a_source(training: bool, track: bool) -> None:
    """In training it gives the same: `aligned` was what differs as soon as the model is evaluated."""
    ours = paddle.nn.Sequential(
        paddle.nn.Linear(32, 5), paddle.nn.BatchNorm1D(5, weight_attr=False, bias_attr=False), paddle.nn.Linear(5, 2)
    )
    norm = torch.nn.BatchNorm1d(5, affine=False, track_running_stats=track)
    theirs = torch.nn.Sequential(torch.nn.Linear(32, 5), norm, torch.nn.Linear(5, 2)).train(training)
    ours.train() if training else ours.eval()
    found = padiff.diff(ours, theirs, {"input": TOKENS[0]}).sources
    told = [(one.phase, one.candidate.path, one.cause and one.cause.parameters["track"]) for one in found]
    phase = Phase.BUFFER if training else Phase.FORWARD
    assert told == [(phase, "1", {"reference": "True", "candidate": "False"})] * (not track), found


@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_instance_norms_of_paddle_keep_no_statistics(training: bool, track: bool) -> None:
    """Nor do they say so: in training one of torch that keeps some was `aligned`."""
    ours = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.InstanceNorm2d(4, track_running_stats=track))
    theirs = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 4, 3), paddle.nn.InstanceNorm2D(4, weight_attr=False, bias_attr=False)
    )
    ours.train(training)
    theirs.train() if training else theirs.eval()
    image = np.random.default_rng(0).standard_normal((2, 3, 9, 9), dtype=np.float32)
    report = padiff.diff(ours, theirs, {"input": image})
    told = [(one.phase, one.candidate.path, one.cause and one.cause.parameters["track"]) for one in report.sources]
    phase = Phase.BUFFER if training else Phase.FORWARD
    assert told == [(phase, "1", {"reference": "True", "candidate": "False"})] * track, str(report)
    assert "not finite" not in str(report)
