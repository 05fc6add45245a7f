"""Announce the PaddlePaddle adapter to padiff; this must not import Paddle."""

from __future__ import annotations

from padiff.adapter import AdapterInfo, hookimpl

_SUITES = ("paddlenlp", "paddleformers", "ppdiffusers", "paddlemix", "paddleseg", "paddledet", "ppdet", "ppcls")


@hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return what is known of the Paddle adapter before Paddle is imported."""
    factory, kinds = "padiff_paddle.adapter:PaddleAdapter", "padiff_paddle.kinds:TABLE"
    return [AdapterInfo("paddle", roots={"paddle", *_SUITES}, factory=factory, kinds=kinds)]
