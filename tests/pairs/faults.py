"""List the planted faults: what is planted, and what a diff must name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from .arguments import Maker, losses, optimizers
from .tampering import change, swap, train_mode, transpose

__all__ = ["EVERYWHERE", "ROWS", "Row"]

EVERYWHERE = "*"
"""The place of a fault that touches every module with parameters."""

Sides = Mapping[str, Any]


@attrs.frozen
class Row:
    """Describe one fault.

    A place is a candidate path. ``a|b`` accepts either, where two names are honest; a tuple asks for all.
    """

    id: str
    """``pair-fault``, with ``@variant`` where one fault has several rows."""
    places: Sides
    """Framework of the candidate -> where it must be named."""
    phases: tuple[str, ...] = ("forward",)
    """The phases of which one must be named at each place."""
    before: Sides | None = None
    """For glue: the child whose input parts, the second of ``Finding.between``."""
    cause: tuple[str, ...] = ()
    """Words that the cause must hold; ``a|b`` for either."""
    train: bool = True
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """What both builders get."""
    extra: Maker | None = None
    """Makes further arguments of `padiff.diff`."""
    tamper: Callable[[Any, str], None] | None = None
    """What is done to the candidate after its build."""
    transfer: bool = True
    """False: padiff transfers, then the candidate is tampered with, then diffed with ``transfer=False``."""
    candidates: tuple[str, ...] = ("paddle", "torch")
    """The frameworks in which it is planted."""
    leftover: bool = False
    """Whether a source without a candidate path may stand beside: what is left over of the reference."""

    @property
    def pair(self) -> str:
        """Return the pair's name."""
        return self.id.partition("-")[0]

    @property
    def fault(self) -> str:
        """Return the fault's name."""
        return self.id.partition("-")[2].partition("@")[0]

    @property
    def planted(self) -> frozenset[str]:
        """Return what the builder plants: nothing where the candidate or the arguments are spoilt instead."""
        return frozenset({self.fault} if self.tamper is None and self.extra is None else ())


def _at(torch: Any, paddle: Any) -> Sides:
    return {"torch": torch, "paddle": paddle}


def _leaf(tail: str | None, *paths: str) -> tuple[str, ...]:
    return tuple(f"{path}.{tail}" for path in paths)


BACKWARD = ("backward",)
PARAMETER = ("parameter", "forward")
UPDATE = ("update",)
ROOT = _at("", "")
END = _at("end", "end")

ATTN = _at("blocks.1.attn", "layers.1.self_attn")
OUT = _at("out_proj", "out")
BLOCK = _at("blocks.1", "layers.1")
NORM2 = _at("norm2", "ln_2")
FC1 = _at("blocks.1.mlp.fc1", "layers.1.ffn.0")
FC2 = _at("blocks.1.mlp.fc2", "layers.1.ffn.3")
QUERY = _at("blocks.1.attn.q_proj", "layers.1.self_attn.query")
FIRST = _at("blocks.0", "layers.0")
DROP = _at("drop", "dropout")
TIED = _at("tok_emb|lm_head|", "word_embeddings|decoder|")

