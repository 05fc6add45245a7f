"""List the architectures, and draw what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import architectures_convolutions as convolutions
from . import architectures_text as text
from . import architectures_vision as vision

__all__ = ["ARCHITECTURES", "inputs"]

Drawn = Callable[[np.random.Generator], tuple[np.ndarray, ...]]


def floats(*shapes: tuple[int, ...]) -> Drawn:
    """Return what draws random numbers."""
    return lambda rng: tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def tokens(*, where: bool = False) -> Drawn:
    """Return what draws random tokens, with the positions beside them if asked."""
    places = (np.broadcast_to(np.arange(5), (2, 5)).copy(),) if where else ()
    return lambda rng: (rng.integers(0, 20, (2, 5)), *places)


ARCHITECTURES: dict[str, tuple[Callable[[Any], Any], Drawn]] = {
    "decoder": (text.decoder, tokens()),
    "encoder": (text.encoder, tokens(where=True)),
    "experts": (text.experts, floats((2, 5, 6))),
    "recurrent": (text.recurrent, floats((2, 4, 6))),
    "mixer": (vision.mixer, floats((2, 5, 6))),
    "losses": (vision.losses, floats((4, 7), (4, 9))),
    "vit": (vision.vit, floats((2, 3, 4, 4))),
    "windows": (vision.windows, floats((2, 3, 4, 4))),
    "unet": (convolutions.unet, floats((2, 3, 4, 4), (2, 2))),
    "residual": (convolutions.residual, floats((2, 3, 4, 4))),
    "autoencoder": (convolutions.autoencoder, floats((2, 3, 4, 4), (2, 4))),
    "adversarial": (convolutions.adversarial, floats((2, 3, 4, 4), (2, 4))),
    "detector": (convolutions.detector, floats((2, 3, 4, 4))),
}
"""Name -> what builds it, and what draws its inputs."""


def inputs(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """Return the inputs of an architecture."""
    return ARCHITECTURES[name][1](np.random.default_rng(seed))
