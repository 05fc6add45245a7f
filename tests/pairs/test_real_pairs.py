"""Diff models that nobody here wrote: torchvision, paddle.vision, Hugging Face, PaddleNLP, and both `nn`s.

What is equal and what is not was established by hand, with copies of the weights made outside padiff.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

from .judging import describe
from .real import built, image, language, sentences

DIRECTIONS = [("torch", "paddle"), ("paddle", "torch")]
BOTH = pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
MODES = pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])


def _assert_aligned(report: padiff.Report, *, transferred: bool = True) -> None:
    told = describe(report)
    assert report.aligned, told
    assert not report.sources, told
    if transferred:
        assert report.transfer is not None
        assert not report.transfer.unmatched_reference, report.transfer
        assert not report.transfer.unmatched_candidate, report.transfer


def _sources(report: padiff.Report) -> set[tuple[str, str | None, str | None]]:
    return {(str(f.phase), f.reference.path, f.candidate.path) for f in report.sources}


@BOTH
@MODES
@pytest.mark.parametrize(
    "name",
    ["resnet50", "resnet18", "mobilenet_v2", "densenet121", "shufflenet_v2_x1_0", "mobilenet_v3_small"],
)
def test_vision_models_are_aligned(name: str, train: bool, frameworks: tuple[str, str]) -> None:
    # In train mode the last stages of a 64-pixel image normalise over 8 values: free runs drift by 5 % there.
    reference, candidate = (built(framework, name, train=train) for framework in frameworks)
    _assert_aligned(padiff.diff(reference, candidate, (image(),)))


@MODES
def test_vgg_is_aligned(train: bool) -> None:
    # Dropouts of 0.5 draw; the bias of a convolution before a BatchNorm has a gradient of mere rounding.
    reference, candidate = (built(framework, "vgg11_bn", train=train) for framework in DIRECTIONS[0])
    _assert_aligned(padiff.diff(reference, candidate, (image(),)))


@MODES
@BOTH
def test_alexnet_scales_in_evaluation(frameworks: tuple[str, str], train: bool) -> None:
    reference, candidate = (built(framework, "alexnet", train=train) for framework in frameworks)
    report = padiff.diff(reference, candidate, (image(224),))
    told = describe(report)
    assert not report.aligned, told
    paths = {"torch": ("classifier.0", "classifier.3"), "paddle": ("_drop1", "_drop2")}
    pairs = set(zip(*(paths[framework] for framework in frameworks), strict=True))
    assert {(f.reference.path, f.candidate.path) for f in report.sources} == pairs, told
    for found in report.sources:
        assert found.phase in {"forward", "backward"}
        assert found.cause, told
        assert "mode" in found.cause
        assert "downscale_in_infer" in found.cause
        assert "upscale_in_train" in found.cause


@BOTH
def test_squeezenet_parts_at_its_stem_pools_and_dropout(frameworks: tuple[str, str]) -> None:
    # 1.1: Paddle's stem pads by 1, torchvision's pools have ceil_mode, Paddle's dropout scales in evaluation.
    reference, candidate = (built(framework, "squeezenet1_1", train=False) for framework in frameworks)
    report = padiff.diff(reference, candidate, (image(100),))
    told = describe(report)
    at = {"torch": ("features.0", "classifier.0"), "paddle": ("_conv", "_drop")}[frameworks[1]]
    causes = {found.candidate.path: found.cause or "" for found in report.sources}
    assert "padding" in causes.get(at[0], ""), told
    assert "downscale_in_infer" in causes.get(at[1], ""), told
    pools = {"torch": {"features.2", "features.5", "features.8"}, "paddle": {"_pool"}}[frameworks[1]]
    assert set(causes) - set(at) <= pools, told
    assert all("ceil_mode" in causes[path] for path in set(causes) & pools), told


@BOTH
@MODES
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification"])
def test_language_models_are_aligned(family: str, head: str, train: bool, frameworks: tuple[str, str]) -> None:
    reference, candidate = (built(framework, f"{family}.{head}", train=train) for framework in frameworks)
    _assert_aligned(padiff.diff(reference, candidate, sentences()))


@BOTH
@pytest.mark.parametrize(
    ("name", "transferred"),
    [
        ("Roberta.ForMaskedLM", True),
        ("Roberta.ForTokenClassification", True),
        ("Roberta.ForQuestionAnswering", True),
        ("Bert.ForMaskedLM", False),  # PaddleNLP also runs a pooler there, and uses it for nothing
        ("Bert.ForTokenClassification", False),
    ],
)
def test_language_heads_are_aligned(name: str, transferred: bool, frameworks: tuple[str, str]) -> None:
    reference, candidate = (built(framework, name, train=False) for framework in frameworks)
    _assert_aligned(padiff.diff(reference, candidate, sentences()), transferred=transferred)


@BOTH
def test_a_language_model_in_training_is_aligned(frameworks: tuple[str, str]) -> None:
    chances = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    reference, candidate = (language(framework, "Bert", **chances) for framework in frameworks)
    reference.train()
    candidate.train()
    _assert_aligned(padiff.diff(reference, candidate, sentences()))


@BOTH
@pytest.mark.parametrize(
    ("family", "pad", "path"),
    [("Bert", 0, "embeddings.word_embeddings"), ("Roberta", 1, "embeddings.position_embeddings")],
)
def test_padding_gets_no_gradient_on_one_side(family: str, pad: int, path: str, frameworks: tuple[str, str]) -> None:
    # Hugging Face sets padding_idx there, PaddleNLP does not: equal forward, another gradient for that row.
    reference, candidate = (built(framework, f"{family}.Model", train=False) for framework in frameworks)
    report = padiff.diff(reference, candidate, sentences(pad=pad))
    expected = {("backward", path, path)}
    if family == "Roberta" and frameworks[0] == "paddle":
        # Paddle's embedding gives zeros for padding_idx whatever its row holds; torch's gives the row.
        expected.add(("forward", "embeddings.word_embeddings", "embeddings.word_embeddings"))
    assert _sources(report) == expected, describe(report)
    assert "padding_idx" in (report.sources[-1].cause or ""), describe(report)


@BOTH
def test_another_epsilon_is_named_at_every_norm(frameworks: tuple[str, str]) -> None:
    reference = language(frameworks[0], "Bert", layer_norm_eps=1e-12)
    candidate = language(frameworks[1], "Bert", layer_norm_eps=1e-5)
    reference.eval()
    candidate.eval()
    report = padiff.diff(reference, candidate, sentences())
    names = {
        "torch": [
            "embeddings.LayerNorm",
            *(f"encoder.layer.{i}.{n}.LayerNorm" for i in (0, 1) for n in ("attention.output", "output")),
        ],
        "paddle": [
            "embeddings.layer_norm",
            *(f"encoder.layers.{i}.{n}" for i in (0, 1) for n in ("norm1", "norm2")),
        ],
    }
    expected = set(zip(*(names[framework] for framework in frameworks), strict=True))
    assert {(f.reference.path, f.candidate.path) for f in report.sources} == expected, describe(report)
    assert all("eps" in (found.cause or "") for found in report.sources), describe(report)


def test_another_gelu_is_named_where_it_is_called() -> None:
    reference = language("torch", "Bert", hidden_act="gelu_new").eval()
    candidate = language("paddle", "Bert", hidden_act="gelu")
    candidate.eval()
    report = padiff.diff(reference, candidate, sentences())
    expected = {"encoder.layers.0", "encoder.layers.1"}  # F.gelu in TransformerEncoderLayer.forward
    assert {found.candidate.path for found in report.sources} == expected, describe(report)


def _sides(frameworks: tuple[str, str], torch_model: Any, paddle_model: Any, *, train: bool) -> tuple[Any, Any]:
    made = {"torch": torch_model, "paddle": paddle_model}
    for model in made.values():
        (model.train if train else model.eval)()
    return made[frameworks[0]], made[frameworks[1]]


def _steps(width: int = 8) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 6, width)).astype("float32")


@BOTH
@MODES
@pytest.mark.parametrize(("layers", "both_ways"), [(1, False), (2, True)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_recurrent_layers_are_aligned(
    kind: str, layers: int, both_ways: bool, train: bool, frameworks: tuple[str, str]
) -> None:
    torch_class = getattr(torch.nn, "RNN" if kind == "SimpleRNN" else kind)
    sides = _sides(
        frameworks,
        torch_class(8, 5, num_layers=layers, bidirectional=both_ways, batch_first=True),
        getattr(paddle.nn, kind)(8, 5, num_layers=layers, direction="bidirect" if both_ways else "forward"),
        train=train,
    )
    # Paddle's recurrent kernels keep nothing for a backward pass in eval mode, and raise there.
    _assert_aligned(padiff.diff(*sides, (_steps(),), phase="both" if train else "forward"))


@BOTH
@MODES
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_transformer_encoders_are_aligned(
    dropout: float, norm_first: bool, activation: str, train: bool, frameworks: tuple[str, str]
) -> None:
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, dropout=dropout, activation=activation, batch_first=True, norm_first=norm_first
    )
    twin = paddle.nn.TransformerEncoderLayer(
        8, 2, 16, dropout=dropout, activation=activation, normalize_before=norm_first
    )
    sides = _sides(
        frameworks,
        torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(8), enable_nested_tensor=False),
        paddle.nn.TransformerEncoder(twin, 2, norm=paddle.nn.LayerNorm(8)),
        train=train,
    )
    _assert_aligned(padiff.diff(*sides, (_steps(),)))


@BOTH
def test_masks_are_the_users_business(frameworks: tuple[str, str]) -> None:
    # torch: True hides; Paddle: True keeps.
    hidden = np.triu(np.ones((6, 6), dtype=bool), 1)
    sides = _sides(
        frameworks,
        torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0),
        train=False,
    )
    inputs = {
        "torch": {"src": _steps(), "src_mask": hidden},
        "paddle": {"src": _steps(), "src_mask": ~hidden},
    }
    right = padiff.diff(*sides, inputs[frameworks[0]], candidate_inputs=inputs[frameworks[1]])
    _assert_aligned(right)
    assert not padiff.diff(*sides, inputs["torch"]).aligned


class TorchAttention(torch.nn.Module):
    """Use torch's attention, which returns the weights too."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attn(x, x, x)[0]


class PaddleAttention(paddle.nn.Layer):
    """Use Paddle's attention, which returns the output alone."""

    def __init__(self) -> None:
        super().__init__()
        self.mha = paddle.nn.MultiHeadAttention(8, 2)

    def forward(self, x: Any) -> Any:
        return self.mha(x)


@BOTH
@MODES
def test_attention_is_aligned(train: bool, frameworks: tuple[str, str]) -> None:
    sides = _sides(frameworks, TorchAttention(), PaddleAttention(), train=train)
    _assert_aligned(padiff.diff(*sides, (_steps(),)))
