"""Give the modules that one rank holds of Megatron's model the numbers that they have in the whole model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

MEGATRON = "megatron.core.parallel_state"


def numbered(native: Any) -> Iterable[tuple[str, Any]]:
    """Return the modules that a module holds, by name: layers of a stage and experts by their number in the whole."""
    children: Mapping[str, Any] = native._modules
    state = sys.modules.get(MEGATRON)
    if state is None or not children or not all(name.isdecimal() for name in children):
        return children.items()
    layers = [getattr(child, "layer_number", None) for child in children.values()]
    if all(isinstance(number, int) for number in layers) and len(set(layers)) == len(layers):
        return [(str(number - 1), child) for number, child in zip(layers, children.values(), strict=True) if number]
    if all(getattr(getattr(child, "linear_fc1", None), "is_expert", False) for child in children.values()):
        first = state.get_expert_model_parallel_rank() * len(children)
        return [(str(first + index), child) for index, child in enumerate(children.values())]
    return children.items()
