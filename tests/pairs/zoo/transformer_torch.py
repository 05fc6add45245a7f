"""Write a GPT-like encoder the torch way: modules for everything, q/k/v in that order, mask as a boolean."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class Attention(nn.Module):
    """Attend causally, with several heads."""

    def __init__(self, dim, heads, dropout, plan):
        super().__init__()
        self.heads = heads
        self.plan = plan
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)
        self.dropout = dropout

    def split(self, x):
        b, t, d = x.shape
        if "head_split" in self.plan:
            return x.view(b, t, d // self.heads, self.heads).permute(0, 3, 1, 2)
        return x.view(b, t, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        if "swapped_kv" in self.plan:
            k, v = v, k
        width = d if "attention_scale" in self.plan else d // self.heads
        scores = q @ k.transpose(-2, -1) / math.sqrt(width)
        if "scale_slightly_off" in self.plan:
            scores = scores * 1.0001
        ones = torch.ones(t, t, dtype=torch.bool, device=x.device)
        future = torch.triu(ones, 1)
        if "causal_off_by_one" in self.plan:
            future = torch.triu(ones, 2)
        elif "causal_inverted" in self.plan:
            future = torch.tril(ones, -1)
        elif "causal_missing" in self.plan:
            future = torch.zeros_like(ones)
        scores = scores.masked_fill(future, -1e9)
        if mask is not None:
            scores = scores + mask
        probs = scores.softmax(dim=-2 if "softmax_axis" in self.plan else -1)
        if "detached_probs" in self.plan:
            probs = probs.detach()
        probs = F.dropout(probs, self.dropout, training=self.training or "dropout_forgotten" in self.plan)
        out = probs @ v
        if "head_merge" not in self.plan:
            out = out.transpose(1, 2)
        return self.out_proj(out.reshape(b, t, d))


class Mlp(nn.Module):
    """Widen, bend, narrow."""

    def __init__(self, dim, hidden, dropout, plan):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate="tanh" if "gelu_flavour" in plan else "none")
        if "wrong_activation" in plan:
            self.act = nn.SiLU()
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, dim, bias="missing_bias" not in plan)

    def forward(self, x):
        return self.fc2(self.drop(self.act(self.fc1(x))))


class Block(nn.Module):
    """Attend and transform, each with a residual; normalise before (or after, ``norm_first=False``)."""

    def __init__(self, dim, heads, dropout, norm_first, plan):
        super().__init__()
        self.plan = plan
        self.norm_first = norm_first != ("norm_order" in plan)
        eps = 1e-6 if "norm_eps" in plan else 1e-5
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = Attention(dim, heads, dropout, plan)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, 4 * dim, dropout, plan)

    def forward(self, x, mask=None):
        if not self.norm_first:
            x = self.norm1(x + self.attn(x, mask))
            return self.norm2(x + self.mlp(x))
        h = self.norm1(x)
        if "residual_after_norm" in self.plan:
            x = h
        a = self.attn(h, mask)
        if "missing_residual" in self.plan:
            x = a
        elif "detached_residual" in self.plan:
            x = x.detach() + a
        elif "residual_twice" in self.plan:
            x = x + x + a
        else:
            x = x + a
        h = self.norm2(x)
        if "activation_hook" in self.plan and h.requires_grad:
            h.register_hook(lambda g: 0.5 * g)
        return x + self.mlp(h)


class Encoder(nn.Module):
    """Embed tokens and positions, run the blocks, score the vocabulary."""

    def __init__(self, vocab, dim, heads, depth, length, dropout, norm_first, tied, plan):
        super().__init__()
        self.plan = plan
        self.tok_emb = nn.Embedding(vocab, dim)
        self.pos_emb = nn.Embedding(length, dim)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, heads, dropout, norm_first, plan.block(i)) for i in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-12 if "final_norm_eps" in plan else 1e-5)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        if (tied and "untied_head" not in plan) or "tied_head" in plan:
            self.lm_head.weight = self.tok_emb.weight

    def forward(self, ids, attention_mask):
        t = ids.shape[1]
        positions = torch.arange(t, device=ids.device)
        if "position_offset" in self.plan:
            positions = positions + 1
        x = self.tok_emb(ids)
        if "embedding_scale" in self.plan:
            x = x * math.sqrt(x.shape[-1])
        x = x + self.pos_emb(positions)
        if "position_twice" in self.plan:
            x = x + self.pos_emb(positions)
        x = self.drop(x)
        keep = attention_mask[:, None, None, :].to(x.dtype)
        if "mask_inverted" in self.plan:
            keep = 1.0 - keep
        elif "mask_off_by_one" in self.plan:
            keep = torch.cat([keep[..., 1:], keep[..., :1]], dim=-1)
        mask = (1.0 - keep) * -1e4
        order = reversed(self.blocks) if "layers_reversed" in self.plan else self.blocks
        for block in order:
            x = block(x, mask)
        if "final_norm_skipped" not in self.plan:
            x = self.norm(x)
        if "head_transposed" in self.plan:
            return F.linear(x, self.tok_emb.weight.t())
        return self.lm_head(x)


def build(plan: Plan, *, depth=2, dim=32, heads=4, vocab=32, dropout=0.0, norm_first=True, tied=False) -> nn.Module:
    """Return the encoder with the plan's faults; `vocab` equals `dim`, so no shape tells axes apart."""
    model = Encoder(vocab, dim, heads, depth, 24, dropout, norm_first, tied, plan)
    if "parameter_hook" in plan:
        model.blocks[1].mlp.fc1.weight.register_hook(lambda g: 2.0 * g)
    if "frozen_parameter" in plan:
        model.blocks[1].mlp.fc2.weight.requires_grad_(False)
    return model
