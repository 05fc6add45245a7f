"""The two models of document 004: one network under the names of two training stacks."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

__all__ = ["DOCUMENT", "PAIRS", "Kit", "left", "right", "tokens"]

DOCUMENT = """\
TopLayer:
  module: model

GPTModel:
    language_model.embedding: embedding
    language_model.rotary_pos_emb: rotary_pos_emb
    language_model.encoder: decoder

ParallelMLP:
    dense_h_to_4h: linear_fc1
    dense_4h_to_h: linear_fc2
"""
"""The file as the document prints it."""
DEPTH, WIDTH, HEADS, WORDS = 2, 8, 2, 11
_LAYER = {
    "": "",
    ".input_norm": ".input_layernorm",
    ".self_attention": ".self_attention",
    ".self_attention.query_key_value": ".self_attention.linear_qkv",
    ".self_attention.dense": ".self_attention.linear_proj",
    ".post_attention_norm": ".pre_mlp_layernorm",
    ".mlp": ".mlp",
    ".mlp.dense_h_to_4h": ".mlp.linear_fc1",
    ".mlp.dense_4h_to_h": ".mlp.linear_fc2",
}
_LEFT, _RIGHT = "module.module.language_model", "model.module"
PAIRS = {
    "": "",
    "module": "model",
    "module.module": "model.module",
    f"{_LEFT}.embedding": f"{_RIGHT}.embedding",
    f"{_LEFT}.embedding.word_embeddings": f"{_RIGHT}.embedding.word_embeddings",
    f"{_LEFT}.rotary_pos_emb": f"{_RIGHT}.rotary_pos_emb",
    f"{_LEFT}.encoder": f"{_RIGHT}.decoder",
    f"{_LEFT}.encoder.final_norm": f"{_RIGHT}.decoder.final_layernorm",
    **{
        f"{_LEFT}.encoder.layers.{i}{a}": f"{_RIGHT}.decoder.layers.{i}{b}"
        for i in range(DEPTH)
        for a, b in _LAYER.items()
    },
}
"""What belongs together, all called modules but ``language_model``."""


@attrs.frozen
class Kit:
    """What the models are made of in one framework."""

    base: Any
    modules: Any
    linear: Any
    norm: Any
    embedding: Any
    gelu: Any
    attention: Any
    tensor: Any

    def module(self, name: str, forward: Any, base: Any = None, **children: Any) -> Any:
        """Return a module of a class of that name."""

        def init(self: Any) -> None:
            parent.__init__(self)
            for child, module in children.items():
                setattr(self, child, module)

        parent = base or self.base
        return type(name, (parent,), {"__init__": init, "forward": forward, "construct": forward})()

    def renamed(self, name: str, kind: Any, *sizes: int) -> Any:
        """Return a layer of a class of that name."""
        return type(name, (kind,), {})(*sizes)


def tokens() -> dict[str, Any]:
    """Return the inputs."""
    return {"ids": np.random.default_rng(0).integers(0, WORDS, (2, 5))}


def left(kit: Kit) -> Any:
    """Return the model of the left: one level more, as in the older Megatron."""
    layers = [
        _layer(
            kit,
            ("ParallelTransformerLayer", "input_norm", "post_attention_norm"),
            ("ParallelAttention", "query_key_value", "dense"),
            ("ParallelMLP", "dense_h_to_4h", "dense_4h_to_h"),
            ("ColumnParallelLinear", "RowParallelLinear"),
        )
        for _ in range(DEPTH)
    ]
    encoder = _transformer(kit, "ParallelTransformer", layers, "final_norm")
    language_model = _language_model(kit, "TransformerLanguageModel", "Embedding", "encoder", encoder)
    gpt = kit.module("GPTModel", lambda self, ids: self.language_model(ids), language_model=language_model)
    wrapped = kit.module("Float16Module", lambda self, ids: self.module(ids), module=gpt)
    return kit.module("DistributedDataParallel", lambda self, ids: self.module(ids), module=wrapped)


def right(kit: Kit, fault: Any = None) -> Any:
    """Return the model of the right, as in the newer; ``fault`` is applied to what its attention gives."""
    layers = [
        _layer(
            kit,
            ("TransformerLayer", "input_layernorm", "pre_mlp_layernorm"),
            ("SelfAttention", "linear_qkv", "linear_proj"),
            ("MLP", "linear_fc1", "linear_fc2"),
            ("TEColumnParallelLinear", "TERowParallelLinear"),
            fault if i else None,
        )
        for i in range(DEPTH)
    ]
    decoder = _transformer(kit, "TransformerBlock", layers, "final_layernorm")
    gpt = _language_model(kit, "GPT2Model", "LanguageModelEmbedding", "decoder", decoder)
    wrapped = kit.module("FloatModule", lambda self, ids: self.module(ids), module=gpt)
    return kit.module("Runner", lambda self, ids: self.model(ids), model=wrapped)


def _language_model(kit: Kit, name: str, embedding: str, blocks: str, transformer: Any) -> Any:
    def forward(self: Any, ids: Any) -> Any:
        x = self.rotary_pos_emb(self.embedding(ids))
        return getattr(self, blocks)(x)

    words = kit.embedding(WORDS, WIDTH)
    children = {
        "embedding": kit.module(embedding, lambda self, ids: self.word_embeddings(ids), word_embeddings=words),
        "rotary_pos_emb": kit.module("RotaryEmbedding", lambda self, x: x * kit.tensor(_ramp())),
        blocks: transformer,
    }
    return kit.module(name, forward, **children)


def _ramp() -> Any:
    return np.linspace(0.5, 1.5, WIDTH, dtype=np.float32)


def _transformer(kit: Kit, name: str, layers: list[Any], norm: str) -> Any:
    def forward(self: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return getattr(self, norm)(x)

    return kit.module(name, forward, layers=kit.modules(layers), **{norm: kit.norm(WIDTH)})


def _layer(kit: Kit, own: Any, attention: Any, mlp: Any, classes: Any, fault: Any = None) -> Any:
    name, first, second = own
    column, row = classes

    def attend(self: Any, x: Any) -> Any:
        packed = getattr(self, attention[1])(x)
        q, k, v = (packed[:, :, i * WIDTH : (i + 1) * WIDTH] for i in range(3))
        found = kit.attention(q, k, v, HEADS)
        return getattr(self, attention[2])(found if fault is None else fault(found))

    def feed(self: Any, x: Any) -> Any:
        return getattr(self, mlp[2])(kit.gelu(getattr(self, mlp[1])(x)))

    def forward(self: Any, x: Any) -> Any:
        x = x + self.self_attention(getattr(self, first)(x))
        return x + self.mlp(getattr(self, second)(x))

    pairs = {
        "self_attention": (attention, (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), attend),
        "mlp": (mlp, (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH), feed),
    }
    parts = {
        child: kit.module(
            names[0],
            run,
            **{names[1]: kit.renamed(column, kit.linear, *up), names[2]: kit.renamed(row, kit.linear, *down)},
        )
        for child, (names, up, down, run) in pairs.items()
    }
    return kit.module(name, forward, **{first: kit.norm(WIDTH), second: kit.norm(WIDTH)}, **parts)
