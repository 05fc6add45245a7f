"""Announce the PaddlePaddle adapter to padiff; this must not import Paddle."""

from __future__ import annotations

from padiff.adapter import AdapterInfo
from padiff.plugins import hookimpl

__all__ = ["padiff_adapters"]

_ROOTS = (
    "paddle",
    "paddlenlp",
    "paddleformers",
    "ppdiffusers",
    "paddlemix",
    "paddleseg",
    "paddledet",
    "ppdet",
    "ppcls",
)


@hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return what is known of the Paddle adapter before Paddle is imported."""
    return [AdapterInfo(name="paddle", roots=_ROOTS, factory="padiff_paddle.adapter:PaddleAdapter")]
