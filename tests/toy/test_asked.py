"""Ask of two toy models what `padiff.diff` can be asked: faults, phases, maps, tolerances, steps, reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


def randoms(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


X = (randoms(6, 4),)


class Net(rows.Module):
    """A layer, a block with a shortcut, a norm with statistics, a head."""

    def __init__(self) -> None:
        self.stem, self.block, self.norm, self.head = (
            rows.Linear(4, 8),
            RowsBlock(),
            rows.BatchNorm(8),
            rows.Linear(8, 3),
        )

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.block(self.stem(x))))


class RowsBlock(rows.Module):
    """Two layers around an activation, and a shortcut."""

    def __init__(self) -> None:
        self.up, self.act, self.down = rows.Linear(8, 12), rows.GELU(), rows.Linear(12, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.act(self.up(x)))


class Port(columns.Layer):
    """The same, with one fault if asked."""

    def __init__(self, fault: str = "") -> None:
        self.out, self.fault = columns.Dense(8, 3, bias=fault != "bias"), fault
        self.norm = columns.BatchNormalization(
            8, epsilon=1e-2 if fault == "eps" else 1e-5, keep=0.8 if fault == "momentum" else 0.9
        )
        self.block, self.first = ColumnsBlock(fault), columns.Dense(4, 8)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = x + 0.01 if self.fault == "glue" else x
        y = self.out(self.norm(self.block(x)))
        return y[::-1] if self.fault == "reversed" else y


class ColumnsBlock(columns.Layer):
    """The block of the port."""

    def __init__(self, fault: str = "") -> None:
        self.down, self.up, self.act = columns.Dense(12, 8), columns.Dense(8, 12), columns.Gelu(fault == "gelu")
        self.fault = fault

    def forward(self, x: Any) -> Any:
        inner = self.down(self.act(self.up(x)))
        if self.fault == "missing shortcut":
            return inner
        if self.fault == "detached":
            x = columns.Tensor(x.data)
        return x * (1.001 if self.fault == "scaled shortcut" else 1.0) + inner


FAULTS: dict[str, tuple[str, Phase, str]] = {
    "bias": ("out", Phase.PARAMETER, "bias"),
    "eps": ("norm", Phase.FORWARD, "eps: 1e-05 in the reference, 0.01 in the candidate"),
    "momentum": ("norm", Phase.BUFFER, "momentum"),
    "gelu": ("block.act", Phase.FORWARD, "approximate: 'none' in the reference, 'tanh'"),
    "missing shortcut": ("block", Phase.FORWARD, ""),
    "scaled shortcut": ("block", Phase.FORWARD, ""),
    "detached": ("block", Phase.BACKWARD, ""),
    "glue": ("", Phase.FORWARD, ""),
    "reversed": ("", Phase.FORWARD, ""),
}
"""Fault -> where it is, in which phase, and what is said of its cause."""


def test_the_port_is_aligned() -> None:
    report = padiff.diff(Net(), Port(), X)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied == 12
    assert not report.transfer.unmatched_reference
    assert not report.transfer.unmatched_candidate


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_the_only_source(fault: str) -> None:
    path, phase, cause = FAULTS[fault]
    report = padiff.diff(Net(), Port(fault), X)
    assert {source.candidate.path for source in report.sources} == {path}, str(report)
    here = [source for source in report.sources if source.phase is phase]
    assert here, str(report)
    assert cause in str(here[0].cause or "")
    assert str(here[0].candidate.location).rpartition(":")[0].endswith((".py",))


@pytest.mark.parametrize("fault", ["eps", "glue", "detached"])
def test_a_phase_hears_of_its_own_faults(fault: str) -> None:
    """A constant that is added in the forward pass changes no gradient where each call is given the right values."""
    forward, backward = (padiff.diff(Net(), Port(fault), X, phase=phase) for phase in ("forward", "backward"))
    assert forward.aligned == (fault == "detached")
    assert backward.aligned == (fault == "glue")


def test_a_wrong_loss_of_several_outputs_is_one_source() -> None:
    """Its number differs, and so do the gradients that it sends to each output: the loss is one function."""

    class Two(Net):
        def forward(self, x: Any) -> Any:
            x = self.block(self.stem(x))
            return self.head(self.norm(x)), x

    class Other(Port):
        def forward(self, x: Any) -> Any:
            x = self.block(self.first(x))
            return self.out(self.norm(x)), x

    def loss(scale: float) -> Any:
        return lambda out: (out[0] * out[0]).mean() * scale + (out[1] * out[1]).mean() * scale * scale

    assert padiff.diff(Two(), Other(), X, loss=(loss(1), loss(1))).aligned
    report = padiff.diff(Two(), Other(), X, loss=(loss(1), loss(2)))
    assert [(source.phase, source.what.kind) for source in report.sources] == [(Phase.LOSS, "loss")], str(report)
    assert any(finding.what.kind == "output_gradient" for finding in report.findings)


class Told(rows.Module):
    """A layer that returns its output and the mean of it, as it is asked to."""

    def __init__(self, *order: str, put: Callable[[list[Any]], Any] = tuple) -> None:
        self.layer, self.order, self.put = rows.Linear(4, 3), order, put

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return self.put([{"loss": y.mean(), "scores": y}[name] for name in self.order])


def keyed(found: list[Any]) -> Any:
    return dict(zip(("loss", "scores"), found, strict=True))


def test_outputs_exchanged_under_their_keys_are_no_match() -> None:
    """Version 0.4 found each output's shape somewhere, and called it aligned."""
    right = Told("loss", "scores", put=keyed)
    report = padiff.diff(right, Told("scores", "loss", put=keyed), X)
    assert [source.what.name for source in report.sources] == ["['loss']", "['scores']"], str(report)
    assert padiff.diff(right, Told("loss", "scores"), X).aligned


