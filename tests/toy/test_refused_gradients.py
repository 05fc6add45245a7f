"""Compare models with an input that a function takes only without a gradient, as torch's losses take their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows

R = np.random.default_rng(0)
X, W = R.standard_normal((4, 3), np.float32), R.random((4, 2), np.float32) + 0.5


def loss(scores: Any, weight: Any, *, refuses: bool) -> Any:
    if refuses and weight.differentiable:
        msg = "not differentiable with respect to argument 'weight'"
        raise RuntimeError(msg)
    return (scores * scores * weight).mean((0, 1))


class Loss(rows.Module):
    """The loss as a module: it is replayed by itself."""

    def __init__(self, refuses: bool) -> None:
        self.refuses = refuses

    def forward(self, scores: Any, weight: Any) -> Any:
        return loss(scores, weight, refuses=self.refuses)


class Scored(rows.Module):
    def __init__(self, refuses: bool) -> None:
        self.layer, self.loss = rows.Linear(3, 2), Loss(refuses)

    def forward(self, x: Any, w: Any) -> Any:
        return self.loss(self.layer(x), w * 2.0)


class Port(columns.Layer):
    def __init__(self, refuses: bool, factor: float) -> None:
        self.layer, self.refuses, self.factor = columns.Dense(3, 2), refuses, factor

    def forward(self, x: Any, w: Any) -> Any:
        return loss(self.layer(x), w * self.factor, refuses=self.refuses)


@pytest.mark.parametrize("factor", [2.0, 2.001], ids=["right", "wrong"])
@pytest.mark.parametrize("refusing", [(True, False), (False, True), (True, True)], ids=["ours", "theirs", "both"])
@pytest.mark.parametrize("named", [False, True])
def test_no_gradient_is_asked_of_an_input_that_a_function_refuses(
    named: bool, refusing: tuple[bool, bool], factor: float
) -> None:
    """It was an error that said to call the model without padiff, where it runs."""
    ours, theirs = refusing
    report = padiff.diff(Scored(ours), Port(theirs, factor), {"x": X, "w": W} if named else (X, W))
    assert report.forward_only is None
    assert {(source.candidate.path, source.phase) for source in report.sources} == (
        set() if factor == 2 else {("", Phase.FORWARD)}
    ), str(report)
    (note,) = (note.text for note in report.notes if note.kind == "inert_inputs")
    assert note.startswith(f"no gradient was asked of input {repr('w') if named else '[1]'}: a function takes")


def test_a_model_that_refuses_more_than_gradients_raises_as_before() -> None:
    class Broken(rows.Module):
        def __init__(self) -> None:
            self.layer = rows.Linear(3, 2)

        def forward(self, x: Any, w: Any) -> Any:
            return self.layer(w)

    with pytest.raises(padiff.ForwardError, match="call the model on these inputs without padiff first"):
        padiff.diff(Broken(), Port(False, 2.0), (X, W))
