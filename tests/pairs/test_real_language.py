"""Diff language models of transformers and PaddleNLP, which hold parameters or change tensors in their own ways."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff

from .judging import assert_aligned, describe
from .zoo import native

IDS = np.random.default_rng(0).integers(5, 60, (2, 7))
XLNET = {"vocab_size": 60, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "dropout": 0.0}
DEBERTA = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 40,
    "position_biased_input": False,
}


def pair(family: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    import transformers
    from paddlenlp import transformers as paddlenlp

    native.seed("torch", 0)
    native.seed("paddle", 0)
    ours, theirs = (
        getattr(library, f"{family}Model")(getattr(library, f"{family}Config")(**settings))
        for library in (transformers, paddlenlp)
    )
    ours.eval()
    theirs.eval()
    return ours, theirs


def test_xlnet_with_heads_as_axes_is_aligned_or_named() -> None:
    """Projections are (in, heads, size) in transformers and (in, out) in PaddleNLP: each was of another shape."""
    ours, theirs = pair("XLNet", XLNET)
    given = {"input_ids": IDS, "use_mems": False}
    assert_aligned(padiff.diff(ours, theirs, given, candidate_inputs={"input_ids": IDS}))
    theirs.layer[1].rel_attn.scale *= 1.01
    report = padiff.diff(ours, theirs, given, candidate_inputs={"input_ids": IDS})
    assert {source.candidate.path for source in report.sources} == {"layer.1.rel_attn"}, describe(report)


def test_deberta_that_scales_a_view_in_place_differs_in_an_output_alone() -> None:
    """PaddleNLP's gives the hidden states as well; seven gradients were called wrong beside that."""
    report = padiff.diff(*pair("Deberta", DEBERTA), {"input_ids": IDS})
    assert [str(source.what) for source in report.sources] == ["output [1][0]"], describe(report)
