"""Run what the adapters of Paddle and MindSpore do for devices, with stand-ins that say where tensors lie.

The values lie in the CPU's memory all the same: what is shown is that the lines of the adapters run, and lead to the
right report. Nothing of what a real device rounds or forbids.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff_mindspore.adapter import MindSporeAdapter
from padiff_paddle.adapter import PaddleAdapter

X = (np.random.default_rng(0).standard_normal((5, 4), dtype="float32"),)


class Place:
    """A place that is not the CPU."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"Place({self.name})"

    def is_cpu_place(self) -> bool:
        """Return that it is not."""
        return False


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let Paddle's tensors say that they lie on a GPU; return where tensors were asked for."""
    asked: list[Any] = []
    to_tensor, to = paddle.to_tensor, paddle.Tensor.to

    def made(data: Any, *args: Any, place: Any = None, **kwargs: Any) -> Any:
        asked.append(place)
        return to_tensor(data, *args, **kwargs)

    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(one for one in args if one != "gpu:0")
        return to(self, *args, **kwargs) if args or kwargs else self

    monkeypatch.setattr(paddle, "to_tensor", made)
    monkeypatch.setattr(paddle.Tensor, "to", moved)
    near: list[Any] = []
    cpu, place = paddle.Tensor.cpu, paddle.Tensor.place

    def fetched(self: Any) -> Any:
        near.append(cpu(self))
        return near[-1]

    def of(self: Any) -> Any:
        return place.__get__(self) if any(one is self for one in near[-4:]) else Place("gpu:0")

    monkeypatch.setattr(paddle.Tensor, "cpu", fetched)
    monkeypatch.setattr(paddle.Tensor, "place", property(of))
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:0")
    return asked


def reference(eps: float = 1e-5) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.LayerNorm(8, eps), nn.Linear(8, 2))


def in_paddle(eps: float = 1e-5) -> Any:
    nn = paddle.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1D(8), nn.ReLU(), nn.LayerNorm(8, eps), nn.Linear(8, 2))


def in_mindspore(eps: float = 1e-5) -> Any:
    nn = mindspore.nn
    layers = nn.Dense(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.LayerNorm((8,), epsilon=eps), nn.Dense(8, 2)
    return nn.SequentialCell(*layers).set_train()


def shows(build: Any) -> padiff.Report:
    """Assert that a right port is aligned, and that a wrong one is named, on either side; return the last report."""
    report = padiff.diff(reference(), build(), X)
    assert report.aligned, str(report)
    wrong = padiff.diff(reference(), build(1e-3), X)
    assert [one.candidate.path for one in wrong.sources] == ["3"], str(wrong)
    turned = padiff.diff(build(1e-3), reference(), X)
    assert [one.candidate.path for one in turned.sources] == ["3"], str(turned)
    return report


def test_diffs_with_paddle_on_a_gpu(on_gpu: list[Any]) -> None:
    adapter, native = PaddleAdapter(), in_paddle()
    assert adapter.wrap(native).device == "cuda:0"
    tensor = adapter.tensor(adapter.from_numpy(X[0], device="cuda:0"))
    assert (tensor.device, on_gpu) == ("cuda:0", ["gpu:0"])
    assert tensor.writable() is None
    assert tensor.extent() is None
    np.testing.assert_array_equal(tensor.numpy(), X[0])
    assert adapter.convert(tensor.native, device="cuda:0") is not tensor.native
    report = shows(in_paddle)
    assert report.environment["paddle"]["device"] == "cuda:0"
    assert "cuda" in report.environment["paddle"]


@pytest.mark.parametrize(
    ("place", "device"), [("cpu", "cpu"), ("gpu_pinned", "cpu"), ("gpu:1", "cuda:1"), ("npu:0", "npu:0")]
)
def test_places_of_paddle_have_padiffs_names(monkeypatch: pytest.MonkeyPatch, place: str, device: str) -> None:
    native = paddle.to_tensor(X[0])
    monkeypatch.setattr(paddle.Tensor, "place", property(lambda self: Place(place)))
    assert PaddleAdapter().tensor(native).device == device


def test_diffs_with_mindspore_on_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    get_context = mindspore.get_context
    known = {"device_target": "Ascend", "device_id": 1}
    monkeypatch.setattr(mindspore, "get_context", lambda key: known.get(key) or get_context(key))
    adapter = MindSporeAdapter()
    assert adapter.wrap(in_mindspore()).device == "npu:1"
    tensor = adapter.tensor(adapter.from_numpy(X[0], device="npu:1"))
    assert tensor.device == "npu:1"
    assert tensor.writable() is None
    np.testing.assert_array_equal(tensor.numpy(), X[0])
    assert shows(in_mindspore).environment["mindspore"]["device"] == "npu:1"
