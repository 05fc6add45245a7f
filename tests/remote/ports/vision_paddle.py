"""Build an image model of Paddle's own, in Paddle's process."""

from __future__ import annotations

from typing import Any

import paddle


def build() -> Any:
    """Return a MobileNetV2 in evaluation mode."""
    paddle.seed(0)
    model = paddle.vision.models.mobilenet_v2(scale=0.5)
    model.eval()
    return model
