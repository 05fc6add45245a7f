"""Write the same encoder the MindSpore way: Dense layers by number, gamma and beta, a head that may share the table."""

from __future__ import annotations

import math

import mindspore
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import Normal, initializer

from .plan import Plan

__all__ = ["build"]


class MultiHeadAttention(nn.Cell):
    """Attend causally, with several heads."""

    def __init__(self, hidden_size, num_heads, dropout_rate, plan):
        super().__init__()
        self.plan = plan
        self.n_head = num_heads
        self.size_per_head = hidden_size // num_heads
        self.dropout_rate = dropout_rate
        self.dense1 = nn.Dense(hidden_size, hidden_size)
        self.dense2 = nn.Dense(hidden_size, hidden_size)
        self.dense3 = nn.Dense(hidden_size, hidden_size)
        self.projection = nn.Dense(hidden_size, hidden_size)
        scale = hidden_size if "attention_scale" in plan else self.size_per_head
        self.scale_factor = math.sqrt(math.sqrt(scale))
        self.batch_matmul_trans_b = ops.BatchMatMul(transpose_b=True)
        self.batch_matmul = ops.BatchMatMul()

    def transpose_for_scores(self, x):
        b, t, _ = x.shape
        if "head_split" in self.plan:
            return x.reshape(b, t, self.size_per_head, self.n_head).transpose(0, 3, 1, 2)
        return x.reshape(b, t, self.n_head, self.size_per_head).transpose(0, 2, 1, 3)

    def construct(self, x, attention_bias=None):
        b, t, d = x.shape
        query = self.transpose_for_scores(self.dense1(x))
        key = self.transpose_for_scores(self.dense2(x))
        value = self.transpose_for_scores(self.dense3(x))
        if "swapped_kv" in self.plan:
            key, value = value, key
        score = self.batch_matmul_trans_b(query / self.scale_factor, key / self.scale_factor)
        if "scale_slightly_off" in self.plan:
            score = score * 1.0001
        lower = ops.tril(ops.ones((t, t), mindspore.float32))
        if "causal_off_by_one" in self.plan:
            lower = ops.tril(ops.ones((t, t), mindspore.float32), 1)
        elif "causal_inverted" in self.plan:
            lower = ops.triu(ops.ones((t, t), mindspore.float32))
        elif "causal_missing" in self.plan:
            lower = ops.ones((t, t), mindspore.float32)
        score = ops.masked_fill(score, lower < 0.5, -1e9)
        if attention_bias is not None:
            score = score + attention_bias
        probs = ops.softmax(score, axis=-2 if "softmax_axis" in self.plan else -1)
        if "detached_probs" in self.plan:
            probs = ops.stop_gradient(probs)
        training = self.training or "dropout_forgotten" in self.plan
        probs = ops.dropout(probs, p=self.dropout_rate, training=training)
        context = self.batch_matmul(probs, value)
        if "head_merge" not in self.plan:
            context = context.transpose(0, 2, 1, 3)
        return self.projection(context.reshape(b, t, d))


class FeedForward(nn.Cell):
    """Widen, bend, narrow."""

    def __init__(self, hidden_size, ffn_hidden_size, dropout_rate, plan):
        super().__init__()
        self.mapping = nn.Dense(hidden_size, ffn_hidden_size)
        self.activation = nn.GELU(approximate="gelu_flavour" in plan)
        if "wrong_activation" in plan:
            self.activation = nn.SiLU()
        self.projection = nn.Dense(ffn_hidden_size, hidden_size, has_bias="missing_bias" not in plan)
        self.dropout = nn.Dropout(p=dropout_rate)

    def construct(self, x):
        hidden = self.activation(self.mapping(x))
        return self.projection(self.dropout(hidden))


