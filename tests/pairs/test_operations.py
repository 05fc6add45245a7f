"""Diff with operations: no alarm on right ports, which spell them otherwise; a fault in the code between is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff

from . import zoo
from .faults import ROWS, Row
from .judging import assert_aligned, describe, places_of
from .real import built, image
from .test_faults import _models

Frameworks = tuple[str, str]
GLUE = (
    "transformer-scale_slightly_off",
    "transformer-missing_residual",
    "transformer-softmax_axis",
    "convnet-relu_before_add",
    "llama-rope_sign",
    "llama-wrong_activation",
    "recurrent-pool_mean",
)
"""Faults in the code between modules: a factor, a term, an axis, an order, a sign, a function, a mean."""


@pytest.mark.parametrize(
    ("pair", "options", "frameworks"),
    [
        pytest.param(pair, options, frameworks, id=f"{pair}-{options}-{'-'.join(frameworks)}")
        for pair in zoo.PAIRS
        for options in ({}, {"train": False})
        for frameworks in zoo.DIRECTIONS
        if zoo.possible(pair, frameworks, options)
    ],
)
def test_a_right_port_raises_no_alarm(pair: str, options: dict[str, Any], frameworks: Frameworks) -> None:
    models = zoo.build(pair, frameworks[0], **options), zoo.build(pair, frameworks[1], seed=9, **options)
    phase = "forward" if zoo.forward_only(pair, frameworks, options) else "both"
    assert_aligned(padiff.diff(*models, zoo.inputs(pair), operations=True, phase=phase))


@pytest.mark.parametrize(
    ("row", "frameworks"),
    [
        pytest.param(row, frameworks, id=f"{row.id}-{'-'.join(frameworks)}")
        for row in ROWS
        if row.id in GLUE
        for frameworks in row.directions
    ],
)
def test_a_fault_is_named_in_its_code(row: Row, frameworks: Frameworks) -> None:
    models = _models(row.pair, frameworks, row.planted, train=row.train, **row.options)
    report = padiff.diff(*models, zoo.inputs(row.pair), operations=True)
    told = describe(report)
    assert not report.aligned, told
    places = frozenset().union(*places_of(row, frameworks[1]))
    modules = set(padiff.plugins.adapter_for(models[1]).wrap(models[1]).modules())
    for found in report.sources:
        path = found.candidate.path or ""
        home = path if path in modules else path.rpartition(".")[0]
        assert home in places, told


@pytest.mark.parametrize("frameworks", [("torch", "paddle"), ("paddle", "torch")], ids="-".join)
@pytest.mark.parametrize(
    ("name", "train"),
    [("resnet18", True), ("shufflenet_v2_x1_0", False)],
)
def test_vision_models_are_aligned(name: str, train: bool, frameworks: Frameworks) -> None:
    models = [built(framework, name, train=train) for framework in frameworks]
    assert_aligned(padiff.diff(*models, (image(64),), operations=True))


@pytest.mark.parametrize("frameworks", [("torch", "paddle"), ("paddle", "torch")], ids="-".join)
def test_llama_of_two_libraries_is_aligned_operation_by_operation(frameworks: Frameworks) -> None:
    import paddlenlp.transformers
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": 60,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "use_cache": False,
    }
    ours = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, attn_implementation="eager")).eval()
    theirs = paddlenlp.transformers.LlamaForCausalLM(paddlenlp.transformers.LlamaConfig(**sizes))
    theirs.eval()
    inputs = {"input_ids": np.random.default_rng(0).integers(1, 60, (2, 9))}
    sides = (ours, theirs) if frameworks[0] == "torch" else (theirs, ours)
    alone = padiff.diff(*sides, inputs)
    report = padiff.diff(*sides, inputs, operations=True)
    assert_aligned(report)
    assert sum(report.counts.values()) > 1.5 * sum(alone.counts.values())


@pytest.mark.parametrize("scale", [1.0, 1.001])
def test_code_in_another_form_is_right_behind_a_kernel_without_float64(scale: float) -> None:
    """A capsule's squash, behind a convolution: MindSpore's has no float64, and gradients inside were sources."""
    import mindspore
    import torch

    class Capsules(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 6, 3)

        def forward(self, x: Any) -> Any:
            x = self.conv(x).flatten(2).transpose(1, 2)
            size = (x**2).sum(-1, keepdim=True)
            return size / (1 + size) * x / (size + 1e-8).sqrt()

    class Port(mindspore.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layer = mindspore.nn.Conv2d(1, 6, 3, pad_mode="valid", has_bias=True)

        def construct(self, x: Any) -> Any:
            x = self.layer(x).reshape(x.shape[0], 6, -1).swapaxes(1, 2)
            size = x.square().sum(-1, keepdims=True)
            return x * (mindspore.ops.sqrt(size + 1e-8) / (1 + size * scale))

    x = np.random.default_rng(0).standard_normal((2, 1, 6, 6), dtype=np.float32)
    report = padiff.diff(Capsules(), Port(), (x,), operations=True)
    assert report.aligned == (scale == 1.0), str(report)


def test_no_row_is_misspelled() -> None:
    assert {row.id for row in ROWS} >= set(GLUE)
