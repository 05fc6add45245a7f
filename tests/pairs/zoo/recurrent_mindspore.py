"""Write the same tagger the MindSpore way: SequentialCell scorer, states as tensors of zeros."""

from __future__ import annotations

from mindspore import nn, ops

from .plan import Plan

__all__ = ["build"]


class AttentionPool(nn.Cell):
    """Weigh the steps of a sequence by a small network, and sum."""

    def __init__(self, dim, plan):
        super().__init__()
        self.plan = plan
        self.activation = nn.ReLU() if "pool_activation" in plan else nn.Tanh()
        self.transform = nn.Dense(dim, dim)
        self.query = nn.Dense(dim, 1, has_bias=False)

    def construct(self, states, mask):
        scores = self.query(self.activation(self.transform(states))).squeeze(-1)
        if "pool_mask_missing" not in self.plan:
            scores = scores - (1 - mask).astype(scores.dtype) * 1e9
        weights = ops.softmax(scores, axis=0 if "pool_axis" in self.plan else 1)
        if "pool_mean" in self.plan:
            return ops.mean(states, 1)
        return ops.sum(weights.expand_dims(-1) * states, 1)


class Tagger(nn.Cell):
    """Embed, recur, pool, and decode a few steps with one cell."""

    def __init__(self, cell, vocab, embed, hidden, dropout, layers, steps, plan):
        super().__init__()
        self.plan = plan
        self.steps = steps
        self.hidden = hidden
        self.states = 2 * layers
        self.gated = cell == "lstm"
        self.embedding = nn.Embedding(vocab, embed)
        self.dropout = nn.Dropout(p=dropout)
        recurrent = nn.LSTM if self.gated else nn.GRU
        self.bi_rnn = recurrent(embed, hidden, num_layers=layers, batch_first=True, bidirectional=True)
        self.layernorm = nn.LayerNorm((2 * hidden,), epsilon=1e-5)
        self.pool = AttentionPool(2 * hidden, plan)
        self.decoder = nn.LSTMCell(2 * hidden, hidden)
        self.dense = nn.Dense(hidden, vocab)

    def construct(self, tokens, mask):
        x = self.dropout(self.embedding(tokens))
        if "time_reversed" in self.plan:
            x = ops.flip(x, (1,))
        state = None
        if "initial_state" in self.plan:
            state = ops.full((self.states, x.shape[0], self.hidden), 0.1, dtype=x.dtype)
            state = (state, state) if self.gated else state
        x, _ = self.bi_rnn(x, state)
        if "directions_swapped" in self.plan:
            forward, backward = ops.chunk(x, 2, axis=-1)
            x = ops.cat([backward, forward], axis=-1)
        x = self.layernorm(x)
        if "shifted" in self.plan:
            x = ops.cat([x[:, :1], x[:, :-1]], axis=1)
        context = self.pool(x, mask)
        hidden = ops.zeros((x.shape[0], self.hidden), x.dtype)
        memory = ops.zeros_like(hidden)
        logits = []
        for _ in range(self.steps):
            hidden, memory = self.decoder(context, (hidden, memory))
            if "cell_for_hidden" in self.plan:
                hidden, memory = memory, hidden
            elif "state_detached" in self.plan:
                hidden = ops.stop_gradient(hidden)
            elif "state_dropped" in self.plan:
                memory = ops.zeros_like(memory)
            logits.append(self.dense(hidden))
        if "steps_reversed" in self.plan:
            logits = logits[::-1]
        return ops.stack(logits, axis=1)


def build(plan: Plan, *, cell="lstm", vocab=20, embed=12, hidden=10, dropout=0.0, depth=1, steps=3) -> nn.Cell:
    """Return the tagger with the plan's faults."""
    return Tagger(cell, vocab, embed, hidden, dropout, depth, steps, plan)
