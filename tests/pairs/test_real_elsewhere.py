"""Diff models of libraries of which only single files are imported: timm, PaddleClas, MindOne, Megatron.

What a package imports by itself (predictors, readers of images, pipelines) is left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import padiff

from .judging import assert_aligned, describe

IDS = np.random.default_rng(0).integers(2, 60, (2, 7))
SMALL = {"vocab_size": 60, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
STILL = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"}


@contextlib.contextmanager
def bare(*names: str, **attributes: Any) -> Iterator[None]:
    """Let packages be found without running what they begin with."""
    before = set(sys.modules)
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = types.ModuleType(name)
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        vars(package).update(attributes)
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in {one.partition(".")[0] for one in names}:
                del sys.modules[name]


def image(size: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 3, size, size)).astype("float32")


@pytest.fixture(scope="module")
def paddleclas() -> Iterator[Any]:
    with bare("paddleclas"):
        yield importlib.import_module("paddleclas.ppcls.arch.backbone.model_zoo.distilled_vision_transformer")


def deit(paddleclas: Any, train: bool) -> tuple[Any, Any]:
    import timm

    ours = timm.create_model("deit_tiny_patch16_224", img_size=32)
    theirs = paddleclas.DeiT_tiny_patch16_224(img_size=32)
    (ours.train(), theirs.train()) if train else (ours.eval(), theirs.eval())
    return ours, theirs


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_deit_of_timm_and_paddleclas_is_aligned(paddleclas: Any, train: bool) -> None:
    ours, theirs = deit(paddleclas, train)
    assert_aligned(padiff.diff(ours, theirs, (image(32),)))


def test_another_scale_in_deit_is_named(paddleclas: Any) -> None:
    ours, theirs = deit(paddleclas, False)
    theirs.blocks[3].attn.scale *= 1.01
    report = padiff.diff(ours, theirs, (image(32),))
    assert {source.candidate.path for source in report.sources} == {"blocks.3.attn"}, describe(report)


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_repvgg_of_timm_and_paddleclas_is_aligned(paddleclas: Any, train: bool) -> None:
    """One side says ``stages.0`` and the other ``stage1``: 0.4 matched each stage with the one before."""
    import timm

    module = importlib.import_module("paddleclas.ppcls.arch.backbone.model_zoo.repvgg")
    ours, theirs = timm.create_model("repvgg_a0"), module.RepVGG_A0()
    (ours.train(), theirs.train()) if train else (ours.eval(), theirs.eval())
    assert_aligned(padiff.diff(ours, theirs, (image(64),)))


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_levit_of_paddleclas_and_timm_is_aligned_or_named(paddleclas: Any, factor: float) -> None:
    """What timm's keeps of its attention biases in evaluation mode was of other weights: 0.4 was alarmed by it."""
    import paddle
    import timm
    import torch

    paddle.seed(0)  # with small weights a scale of scores is little to see
    module = importlib.import_module("paddleclas.ppcls.arch.backbone.model_zoo.levit")
    ours, theirs = module.LeViT_128S(distillation=True), timm.create_model("levit_128s").eval()
    ours.eval()
    for parameter in ours.parameters():
        if not parameter.abs().sum():  # biases, which would hide where they are left out
            parameter.set_value(np.random.default_rng(0).normal(size=parameter.shape).astype("float32") * 0.2)
    x = image(224)[:1]
    theirs(torch.tensor(x))
    theirs.stages[1].blocks[0].attn.scale *= factor
    report = padiff.diff(ours, theirs, (x,), phase="forward")
    assert any(note.kind == "rebuilt" for note in report.notes)
    assert {s.candidate.path for s in report.sources} == ({"stages.1.blocks.0.attn"} if factor > 1 else set()), (
        describe(report)
    )


@pytest.fixture
def mindone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from mindspore import mint, ops

    monkeypatch.setattr(mint, "addmm", lambda bias, x, weight: ops.matmul(x, weight) + bias)  # no kernel for CPUs
    with bare("mindone", "mindone.transformers", "mindone.transformers.models", __version__="4.50.0"):
        yield importlib.import_module("mindone.transformers.models.gpt2.modeling_gpt2")


def gpt2(**settings: Any) -> Any:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL, **STILL, **settings)).eval()


