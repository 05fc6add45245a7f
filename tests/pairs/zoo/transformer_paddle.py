"""Write the same encoder the Paddle way: Sequential MLP, BERT's names, v before q, mask by ``where``."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class SelfAttention(nn.Layer):
    """Attend causally, with several heads."""

    def __init__(self, hidden_size, num_heads, dropout, plan):
        super().__init__()
        self.plan = plan
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.dropout = dropout
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def heads(self, x):
        if "head_split" in self.plan:
            x = x.reshape([0, 0, self.head_dim, self.num_heads])
            return x.transpose([0, 3, 1, 2])
        x = x.reshape([0, 0, self.num_heads, self.head_dim])
        return x.transpose([0, 2, 1, 3])

    def forward(self, hidden, bias=None):
        value = self.heads(self.value(hidden))
        query = self.heads(self.query(hidden))
        key = self.heads(self.key(hidden))
        if "swapped_kv" in self.plan:
            key, value = value, key
        dim = hidden.shape[-1] if "attention_scale" in self.plan else self.head_dim
        logits = paddle.matmul(query * dim**-0.5, key, transpose_y=True)
        if "scale_slightly_off" in self.plan:
            logits = logits * 1.0001
        n = hidden.shape[1]
        visible = paddle.tril(paddle.ones([n, n], dtype="int32")).astype("bool")
        if "causal_off_by_one" in self.plan:
            visible = paddle.tril(paddle.ones([n, n], dtype="int32"), 1).astype("bool")
        elif "causal_inverted" in self.plan:
            visible = paddle.triu(paddle.ones([n, n], dtype="int32")).astype("bool")
        elif "causal_missing" in self.plan:
            visible = paddle.ones([n, n], dtype="bool")
        logits = paddle.where(visible, logits, paddle.full_like(logits, -1e9))
        if bias is not None:
            logits = logits + bias
        weights = F.softmax(logits, axis=-2 if "softmax_axis" in self.plan else -1)
        if "detached_probs" in self.plan:
            weights = weights.detach()
        training = True if "dropout_forgotten" in self.plan else self.training
        weights = F.dropout(weights, self.dropout, training=training)
        context = paddle.matmul(weights, value)
        if "head_merge" not in self.plan:
            context = context.transpose([0, 2, 1, 3])
        return self.out(context.reshape([hidden.shape[0], n, -1]))


class EncoderLayer(nn.Layer):
    """Attend and transform, each with a residual."""

    def __init__(self, hidden_size, num_heads, dropout, norm_first, plan):
        super().__init__()
        self.plan = plan
        self.norm_first = norm_first != ("norm_order" in plan)
        act = nn.GELU(approximate="gelu_flavour" in plan)
        if "wrong_activation" in plan:
            act = nn.Silu()
        self.self_attn = SelfAttention(hidden_size, num_heads, dropout, plan)
        self.ffn = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size),
            act,
            nn.Dropout(dropout),
            nn.Linear(4 * hidden_size, hidden_size, bias_attr=False if "missing_bias" in plan else None),
        )
        self.ln_1 = nn.LayerNorm(hidden_size, epsilon=1e-6 if "norm_eps" in plan else 1e-5)
        self.ln_2 = nn.LayerNorm(hidden_size)

    def forward(self, hidden, bias=None):
        if not self.norm_first:
            hidden = self.ln_1(hidden + self.self_attn(hidden, bias=bias))
            return self.ln_2(hidden + self.ffn(hidden))
        normed = self.ln_1(hidden)
        residual = normed if "residual_after_norm" in self.plan else hidden
        attended = self.self_attn(normed, bias=bias)
        if "missing_residual" in self.plan:
            hidden = attended
        elif "detached_residual" in self.plan:
            hidden = residual.detach() + attended
        elif "residual_twice" in self.plan:
            hidden = residual + residual + attended
        else:
            hidden = residual + attended
        normed = self.ln_2(hidden)
        if "activation_hook" in self.plan and not normed.stop_gradient:
            normed.register_hook(lambda g: 0.5 * g)
        return hidden + self.ffn(normed)


class LanguageModel(nn.Layer):
    """Embed tokens and positions, run the layers, score the vocabulary."""

    def __init__(self, vocab_size, hidden_size, num_heads, depth, length, dropout, norm_first, tied, plan):
        super().__init__()
        self.plan = plan
        self.tied = (tied and "untied_head" not in plan) or "tied_head" in plan
        self.final_norm = nn.LayerNorm(hidden_size, epsilon=1e-12 if "final_norm_eps" in plan else 1e-5)
        self.layers = nn.LayerList(
            [EncoderLayer(hidden_size, num_heads, dropout, norm_first, plan.block(i)) for i in range(depth)]
        )
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size)
        self.position_embeddings = nn.Embedding(length, hidden_size)
        self.dropout = nn.Dropout(dropout)
        if not self.tied:
            self.decoder = nn.Linear(hidden_size, vocab_size, bias_attr=False)

    def forward(self, ids, attention_mask):
        position_ids = paddle.arange(ids.shape[1])
        if "position_offset" in self.plan:
            position_ids = position_ids + 1
        positions = self.position_embeddings(position_ids)
        hidden = self.word_embeddings(ids)
        if "embedding_scale" in self.plan:
            hidden = hidden * hidden.shape[-1] ** 0.5
        hidden = hidden + positions
        if "position_twice" in self.plan:
            hidden = hidden + self.position_embeddings(position_ids)
        hidden = self.dropout(hidden)
        keep = attention_mask.astype(hidden.dtype).unsqueeze([1, 2])
        if "mask_inverted" in self.plan:
            keep = 1.0 - keep
        elif "mask_off_by_one" in self.plan:
            keep = paddle.roll(keep, -1, axis=-1)
        bias = (keep - 1.0) * 1e4
        order = list(self.layers)[::-1] if "layers_reversed" in self.plan else self.layers
        for layer in order:
            hidden = layer(hidden, bias)
        if "final_norm_skipped" not in self.plan:
            hidden = self.final_norm(hidden)
        if "head_transposed" in self.plan:
            return paddle.matmul(hidden, self.word_embeddings.weight)
        if self.tied:
            return paddle.matmul(hidden, self.word_embeddings.weight, transpose_y=True)
        return self.decoder(hidden)


def build(plan: Plan, *, depth=2, dim=32, heads=4, vocab=32, dropout=0.0, norm_first=True, tied=False) -> nn.Layer:
    """Return the encoder with the plan's faults."""
    model = LanguageModel(vocab, dim, heads, depth, 24, dropout, norm_first, tied, plan)
    if "parameter_hook" in plan:
        model.layers[1].ffn[0].weight.register_hook(lambda g: 2.0 * g)
    if "frozen_parameter" in plan:
        model.layers[1].ffn[3].weight.stop_gradient = True
    return model
