"""Say that there is an adapter for Flax NNX, and what it brings along; import nothing of Flax."""

from __future__ import annotations

from padiff.adapter import AdapterInfo, SpecialTransfer, hookimpl
from padiff_flax.transfers import TRANSFERS


@hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return the one adapter of this distribution: it knows NNX's modules, and JAX's arrays."""
    return [AdapterInfo("flax", roots={"flax", "jax", "jaxlib"}, factory="padiff_flax.adapter:FlaxAdapter")]


@hookimpl
def padiff_transfers() -> list[SpecialTransfer]:
    """Return how recurrent layers become Flax's cells, and back."""
    return list(TRANSFERS)
