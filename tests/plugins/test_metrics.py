"""Metrics of plugins in a diff: which arrays they see, where their values stand, what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff
from padiff.errors import PluginError, PluginWarning
from padiff.plugins import State

Install = Callable[[str, str], None]

INPUTS = (np.random.default_rng(0).standard_normal((6, 8), dtype="float32"),)

COUNTING = """
import numpy as np
import padiff

SEEN = []

def peak(reference, candidate):
    SEEN.append((np.array(reference), np.array(candidate)))
    return np.abs(candidate.astype(np.float64) - reference).max()

@padiff.hookimpl
def padiff_metrics():
    return [padiff.Metric("peak", peak, unit="m", limit=1e9)]
"""


class Net(nn.Module):
    def __init__(self, *, eps: float = 1e-5, halved: bool = False, detached: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.norm, self.bn = nn.Linear(8, 8), nn.LayerNorm(8, eps=eps), nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)
        self.halved, self.detached = halved, detached

    def forward(self, x: Any) -> Any:
        y = self.bn(self.norm(self.body(x)))
        y = y * 0.5 if self.halved else y
        return self.head(y.detach() + 0 * y if self.detached else y)


def peak_of(finding: padiff.Finding) -> float:
    assert finding.figures is not None
    (found,) = finding.figures.metrics
    assert (found.name, found.unit, found.limit, found.passes) == ("peak", "m", 1e9, True)
    return found.value


@pytest.mark.parametrize(
    "spoilt",
    [{"eps": 1e-2}, {"halved": True}, {"detached": True}, {"eps": 1e-2, "halved": True}],
    ids=lambda spoilt: "+".join(spoilt),
)
def test_every_source_has_the_metric_of_the_very_arrays(installed: Install, spoilt: dict[str, Any]) -> None:
    """The metric is padiff's own figure under another name, so both must agree."""
    installed("acme", COUNTING)
    report = padiff.diff(Net(), Net(**spoilt), INPUTS)
    assert report.sources
    for source in report.sources:
        assert source.figures is not None
        assert peak_of(source) == pytest.approx(source.figures.max_abs, rel=1e-5)
    assert report.output is not None
    assert [found.value for found in report.output.metrics] == pytest.approx([report.output.max_abs], rel=1e-5)


def test_parameters_buffers_inputs_and_updates_are_measured_too(installed: Install) -> None:
    installed("acme", COUNTING)
    reference, candidate = Net(), Net()
    with torch.no_grad():
        candidate.head.bias += 1
    candidate.bn.momentum = 0.3
    report = padiff.diff(reference, candidate, INPUTS, transfer=False)
    assert {source.phase for source in report.sources} >= {"parameter", "buffer"}
    assert all(peak_of(s) == pytest.approx(s.figures.max_abs, rel=1e-5) for s in report.sources if s.figures)
    report = padiff.diff(Net(), Net(), INPUTS, candidate_inputs=(INPUTS[0] + 1,))
    assert any(s.what == "input 'x'" and peak_of(s) == pytest.approx(1, rel=1e-5) for s in report.sources)
    models = Net(), Net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=lr) for model, lr in zip(models, (0.1, 0.2), strict=True)]
    report = padiff.diff(*models, INPUTS, optimizers=tuple(optimizers))
    updates = [source for source in report.sources if source.phase == "update"]
    assert updates
    assert all(peak_of(s) == pytest.approx(s.figures.max_abs, rel=1e-5) for s in updates if s.figures)


def test_what_is_plainly_rounding_is_not_looked_at_again(installed: Install) -> None:
    installed("acme", COUNTING)
    padiff.diff(Net(), Net(), INPUTS)
    from acme_plugin import SEEN  # type: ignore[import-not-found]

    assert [ours.shape for ours, _ in SEEN] == [(6, 4)]  # the output alone


def test_without_a_plugin_there_is_no_metric() -> None:
    report = padiff.diff(Net(), Net(eps=1e-2), INPUTS)
    assert all(s.figures is None or s.figures.metrics == () for s in report.sources)


def test_a_metric_that_raises_in_a_diff_is_told_and_the_report_is_whole(installed: Install) -> None:
    plain = padiff.diff(Net(), Net(eps=1e-2, detached=True), INPUTS)
    installed("acme", COUNTING.replace("    SEEN.append", "    raise OSError('no disk')\n    SEEN.append"))
    installed("other", COUNTING.replace('"peak"', '"top"'))
    with pytest.warns(PluginWarning) as caught:
        report = padiff.diff(Net(), Net(eps=1e-2, detached=True), INPUTS)
    (message,) = (str(one.message) for one in caught)
    said = "the metric 'peak' (acme 1.0) of padiff_metrics() is left out from here on: its function raised OSError"
    assert message.startswith(said)
    assert any(note.text.startswith(said) for note in report.notes)
    assert [(s.phase, s.candidate.path) for s in report.sources] == [(s.phase, s.candidate.path) for s in plain.sources]
    assert all([m.name for m in s.figures.metrics] == ["top"] for s in report.sources if s.figures)
    states = {row.distribution: row.state for row in padiff.plugins.contributed() if row.sort == "metric"}
    assert (states["acme"], states["other"]) == (State.BROKEN, State.AVAILABLE)


def test_a_metric_decides_as_the_tolerance(installed: Install) -> None:
    installed("acme", COUNTING)
    for bound, aligned in ((1e-9, False), (10.0, True)):
        report = padiff.diff(Net(), Net(eps=1e-2), INPUTS, tolerance={"metric": "peak", "max": bound})
        assert report.aligned is aligned
        assert report.output_within is aligned
    assert padiff.diff(Net(), Net(), INPUTS, tolerance={"metric": "peak", "max": 1e-9}).aligned


def test_the_loss_is_judged_as_without_a_tolerance(installed: Install) -> None:
    """A cosine of single numbers would pass any loss."""
    cosine = padiff.Metric("cosine", lambda a, b: 1.0, better="larger", limit=0.9)
    losses = (lambda y: y.sum(), lambda y: y.sum() + 100)
    report = padiff.diff(Net(), Net(), INPUTS, loss=losses, tolerance={"metric": cosine})
    assert [source.phase for source in report.sources] == ["loss"]


@pytest.mark.parametrize("phase", ["forward", "both"])
def test_a_tolerance_that_raises_is_an_error_that_names_the_plugin(installed: Install, phase: str) -> None:
    installed("acme", COUNTING.replace("    SEEN.append", "    raise OSError('no disk')\n    SEEN.append"))
    models = Net(), Net(eps=1e-2)
    with pytest.raises(
        PluginError, match=r"the metric 'peak' \(acme 1\.0\), asked for as the tolerance, raised OSError"
    ):
        padiff.diff(*models, INPUTS, tolerance={"metric": "peak"}, phase=phase)