@pytest.mark.parametrize(("put", "where"), [(tuple, ""), (lambda found: {"all": found}, "['all']")])
def test_outputs_at_other_positions_are_told(put: Any, where: str) -> None:
    """A list below a key has positions as any other: its elements were called without counterparts."""
    report = padiff.diff(Told("loss", "scores", put=put), Told("scores", "loss", put=put), X)
    assert report.aligned
    assert f"output {where}[0] of the reference is compared with output {where}[1] of the candidate" in str(report)


def test_a_function_that_a_user_replaced_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place in the framework holds it afterwards, too, whatever padiff has found there before."""

    class Squashed(rows.Module):
        def __init__(self) -> None:
            self.layer = rows.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return F.relu(self.layer(x))

    def run() -> padiff.Report:
        return padiff.diff(Squashed(), Squashed(), X, operations=True)

    assert run().aligned
    calls: list[Any] = []
    tanh = F.tanh

    def mine(x: Any) -> Any:
        calls.append(x)
        return tanh(x)

    monkeypatch.setattr(F, "relu", mine)
    assert run().aligned
    assert F.relu is mine
    assert len(calls) > 1


def test_two_faults_are_two_sources() -> None:
    port = Port("eps")
    port.block.fault = "scaled shortcut"
    report = padiff.diff(Net(), port, X)
    assert [source.candidate.path for source in report.sources if source.phase is Phase.FORWARD] == ["block", "norm"]


def test_parameters_are_compared_where_they_are_not_transferred() -> None:
    ours, theirs = Net(), Port()
    assert padiff.diff(ours, theirs, X).aligned
    theirs.block.up.kernel.data[0, 0] += 1
    report = padiff.diff(ours, theirs, X, transfer=False)
    assert [(source.phase, source.candidate.path) for source in report.sources] == [(Phase.PARAMETER, "block.up")]


def test_what_is_ignored_is_not_judged() -> None:
    mapping = padiff.LayerMap({"block": "block"})
    mapping.ignore("norm")
    report = padiff.diff(Net(), Port("momentum"), X, mapping=mapping, phase="forward")
    assert "norm" not in {source.candidate.path for source in report.sources}


def test_a_mapped_pair_is_compared_as_a_whole() -> None:
    report = padiff.diff(Net(), Port("gelu"), X, mapping={"block": "block"})
    assert {source.candidate.path for source in report.sources} == {"block"}, str(report)


@pytest.mark.parametrize(("atol", "aligned"), [(10.0, True), (1e-6, False)])
def test_a_tolerance_is_the_users_own(atol: float, aligned: bool) -> None:
    report = padiff.diff(Net(), Port("scaled shortcut"), X, tolerance={"atol": atol, "rtol": 0.0}, phase="forward")
    assert report.aligned is aligned


@pytest.mark.parametrize(("lr", "momentum"), [(0.1, 0.0), (0.2, 0.0), (0.1, 0.9)])
def test_steps_are_compared(lr: float, momentum: float) -> None:
    ours, theirs = Net(), Port()
    optimizers = rows.SGD(ours.parameters(), 0.1), columns.Descent(theirs.parameters(), lr, momentum)
    report = padiff.diff(ours, theirs, X, optimizers=optimizers, steps=2)
    assert report.aligned == ((lr, momentum) == (0.1, 0.0)), str(report)
    assert {source.phase for source in report.sources} <= {Phase.UPDATE}
    for source in report.sources[:1]:
        assert ("momentum" if momentum else "lr") in str(source.cause)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_models_of_another_dtype_are_judged_by_its_rounding(dtype: str) -> None:
    def diff(fault: str) -> padiff.Report:
        return padiff.diff(Net().to(dtype), Port(fault).to(dtype), X, phase="forward")

    assert diff("").aligned, str(diff(""))
    assert {source.candidate.path for source in diff("missing shortcut").sources} == {"block"}


def test_both_come_back_as_they_were() -> None:
    ours, theirs = Net(), Port()
    padiff.diff(ours, theirs, X)
    before = [
        (tensor, tensor.data.tobytes())
        for one in (ours, theirs)
        for _, module in one.walk()
        for tensor in module.tensors().values()
    ]
    padiff.diff(ours, theirs, X)
    assert all(tensor.data.tobytes() == values and tensor.grad is None for tensor, values in before)
    assert not any(module.hooks for one in (ours, theirs) for _, module in one.walk())


def test_the_reference_is_right_by_definition() -> None:
    report = padiff.diff(Port("eps"), Net(), X)
    assert {source.candidate.path for source in report.sources} == {"norm"}
    assert "eps: 0.01 in the reference, 1e-05 in the candidate" in str(report.sources[0].cause)


def test_a_report_is_data_and_text() -> None:
    report = padiff.diff(Net(), Port("eps"), X)
    assert json.loads(json.dumps(report.to_dict()))["aligned"] is False
    assert "norm" in str(report)


def test_chance_is_no_fault_and_hides_none() -> None:
    def side(base: type, layer: Any, drop: Any, factor: float = 1.0) -> Any:
        made = type("Made", (base,), {"forward": lambda self, x: self.last(self.drop(F.relu(self.one(x))) * factor)})()
        vars(made).update(one=layer(4, 8), drop=drop(0.5), last=layer(8, 2))
        return made

    ours = side(rows.Module, rows.Linear, rows.Dropout)
    assert padiff.diff(ours, side(columns.Layer, columns.Dense, columns.Drop), X).aligned
    report = padiff.diff(ours, side(columns.Layer, columns.Dense, columns.Drop, 1.01), X)
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("drop", "last"))]
