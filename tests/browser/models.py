"""Draw graphs by hand: document 004's two models, hostile names, many calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.report._html import Graph, GraphLink, GraphNode, GraphSide, GraphValue

Row = tuple[str, str]

_LEFT_LAYER = (
    ("input_norm", "FusedLayerNorm"),
    ("self_attention", "ParallelAttention"),
    ("self_attention.query_key_value", "ColumnParallelLinear"),
    ("mlp", "ParallelMLP"),
    ("mlp.dense_h_to_4h", "ColumnParallelLinear"),
    ("mlp.dense_4h_to_h", "RowParallelLinear"),
)
_RIGHT_LAYER = (
    ("input_norm", "FusedLayerNorm"),
    ("self_attention", "SelfAttention"),
    ("self_attention.query_key_value", "TELayerNormColumnParallelLinear"),
    ("mlp", "MLP"),
    ("mlp.linear_fc1", "TELayerNormColumnParallelLinear"),
    ("mlp.linear_fc2", "TERowParallelLinear"),
)


def _layers(top: str, layer: str, rows: Sequence[Row], number: int) -> Iterator[Row]:
    for index in range(number):
        yield f"{top}.{index}", layer
        yield from ((f"{top}.{index}.{name}", kind) for name, kind in rows)


def left(number: int = 2) -> list[Row]:
    """Return the model of document 004 whose nodes stand on the left."""
    inside = "module.module.language_model"
    return [
        ("module", "Float16Module"),
        ("module.module", "GPTModel"),
        (inside, "TransformerLanguageModel"),
        (f"{inside}.embedding", "Embedding"),
        (f"{inside}.rotary_pos_emb", "RotaryEmbedding"),
        (f"{inside}.encoder", "ParallelTransformer"),
        *_layers(f"{inside}.encoder.layers", "ParallelTransformerLayer", _LEFT_LAYER, number),
    ]


def right(number: int = 2) -> list[Row]:
    """Return the model of document 004 whose nodes stand on the right."""
    return [
        ("model", "FloatModule"),
        ("model.module", "GPT2Model"),
        ("model.module.embedding", "LanguageModelEmbedding"),
        ("model.module.rotary_pos_emb", "RotaryEmbedding"),
        ("model.module.decoder", "TransformerBlock"),
        *_layers("model.module.decoder.layers", "TransformerLayer", _RIGHT_LAYER, number),
    ]


def side(title: str, rows: Sequence[Row], *, value: GraphValue | None = None) -> GraphSide:
    """Return a side whose nodes lie in each other as their names say."""
    nodes: list[GraphNode] = []
    known: dict[str, int] = {}
    for path, kind in rows:
        above = path
        while above and (above == path or above not in known):
            above = above.rpartition(".")[0]
        known[path] = len(nodes)
        values = (value,) if value else ()
        nodes.append(GraphNode(path, kind, parent=known.get(above), location="m.py:1", inputs=values, outputs=values))
    return GraphSide(title, tuple(nodes))


def drawn(
    ours: Sequence[Row], theirs: Sequence[Row], pairs: Sequence[tuple[str, str]] = (), verdict: str | None = None
) -> Graph:
    """Return the graph of two models, of whose nodes some are matched."""
    where = [{path: index for index, (path, _) in enumerate(rows)} for rows in (ours, theirs)]
    links = tuple(GraphLink(where[0][a], where[1][b], verdict, "by hand") for a, b in pairs)
    value = GraphValue("x", "float32", (2, 8), {"mean": 0.25, "max": float("inf")})
    return Graph(side("torch: Left", ours, value=value), side("mindspore: Right", theirs, value=value), links)
