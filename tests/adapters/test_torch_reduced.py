"""Summaries and sketches that a device computes are those that the host does; and no value is fetched for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff
from padiff.adapter import Reduction
from padiff.recording._reduced import completed
from padiff.trace import Summary, open_run, summarized
from padiff_torch import reduced
from padiff_torch.adapter import TorchAdapter
from padiff_torch.distributed.separate_bias import mark

ADAPTER = TorchAdapter()


@pytest.fixture(autouse=True)
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors of the CPU count as a device's."""
    monkeypatch.setattr(reduced, "reducible", lambda native: native.numel() > 0 and not native.is_complex())
    monkeypatch.setattr(torch.cpu, "synchronize", lambda device=None: None)


def _of(*values: Any, **asked: Any) -> Summary:
    """Return the summary of the last of some values that are read together."""
    reducer, wanted = ADAPTER.reducer(), Reduction(**asked)
    assert all(reducer.add(value, wanted) for value in values)
    last = ADAPTER.tensor(values[-1])
    return completed(Summary(last.dtype, last.shape), wanted, reducer.fetch()[-1])


def _same(found: Summary, expected: Summary) -> None:
    assert (found.dtype, found.shape, found.nans, found.infinities) == (
        expected.dtype,
        expected.shape,
        expected.nans,
        expected.infinities,
    )
    for name in ("norm", "mean", "low", "high"):
        one, other = getattr(found, name), getattr(expected, name)
        scale = (expected.norm or 1.0) / max(expected.size, 1) ** 0.5
        assert (one is None) is (other is None), name
        assert one is None or one == pytest.approx(other, rel=1e-6, abs=1e-6 * scale), name
    np.testing.assert_array_equal(found.sample, expected.sample)
    if expected.sketch is not None:
        assert found.sketch.dtype == expected.sketch.dtype
        np.testing.assert_allclose(found.sketch, expected.sketch, rtol=1e-5, atol=1e-6 * (expected.norm or 1.0))


VALUES = {
    "scalar": torch.tensor(3.0),
    "small": torch.randn(7, 3),
    "several blocks": torch.randn(300, 700),
    "float64": torch.randn(300, 400, dtype=torch.float64),
    "bfloat16": torch.randn(64, 99).to(torch.bfloat16),
    "float16": torch.randn(64, 99).half(),
    "float8": torch.randn(64, 9).to(torch.float8_e4m3fn),
    "whole numbers": torch.arange(1000).reshape(10, 100),
    "bool": torch.arange(100) % 3 == 0,
    "turned": torch.randn(40, 50).t(),
    "channels last": torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", VALUES)
def test_figures_are_those_of_the_host(name: str) -> None:
    value = VALUES[name]
    array = ADAPTER.tensor(value).numpy()
    _same(_of(value), summarized(array))
    _same(_of(value, extremes=False, sketched=True), summarized(array, extremes=False, sketched=True))


@pytest.mark.parametrize("name", VALUES)
def test_tensors_of_one_size_are_read_together(name: str) -> None:
    value = VALUES[name]
    array = ADAPTER.tensor(value).numpy()
    others = [torch.zeros_like(value), value.clone()]
    _same(_of(*others, value), summarized(array))
    _same(_of(*others, value, extremes=False, sketched=True), summarized(array, extremes=False, sketched=True))


def test_what_is_written_to_before_the_rest_comes_is_read_as_it_was() -> None:
    reducer, value = ADAPTER.reducer(), torch.ones(10)
    reducer.add(value, Reduction())
    value.zero_()
    assert float(reducer.fetch()[0]["total"]) == 10
    assert reducer.fetch() == []


def test_parts_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduced, "_ONCE", 2 * reduced.sketching.BLOCK)
    value = torch.randn(500_001)
    array = value.numpy()
    _same(_of(value, sketched=False), summarized(array))
    _same(_of(value, extremes=False, sketched=True), summarized(array, extremes=False, sketched=True))


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    value = torch.randn(1000) + 5
    value[[3, 70]], value[8], value[9] = torch.nan, torch.inf, -torch.inf
    found, expected = _of(value), summarized(value.numpy())
    assert (found.nans, found.infinities, found.low, found.high) == (2, 2, None, None)
    assert (found.norm, found.mean) == pytest.approx((expected.norm, expected.mean), rel=1e-6)
    assert _of(torch.full((5,), torch.nan)).norm is None


def test_axes_are_read_in_the_order_that_is_asked_for() -> None:
    value = torch.randn(30, 70)
    found = _of(value, extremes=False, sketched=True, order=(1, 0))
    np.testing.assert_allclose(found.sketch, summarized(value.numpy().T, sketched=True).sketch, rtol=1e-4, atol=1e-4)


def test_a_bias_that_a_layer_hands_on_is_counted_in() -> None:
    layer, value = nn.Linear(3, 5), torch.randn(4, 5)
    mark(layer, (value, layer.bias))
    tensor, reducer = ADAPTER.tensor(value), ADAPTER.reducer()
    assert tensor.reduce(reducer, Reduction())
    found = completed(Summary("float32", (4, 5)), Reduction(), reducer.fetch()[0])
    _same(found, summarized(tensor.numpy()))
    assert found.norm != pytest.approx(float(value.norm()), rel=1e-3)


class Net(nn.Module):
    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.first, self.norm, self.table = nn.Linear(6, 400), nn.LayerNorm(400, eps), nn.Embedding(9, 6)

    def forward(self, ids: Any) -> Any:
        return self.norm(self.first(self.table(ids)))


def _recorded(path: Path, values: Any, eps: float = 1e-5) -> None:
    torch.manual_seed(0)
    model, ids = Net(eps), torch.arange(9).reshape(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    with padiff.record(model, path, values=values) as recorder:
        for _ in range(2):
            for _ in range(2):
                loss = (model(ids) ** 3).mean()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)


@pytest.mark.parametrize("values", ["summary", "sketch"])
def test_runs_that_a_device_summarized_compare_with_those_of_the_host(
    tmp_path: Path, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as host:
        host.setattr(reduced, "reducible", lambda native: False)
        _recorded(tmp_path / "host", values)
        _recorded(tmp_path / "wrong", values, 1e-2)
    copies: list[int] = []
    fetched = reduced._fetched
    monkeypatch.setattr(reduced, "_fetched", lambda natives: copies.append(len(natives)) or fetched(natives))
    _recorded(tmp_path / "device", values)
    assert len([one for one in copies if one]) <= 4, "a copy for each value"
    host, device = (open_run(tmp_path / name).trace(1).summaries for name in ("host", "device"))
    for key, expected in host.items():
        _same(device[key], expected)
    assert padiff.compare(tmp_path / "host", tmp_path / "device").aligned
    report = padiff.compare(tmp_path / "wrong", tmp_path / "device")
    assert [one.candidate.path for one in report.sources] == ["norm"], str(report)
