"""Build Hugging Face's language models, and the ports of them that PaddleNLP and MindOne hold; small, no dropout."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["LANGUAGE", "Pair", "bare"]


@dataclass
class Pair:
    """A model, the module that its port is written in, how one is built of such a module, and inputs for both."""

    reference: Any
    module: types.ModuleType
    build: Callable[[types.ModuleType], Any]
    inputs: Any


HEADS = {
    "Albert": "Model",
    "Bert": "ForMaskedLM",
    "Bloom": "ForCausalLM",
    "CTRL": "LMHeadModel",
    "DebertaV2": "Model",
    "DistilBert": "Model",
    "Electra": "ForMaskedLM",
    "Ernie": "Model",
    "Funnel": "Model",
    "LayoutLM": "Model",
    "Llama": "ForCausalLM",
    "Luke": "Model",
    "MBart": "Model",
    "MPNet": "Model",
    "MT5": "ForConditionalGeneration",
    "MegatronBert": "Model",
    "MobileBert": "Model",
    "Nystromformer": "Model",
    "OPT": "Model",
    "Roberta": "ForMaskedLM",
    "RoFormer": "ForMaskedLM",
    "T5": "ForConditionalGeneration",
    "XLM": "Model",
    "XLNet": "Model",
}
"""Family -> which of its models."""
MINDONE = {
    "Albert": "ForMaskedLM",
    "Bert": "ForMaskedLM",
    "CodeGen": "ForCausalLM",
    "Cohere": "ForCausalLM",
    "DebertaV2": "ForMaskedLM",
    "DistilBert": "ForMaskedLM",
    "Electra": "ForCausalLM",
    "Ernie4_5": "ForCausalLM",
    "Falcon": "ForCausalLM",
    "GPT2": "LMHeadModel",
    "GPTJ": "ForCausalLM",
    "Gemma2": "ForCausalLM",
    "Glm": "ForCausalLM",
    "Glm4": "ForCausalLM",
    "Granite": "ForCausalLM",
    "Helium": "ForCausalLM",
    "Llama": "ForCausalLM",
    "MBart": "ForCausalLM",
    "MT5": "ForConditionalGeneration",
    "Mistral": "ForCausalLM",
    "MobileBert": "ForMaskedLM",
    "Mpt": "ForCausalLM",
    "Nemotron": "ForCausalLM",
    "OPT": "ForCausalLM",
    "Persimmon": "ForCausalLM",
    "Phi": "ForCausalLM",
    "Qwen2": "ForCausalLM",
    "Roberta": "ForCausalLM",
    "SmolLM3": "ForCausalLM",
    "StableLm": "ForCausalLM",
    "Starcoder2": "ForCausalLM",
    "Whisper": "ForCausalLM",
    "XLNet": "LMHeadModel",
}
"""The same of what MindOne has, and a CPU computes."""
WORDS = 60
SIZES = {
    WORDS: "vocab_size",
    32: "hidden_size d_model emb_dim dim n_embd word_embed_proj_dim entity_emb_size",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers type_vocab_size "
    "num_key_value_heads",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads rotary_dim",
    64: "intermediate_size d_ff hidden_dim ffn_dim encoder_ffn_dim decoder_ffn_dim d_inner dff max_position_embeddings "
    "n_positions",
    8: "d_kv head_dim d_head",
    16: "embedding_size",
}
"""Size -> the settings that get it, where a family has them."""


def small(config: Any, given: Mapping[str, Any]) -> Any:
    """Return a configuration with small sizes and no dropout, and what is ``given`` where the family has it."""
    names = (*inspect.signature(config.__init__).parameters, *getattr(config, "attribute_map", {}))
    known = {**dict.fromkeys(names), **config().to_dict()}
    settings = {name: size for size, names in SIZES.items() for name in names.split() if name in known}
    for name, value in known.items():
        if "drop" in name and (value is None or isinstance(value, float)):
            settings[name] = 0.0
        if name.endswith("token_id") and isinstance(value, int) and value >= WORDS:
            settings[name] = 1
    settings |= {name: value for name, value in given.items() if name in known}
    return config(**settings)


def _hugging_face(family: str, head: str, **given: Any) -> tuple[Any, Any, dict[str, Any]]:
    import torch
    import transformers

    config = small(getattr(transformers, f"{family}Config"), given)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    ids = np.random.default_rng(0).integers(5, WORDS, (2, 12))
    inputs = {"input_ids": ids}
    if config.is_encoder_decoder and head != "ForCausalLM":
        inputs["decoder_input_ids"] = ids[:, :7]
    return getattr(transformers, family + head)(config), config, inputs


def _paddlenlp(family: str) -> Pair:
    from paddlenlp import transformers as ports

    reference, theirs, inputs = _hugging_face(family, HEADS[family])
    config = small(getattr(ports, f"{family}Config"), theirs.to_dict())
    name = family + HEADS[family]
    module = sys.modules[getattr(ports, name).__module__]
    return Pair(reference, module, lambda written: getattr(written, name)(config), inputs)


def _mindone(family: str) -> Pair:
    import mint_on_cpus
    import transformers

    mint_on_cpus.install()
    for name in ("", ".models", ".utils", ".transformers", ".transformers.models"):
        bare(f"mindone{name}")
    vars(sys.modules["mindone.transformers"])["__version__"] = transformers.__version__
    reference, config, inputs = _hugging_face(family, MINDONE[family], use_cache=False)
    module = importlib.import_module(f"mindone.{type(reference).__module__}")
    return Pair(reference, module, lambda written: getattr(written, type(reference).__name__)(config), inputs)


def bare(name: str) -> None:
    """Let a package be found without running what it begins with."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations or ()) if spec else []
    package.__spec__ = spec
    sys.modules[name] = package


LANGUAGE = {"paddlenlp": (HEADS, _paddlenlp), "mindone": (MINDONE, _mindone)}
"""Library -> family -> which of its models; and what builds one and its port."""
