"""Compare layers that Paddle or MindSpore computes again in the backward pass with the same layers of torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch
import torch.utils.checkpoint
from paddle.distributed.fleet.utils import recompute

import padiff
from padiff import Phase

X = (np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32),)


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layers = torch.nn.Linear(8, 8), torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class PaddleNet(paddle.nn.Layer):
    def __init__(self, reentrant: bool, wrong: float = 1.0) -> None:
        super().__init__()
        nn = paddle.nn
        self.stem, self.layers = nn.Linear(8, 8), nn.LayerList([Wrong(wrong if i == 1 else 1.0) for i in range(3)])
        self.reentrant = reentrant

    def every(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + paddle.tanh(layer(x))
        return x

    def forward(self, x: Any) -> Any:
        return recompute(self.every, self.stem(x), use_reentrant=self.reentrant)


class Wrong(paddle.nn.Linear):
    def __init__(self, factor: float) -> None:
        super().__init__(8, 8)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.factor


class MindSporeNet(mindspore.nn.Cell):
    def __init__(self, reentrant: bool, wrong: float = 1.0) -> None:
        super().__init__()
        self.stem = mindspore.nn.Dense(8, 8)
        self.layers = mindspore.nn.CellList([Layer(wrong if index == 1 else 1.0) for index in range(3)])
        for layer in self.layers:
            layer.recompute(use_reentrant=reentrant)

    def construct(self, x: Any) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(mindspore.nn.Cell):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.dense, self.factor = mindspore.nn.Dense(8, 8), factor

    def construct(self, x: Any) -> Any:
        return x + mindspore.ops.tanh(self.dense(x) * self.factor)


@pytest.mark.parametrize("net", [PaddleNet, MindSporeNet])
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_is_compared_as_any_other_code(net: Any, reentrant: bool) -> None:
    """Before, the reentrant form was not aligned, and of the other layers behind a fault were sources too."""
    assert padiff.diff(TorchNet(), net(reentrant), X).aligned
    assert padiff.diff(net(reentrant), TorchNet(), X).aligned
    report = padiff.diff(TorchNet(), net(reentrant, 1.1), X)
    assert len(report.sources) == 1, report
    assert report.sources[0].candidate.path in ("layers.1", "")
    assert report.sources[0].phase is Phase.FORWARD


class TorchBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.act(self.up(x)))


class PaddleBlock(paddle.nn.Layer):
    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.up, self.act, self.down = paddle.nn.Linear(8, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 8)
        self.cut = cut

    def forward(self, x: Any) -> Any:
        y = self.act(self.up(x))
        return x + self.down(y.detach() if self.cut else y)


class TorchBlocks(torch.nn.Sequential):
    def forward(self, x: Any) -> Any:
        for block in self:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True)
        return x


class PaddleBlocks(paddle.nn.Sequential):
    def forward(self, x: Any) -> Any:
        for block in self:
            x = recompute(block, x)
        return x


@pytest.mark.parametrize("values", ["tensors", "summary"])
@pytest.mark.parametrize("again", [(False, True), (True, False), (True, True)])
def test_what_a_loop_computes_again_is_recorded_once(tmp_path: Path, again: tuple[bool, bool], values: Any) -> None:
    """Gradients inside come to what is computed again; what Paddle recomputed second was recorded as further calls."""
    for cut in (False, True):
        torch.manual_seed(0)
        model = (TorchBlocks if again[0] else torch.nn.Sequential)(TorchBlock(), TorchBlock())
        port = (PaddleBlocks if again[1] else paddle.nn.Sequential)(PaddleBlock(False), PaddleBlock(cut))
        padiff.transfer(model, port)
        folders = [tmp_path / f"{name}{cut}" for name in "ab"]
        for one, tensor, folder in ((model, torch.tensor, folders[0]), (port, paddle.to_tensor, folders[1])):
            x = tensor(X[0])
            if one is model:
                x.requires_grad = True
            else:
                x.stop_gradient = False
            with padiff.record(one, folder, values=values) as recorder:
                (one(x) ** 2).mean().backward()
                recorder.step()
        report = padiff.compare(*folders)
        assert not [note for note in report.notes if note.kind == "one_side_call"]
        assert report.aligned is not cut, str(report)
        assert not cut or "1" in {str(one.candidate.path).partition(".")[0] for one in report.sources}, str(report)


class TorchDropped(torch.nn.Module):
    def __init__(self, reentrant: bool, preserved: bool) -> None:
        super().__init__()
        self.stem, self.fc, self.drop = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)
        self.how = {"use_reentrant": reentrant, "preserve_rng_state": preserved}

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(lambda x: self.fc(self.drop(x)), self.stem(x), **self.how)


class PaddleDropped(paddle.nn.Layer):
    def __init__(self, reentrant: bool, preserved: bool) -> None:
        super().__init__()
        self.stem, self.fc, self.drop = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8), paddle.nn.Dropout(0.5)
        self.how = {"use_reentrant": reentrant, "preserve_rng_state": preserved}

    def forward(self, x: Any) -> Any:
        return recompute(lambda x: self.fc(self.drop(x)), self.stem(x), **self.how)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    "nets", [(TorchDropped, PaddleDropped), (PaddleDropped, TorchDropped)], ids=["paddle", "torch"]
)
def test_what_is_computed_again_with_other_random_numbers_is_named(nets: Any, reentrant: bool) -> None:
    """A forced run computes it once: a port that trains with gradients of another dropout was aligned."""
    report = padiff.diff(nets[0](reentrant, False), nets[1](reentrant, False), X)
    assert report.aligned, str(report)
    assert "recomputed_otherwise" in [note.kind for note in report.notes]
    for preserved in (True, False):
        report = padiff.diff(nets[0](reentrant, True), nets[1](reentrant, preserved), X)
        assert report.aligned is preserved, str(report)
        assert [(one.phase, one.candidate.path, one.cause.name) for one in report.sources if one.cause] == (
            [] if preserved else [(Phase.BACKWARD, "fc", "recomputation")]
        ), str(report)
