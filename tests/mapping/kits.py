"""What document 004's models are made of, framework by framework."""

from __future__ import annotations

from typing import Any

from padiff.testing.toy import columns, functional, rows

from .gpt import Kit

__all__ = ["paddle_kit", "torch_kit", "toy_kits"]


def toy_kits() -> tuple[Kit, Kit]:
    """Return the two dialects of the toy framework."""
    shared: dict[str, Any] = {"gelu": functional.gelu, "attention": functional.attention, "tensor": lambda array: array}
    return (
        Kit(
            rows.Module, lambda layers: rows.ModuleList(*layers), rows.Linear, rows.LayerNorm, rows.Embedding, **shared
        ),
        Kit(
            columns.Layer,
            lambda layers: columns.Layers(*layers),
            columns.Dense,
            columns.LayerNormalization,
            columns.Embed,
            **shared,
        ),
    )


def torch_kit() -> Kit:
    """Return PyTorch's."""
    import torch
    from torch import nn

    def attention(q: Any, k: Any, v: Any, heads: int) -> Any:
        def split(x: Any) -> Any:
            return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

        found = nn.functional.scaled_dot_product_attention(split(q), split(k), split(v))
        return found.transpose(1, 2).reshape(q.shape)

    return Kit(
        nn.Module, nn.ModuleList, nn.Linear, nn.LayerNorm, nn.Embedding, nn.functional.gelu, attention, torch.tensor
    )


def paddle_kit() -> Kit:
    """Return Paddle's."""
    import paddle
    from paddle import nn

    def attention(q: Any, k: Any, v: Any, heads: int) -> Any:
        def split(x: Any) -> Any:
            return x.reshape([x.shape[0], x.shape[1], heads, -1]).transpose([0, 2, 1, 3])

        q, k, v = split(q), split(k), split(v)
        scores = paddle.matmul(q, k, transpose_y=True) / q.shape[-1] ** 0.5
        found = paddle.matmul(nn.functional.softmax(scores), v).transpose([0, 2, 1, 3])
        return found.reshape([found.shape[0], found.shape[1], -1])

    return Kit(
        nn.Layer, nn.LayerList, nn.Linear, nn.LayerNorm, nn.Embedding, nn.functional.gelu, attention, paddle.to_tensor
    )
