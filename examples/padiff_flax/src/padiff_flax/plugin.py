"""Say that there is an adapter for Flax NNX; import nothing of it."""

from __future__ import annotations

import padiff
from padiff.adapter import AdapterInfo

__all__ = ["padiff_adapters"]


@padiff.hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return the one adapter of this distribution: it knows NNX's modules, and JAX's arrays."""
    return [AdapterInfo("flax", roots={"flax", "jax", "jaxlib"}, factory="padiff_flax.adapter:FlaxAdapter")]
