"""Write the same decoder the MindFormers way: wq/wk/wv/wo, w1/w2/w3, and an embedding of its own class."""

from __future__ import annotations

import math

import mindspore
from mindspore import Parameter, mint, nn, ops
from mindspore.common.initializer import Normal, initializer

from .plan import Plan

__all__ = ["build"]


class LlamaRMSNorm(nn.Cell):
    """Divide by the root of the mean square."""

    def __init__(self, dim, eps, plan):
        super().__init__()
        self.plan = plan
        self.eps = eps
        self.weight = Parameter(initializer("ones", (dim,)), name="weight")

    def construct(self, x):
        if "rms_centred" in self.plan:
            x = x - mint.mean(x, -1, True)
        norm_factor = mint.mean(mint.square(x), -1, True)
        if "rms_eps_missing" in self.plan:
            return x * mint.rsqrt(norm_factor) * self.weight
        if "rms_eps_outside" in self.plan:
            return x / (mint.sqrt(norm_factor) + self.eps) * self.weight
        scale = 1.0 + self.weight if "rms_one_plus" in self.plan else self.weight
        return x * mint.rsqrt(norm_factor + self.eps) * scale


class LlamaEmbedding(nn.Cell):
    """Look tokens up in a table of its own name."""

    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.embedding_weight = Parameter(initializer(Normal(0.2), [vocab_size, hidden_size]), name="embedding_weight")
        self.gather = ops.Gather()

    def construct(self, input_ids):
        return self.gather(self.embedding_weight, input_ids, 0)


class FreqsMgr:
    """Hold the angles of the rotary positions."""

    def __init__(self, head_dim, theta, plan):
        self.plan = plan
        self.freqs = 1.0 / (theta ** (ops.arange(0, head_dim, 2, dtype=mindspore.float32) / head_dim))

    def __call__(self, seq_length, dtype):
        positions = ops.arange(seq_length).astype(dtype)
        if "position_stretched" in self.plan:
            positions = positions * 2.0
        freqs = positions.expand_dims(1) * self.freqs.astype(dtype).expand_dims(0)
        if "rope_interleaved_cache" in self.plan:
            emb = mint.cat((freqs.expand_dims(-1), freqs.expand_dims(-1)), dim=-1).reshape(seq_length, -1)
        else:
            emb = mint.cat((freqs, freqs), dim=-1)
        return mint.cos(emb), mint.sin(emb)


class LLamaAttention(nn.Cell):
    """Attend causally with rotary positions and fewer key-value heads than queries."""

    def __init__(self, dim, n_heads, n_kv_heads, plan):
        super().__init__()
        self.plan = plan
        self.n_head, self.n_kv_head, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Dense(dim, dim, has_bias=False)
        self.wk = nn.Dense(dim, n_kv_heads * self.head_dim, has_bias=False)
        self.wv = nn.Dense(dim, n_kv_heads * self.head_dim, has_bias=False)
        self.wo = nn.Dense(dim, dim, has_bias=False)

    def rotate(self, x, cos, sin):
        sin = -sin if "rope_sign" in self.plan else sin
        if "rope_interleaved" in self.plan:
            turned = ops.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)
        else:
            first, second = mint.chunk(x, 2, -1)
            turned = mint.cat((-second, first), dim=-1)
        return x * cos + turned * sin

    def repeat_kv(self, x):
        groups = self.n_head // self.n_kv_head
        b, _, t, d = x.shape
        if "kv_tiled" in self.plan:
            return mint.tile(x, (1, groups, 1, 1))
        return mint.tile(x.expand_dims(2), (1, 1, groups, 1, 1)).reshape(b, self.n_head, t, d)

    def construct(self, x, freqs_cis):
        b, t, _ = x.shape
        query = self.wq(x).reshape(b, t, self.n_head, self.head_dim).transpose(0, 2, 1, 3)
        key = self.wk(x).reshape(b, t, self.n_kv_head, self.head_dim).transpose(0, 2, 1, 3)
        value = self.wv(x).reshape(b, t, self.n_kv_head, self.head_dim).transpose(0, 2, 1, 3)
        if "swapped_kv" in self.plan:
            key, value = value, key
        cos, sin = freqs_cis
        query = self.rotate(query, cos, sin)
        if "rope_key_missing" not in self.plan:
            key = self.rotate(key, cos, sin)
        score = mint.matmul(query, self.repeat_kv(key).transpose(0, 1, 3, 2)) * (1.0 / math.sqrt(self.head_dim))
        if "causal_missing" not in self.plan:
            score = score + mint.triu(ops.full((t, t), -1e9, dtype=score.dtype), 1)
        weights = mint.softmax(score, dim=-1)
        context = mint.matmul(weights, self.repeat_kv(value)).transpose(0, 2, 1, 3)
        return self.wo(context.reshape(b, t, -1))