TRANSFORMER = (
    Row("transformer-attention_scale", ATTN, before=OUT),
    Row("transformer-scale_slightly_off", ATTN, before=OUT),
    Row("transformer-swapped_kv", ATTN, before=OUT),
    Row("transformer-causal_off_by_one", ATTN, before=OUT),
    Row("transformer-causal_inverted", ATTN, before=OUT, train=False),
    Row("transformer-causal_missing", ATTN, before=OUT),
    Row("transformer-softmax_axis", ATTN, before=OUT),
    Row("transformer-head_split", ATTN, before=OUT),
    Row("transformer-head_merge", ATTN, before=OUT, train=False),
    Row("transformer-detached_probs", ATTN, BACKWARD),
    Row("transformer-dropout_forgotten", ATTN, before=OUT, train=False, options={"dropout": 0.3}),
    Row(
        "transformer-dropout_left_on",
        DROP,
        cause=("train",),
        train=False,
        options={"dropout": 0.2},
        tamper=train_mode(**DROP),
    ),
    Row(
        "transformer-dropout_p",
        _at("blocks.1.mlp.drop", "layers.1.ffn.2"),
        cause=("p", "0.45"),
        options={"dropout": 0.1},
    ),
    Row("transformer-gelu_flavour", _at("blocks.1.mlp.act", "layers.1.ffn.1"), cause=("approximate", "tanh")),
    Row("transformer-wrong_activation", _at("blocks.1.mlp.act", "layers.1.ffn.1")),
    Row("transformer-missing_bias", FC2, PARAMETER, cause=("bias",)),
    Row("transformer-norm_eps", _at("blocks.1.norm1", "layers.1.ln_1"), cause=("eps", "1e-06", "1e-05")),
    Row("transformer-final_norm_eps", _at("norm", "final_norm"), cause=("eps", "1e-12", "1e-05")),
    Row("transformer-norm_order", BLOCK),
    Row("transformer-residual_after_norm", BLOCK, before=NORM2),
    Row("transformer-missing_residual", BLOCK, before=NORM2),
    Row("transformer-missing_residual@deep", BLOCK, before=NORM2, options={"depth": 4}, train=False),
    Row("transformer-residual_twice", BLOCK, before=NORM2),
    Row("transformer-detached_residual", BLOCK, BACKWARD),
    Row("transformer-activation_hook", BLOCK, BACKWARD),
    Row("transformer-parameter_hook", FC1, BACKWARD),
    Row("transformer-frozen_parameter", FC2, BACKWARD),
    Row("transformer-position_offset", ROOT, before=_at("pos_emb", "position_embeddings")),
    Row("transformer-embedding_scale", ROOT, before=DROP),
    Row("transformer-position_twice", ROOT, before=DROP),
    Row("transformer-mask_inverted", ROOT, before=FIRST),
    Row("transformer-mask_off_by_one", ROOT, before=FIRST),
    Row("transformer-layers_reversed", ROOT),
    Row("transformer-final_norm_skipped", ROOT, leftover=True),
    Row("transformer-head_transposed", ROOT, before=END, options={"tied": True}, leftover=True),
    Row("transformer-untied_head", TIED, ("parameter", "backward"), options={"tied": True}, leftover=True),
    Row("transformer-tied_head", TIED, ("parameter", "forward", "backward"), leftover=True),
    Row(
        "transformer-square_weight_transposed",
        QUERY,
        PARAMETER,
        cause=("transpos",),
        tamper=transpose(*_leaf("weight", *QUERY.values())),
        transfer=False,
    ),
    Row(
        "transformer-layers_crossed",
        _at(("blocks.0.mlp.fc2", "blocks.1.mlp.fc2"), ("layers.0.ffn.3", "layers.1.ffn.3")),
        PARAMETER,
        transfer=False,
        tamper=swap(
            ("blocks.0.mlp.fc2.weight", "blocks.1.mlp.fc2.weight"),
            ("layers.0.ffn.3.weight", "layers.1.ffn.3.weight"),
        ),
    ),
    Row(
        "transformer-bias_zeroed",
        FC1,
        PARAMETER,
        tamper=change(*_leaf("bias", *FC1.values()), np.zeros_like),
        transfer=False,
    ),
    Row("transformer-loss_scale", ROOT, ("loss",), extra=losses(lambda loss: loss * 2.0)),
    Row("transformer-loss_offset", ROOT, ("loss",), extra=losses(lambda loss: loss + 100.0)),
    Row(
        "transformer-weight_decay",
        _at(EVERYWHERE, EVERYWHERE),
        UPDATE,
        extra=optimizers(wrong={"weight_decay": 0.1}),
    ),
    Row(
        "transformer-weight_decay@local",
        FC1,
        UPDATE,
        extra=optimizers(at=_at(*_leaf("weight", *FC1.values())), wrong={"weight_decay": 0.1}),
    ),
    Row("transformer-learning_rate", _at(EVERYWHERE, EVERYWHERE), UPDATE, extra=optimizers(wrong={"lr": 0.11})),
    Row(
        "transformer-learning_rate@local",
        FC1,
        UPDATE,
        extra=optimizers(at=_at(*_leaf("weight", *FC1.values())), wrong={"lr": 0.05}),
    ),
)

