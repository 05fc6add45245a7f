"""Compare recorded calls of layers of which one side's apply the function behind themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import pytest
import torch

import padiff

GIVEN = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)


class Port(mindspore.nn.Cell):  # type: ignore[misc]  # untyped
    def __init__(self, activation: str) -> None:
        super().__init__()
        self.a, self.b = mindspore.nn.Dense(5, 16, activation=activation), mindspore.nn.Dense(16, 1)

    def construct(self, x: Any) -> Any:
        return self.b(self.a(x))


@pytest.mark.parametrize(
    ("more", "activation", "cause"),
    [
        (0.0, "relu", None),
        (0.1, "relu", "the inputs themselves differ"),  # the activation was a source for each such layer
        (0.0, "gelu", "fused: None in the reference, 'gelu_tanh'"),
    ],
)
def test_a_function_behind_a_layer_is_that_which_the_other_side_has_fused(
    tmp_path: Path, more: float, activation: str, cause: str | None
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    port = Port(activation)
    padiff.transfer(model, port)
    with padiff.record(model, tmp_path / "a") as recorder:
        model(torch.from_numpy(GIVEN))
        recorder.step()
    with padiff.record(port, tmp_path / "b") as recorder:
        port(mindspore.Tensor(GIVEN + np.float32(more)))
        recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (cause is None), report
    assert len(report.sources) == (cause is not None), report
    assert all(str(one.cause).startswith(cause or "") for one in report.sources), report
