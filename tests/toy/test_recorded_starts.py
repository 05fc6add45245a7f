"""Compare runs of which each was recorded by itself, without a loss: where did their backward passes start?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.engine import record_once
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

from .test_compare import loop, places

TOKENS = np.random.default_rng(0).standard_normal((5, 3, 6)).astype(np.float32)


class Cached(rows.Module):
    """Gives its result, then keys and values by name."""

    def __init__(self) -> None:
        self.key, self.value, self.head = (rows.Linear(6, 6) for _ in range(3))

    def forward(self, x: Any) -> Any:
        k, v = self.key(x), self.value(x)
        return {"result": self.head(k * v), "cache": {"k": k, "v": v}}


class CachedPort(columns.Layer):
    """Gives them by position, with the time first; or with a fault, or no cache at all."""

    def __init__(self, fault: str = "") -> None:
        self.k, self.v, self.out = (columns.Dense(6, 6) for _ in range(3))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        k, v = self.k(x), self.v(x)
        given = type(v)(v.data) if self.fault == "cut" else v
        result = self.out(k * given)
        if self.fault == "alone":
            return result
        return result, (k.transpose(1, 0, 2), v.transpose(1, 0, 2))


def both(tmp_path: Path, fault: str = "") -> tuple[padiff.Report, padiff.Report]:
    """Return what compare and diff tell of the two."""
    np.random.seed(0)
    net, port = Cached(), CachedPort(fault)
    diffed = padiff.diff(net, port, TOKENS)
    record_once(net, TOKENS, tmp_path / "a")
    record_once(port, TOKENS, tmp_path / "b")
    return padiff.compare(tmp_path / "a", tmp_path / "b"), diffed


def test_outputs_in_other_orders_of_axes_start_alike(tmp_path: Path) -> None:
    """Each element started from a gradient by its position, and was wrong."""
    report, diffed = both(tmp_path)
    assert diffed.aligned, str(diffed)
    assert report.aligned, str(report)
    assert report.forward_only is None


def test_a_gradient_that_is_cut_is_named_where_diff_names_it(tmp_path: Path) -> None:
    report, diffed = both(tmp_path, "cut")
    assert places(report) == places(diffed) == [("", "backward")], str(report)


def test_an_output_of_one_side_is_one_finding(tmp_path: Path) -> None:
    report, diffed = both(tmp_path, "alone")
    assert places(report) == places(diffed), str(report)
    assert report.forward_only is not None
    assert "which is its alone" in report.forward_only


def test_gradients_of_a_loss_are_not_held_against_those_of_none(tmp_path: Path) -> None:
    np.random.seed(0)
    net, port = rows.Sequential(rows.Linear(6, 6)), columns.Stack(columns.Dense(6, 6))
    padiff.diff(net, port, TOKENS)
    loop(net, tmp_path / "a")
    record_once(port, np.random.default_rng(1).standard_normal((5, 3, 6), dtype=np.float32), tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert report.forward_only is not None
    assert "at a loss" in report.forward_only


class Residual(rows.Module):
    """Hands on what it goes on with."""

    def __init__(self) -> None:
        self.norm, self.one, self.two = rows.LayerNorm(6), rows.Linear(6, 6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        x = self.one(x)
        return x + self.two(self.norm(x))


class Copying(columns.Layer):
    """Hands on a copy, or detaches it."""

    def __init__(self, fault: str = "") -> None:
        self.scale, self.first, self.second = columns.LayerNormalization(6), columns.Dense(6, 6), columns.Dense(6, 6)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        given = type(x)(x.data) if self.fault == "cut" else x * 1.0
        return x + self.second(self.scale(given))


@pytest.mark.parametrize("fault", ["", "cut"])
def test_a_copy_gets_the_gradient_of_its_own_use(tmp_path: Path, fault: str) -> None:
    """What came to the copy was held against what came to all uses of the tensor."""
    np.random.seed(0)
    net, port = Residual(), Copying(fault)
    diffed = padiff.diff(net, port, TOKENS)
    loop(net, tmp_path / "a")
    loop(port, tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert places(report) == places(diffed) == ([("", "backward")] if fault else []), str(report)


class Rounded(columns.Layer):
    """A norm that rounds otherwise."""

    def __init__(self) -> None:
        self.gamma, self.beta = columns.weight(6, scale=0.0, at=1.0), columns.weight(6, scale=0.0)

    def forward(self, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = self.gamma / ((centred * centred).mean(-1, keepdims=True) + 1e-5).sqrt()
        return scale * centred + self.beta


@pytest.mark.parametrize("fault", [1.0, 1.01])
def test_gradients_that_cancel_are_no_fault(tmp_path: Path, fault: float) -> None:
    """The mean square of what a norm gives is always one: each gradient before it was rounding, and an alarm."""
    np.random.seed(0)
    net = rows.Sequential(rows.Linear(6, 6), rows.Linear(6, 6), rows.LayerNorm(6))
    port = columns.Stack(columns.Dense(6, 6), columns.Dense(6, 6), Rounded())
    for parameter, start in zip(net[2].parameters(), (1.0, 0.0), strict=True):
        parameter.data[...] = start
    padiff.diff(net, port, TOKENS)
    port[0].kernel.data[...] *= fault
    loop(net, tmp_path / "a")
    loop(port, tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (fault == 1), str(report)


class Bend(rows.Module):
    def forward(self, x: Any) -> Any:
        return F.relu(x)


class BendPort(columns.Layer):
    def forward(self, x: Any) -> Any:
        return F.relu(x)


class Bent(rows.Module):
    def __init__(self, *, inline: bool = False) -> None:
        self.wide, self.act, self.head = rows.Linear(6, 512), F.relu if inline else Bend(), rows.Linear(512, 6)

    def forward(self, x: Any) -> Any:
        return self.head(self.act(self.wide(x)))


class BentPort(columns.Layer):
    """Rounds what comes to the activation: what is nearly zero is zero. Or is wrong backward, or from a step on."""

    def __init__(self, fault: str = "", *, inline: bool = False) -> None:
        self.one, self.two = columns.Dense(6, 512), columns.Dense(512, 6)
        self.bend = F.relu if inline else BendPort()
        self.fault, self.steps = fault, 0

    def forward(self, x: Any) -> Any:
        self.steps += 1
        y = (self.one(x) + 1.0) - 1.0
        if self.fault == "late" and self.steps > 3:  # one of them is padiff's own
            y = y * 1.05
        return self.two(self.bend(type(y)(y.data) * 0.5 + y * 0.5 if self.fault == "cut" else y))


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("fault", ["", "cut", "late"])
def test_few_elements_at_a_kink_are_no_fault(tmp_path: Path, fault: str, inline: bool) -> None:
    """Of a module, or of a function that the model's own code calls."""
    np.random.seed(0)
    net, port = Bent(inline=inline), BentPort(fault, inline=inline)
    net.wide.weight.data[0], net.wide.bias.data[0] = 0.0, 1e-9
    net.head.weight.data[:, 0] *= 0.1
    padiff.diff(net, port, TOKENS)
    port.steps = 1
    loop(net, tmp_path / "a", rows.SGD(net.parameters(), 0.1), 4)
    loop(port, tmp_path / "b", rows.SGD(port.parameters(), 0.1), 4)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (not fault), str(report)
    assert {one.step for one in report.sources} == {"": set(), "cut": {0}, "late": {2}}[fault]
    assert fault or "at_a_kink" in {note.kind for note in report.notes}