def test_gpt2_of_hugging_face_and_mindone_is_aligned(mindone: Any) -> None:
    ours = gpt2()
    theirs = mindone.GPT2LMHeadModel(ours.config)
    theirs.set_train(False)
    assert_aligned(padiff.diff(ours, theirs, {"input_ids": IDS}))
    theirs.transformer.h[1].attn.scale_attn_weights = False
    report = padiff.diff(ours, theirs, {"input_ids": IDS})
    assert {source.candidate.path for source in report.sources} == {"transformer.h.1.attn"}, describe(report)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import random

    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(random.CudaRNGStatesTracker, "fork", lambda *_: contextlib.nullcontext())
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    parallel_state.initialize_model_parallel(1, 1)
    yield importlib.import_module("megatron.core.models.gpt.gpt_model")
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def gpt_of_megatron(megatron: Any, normalization: str, model: dict[str, Any], **settings: Any) -> Any:
    """Return Megatron's GPT in evaluation mode, without what its fused kernels need."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    off = ("bias_activation_fusion", "masked_softmax_fusion", "bias_dropout_fusion", "persist_layer_norm")
    off += ("gradient_accumulation_fusion", "apply_rope_fusion")
    sizes = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "normalization": normalization}
    still = {"use_cpu_initialization": True, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    config = TransformerConfig(**sizes, **still, **dict.fromkeys(off, False), **settings)
    spec = get_gpt_layer_local_spec(normalization=normalization)
    return megatron.GPTModel(config, spec, vocab_size=60, max_sequence_length=32, **model).eval()


MEGATRON_INPUTS = {
    "input_ids": IDS,
    "position_ids": np.arange(7)[None].repeat(2, 0),
    "attention_mask": np.triu(np.ones((1, 1, 7, 7), bool), 1),
}


def test_gpt2_of_hugging_face_and_megatron_is_aligned(megatron: Any) -> None:
    """Values are [s, b, h] there, and each head's query, key and value lie side by side; 0.4 named two attentions."""
    shared = {"share_embeddings_and_output_weights": True, "position_embedding_type": "learned_absolute"}
    theirs = gpt_of_megatron(megatron, "LayerNorm", shared)
    ours = gpt2(activation_function="gelu", use_cache=False)
    report = padiff.diff(ours, theirs, {"input_ids": IDS}, candidate_inputs=MEGATRON_INPUTS)
    assert_aligned(report)
    assert report.transfer.verified == report.transfer.copied, describe(report)


def test_llama_of_hugging_face_and_megatron(megatron: Any) -> None:
    """Two heads share a key and a value, which lie behind their queries; gate and up are one layer there."""
    import torch
    import transformers

    apart = {"share_embeddings_and_output_weights": False, "position_embedding_type": "rope"}
    gated = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "add_bias_linear": False}
    sizes = {"num_query_groups": 2, "ffn_hidden_size": 48, "layernorm_epsilon": 1e-5}
    theirs = gpt_of_megatron(megatron, "RMSNorm", apart, **gated, **sizes)
    config = transformers.LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        max_position_embeddings=32,
        use_cache=False,
        attn_implementation="eager",
    )
    ours = transformers.LlamaForCausalLM(config).eval()
    report = padiff.diff(ours, theirs, {"input_ids": IDS}, candidate_inputs=MEGATRON_INPUTS)
    assert_aligned(report)
    assert report.transfer.verified == report.transfer.copied, describe(report)
    theirs.decoder.layers[1].self_attention.core_attention.softmax_scale = 0.3
    report = padiff.diff(ours, theirs, {"input_ids": IDS}, candidate_inputs=MEGATRON_INPUTS)
    places = {source.candidate.path for source in report.sources}
    assert places == {"decoder.layers.1.self_attention.core_attention"}, describe(report)


@pytest.mark.parametrize("shift", [0.0, 0.3], ids=["right", "shifted keys"])
def test_swin_of_torchvision_and_timm_is_aligned_or_named(shift: float) -> None:
    """One library's packed bias is the other's vectors of queries and values; keys have zeros, which one code puts."""
    import torch
    from timm.models.swin_transformer_v2 import SwinTransformerV2
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    blocks: dict[str, Any] = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}
    ours = SwinTransformer([4, 4], 24, [1, 1], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10, **blocks)
    small: dict[str, Any] = {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4), "window_size": 4}
    theirs = SwinTransformerV2(32, 4, num_classes=10, drop_path_rate=0.0, **small)
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    for name, buffer in theirs.named_buffers():
        if name.endswith("k_bias"):
            buffer.fill_(shift)
    report = padiff.diff(ours.eval(), theirs.eval(), (image(32),))
    if not shift:
        assert_aligned(report)
        return
    places = {source.candidate.path.removesuffix(".attn") for source in report.sources}
    assert places == {f"layers.{stage}.blocks.0" for stage in (0, 1)}, describe(report)
