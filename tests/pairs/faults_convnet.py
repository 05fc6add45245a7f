"""List the faults of the convolutional network."""

from __future__ import annotations

import numpy as np

from . import zoo
from .rows import BACKWARD, END, PARAMETER, ROOT, Row, at, leaf
from .tampering import change, train_mode

__all__ = ["ROWS"]

CONV1 = at("layer1.1.conv1", "blocks.1.conv0.conv", "layers.1.conv1")
BN1 = at("layer1.1.bn1", "blocks.1.conv0.norm", "layers.1.bn1")
CONV2 = at("layer1.1.conv2", "blocks.1.conv1.conv", "layers.1.conv2")
BN2 = at("layer1.1.bn2", "blocks.1.conv1.norm", "layers.1.bn2")
RESIDUAL = at("layer1.1", "blocks.1", "layers.1")
STEM = at("conv1", "stem", "stem")
STEM_CONV = at("conv1", "stem.conv", "stem.0")
POOL = at("maxpool", "max_pool", "pool")
UP = at("upsample", "neck.up", "upsample")
FLAT = at("dropout", "drop", "dropout")
LATERAL = at("lateral", "neck.lateral", "project")

ROWS = (
    Row("convnet-padding_mode", STEM_CONV, cause=("mode", "reflect", "zeros")),
    Row(
        "convnet-stride_moved",
        at(*zip(CONV1.values(), CONV2.values(), strict=True)),
        cause=("stride",),
    ),
    Row("convnet-dilation", CONV2, cause=("dilation",)),
    # With Paddle as the reference the changed weight has the shape of its neighbour's, and the block is named instead.
    Row("convnet-groups", CONV2, PARAMETER, cause=("groups",), directions=(("torch", "paddle"),)),
    Row("convnet-pad_same", CONV1, cause=("padding",), directions=zoo.INTO_MINDSPORE),
    Row("convnet-pool_same", POOL, cause=("padding",), directions=zoo.INTO_MINDSPORE),
    Row("convnet-bn_eps", BN1, cause=("eps", "0.001", "1e-05")),
    Row("convnet-bn_eps@eval", BN1, cause=("eps", "0.001", "1e-05"), train=False),
    Row("convnet-bn_momentum", BN1, ("buffer",), cause=("momentum",)),
    Row("convnet-bn_frozen", BN2, cause=("train|global",)),
    Row(
        "convnet-statistics_stale",
        BN2,
        ("parameter", "buffer", "forward"),
        train=False,
        transfer=False,
        tamper=change(leaf(BN2, "running_var", "_variance", "moving_variance"), np.ones_like),
    ),
    Row(
        "convnet-leaky",
        at("layer1.1|layer1.1.relu", "blocks.1.conv0|blocks.1", "layers.1|layers.1.act"),
    ),
    Row("convnet-missing_residual", RESIDUAL, before=END),
    Row("convnet-missing_final_relu", RESIDUAL, before=END),
    Row("convnet-relu_before_add", RESIDUAL, before=END),
    Row("convnet-detached_residual", RESIDUAL, BACKWARD),
    Row("convnet-avg_for_max", POOL),
    Row("convnet-ceil_mode", POOL, cause=("ceil_mode",)),
    Row(
        "convnet-count_include_pad",
        at("avgpool", "neck.pool", "blur"),
        cause=("count_include_pad|exclusive",),
    ),
    Row("convnet-align_corners", UP, cause=("align_corners",)),
    Row("convnet-nearest", UP, cause=("mode", "nearest")),
    Row("convnet-shuffle_order", at("shuffle|", "neck|", "")),
    Row("convnet-missing_bias", LATERAL, PARAMETER, cause=("bias",)),
    Row("convnet-channels_reversed", ROOT, before=STEM),
    Row("convnet-not_normalised", ROOT, before=STEM),
    Row("convnet-pool_max", ROOT, before=FLAT),
    Row("convnet-flatten_order", ROOT, before=FLAT),
    Row("convnet-dropout_p", FLAT, cause=("p", "0.6"), options={"dropout": 0.1}),
    Row(
        "convnet-dropout_left_on",
        FLAT,
        cause=("train",),
        train=False,
        options={"dropout": 0.2},
        tamper=train_mode(FLAT),
    ),
    Row(
        "convnet-channels_of_weight",
        CONV1,
        PARAMETER,
        transfer=False,
        tamper=change(leaf(CONV1, "weight"), lambda weight: weight[:, ::-1]),
    ),
)
