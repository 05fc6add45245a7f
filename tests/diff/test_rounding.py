"""What nearly cancels is rounding, however large relatively; what a hook changes there is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

from .models import assert_clean


def _encoders() -> tuple[Any, Any]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
    other = paddle.nn.TransformerEncoderLayer(32, 4, 64, 0.0, "relu")
    reference = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    return reference, paddle.nn.TransformerEncoder(other, 1)


def _nearly_one_token(apart: float) -> tuple[np.ndarray[Any, Any]]:
    """Return tokens that hardly differ: the gradient of queries and keys then cancels to ``apart`` and less."""
    draw = np.random.default_rng(0)
    return ((draw.standard_normal((2, 1, 32)) + apart * draw.standard_normal((2, 16, 32))).astype(np.float32),)


@pytest.mark.parametrize("apart", [1e-1, 1e-2, 1e-3])
def test_a_gradient_that_cancels_is_no_alarm(apart: float) -> None:
    assert_clean(padiff.diff(*_encoders(), _nearly_one_token(apart)))


@pytest.mark.parametrize("hooked", [0, 1])
def test_a_hook_on_a_gradient_that_cancels_is_seen(hooked: int) -> None:
    models = _encoders()
    attention = models[hooked].layers[0].self_attn
    parameter = attention.q_proj.weight if hooked else attention.in_proj_weight
    parameter.register_hook(lambda gradient: gradient * 2)
    report = padiff.diff(*models, _nearly_one_token(1e-1))
    assert not report.aligned
    assert {finding.reference.path for finding in report.sources} == {"layers.0.self_attn"}
    assert "gradient of weight" in {finding.what for finding in report.sources}
