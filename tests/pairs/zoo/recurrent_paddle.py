"""Write the same tagger the Paddle way: Sequential scorer, other names, definitions from the end."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class Pooler(nn.Layer):
    """Weigh the steps of a sequence by a small network, and sum."""

    def __init__(self, dim, plan):
        super().__init__()
        self.plan = plan
        act = nn.ReLU() if "pool_activation" in plan else nn.Tanh()
        self.scorer = nn.Sequential(nn.Linear(dim, dim), act, nn.Linear(dim, 1, bias_attr=False))

    def forward(self, states, mask):
        scores = self.scorer(states)
        if "pool_mask_missing" not in self.plan:
            scores = scores + (mask.astype(scores.dtype).unsqueeze(-1) - 1.0) * 1e9
        weights = F.softmax(scores, axis=0 if "pool_axis" in self.plan else 1)
        if "pool_mean" in self.plan:
            return paddle.mean(states, axis=1)
        return paddle.sum(weights * states, axis=1)


class Tagger(nn.Layer):
    """Embed, recur, pool, and decode a few steps with one cell."""

    def __init__(self, cell, vocab, embed, hidden, dropout, layers, steps, plan):
        super().__init__()
        self.plan = plan
        self.steps = steps
        self.output = nn.Linear(hidden, vocab)
        self.decoder_cell = nn.LSTMCell(2 * hidden, hidden)
        self.pooler = Pooler(2 * hidden, plan)
        self.layer_norm = nn.LayerNorm(2 * hidden)
        recurrent = nn.LSTM if cell == "lstm" else nn.GRU
        self.encoder = recurrent(embed, hidden, num_layers=layers, direction="bidirect")
        self.embedder = nn.Sequential(nn.Embedding(vocab, embed), nn.Dropout(dropout))

    def forward(self, tokens, mask):
        x = self.embedder(tokens)
        if "time_reversed" in self.plan:
            x = paddle.flip(x, [1])
        state = None
        if "initial_state" in self.plan:
            shape = [2 * self.encoder.num_layers, x.shape[0], self.encoder.hidden_size]
            state = paddle.full(shape, 0.1, dtype=x.dtype)
            state = (state, state) if isinstance(self.encoder, nn.LSTM) else state
        states, _ = self.encoder(x, state)
        if "directions_swapped" in self.plan:
            forward, backward = paddle.split(states, 2, axis=-1)
            states = paddle.concat([backward, forward], axis=-1)
        states = self.layer_norm(states)
        if "shifted" in self.plan:
            states = paddle.concat([states[:, :1], states[:, :-1]], axis=1)
        context = self.pooler(states, mask)
        hidden = paddle.zeros([states.shape[0], self.decoder_cell.hidden_size], dtype=states.dtype)
        memory = paddle.zeros_like(hidden)
        outputs = []
        for _ in range(self.steps):
            _, (hidden, memory) = self.decoder_cell(context, (hidden, memory))
            if "cell_for_hidden" in self.plan:
                hidden, memory = memory, hidden
            elif "state_detached" in self.plan:
                hidden = hidden.detach()
            elif "state_dropped" in self.plan:
                memory = paddle.zeros_like(memory)
            outputs.append(self.output(hidden))
        if "steps_reversed" in self.plan:
            outputs = outputs[::-1]
        return paddle.stack(outputs, axis=1)


def build(plan: Plan, *, cell="lstm", vocab=20, embed=12, hidden=10, dropout=0.0, depth=1, steps=3) -> nn.Layer:
    """Return the tagger with the plan's faults."""
    return Tagger(cell, vocab, embed, hidden, dropout, depth, steps, plan)