class TransformerLayer(nn.Cell):
    """Attend and transform, each with a residual; normalise before, or after."""

    def __init__(self, hidden_size, num_heads, dropout_rate, norm_first, plan):
        super().__init__()
        self.plan = plan
        self.pre_norm = norm_first != ("norm_order" in plan)
        self.layernorm1 = nn.LayerNorm((hidden_size,), epsilon=1e-6 if "norm_eps" in plan else 1e-5)
        self.layernorm2 = nn.LayerNorm((hidden_size,), epsilon=1e-5)
        self.attention = MultiHeadAttention(hidden_size, num_heads, dropout_rate, plan)
        self.output = FeedForward(hidden_size, 4 * hidden_size, dropout_rate, plan)

    def construct(self, x, attention_bias=None):
        if not self.pre_norm:
            x = self.layernorm1(x + self.attention(x, attention_bias))
            return self.layernorm2(x + self.output(x))
        normed = self.layernorm1(x)
        if "residual_after_norm" in self.plan:
            x = normed
        attended = self.attention(normed, attention_bias)
        if "missing_residual" in self.plan:
            x = attended
        elif "detached_residual" in self.plan:
            x = ops.stop_gradient(x) + attended
        elif "residual_twice" in self.plan:
            x = x + x + attended
        else:
            x = x + attended
        normed = self.layernorm2(x)
        if "activation_hook" in self.plan:
            normed.register_hook(lambda grad: 0.5 * grad)
        return x + self.output(normed)


class Head(nn.Cell):
    """Score the vocabulary with a table of its own, or with the embedding's."""

    def __init__(self, vocab_size, hidden_size, shared=None):
        super().__init__()
        own = initializer(Normal(0.1), [vocab_size, hidden_size])
        self.weight = Parameter(own, name="weight") if shared is None else shared
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(self, x):
        logits = self.matmul(x.reshape(-1, x.shape[-1]), self.weight)
        return logits.reshape(*x.shape[:-1], -1)


class GPTModel(nn.Cell):
    """Embed tokens and positions, run the layers, score the vocabulary."""

    def __init__(self, vocab_size, hidden_size, num_heads, depth, length, dropout_rate, norm_first, tied, plan):
        super().__init__()
        self.plan = plan
        self.word_embedding = nn.Embedding(vocab_size, hidden_size)
        self.position_embedding = nn.Embedding(length, hidden_size)
        self.embedding_dropout = nn.Dropout(p=dropout_rate)
        self.blocks = nn.CellList(
            [TransformerLayer(hidden_size, num_heads, dropout_rate, norm_first, plan.block(i)) for i in range(depth)]
        )
        self.layernorm = nn.LayerNorm((hidden_size,), epsilon=1e-12 if "final_norm_eps" in plan else 1e-5)
        shared = (tied and "untied_head" not in plan) or "tied_head" in plan
        self.head = Head(vocab_size, hidden_size, self.word_embedding.embedding_table if shared else None)

    def construct(self, ids, attention_mask):
        position_ids = ops.arange(ids.shape[1])
        if "position_offset" in self.plan:
            position_ids = position_ids + 1
        hidden = self.word_embedding(ids)
        if "embedding_scale" in self.plan:
            hidden = hidden * math.sqrt(hidden.shape[-1])
        hidden = hidden + self.position_embedding(position_ids)
        if "position_twice" in self.plan:
            hidden = hidden + self.position_embedding(position_ids)
        hidden = self.embedding_dropout(hidden)
        keep = attention_mask.astype(hidden.dtype).expand_dims(1).expand_dims(1)
        if "mask_inverted" in self.plan:
            keep = 1.0 - keep
        elif "mask_off_by_one" in self.plan:
            keep = ops.cat([keep[..., 1:], keep[..., :1]], axis=-1)
        attention_bias = (1.0 - keep) * -1e4
        blocks = list(self.blocks)
        for block in blocks[::-1] if "layers_reversed" in self.plan else blocks:
            hidden = block(hidden, attention_bias)
        if "final_norm_skipped" not in self.plan:
            hidden = self.layernorm(hidden)
        if "head_transposed" in self.plan:
            return ops.matmul(hidden, self.word_embedding.embedding_table)
        return self.head(hidden)


def build(plan: Plan, *, depth=2, dim=32, heads=4, vocab=32, dropout=0.0, norm_first=True, tied=False) -> nn.Cell:
    """Return the encoder with the plan's faults."""
    model = GPTModel(vocab, dim, heads, depth, 24, dropout, norm_first, tied, plan)
    if "parameter_hook" in plan:
        model.blocks[1].output.mapping.weight.register_hook(lambda grad: 2.0 * grad)
    if "frozen_parameter" in plan:
        model.blocks[1].output.projection.weight.requires_grad = False
    return model