class Smooth(rows.Module):
    def __init__(self) -> None:
        self.up, self.act = rows.Linear(6, 6), rows.GELU()

    def forward(self, x: Any) -> Any:
        return x + self.act(self.up(x))


class Rough(rows.Module):
    """What is near to it: the whole would pass, and one layer does not."""

    def forward(self, x: Any) -> Any:
        return x * (F.tanh(x * 0.4) + 1.0) * 0.5


def test_low_precision_hides_no_other_activation(tmp_path: Path) -> None:
    for wrong in (False, True):
        np.random.seed(0)
        model = Smooth().to("bfloat16")
        if wrong:
            model.act = Rough()  # type: ignore[assignment]
        x = np.random.default_rng(1).standard_normal((8, 6)).astype(model.up.weight.data.dtype)
        with padiff.record(model, tmp_path / str(wrong)) as recorder:
            model(rows.Tensor(x))
            recorder.step()
    assert padiff.compare(tmp_path / "False", tmp_path / "False").aligned
    report = padiff.compare(tmp_path / "False", tmp_path / "True")
    assert [source.candidate.path for source in report.sources] == ["act"], report


def test_a_setting_of_one_layer_shows_in_low_precision(tmp_path: Path) -> None:
    """Eight epsilons: less than calls with the same settings may differ by."""
    for name, eps in (("a", 1e-5), ("b", 0.12)):
        np.random.seed(0)
        model = rows.Sequential(rows.LayerNorm(64, eps), rows.Linear(64, 6)).to("bfloat16")
        x = np.random.default_rng(1).standard_normal((8, 64)).astype(model[0].weight.data.dtype)
        with padiff.record(model, tmp_path / name) as recorder:
            model(rows.Tensor(x))
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [source.candidate.path for source in report.sources] == ["0"], str(report)


@pytest.mark.parametrize("values", ["tensors", "sketch"])
@pytest.mark.parametrize("fault", ["", "first", "past"])
def test_what_several_backward_passes_send_to_an_output_adds_up(tmp_path: Path, fault: str, values: Any) -> None:
    """The last one's was kept alone, and another one in front of it was told of each parameter.

    What another loss sends to parameters themselves follows from that: each was a source.
    """
    np.random.seed(0)
    net = rows.Sequential(rows.Linear(6, 6), rows.LayerNorm(6), rows.Linear(6, 2))
    for name, told in (("a", ""), ("b", fault)):
        with padiff.record(net, tmp_path / name, values=values) as recorder:
            y = net(rows.Tensor(TOKENS[0]))
            first = (y * y).mean() * np.float32(2 if told == "first" else 1)
            second = (y * y * y).mean()
            for one in net.parameters() if told == "past" else ():
                second = second + (one * one * one * one).sum() * np.float32(0.1)
            first.backward()
            second.backward()
            recorder.step(float(second.data))
            for one in net.parameters():
                one.grad = None
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    expected = {"": [], "first": [("output_gradient", "")], "past": [("loss", "")]}
    assert [(one.what.kind, one.candidate.path) for one in report.sources] == expected[fault], str(report)
    assert report.aligned is not bool(fault)