CONV1 = _at("layer1.1.conv1", "blocks.1.conv0.conv")
BN1 = _at("layer1.1.bn1", "blocks.1.conv0.norm")
CONV2 = _at("layer1.1.conv2", "blocks.1.conv1.conv")
BN2 = _at("layer1.1.bn2", "blocks.1.conv1.norm")
RESIDUAL = _at("layer1.1", "blocks.1")
STEM = _at("conv1", "stem")
FLAT = _at("dropout", "drop")
LATERAL = _at("lateral", "neck.lateral")

CONVNET = (
    Row("convnet-padding_mode", _at("conv1", "stem.conv"), cause=("mode", "reflect", "zeros")),
    Row("convnet-stride_moved", _at(*zip(CONV1.values(), CONV2.values(), strict=True)), cause=("stride",)),
    Row("convnet-dilation", CONV2, cause=("dilation",)),
    # With Paddle as the reference the changed weight has the shape of its neighbour's, and the block is named instead.
    Row("convnet-groups", CONV2, PARAMETER, cause=("groups",), candidates=("paddle",)),
    Row("convnet-bn_eps", BN1, cause=("eps", "0.001", "1e-05")),
    Row("convnet-bn_eps@eval", BN1, cause=("eps", "0.001", "1e-05"), train=False),
    Row("convnet-bn_momentum", BN1, ("buffer",), cause=("momentum",)),
    Row("convnet-bn_frozen", BN2, cause=("train|global",)),
    Row(
        "convnet-statistics_stale",
        BN2,
        ("parameter", "buffer", "forward"),
        train=False,
        transfer=False,
        tamper=change("layer1.1.bn2.running_var", "blocks.1.conv1.norm._variance", np.ones_like),
    ),
    Row("convnet-leaky", _at("layer1.1|layer1.1.relu", "blocks.1.conv0|blocks.1")),
    Row("convnet-missing_residual", RESIDUAL, before=END),
    Row("convnet-missing_final_relu", RESIDUAL, before=END),
    Row("convnet-relu_before_add", RESIDUAL, before=END),
    Row("convnet-detached_residual", RESIDUAL, BACKWARD),
    Row("convnet-avg_for_max", _at("maxpool", "max_pool")),
    Row("convnet-ceil_mode", _at("maxpool", "max_pool"), cause=("ceil_mode",)),
    Row("convnet-count_include_pad", _at("avgpool", "neck.pool"), cause=("count_include_pad|exclusive",)),
    Row("convnet-align_corners", _at("upsample", "neck.up"), cause=("align_corners",)),
    Row("convnet-nearest", _at("upsample", "neck.up"), cause=("mode", "nearest")),
    Row("convnet-shuffle_order", _at("shuffle|", "neck|")),
    Row("convnet-missing_bias", LATERAL, PARAMETER, cause=("bias",)),
    Row("convnet-channels_reversed", ROOT, before=STEM),
    Row("convnet-not_normalised", ROOT, before=STEM),
    Row("convnet-pool_max", ROOT, before=FLAT),
    Row("convnet-flatten_order", ROOT, before=FLAT),
    Row("convnet-dropout_p", FLAT, cause=("p", "0.6"), options={"dropout": 0.1}),
    Row(
        "convnet-dropout_left_on",
        FLAT,
        cause=("train",),
        train=False,
        options={"dropout": 0.2},
        tamper=train_mode(**FLAT),
    ),
    Row(
        "convnet-channels_of_weight",
        CONV1,
        PARAMETER,
        transfer=False,
        tamper=change(*_leaf("weight", *CONV1.values()), lambda weight: weight[:, ::-1]),
    ),
)

POOL = _at("pool", "pooler")
RNN = _at("rnn", "encoder")

