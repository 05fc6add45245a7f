"""Build the same third-party model in each framework, as its authors wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .zoo import native

__all__ = ["BERT", "SHALLOW", "built", "image", "language", "narrowed", "sentences", "shallow", "vision"]

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


_MINDCV = {
    "mobilenet_v2": "mobilenet_v2_100",
    "mnasnet1_0": "mnasnet_100",
    "mobilenet_v3_small": "mobilenet_v3_small_100",
    "mobilenet_v3_large": "mobilenet_v3_large_100",
    "vgg11_bn": "vgg11",
    "vit_b_16": "vit_b_16_224",
    "swin_t": "swin_tiny",
}
"""What MindCV calls the models of torchvision, where the names differ."""


def _torchvision(name: str, settings: dict[str, Any]) -> Any:
    import torchvision

    return getattr(torchvision.models, name)(**settings)


def _paddle_vision(name: str, settings: dict[str, Any]) -> Any:
    import paddle

    if name.endswith("_bn"):
        name, settings = name.removesuffix("_bn"), {"batch_norm": True, **settings}
    return getattr(paddle.vision.models, name)(**settings)


def _mindcv(name: str, settings: dict[str, Any]) -> Any:
    import mindcv

    if name.endswith("_bn"):
        settings = {"batch_norm": True, **settings}
    return getattr(mindcv.models, _MINDCV.get(name, name))(**settings)


_VISION = {"torch": _torchvision, "paddle": _paddle_vision, "mindspore": _mindcv}


def vision(framework: str, name: str, **settings: Any) -> Any:
    """Return a model of torchvision, paddle.vision or MindCV by its name in torchvision."""
    native.seed(framework, 0)
    return _VISION[framework](name, settings)


def language(framework: str, family: str, head: str = "Model", **settings: Any) -> Any:
    """Return a model of Hugging Face (torch) or PaddleNLP: family Bert or Roberta, by its head."""
    settings = {**BERT, "pad_token_id": 1 if family == "Roberta" else 0, **settings}
    native.seed(framework, 0)
    if framework == "torch":
        import transformers

        config = getattr(transformers, f"{family}Config")(**settings, attn_implementation="eager")
        return getattr(transformers, family + head)(config)
    from paddlenlp import transformers

    return getattr(transformers, family + head)(getattr(transformers, f"{family}Config")(**settings))


SHALLOW = {
    "densenet": (2, 2, 11, 2),
    "resnet": (1, 2, 1, 1),
    "convnext": (1, 1, 2, 1),
    "efficientnet": 0.3,
}
"""Blocks in each stage of densenet121, resnet50 and convnext_tiny; what efficientnet_b0's are multiplied by."""
_DIMS = (24, 48, 96, 192)


def _shallow_torch(name: str, **settings: Any) -> Any:
    from torchvision.models import convnext, densenet, efficientnet, resnet

    if name == "densenet":
        return densenet.DenseNet(block_config=SHALLOW[name], **settings)
    if name == "resnet":
        return resnet.ResNet(resnet.Bottleneck, list(SHALLOW[name]), **settings)
    if name == "convnext":
        stages = zip(_DIMS, (*_DIMS[1:], None), SHALLOW[name], strict=True)
        return convnext.ConvNeXt([convnext.CNBlockConfig(*stage) for stage in stages], **settings)
    stages, last = efficientnet._efficientnet_conf("efficientnet_b0", width_mult=1.0, depth_mult=SHALLOW[name])
    return efficientnet.EfficientNet(stages, 0.2, last_channel=last, **settings)


def _shallow_mindspore(name: str, **settings: Any) -> Any:
    from mindcv.models import convnext, densenet, efficientnet, resnet

    if name == "densenet":
        return densenet.DenseNet(block_config=SHALLOW[name], **settings)
    if name == "resnet":
        return resnet.ResNet(resnet.Bottleneck, list(SHALLOW[name]), **settings)
    if name == "convnext":
        return convnext.ConvNeXt(3, 1000, depths=list(SHALLOW[name]), dims=list(_DIMS), **settings)
    return efficientnet.EfficientNet("efficientnet_b0", 0.2, depth_mult=SHALLOW[name], **settings)


def shallow(framework: str, name: str, *, train: bool, **settings: Any) -> Any:
    """Return a model of torchvision or MindCV with fewer blocks in each stage: their code is run all the same."""
    native.seed(framework, 0)
    make = _shallow_torch if framework == "torch" else _shallow_mindspore
    return native.set_mode(framework, make(name, **settings), train=train)


def built(framework: str, name: str, *, train: bool, **settings: Any) -> Any:
    """Return a vision model, or ``Family.Head`` of a language model, in this mode."""
    family, _, head = name.partition(".")
    model = language(framework, family, head, **settings) if head else vision(framework, name, **settings)
    return native.set_mode(framework, model, train=train)


def narrowed(model: Any, width: int = 64) -> Any:
    """Return VGG or AlexNet with narrow hidden layers in its head, which holds nine tenths of its parameters."""
    home = getattr(model, "classifier", model)  # paddle.vision's AlexNet holds them itself
    layers = [name for name, layer in home.named_children() if type(layer).__name__ == "Linear"]
    made = type(getattr(home, layers[0]))
    flat = 256 * 6 * 6 if type(model).__name__ == "AlexNet" else 512 * 7 * 7
    for name, sizes in zip(layers, ((flat, width), (width, width), (width, 1000)), strict=True):
        setattr(home, name, made(*sizes))
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
