"""Build the same third-party model in both frameworks, as its authors wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BERT", "built", "image", "language", "sentences"]

BERT = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
"""A tiny configuration that both libraries spell alike."""


def _vision(framework: str, name: str) -> Any:
    if framework == "torch":
        import torch
        import torchvision

        torch.manual_seed(0)
        return getattr(torchvision.models, name)()
    import paddle

    paddle.seed(0)
    if name.endswith("_bn"):
        return getattr(paddle.vision.models, name.removesuffix("_bn"))(batch_norm=True)
    return getattr(paddle.vision.models, name)()


def language(framework: str, family: str, head: str = "Model", **settings: Any) -> Any:
    """Return a model of Hugging Face (torch) or PaddleNLP: family Bert or Roberta, by its head."""
    settings = {**BERT, "pad_token_id": 1 if family == "Roberta" else 0, **settings}
    if framework == "torch":
        import torch
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(**settings, attn_implementation="eager")
        return getattr(transformers, family + head)(config)
    import paddle
    from paddlenlp import transformers

    paddle.seed(0)
    return getattr(transformers, family + head)(getattr(transformers, f"{family}Config")(**settings))


def built(framework: str, name: str, *, train: bool) -> Any:
    """Return a vision model, or ``Family.Head`` of a language model, in this mode."""
    family, _, head = name.partition(".")
    model = language(framework, family, head) if head else _vision(framework, name)
    (model.train if train else model.eval)()
    return model


def image(size: int = 64, batch: int = 2) -> np.ndarray:
    """Return a batch of images."""
    return np.random.default_rng(0).normal(size=(batch, 3, size, size)).astype("float32")


def sentences(*, pad: int | None = None) -> dict[str, np.ndarray]:
    """Return token ids, types and a mask that hides the end of one sentence; ``pad`` there, if given."""
    rng = np.random.default_rng(0)
    mask = np.ones((2, 9), dtype="int64")
    mask[1, 6:] = 0
    ids = rng.integers(5, 60, (2, 9))
    if pad is not None:
        ids[1, 6:] = pad
    return {"input_ids": ids, "token_type_ids": rng.integers(0, 2, (2, 9)), "attention_mask": mask}
