"""List the faults of the encoder."""

from __future__ import annotations

import numpy as np

from . import zoo
from .arguments import losses, optimizers
from .rows import BACKWARD, END, EVERYWHERE, PARAMETER, ROOT, UPDATE, Row, at, leaf
from .tampering import change, swap, train_mode, transpose

__all__ = ["ROWS"]

ATTN = at("blocks.1.attn", "layers.1.self_attn", "blocks.1.attention")
OUT = at("out_proj", "out", "projection")
BLOCK = at("blocks.1", "layers.1", "blocks.1")
NORM2 = at("norm2", "ln_2", "layernorm2")
FC1 = at("blocks.1.mlp.fc1", "layers.1.ffn.0", "blocks.1.output.mapping")
FC2 = at("blocks.1.mlp.fc2", "layers.1.ffn.3", "blocks.1.output.projection")
ACT = at("blocks.1.mlp.act", "layers.1.ffn.1", "blocks.1.output.activation")
QUERY = at("blocks.1.attn.q_proj", "layers.1.self_attn.query", "blocks.1.attention.dense1")
FIRST = at("blocks.0", "layers.0", "blocks.0")
DROP = at("drop", "dropout", "embedding_dropout")
TIED = at("tok_emb|lm_head|", "word_embeddings|decoder|", "word_embedding|head|")
ALL = at(EVERYWHERE, EVERYWHERE, EVERYWHERE)
NORMS = (
    *(f"blocks.{i}.layernorm{n}" for i in (0, 1) for n in (1, 2)),
    "layernorm",
)

ROWS = (
    Row("transformer-attention_scale", ATTN, before=OUT),
    Row("transformer-scale_slightly_off", ATTN, before=OUT),
    # MindSpore's dense2 and dense3 do not say which is which: swapped, each gets the other's weight, and all is right.
    Row("transformer-swapped_kv", ATTN, before=OUT, directions=zoo.WITHOUT_MINDSPORE),
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
        tamper=train_mode(DROP),
    ),
    Row("transformer-gelu_flavour", ACT, cause=("approximate", "tanh")),
    Row("transformer-wrong_activation", ACT),
    Row("transformer-missing_bias", FC2, PARAMETER, cause=("bias",)),
    Row(
        "transformer-norm_eps",
        at("blocks.1.norm1", "layers.1.ln_1", "blocks.1.layernorm1"),
        cause=("eps", "1e-06", "1e-05"),
    ),
    Row("transformer-final_norm_eps", at("norm", "final_norm", "layernorm"), cause=("eps", "1e-12", "1e-05")),
    Row("transformer-norm_order", BLOCK),
    Row("transformer-residual_after_norm", BLOCK, before=NORM2),
    Row("transformer-missing_residual", BLOCK, before=NORM2),
    Row("transformer-missing_residual@deep", BLOCK, before=NORM2, options={"depth": 4}, train=False),
    Row("transformer-residual_twice", BLOCK, before=NORM2),
    Row("transformer-detached_residual", BLOCK, BACKWARD),
    Row("transformer-activation_hook", BLOCK, BACKWARD),
    Row("transformer-parameter_hook", FC1, BACKWARD),
    Row("transformer-frozen_parameter", FC2, BACKWARD),
    Row("transformer-position_offset", ROOT, before=at("pos_emb", "position_embeddings", "position_embedding")),
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
        tamper=transpose(leaf(QUERY, "weight")),
        transfer=False,
    ),
    Row(
        "transformer-layers_crossed",
        at(
            ("blocks.0.mlp.fc2", "blocks.1.mlp.fc2"),
            ("layers.0.ffn.3", "layers.1.ffn.3"),
            ("blocks.0.output.projection", "blocks.1.output.projection"),
        ),
        PARAMETER,
        transfer=False,
        tamper=swap(
            at(
                ("blocks.0.mlp.fc2.weight", "blocks.1.mlp.fc2.weight"),
                ("layers.0.ffn.3.weight", "layers.1.ffn.3.weight"),
                ("blocks.0.output.projection.weight", "blocks.1.output.projection.weight"),
            ),
        ),
    ),
    Row(
        "transformer-bias_zeroed",
        FC1,
        PARAMETER,
        tamper=change(leaf(FC1, "bias"), np.zeros_like),
        transfer=False,
    ),
    Row("transformer-loss_scale", ROOT, ("loss",), extra=losses(lambda loss: loss * 2.0)),
    Row("transformer-loss_offset", ROOT, ("loss",), extra=losses(lambda loss: loss + 100.0)),
    Row("transformer-weight_decay", ALL, UPDATE, extra=optimizers(wrong={"weight_decay": 0.1})),
    Row(
        "transformer-weight_decay@local",
        FC1,
        UPDATE,
        extra=optimizers(at=leaf(FC1, "weight"), wrong={"weight_decay": 0.1}),
    ),
    # Without groups MindSpore's optimizers decay no parameter that is called beta or gamma.
    Row(
        "transformer-weight_decay@ungrouped",
        at((), (), NORMS),
        UPDATE,
        extra=optimizers(right={"weight_decay": 0.1}, wrong={"weight_decay": 0.1, "ungrouped": True}),
        directions=zoo.INTO_MINDSPORE,
    ),
    Row("transformer-learning_rate", ALL, UPDATE, extra=optimizers(wrong={"lr": 0.11})),
    Row(
        "transformer-learning_rate@local",
        FC1,
        UPDATE,
        extra=optimizers(at=leaf(FC1, "weight"), wrong={"lr": 0.05}),
    ),
)
