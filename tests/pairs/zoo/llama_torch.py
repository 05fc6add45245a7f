"""Write a Llama-like decoder the torch way: grouped queries, ``F.linear`` on a weight of its own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class RMSNorm(nn.Module):
    """Divide by the root of the mean square."""

    def __init__(self, dim, eps, plan):
        super().__init__()
        self.plan = plan
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        if "rms_centred" in self.plan:
            x = x - x.mean(-1, keepdim=True)
        mean_square = x.pow(2).mean(-1, keepdim=True)
        if "rms_eps_missing" in self.plan:
            return self.weight * (x * torch.rsqrt(mean_square))
        if "rms_eps_outside" in self.plan:
            return self.weight * (x / (mean_square.sqrt() + self.eps))
        if "rms_one_plus" in self.plan:
            return (1.0 + self.weight) * (x * torch.rsqrt(mean_square + self.eps))
        return self.weight * (x * torch.rsqrt(mean_square + self.eps))


def rotate_half(x):
    """Turn the pair (first half, second half) by a right angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def rotate_pairs(x):
    """Turn neighbouring pairs by a right angle, as GPT-J does."""
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)


class Attention(nn.Module):
    """Attend causally with rotary positions and fewer key-value heads than queries."""

    def __init__(self, dim, heads, kv_heads, plan):
        super().__init__()
        self.plan = plan
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.width).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.width).transpose(1, 2)
        if "swapped_kv" in self.plan:
            k, v = v, k
        if "rope_sign" in self.plan:
            sin = -sin
        turn = rotate_pairs if "rope_interleaved" in self.plan else rotate_half
        q = q * cos + turn(q) * sin
        if "rope_key_missing" not in self.plan:
            k = k * cos + turn(k) * sin
        groups = self.heads // self.kv_heads
        if "kv_tiled" in self.plan:
            k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
        else:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal="causal_missing" not in self.plan)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))


class SwiGLU(nn.Module):
    """Gate one projection by another."""

    def __init__(self, dim, hidden, plan):
        super().__init__()
        self.plan = plan
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x)
        if "glu_swapped" in self.plan:
            gate, up = up, gate
        act = F.gelu if "wrong_activation" in self.plan else F.silu
        return self.down_proj(act(gate) * up)


class Mixer(nn.Module):
    """Multiply by a square weight of its own."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        nn.init.normal_(self.weight, std=dim**-0.5)

    def forward(self, x):
        return F.linear(x, self.weight)


class DecoderLayer(nn.Module):
    """Attend, mix and gate, each beside a residual."""

    def __init__(self, dim, heads, kv_heads, hidden, eps, plan):
        super().__init__()
        self.plan = plan
        self.input_layernorm = RMSNorm(dim, 1e-6 if "rms_eps" in plan else eps, plan)
        self.self_attn = Attention(dim, heads, kv_heads, plan)
        self.post_attention_layernorm = RMSNorm(dim, eps, Plan())
        self.mixer = Mixer(dim)
        self.mlp = SwiGLU(dim, hidden, plan)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        h = self.mixer(self.post_attention_layernorm(x))
        if "missing_residual" in self.plan:
            return self.mlp(h)
        if "residual_scaled" in self.plan:
            return x + 0.5 * self.mlp(h)
        return x + self.mlp(h)


class Llama(nn.Module):
    """Embed, decode, score."""

    def __init__(self, vocab, dim, heads, kv_heads, hidden, depth, base, eps, plan):
        super().__init__()
        self.plan = plan
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            DecoderLayer(dim, heads, kv_heads, hidden, eps, plan.block(i)) for i in range(depth)
        )
        self.norm = RMSNorm(dim, eps, Plan())
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        base = 500.0 if "rope_base" in plan else base
        width = dim // heads
        self.register_buffer("inv_freq", base ** (-torch.arange(0, width, 2).float() / width), persistent=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        if "embedding_scale" in self.plan:
            x = x * x.shape[-1] ** 0.5
        positions = torch.arange(input_ids.shape[1], dtype=x.dtype)
        if "position_stretched" in self.plan:
            positions = positions * 2.0
        angles = positions[:, None] * self.inv_freq.to(x.dtype)
        angles = torch.cat([angles, angles], dim=-1)
        if "rope_interleaved_cache" in self.plan:
            angles = positions[:, None] * self.inv_freq.to(x.dtype).repeat_interleave(2)
        cos, sin = angles.cos(), angles.sin()
        for i, layer in enumerate(self.layers):
            if i == 1 and "layer_skipped" in self.plan:
                continue
            x = layer(x, cos, sin)
        x = self.norm(x)
        if "last_shifted" in self.plan:
            x = torch.roll(x, 1, dims=1)
        logits = self.lm_head(x)
        if "logits_capped" in self.plan:
            logits = 5.0 * torch.tanh(logits / 5.0)
        return logits


def build(plan: Plan, *, depth=2, dim=16, heads=4, kv_heads=2, hidden=40, vocab=23, base=1e4, eps=1e-5) -> nn.Module:
    """Return the decoder with the plan's faults."""
    return Llama(vocab, dim, heads, kv_heads, hidden, depth, base, eps, plan)