class LlamaFeedForward(nn.Cell):
    """Gate one projection by another."""

    def __init__(self, dim, hidden_dim, plan):
        super().__init__()
        self.plan = plan
        self.w1 = nn.Dense(dim, hidden_dim, has_bias=False)
        self.w2 = nn.Dense(hidden_dim, dim, has_bias=False)
        self.w3 = nn.Dense(dim, hidden_dim, has_bias=False)

    def construct(self, x):
        gate, hidden = self.w1(x), self.w3(x)
        if "glu_swapped" in self.plan:
            gate, hidden = hidden, gate
        gate = ops.gelu(gate, approximate="none") if "wrong_activation" in self.plan else mint.nn.functional.silu(gate)
        return self.w2(hidden * gate)


class Mix(nn.Cell):
    """Multiply by a square weight of its own."""

    def __init__(self, dim):
        super().__init__()
        self.kernel = Parameter(initializer(Normal(dim**-0.5), [dim, dim]), name="kernel")

    def construct(self, x):
        return mint.matmul(x, self.kernel)


class LLamaDecodeLayer(nn.Cell):
    """Attend, mix and gate, each beside a residual."""

    def __init__(self, dim, n_heads, n_kv_heads, hidden_dim, norm_eps, plan):
        super().__init__()
        self.plan = plan
        self.attention_norm = LlamaRMSNorm(dim, 1e-6 if "rms_eps" in plan else norm_eps, plan)
        self.ffn_norm = LlamaRMSNorm(dim, norm_eps, Plan())
        self.attention = LLamaAttention(dim, n_heads, n_kv_heads, plan)
        self.mix = Mix(dim)
        self.feed_forward = LlamaFeedForward(dim, hidden_dim, plan)

    def construct(self, x, freqs_cis):
        h = x + self.attention(self.attention_norm(x), freqs_cis)
        ffn = self.feed_forward(self.mix(self.ffn_norm(h)))
        if "missing_residual" in self.plan:
            return ffn
        if "residual_scaled" in self.plan:
            ffn = ffn * 0.5
        return h + ffn


class LlamaForCausalLM(nn.Cell):
    """Embed, decode, score."""

    def __init__(self, vocab, dim, heads, kv_heads, hidden, depth, base, eps, plan):
        super().__init__()
        self.plan = plan
        self.tok_embeddings = LlamaEmbedding(vocab, dim)
        self.layers = nn.CellList()
        for i in range(depth):
            self.layers.append(LLamaDecodeLayer(dim, heads, kv_heads, hidden, eps, plan.block(i)))
        self.norm_out = LlamaRMSNorm(dim, eps, Plan())
        self.lm_head = nn.Dense(dim, vocab, has_bias=False)
        self.freqs_mgr = FreqsMgr(dim // heads, 500.0 if "rope_base" in plan else base, plan)

    def construct(self, input_ids):
        h = self.tok_embeddings(input_ids)
        if "embedding_scale" in self.plan:
            h = h * h.shape[-1] ** 0.5
        freqs_cis = self.freqs_mgr(input_ids.shape[1], h.dtype)
        for i, layer in enumerate(self.layers):
            if i == 1 and "layer_skipped" in self.plan:
                continue
            h = layer(h, freqs_cis)
        h = self.norm_out(h)
        if "last_shifted" in self.plan:
            h = mint.cat((h[:, -1:], h[:, :-1]), dim=1)
        logits = self.lm_head(h)
        if "logits_capped" in self.plan:
            logits = 5.0 * mint.tanh(logits / 5.0)
        return logits


def build(plan: Plan, *, depth=2, dim=16, heads=4, kv_heads=2, hidden=40, vocab=23, base=1e4, eps=1e-5) -> nn.Cell:
    """Return the decoder with the plan's faults."""
    return LlamaForCausalLM(vocab, dim, heads, kv_heads, hidden, depth, base, eps, plan)