RECURRENT = (
    Row("recurrent-pool_activation", _at("pool", "pooler.scorer.1|pooler.scorer|pooler")),
    Row("recurrent-pool_mask_missing", POOL, before=END),
    Row("recurrent-pool_axis", POOL, before=END),
    Row("recurrent-pool_mean", POOL, before=END),
    Row("recurrent-time_reversed", ROOT, before=RNN),
    Row("recurrent-time_reversed@gru", ROOT, before=RNN, options={"cell": "gru", "depth": 2}),
    Row("recurrent-initial_state", _at("|rnn", "|encoder")),
    Row("recurrent-directions_swapped", ROOT, before=_at("norm", "layer_norm")),
    Row("recurrent-shifted", ROOT, before=POOL),
    Row("recurrent-cell_for_hidden", ROOT),
    Row("recurrent-state_dropped", ROOT, before=_at("cell", "decoder_cell")),
    Row("recurrent-state_detached", ROOT, BACKWARD),
    Row("recurrent-steps_reversed", ROOT, before=END),
    Row(
        "recurrent-gates_crossed",
        RNN,
        PARAMETER,
        transfer=False,
        options={"depth": 2},
        tamper=change("rnn.weight_hh_l0", "encoder.weight_hh_l0", lambda w: np.concatenate([w[10:20], w[:10], w[20:]])),
    ),
)

RMS = _at("layers.1.input_layernorm", "layers.1.attention_norm")
ROTARY = _at("layers.1.self_attn", "layers.1.attention")
O_PROJ = _at("o_proj", "o_proj")
LAYER = _at("layers.1", "layers.1")
MLP = _at("layers.1.mlp", "layers.1.mlp")
DOWN = _at("down_proj", "down_proj")
LAYERS_0 = _at("layers.0", "layers.0")

LLAMA = (
    Row("llama-rms_centred", RMS),
    Row("llama-rms_eps", RMS),
    Row("llama-rms_eps_missing", RMS),
    Row("llama-rms_eps_outside", RMS),
    Row("llama-rms_one_plus", RMS),
    Row("llama-rope_sign", ROTARY, before=O_PROJ),
    Row("llama-rope_interleaved", ROTARY, before=O_PROJ),
    Row("llama-rope_key_missing", ROTARY, before=O_PROJ),
    Row("llama-kv_tiled", ROTARY, before=O_PROJ),
    Row("llama-causal_missing", ROTARY, before=O_PROJ),
    Row("llama-glu_swapped", MLP, before=DOWN),
    Row("llama-wrong_activation", MLP, before=DOWN),
    Row("llama-missing_residual", LAYER, before=END),
    Row("llama-residual_scaled", LAYER, before=END),
    Row("llama-rope_base", ROOT, before=LAYERS_0),
    Row("llama-rope_interleaved_cache", ROOT, before=LAYERS_0),
    Row("llama-position_stretched", ROOT, before=LAYERS_0),
    Row("llama-embedding_scale", ROOT, before=LAYERS_0),
    Row("llama-layer_skipped", ROOT, before=_at("norm", "norm"), leftover=True),
    Row("llama-last_shifted", ROOT, before=_at("lm_head", "lm_head")),
    Row("llama-logits_capped", ROOT, before=END),
    Row(
        "llama-vocabulary_shifted",
        _at("embed_tokens", "embed_tokens"),
        PARAMETER,
        transfer=False,
        tamper=change("embed_tokens.weight", "embed_tokens.weight", lambda weight: np.roll(weight, 1, axis=0)),
    ),
    Row(
        "llama-beta",
        _at(EVERYWHERE, EVERYWHERE),
        UPDATE,
        extra=lambda frameworks, models: {
            **optimizers("adamw", wrong={"beta": 0.95})(frameworks, models),
            "steps": 3,
        },
    ),
)

VAE = (
    Row("vae-group_count", _at("encoder.norm1", "encode.1"), cause=("groups",)),
    Row("vae-group_norm_eps", _at("encoder.norm2", "encode.4"), cause=("eps", "0.001", "1e-05")),
    Row("vae-leaky_slope", _at("encoder.act", ("encode.2", "encode.5")), cause=("slope", "0.01", "0.2")),
    Row("vae-reshape_order", _at("decoder", ""), before=_at("norm", "decode")),
    Row("vae-sigmoid_missing", _at("decoder|", "|decode"), before=END),
    Row("vae-encoder_detached", ROOT, BACKWARD),
    Row("vae-logvar_not_halved", ROOT, before=_at("decoder", "expand")),
    Row("vae-noise_forgotten", ROOT, before=_at("decoder", "expand")),
    Row("vae-outputs_swapped", ROOT, before=END),
)

ROWS: tuple[Row, ...] = (*TRANSFORMER, *CONVNET, *RECURRENT, *LLAMA, *VAE)
