"""Names as people give them."""

from __future__ import annotations

import pytest

from padiff.alignment import agreement, renumbered, similarity, words

SURE = 3


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("encoder.layers.0.self_attn.q_proj", "encoder.layer.0.attention.query"),
        ("blocks.1.attn.v", "layers.1.self_attn.value"),
        ("layers.2.attention.wq", "h.2.attn.q_proj"),
        ("layer.3.layernorm1", "block.3.ln1"),
    ],
)
def test_two_spellings_of_one_name_are_surely_alike(ours: str, theirs: str) -> None:
    assert agreement([ours], [theirs])[0, 0] >= SURE


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("layers.0.q_proj", "layers.0.k_proj"),
        ("post_attention_layernorm", "attention_norm"),
        ("features.0", "features.0"),  # a bare number says nothing
        ("down.c1", "r1.conv"),  # one is the number of the layer, the other of what it lies in
    ],
)
def test_names_that_only_look_alike_are_not_sure(ours: str, theirs: str) -> None:
    assert agreement([ours], [theirs])[0, 0] < SURE


def test_an_abbreviation_of_two_words_is_not_sure() -> None:
    assert agreement(["attn.k"], ["attn.key", "attn.kernel"]).tolist() == [[0, 0]]
    assert agreement(["attn.k", "attn.key"], ["attn.key"]).tolist() == [[0], [3]]
    assert agreement(["attn.q", "attn.k"], ["attn.query", "attn.key"]).tolist() == [[3, 0], [0, 3]]


def test_layers_of_other_depths_are_not_alike() -> None:
    paths = ["layers.0.q_proj", "layers.1.q_proj"]
    assert (agreement(paths, paths) >= SURE).tolist() == [[True, False], [False, True]]


def test_numbers_count_as_ranks_among_siblings() -> None:
    assert renumbered(["features.0", "features.3", "features.6"]) == {
        "features.0": "features.0",
        "features.3": "features.1",
        "features.6": "features.2",
    }
    assert agreement(["conv1", "conv2"], ["conv0", "conv1"]).diagonal().tolist() == [4, 4]


def test_a_number_is_no_rank_among_fewer_siblings() -> None:
    assert agreement(["fc1", "fc2", "fc3"], ["fc3"])[:, 0].tolist() == [0, 0, 3]


def test_similarity_prefers_the_end_of_the_path_and_rare_words() -> None:
    scores = similarity(["model.encoder.query"], ["model.encoder.key", "decoder.query"])
    assert scores[0, 1] > scores[0, 0]


def test_words_split_at_cases_and_digits() -> None:
    assert words("layerNorm2.q_proj") == ["layer", "norm", "norm2", "q", "proj"]
