"""Write the same decoder the PaddleNLP way: an LM head of its own class with a (hidden, vocab) weight."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class LlamaRMSNorm(nn.Layer):
    """Divide by the root of the mean square."""

    def __init__(self, hidden_size, epsilon, plan):
        super().__init__()
        self.plan = plan
        self.variance_epsilon = epsilon
        self.weight = self.create_parameter([hidden_size], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, hidden_states):
        if "rms_centred" in self.plan:
            hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)
        variance = paddle.square(hidden_states).mean(-1, keepdim=True)
        if "rms_eps_missing" in self.plan:
            return hidden_states * paddle.rsqrt(variance) * self.weight
        if "rms_eps_outside" in self.plan:
            return hidden_states / (paddle.sqrt(variance) + self.variance_epsilon) * self.weight
        scale = 1.0 + self.weight if "rms_one_plus" in self.plan else self.weight
        return hidden_states * paddle.rsqrt(variance + self.variance_epsilon) * scale


class Rotary:
    """Turn queries and keys by their positions."""

    def __init__(self, width, base, plan):
        self.plan = plan
        self.inv_freq = 1.0 / (base ** (paddle.arange(0, width, 2, dtype="float32") / width))

    def angles(self, length, dtype):
        positions = paddle.arange(length, dtype=dtype)
        if "position_stretched" in self.plan:
            positions = positions * 2.0
        freqs = paddle.outer(positions, self.inv_freq.astype(dtype))
        if "rope_interleaved_cache" in self.plan:
            return paddle.repeat_interleave(freqs, 2, axis=-1)
        return paddle.concat([freqs, freqs], axis=-1)


def rotate(x, cos, sin, plan):
    """Return the rotated heads of a (batch, time, heads, width) tensor."""
    if "rope_sign" in plan:
        sin = -sin
    if "rope_interleaved" in plan:
        turned = paddle.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)
    else:
        half = x.shape[-1] // 2
        turned = paddle.concat([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + turned * sin


class LlamaAttention(nn.Layer):
    """Attend causally with rotary positions and fewer key-value heads than queries."""

    def __init__(self, hidden_size, num_heads, num_key_value_heads, plan):
        super().__init__()
        self.plan = plan
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = hidden_size // num_heads
        kv_size = num_key_value_heads * self.head_dim
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias_attr=False)
        self.v_proj = nn.Linear(hidden_size, kv_size, bias_attr=False)
        self.k_proj = nn.Linear(hidden_size, kv_size, bias_attr=False)
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias_attr=False)

    def forward(self, hidden_states, cos, sin):
        b, t, _ = hidden_states.shape
        value = self.v_proj(hidden_states).reshape([b, t, self.num_key_value_heads, self.head_dim])
        key = self.k_proj(hidden_states).reshape([b, t, self.num_key_value_heads, self.head_dim])
        query = self.q_proj(hidden_states).reshape([b, t, self.num_heads, self.head_dim])
        if "swapped_kv" in self.plan:
            key, value = value, key
        cos, sin = cos[None, :, None, :], sin[None, :, None, :]
        query = rotate(query, cos, sin, self.plan)
        if "rope_key_missing" not in self.plan:
            key = rotate(key, cos, sin, self.plan)
        groups = self.num_heads // self.num_key_value_heads
        if "kv_tiled" in self.plan:
            key, value = paddle.tile(key, [1, 1, groups, 1]), paddle.tile(value, [1, 1, groups, 1])
        else:
            key, value = paddle.repeat_interleave(key, groups, 2), paddle.repeat_interleave(value, groups, 2)
        scores = paddle.einsum("bqhd,bkhd->bhqk", query, key) / self.head_dim**0.5
        if "causal_missing" not in self.plan:
            scores = scores + paddle.triu(paddle.full([t, t], -1e9, dtype=scores.dtype), 1)
        weights = F.softmax(scores, axis=-1)
        out = paddle.einsum("bhqk,bkhd->bqhd", weights, value)
        return self.o_proj(out.reshape([b, t, -1]))


class LlamaMLP(nn.Layer):
    """Gate one projection by another."""

    def __init__(self, hidden_size, intermediate_size, plan):
        super().__init__()
        self.plan = plan
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias_attr=False)
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias_attr=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias_attr=False)

    def forward(self, x):
        act = F.gelu if "wrong_activation" in self.plan else F.silu
        if "glu_swapped" in self.plan:
            return self.down_proj(self.gate_proj(x) * act(self.up_proj(x)))
        return self.down_proj(self.up_proj(x) * act(self.gate_proj(x)))


class Mix(nn.Layer):
    """Multiply by a square weight of its own."""

    def __init__(self, size):
        super().__init__()
        self.weight = self.create_parameter([size, size])

    def forward(self, x):
        return paddle.matmul(x, self.weight)


class LlamaDecoderLayer(nn.Layer):
    """Attend, mix and gate, each beside a residual."""

    def __init__(self, hidden_size, num_heads, num_key_value_heads, intermediate_size, eps, plan):
        super().__init__()
        self.plan = plan
        self.mlp = LlamaMLP(hidden_size, intermediate_size, plan)
        self.mix = Mix(hidden_size)
        self.attention = LlamaAttention(hidden_size, num_heads, num_key_value_heads, plan)
        self.attention_norm = LlamaRMSNorm(hidden_size, 1e-6 if "rms_eps" in plan else eps, plan)
        self.ffn_norm = LlamaRMSNorm(hidden_size, eps, Plan())

    def forward(self, hidden_states, cos, sin):
        residual = hidden_states
        hidden_states = self.attention_norm(hidden_states)
        hidden_states = residual + self.attention(hidden_states, cos=cos, sin=sin)
        residual = hidden_states
        hidden_states = self.mlp(self.mix(self.ffn_norm(hidden_states)))
        if "missing_residual" in self.plan:
            return hidden_states
        if "residual_scaled" in self.plan:
            hidden_states = hidden_states * 0.5
        return residual + hidden_states


class LlamaLMHead(nn.Layer):
    """Score the vocabulary; the weight is (hidden, vocab)."""

    def __init__(self, hidden_size, vocab_size):
        super().__init__()
        self.weight = self.create_parameter([hidden_size, vocab_size])

    def forward(self, hidden_states):
        return paddle.matmul(hidden_states, self.weight)


class LlamaForCausalLM(nn.Layer):
    """Embed, decode, score."""

    def __init__(self, vocab, dim, heads, kv_heads, hidden, depth, base, eps, plan):
        super().__init__()
        self.plan = plan
        self.lm_head = LlamaLMHead(dim, vocab)
        self.embed_tokens = nn.Embedding(vocab, dim)
        layers = [LlamaDecoderLayer(dim, heads, kv_heads, hidden, eps, plan.block(i)) for i in range(depth)]
        self.layers = nn.LayerList(layers)
        self.norm = LlamaRMSNorm(dim, eps, Plan())
        self.rotary = Rotary(dim // heads, 500.0 if "rope_base" in plan else base, plan)

    def forward(self, input_ids):
        hidden_states = self.embed_tokens(input_ids)
        if "embedding_scale" in self.plan:
            hidden_states = hidden_states * hidden_states.shape[-1] ** 0.5
        angles = self.rotary.angles(input_ids.shape[1], hidden_states.dtype)
        cos, sin = paddle.cos(angles), paddle.sin(angles)
        for i, layer in enumerate(self.layers):
            if i == 1 and "layer_skipped" in self.plan:
                continue
            hidden_states = layer(hidden_states, cos, sin)
        hidden_states = self.norm(hidden_states)
        if "last_shifted" in self.plan:
            hidden_states = paddle.roll(hidden_states, 1, axis=1)
        logits = self.lm_head(hidden_states)
        if "logits_capped" in self.plan:
            logits = 5.0 * paddle.tanh(logits / 5.0)
        return logits


def build(plan: Plan, *, depth=2, dim=16, heads=4, kv_heads=2, hidden=40, vocab=23, base=1e4, eps=1e-5) -> nn.Layer:
    """Return the decoder with the plan's faults."""
    return LlamaForCausalLM(vocab, dim, heads, kv_heads, hidden, depth, base, eps, plan)
