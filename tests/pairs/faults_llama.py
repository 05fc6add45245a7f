"""List the faults of the Llama-like decoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import zoo
from .arguments import optimizers
from .rows import END, EVERYWHERE, PARAMETER, ROOT, UPDATE, Row, at, leaf
from .tampering import change

__all__ = ["ROWS"]

RMS = at("layers.1.input_layernorm", "layers.1.attention_norm", "layers.1.attention_norm")
ROTARY = at("layers.1.self_attn", "layers.1.attention", "layers.1.attention")
O_PROJ = at("o_proj", "o_proj", "wo")
LAYER = at("layers.1", "layers.1", "layers.1")
MLP = at("layers.1.mlp", "layers.1.mlp", "layers.1.feed_forward")
DOWN = at("down_proj", "down_proj", "w2")
LAYERS_0 = at("layers.0", "layers.0", "layers.0")
EMBEDDING = at("embed_tokens", "embed_tokens", "tok_embeddings")


def _three_steps(frameworks: tuple[str, str], models: tuple[Any, Any]) -> dict[str, Any]:
    return {**optimizers("adamw", wrong={"beta": 0.95})(frameworks, models), "steps": 3}


ROWS = (
    Row("llama-rms_centred", RMS),
    Row("llama-rms_eps", RMS),
    Row("llama-rms_eps_missing", RMS),
    Row("llama-rms_eps_outside", RMS),
    Row("llama-rms_one_plus", RMS),
    Row("llama-rope_sign", ROTARY, before=O_PROJ),
    Row("llama-rope_interleaved", ROTARY, before=O_PROJ),
    Row("llama-rope_key_missing", ROTARY, before=O_PROJ),
    Row("llama-swapped_kv", ROTARY, before=O_PROJ),
    Row("llama-kv_tiled", ROTARY, before=O_PROJ),
    Row("llama-causal_missing", ROTARY, before=O_PROJ),
    # MindSpore's w1 and w3 do not say which is which: swapped, each gets the other's weight, and all is right.
    Row("llama-glu_swapped", MLP, before=DOWN, directions=zoo.WITHOUT_MINDSPORE),
    Row("llama-wrong_activation", MLP, before=DOWN),
    Row("llama-missing_residual", LAYER, before=END),
    Row("llama-residual_scaled", LAYER, before=END),
    Row("llama-rope_base", ROOT, before=LAYERS_0),
    Row("llama-rope_interleaved_cache", ROOT, before=LAYERS_0),
    Row("llama-position_stretched", ROOT, before=LAYERS_0),
    Row("llama-embedding_scale", ROOT, before=LAYERS_0),
    Row("llama-layer_skipped", ROOT, before=at("norm", "norm", "norm_out"), leftover=True),
    Row("llama-last_shifted", ROOT, before=at("lm_head", "lm_head", "lm_head")),
    Row("llama-logits_capped", ROOT, before=END),
    Row(
        "llama-vocabulary_shifted",
        EMBEDDING,
        PARAMETER,
        transfer=False,
        tamper=change(
            leaf(EMBEDDING, "weight", mindspore="embedding_weight"), lambda weight: np.roll(weight, 1, axis=0)
        ),
    ),
    Row("llama-beta", at(EVERYWHERE, EVERYWHERE, EVERYWHERE), UPDATE, extra=_three_steps),
)
