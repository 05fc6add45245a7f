"""Write a recurrent tagger with attention pooling and a looped decoder cell the torch way."""

from __future__ import annotations

import torch
from torch import nn

from .plan import Plan

__all__ = ["build"]


class AttentionPooling(nn.Module):
    """Weigh the steps of a sequence by a small network, and sum."""

    def __init__(self, dim, plan):
        super().__init__()
        self.plan = plan
        self.proj = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, states, mask):
        hidden = self.proj(states)
        hidden = torch.relu(hidden) if "pool_activation" in self.plan else torch.tanh(hidden)
        scores = self.score(hidden).squeeze(-1)
        if "pool_mask_missing" not in self.plan:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = torch.softmax(scores, dim=0 if "pool_axis" in self.plan else 1)
        if "pool_mean" in self.plan:
            return states.mean(dim=1)
        return (weights.unsqueeze(-1) * states).sum(dim=1)


class Tagger(nn.Module):
    """Embed, recur, pool, and decode a few steps with one cell."""

    def __init__(self, cell, vocab, embed, hidden, dropout, layers, steps, plan):
        super().__init__()
        self.plan = plan
        self.steps = steps
        self.embedding = nn.Embedding(vocab, embed)
        self.dropout = nn.Dropout(dropout)
        recurrent = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn = recurrent(embed, hidden, num_layers=layers, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.pool = AttentionPooling(2 * hidden, plan)
        self.cell = nn.LSTMCell(2 * hidden, hidden)
        self.classifier = nn.Linear(hidden, vocab)

    def forward(self, tokens, mask):
        x = self.dropout(self.embedding(tokens))
        if "time_reversed" in self.plan:
            x = x.flip(1)
        state = None
        if "initial_state" in self.plan:
            shape = (2 * self.rnn.num_layers, x.shape[0], self.rnn.hidden_size)
            state = torch.full(shape, 0.1, dtype=x.dtype)
            state = (state, state) if isinstance(self.rnn, nn.LSTM) else state
        x, _ = self.rnn(x, state)
        if "directions_swapped" in self.plan:
            half = x.shape[-1] // 2
            x = torch.cat([x[..., half:], x[..., :half]], dim=-1)
        x = self.norm(x)
        if "shifted" in self.plan:
            x = torch.cat([x[:, :1], x[:, :-1]], dim=1)
        pooled = self.pool(x, mask)
        h = torch.zeros(x.shape[0], self.cell.hidden_size, dtype=x.dtype)
        c = torch.zeros_like(h)
        logits = []
        for _ in range(self.steps):
            h, c = self.cell(pooled, (h, c))
            if "cell_for_hidden" in self.plan:
                h, c = c, h
            elif "state_detached" in self.plan:
                h, c = h.detach(), c
            elif "state_dropped" in self.plan:
                c = torch.zeros_like(c)
            logits.append(self.classifier(h))
        if "steps_reversed" in self.plan:
            logits.reverse()
        return torch.stack(logits, dim=1)


def build(plan: Plan, *, cell="lstm", vocab=20, embed=12, hidden=10, dropout=0.0, depth=1, steps=3) -> nn.Module:
    """Return the tagger with the plan's faults; `depth` is the number of recurrent layers."""
    return Tagger(cell, vocab, embed, hidden, dropout, depth, steps, plan)
