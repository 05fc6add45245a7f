"""List the faults of the VAE."""

from __future__ import annotations

from . import zoo
from .rows import BACKWARD, END, ROOT, Row, at

__all__ = ["ROWS"]

DECODER = at("decoder", "expand", "decoder")
DECONV = at("decoder.deconv1", "decode.2", "decoder.deconv1")

ROWS = (
    Row("vae-group_count", at("encoder.norm1", "encode.1", "encoder.gn_in"), cause=("groups",)),
    Row(
        "vae-group_norm_eps",
        at("encoder.norm2", "encode.4", "encoder.gn_out"),
        cause=("eps", "0.001", "1e-05"),
    ),
    Row(
        "vae-leaky_slope",
        at("encoder.act", ("encode.2", "encode.5"), "encoder.act"),
        cause=("slope", "0.01", "0.2"),
    ),
    Row("vae-reshape_order", at("decoder", "", "decoder"), before=at("norm", "decode", "norm")),
    Row("vae-sigmoid_missing", at("decoder|", "|decode", "decoder|"), before=END),
    # MindSpore appends zeros for output_padding; the others compute there.
    Row("vae-output_padding", DECONV, directions=zoo.INTO_MINDSPORE),
    Row("vae-pad_same", DECONV, cause=("padding",), directions=zoo.INTO_MINDSPORE),
    Row("vae-encoder_detached", ROOT, BACKWARD),
    Row("vae-logvar_not_halved", ROOT, before=DECODER),
    Row("vae-noise_forgotten", ROOT, before=DECODER),
    Row("vae-outputs_swapped", ROOT, before=END),
)
