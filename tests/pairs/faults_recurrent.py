"""List the faults of the recurrent tagger."""

from __future__ import annotations

import numpy as np

from . import zoo
from .rows import BACKWARD, END, PARAMETER, ROOT, Row, at, leaf
from .tampering import change

__all__ = ["ROWS"]

POOL = at("pool", "pooler", "pool")
RNN = at("rnn", "encoder", "bi_rnn")


def _gates_crossed(weight: np.ndarray) -> np.ndarray:
    return np.concatenate([weight[10:20], weight[:10], weight[20:]])


ROWS = (
    Row(
        "recurrent-pool_activation",
        at("pool", "pooler.scorer.1|pooler.scorer|pooler", "pool|pool.activation"),
    ),
    Row("recurrent-pool_mask_missing", POOL, before=END),
    Row("recurrent-pool_axis", POOL, before=END),
    Row("recurrent-pool_mean", POOL, before=END),
    Row("recurrent-time_reversed", ROOT, before=RNN),
    # MindSpore's GRU takes ten seconds.
    Row(
        "recurrent-time_reversed@gru",
        ROOT,
        before=RNN,
        options={"cell": "gru", "depth": 2},
        directions=zoo.WITHOUT_MINDSPORE,
    ),
    Row("recurrent-initial_state", at("|rnn", "|encoder", "|bi_rnn")),
    Row("recurrent-directions_swapped", ROOT, before=at("norm", "layer_norm", "layernorm")),
    Row("recurrent-shifted", ROOT, before=POOL),
    Row("recurrent-cell_for_hidden", ROOT),
    Row("recurrent-state_dropped", ROOT, before=at("cell", "decoder_cell", "decoder")),
    Row("recurrent-state_detached", ROOT, BACKWARD),
    Row("recurrent-steps_reversed", ROOT, before=END),
    Row(
        "recurrent-gates_crossed",
        RNN,
        PARAMETER,
        transfer=False,
        options={"depth": 2},
        tamper=change(leaf(RNN, "weight_hh_l0"), _gates_crossed),
    ),
)
