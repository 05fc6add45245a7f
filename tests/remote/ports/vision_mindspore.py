"""Build mindcv's twin of it, in MindSpore's process."""

from __future__ import annotations

from typing import Any

import mindcv
import mindspore

mindspore.set_context(runtime_num_threads=1)  # as tests/conftest.py does, and for the same reason


def build() -> Any:
    """Return a MobileNetV2 in evaluation mode."""
    model = mindcv.models.mobilenetv2.MobileNetV2(alpha=0.5)
    model.set_train(False)
    return model


def set_epsilon(model: Any, eps: float) -> None:
    """Give it another epsilon in a norm of the middle."""
    layers = model.features[8].layers
    layers[4] = mindspore.nn.BatchNorm2d(layers[4].num_features, eps=eps)
    model.set_train(False)
