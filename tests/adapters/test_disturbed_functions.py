"""Disturb the functions of a model's own code, and nothing that padiff does while the model runs."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch

from padiff.adapter import Adapter, Listener
from padiff.forcing._own_functions import Disturbing
from padiff.plugins import adapter_for

FED = np.random.default_rng(0).standard_normal((64, 8))


class Feeding(Listener):
    """What gives the layer's caller other values, and the layer itself."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.given: list[Any] = []

    def enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        return (self._fed(args[0]),), kwargs

    def leave(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        self.given.append(self.adapter.tensor(output).numpy())
        return self._fed(output)

    def _fed(self, native: Any) -> Any:
        return self.adapter.tensor(native).swapped(FED)


def _torch() -> tuple[Any, Any]:
    return torch.nn.Linear(8, 8).double(), torch.zeros(64, 8, dtype=torch.float64)


def _paddle() -> tuple[Any, Any]:
    return paddle.nn.Linear(8, 8).to(dtype="float64"), paddle.zeros([64, 8], "float64")


def _mindspore() -> tuple[Any, Any]:
    return mindspore.nn.Dense(8, 8, dtype=mindspore.float64), mindspore.ops.zeros((64, 8), mindspore.float64)


@pytest.mark.parametrize("made", [_torch, _paddle, _mindspore], ids=["torch", "paddle", "mindspore"])
def test_what_a_call_is_fed_is_not_disturbed(made: Any) -> None:
    """Before, torch's own `detach` under padiff was: values that were fed, and gradients, were memory nobody wrote."""
    native, given = made()
    adapter = adapter_for(native)
    model = adapter.wrap(native)
    plain, disturbed = Feeding(adapter), Feeding(adapter)
    with model.attach(plain):
        model.run((given,), {}, None)
    listener = Disturbing(disturbed, adapter, 2.0**20)
    with model.attach(listener), listener.within(model):
        output = model.run((given,), {}, None)
    np.testing.assert_array_equal(adapter.tensor(output).numpy(), FED)
    apart = np.linalg.norm(disturbed.given[0] - plain.given[0]) / np.linalg.norm(plain.given[0])
    assert 2.0**-36 < apart < 2.0**-28
